// The gateway itself with its nodes; datasets; and changes that come due.
function gatewayView() {
  const status = getStatus(),
    nodes = get("nodes")?.nodes;
  return [
    section("Gateway", bar(reload()), facts(status, "problems quarantine quarantineReasons nodes")),
    nodes &&
      section(
        "Nodes",
        table("Nodes", nodes, "name version answering leaving started lag", "", {
          duties: ({ name, duties }) =>
            fold(name, number(duties.length), () =>
              h(
                "ul",
                null,
                duties.map(({ name, since: begin }) => h("li", null, `${name} for `, since(begin)))
              )
            )
        })
      )
  ];
}

const cancel = ({ id, dataset, source, progress }) =>
  button("Cancel", `${dataset} of ${source}`, `DELETE filesets/${id}`, {
    ask: `1 dataset is given up${progress ? ` after ${number(progress.doneFiles)} of ${count(progress.files, "file")}` : ""}. Files that are archived stay.`
  });
const progressOf = ({ progress }) =>
  progress && [
    h("progress", { value: progress.doneBytes, max: progress.bytes || 1, "aria-label": "Stored" }),
    ` ${number(progress.doneFiles)} of ${count(progress.files, "file")}, ${show("bytesPerSecond", progress.bytesPerSecond)}/s`
  ];
function datasetsView(_, query) {
  const state = new URLSearchParams(query).get("state") ?? "",
    numbers = getStatus().datasets;
  return section(
    "Datasets",
    bar(
      choice(
        "State",
        "datasets",
        "state",
        state,
        "waiting running archived failed blocked cancelled"
          .split(" ")
          .map((name) => [name, numbers[name] ? `${name} (${number(numbers[name])})` : name])
      )
    ),
    pageOf(
      "datasets",
      query,
      ({ filesets }) =>
        table(
          "Datasets",
          filesets,
          "dataset state source status message attempts next",
          "None. A message of the dialect fileset-request asks for one.",
          {
            dataset: ({ id, dataset }) => inside(`datasets/${id}`, dataset),
            progress: progressOf,
            actions: (job) => job.state !== "cancelled" && cancel(job)
          }
        ),
      "Older jobs",
      "filesets"
    )
  );
}
function datasetView(id) {
  return viewOf(`filesets/${id}`, (job) => [
    section(
      "Dataset",
      bar(job.state !== "cancelled" && cancel(job), progressOf(job)),
      facts(job, "id request result progress")
    ),
    section("Request", json(job.request)),
    job.result && section("Result", json(job.result))
  ]);
}

function dueView(_, query) {
  return section(
    "Changes that come due",
    pageOf(
      "due",
      query,
      ({ due }) => table("Due", due, "at what item state until source announced", "No item has announced a date."),
      "Later ones",
      "due",
      "after"
    )
  );
}
