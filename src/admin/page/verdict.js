// The verdict: one sentence, and the problems, the worst first, each with what mends it.

function remedies({ code, thing }) {
  const [kind, ...rest] = thing.split("/"),
    name = rest.join("/");
  const subscription = known.get("subscriptions")?.value?.subscriptions.find((one) => one.name === name);
  const look = (route) => details(route, name || route, "Look at");
  return [
    code === "source-not-read" && reconnect(name),
    /^harvest/.test(code) && run(name),
    code === "count-differs" && runFull(name),
    code === "due-denied" && look("due"),
    code === "dataset-fails" && look("datasets?state=failed"),
    code === "quarantine" && [retryAll(name), look(`quarantine?source=${name}`)],
    code === "quarantine-full" && look("quarantine"),
    code === "dead-letters" && sendAll(name),
    /^subscription/.test(code) && subscription && subscriptionActions(subscription),
    /expire/.test(code) && reload(),
    /^s/.test(kind) ? details(`${kind}s/${name}`, name) : details("gateway", name || "the gateway")
  ];
}

const problemItem = (problem) =>
  h(
    "li",
    { key: `${problem.code} ${problem.thing}` },
    h(
      "div",
      null,
      mark(problem.level === "error" ? "bad" : "warn", ""),
      h("strong", null, prose(sentence(problem.text))),
      h("small", null, " for ", since(problem.since)),
      muted(prose(sentence(problem.action)), ".")
    ),
    bar(remedies(problem))
  );

let announced = "";
function verdict({ problems, open }, isShort) {
  const level =
    page.away || problems.some(({ level }) => level === "error") ? "bad" : problems.length ? "warn" : "good";
  const words = page.away
    ? "The gateway does not answer"
    : problems.length
      ? `${count(problems.length, "thing")} ${problems.length === 1 ? "needs" : "need"} attention`
      : "All is well";
  document.title = `${problems.length && !page.away ? `(${problems.length})` : MARKS[level]} Tidings`;
  // Another set of problems is announced, and not each new number in a text.
  const set = page.away
    ? "away"
    : problems
        .map(({ code, thing }) => `${code} ${thing}`)
        .sort()
        .join();
  if (set !== announced) {
    announced = set;
    announce([words, ...problems.slice(0, 3).map(({ text }) => text)].join(". "));
  }
  const title = [mark(level, ""), words],
    [shown, more] = some("problems", problems, 8);
  return h(
    "section",
    { key: "verdict", class: `verdict ${level}${isShort ? " short" : ""}`, "aria-label": "Verdict" },
    h("h2", null, isShort && problems.length ? h("a", { href: "#/" }, title) : title),
    page.away &&
      h(
        "p",
        null,
        "No answer since ",
        clock(page.away),
        ". Below is what was known then. ",
        h("button", { onclick: refresh }, "Try now")
      ),
    !isShort && [
      h("ul", null, shown.map(problemItem)),
      more,
      open && muted("Access is open: whoever reaches this address may read, post and administer.")
    ]
  );
}
