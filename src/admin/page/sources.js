// Sources: those that read a broker, those that get messages, harvests with their runs, and audits.
const harvestList = () => (Object.keys(getStatus().harvests).length ? getList("harvests", 15)?.harvests : []);
const sourceActions = ({ name, connection }, { harvest, word, level }) =>
  harvest
    ? [run(name), pause("harvests", name, word)]
    : connection && [level === "bad" && reconnect(name), pause("sources", name, connection.state)];
const sourceTable = (list, harvests) =>
  table("Sources", list, "name state", ["No source yet. ", inside("connect", "Connect a repository")], {
    name: ({ name }) => inside(`sources/${name}`, name),
    state: (one) => stateCell(stateOf(one, harvests)),
    reads: (one) => {
      const { harvest } = stateOf(one, harvests);
      return harvest ? link(harvest.place) : `${one.transport} ${one.destination ?? ""}`;
    },
    lastEvent: ({ lastEvent }) => show("", lastEvent) ?? "never",
    messages: ({ messages }) => show("", Object.fromEntries(Object.entries(messages).filter(([, n]) => n))) ?? "none",
    actions: (one) => bar(sourceActions(one, stateOf(one, harvests)))
  });

function sourcesView() {
  const list = getList("sources")?.sources,
    harvests = harvestList();
  return list ? section("Sources", sourceTable(list, harvests)) : waiting("sources");
}

function sourceView(name) {
  const source = get(`sources/${name}`),
    harvest = harvestList()?.some((one) => one.source === name) && get(`harvests/${name}`),
    auditPath = `sources/${name}/audit`,
    isAudited = /running|requested/.test(known.get(auditPath)?.value?.audit?.state),
    audit = get(auditPath, isAudited ? 0 : 60);
  if (!source) return waiting(`sources/${name}`);
  const state = stateOf(source, harvest ? [harvest] : []),
    share = getStatus().quarantine.find((share) => share.source === name);
  return [
    section(
      `Source ${name}`,
      stateCell(state),
      bar(
        !harvest && sourceActions(source, { ...state, level: "bad" }),
        inside(`changes?source=${name}`, "Its changes"),
        share && inside(`quarantine?source=${name}`, `${count(share.messages, "message")} in the quarantine`)
      ),
      facts(source, "name")
    ),
    harvest && harvestSection(name, harvest),
    audit && auditSection(name, audit.audit, harvest)
  ];
}

function harvestSection(name, harvest) {
  const { state, runs, announced, from, run: last } = harvest,
    records = get(`harvests/${name}/records`, 60)?.live;
  return section(
    "Harvest",
    bar(
      run(name),
      runFull(name),
      pause("harvests", name, state),
      runs.length > 0 &&
        button("Retire former records", name, `POST harvests/${name}/retire`, {
          ask: `The next run deletes the records that only former settings list. ${records == null ? "" : `${count(records, "record")} exist now; those of the present settings stay.`}`
        }),
      from === "api" &&
        button("Remove", name, `DELETE harvests/${name}`, {
          ask: `The harvest is removed with its position and the history of ${count(runs.length, "run")}. Its changes stay.`
        })
    ),
    state === "running" &&
      last &&
      h(
        "p",
        null,
        `${number(last.records)}${announced ? ` of ${number(announced)}` : ""} records `,
        announced > 0 && h("progress", { value: last.records, max: announced, "aria-label": "Records of this run" })
      ),
    facts({ ...harvest, existingRecords: records }, "source state position run runs"),
    h("h3", null, "Runs"),
    table(
      "Runs",
      runs.slice(0, 20),
      "started state updated records changes unchanged quarantined reason",
      "No run has begun."
    )
  );
}

function auditSection(name, audit, isHarvest) {
  const isRunning = /running|requested/.test(audit?.state),
    differing = audit ? audit.missing + audit.different + audit.extra : 0;
  const start = (label, body, ask) =>
    button(label, name, `POST sources/${name}/audit`, { body: { restart: true, ...body }, ask });
  return section(
    "Audit",
    bar(
      isRunning
        ? button("Stop the audit", name, `DELETE sources/${name}/audit`)
        : [
            start("Compare all", {}),
            !isHarvest && start("Compare 1000", { sample: 1000 }),
            start(
              "Correct",
              { repair: true },
              `Each difference becomes a change: the last audit found ${count(differing, "item")}. At most 20 % of ${count(audit?.registered ?? 0, "registered object")} are deleted.`
            )
          ]
    ),
    audit && [
      facts(audit, "id differences"),
      differing > 0 && table("Differences", audit.differences, "kind item members", "")
    ]
  );
}
