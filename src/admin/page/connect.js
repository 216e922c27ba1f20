// Connecting: what waits for its first message, and how to connect each kind of thing. The gateway has the texts.
function connectView() {
  const list = get("connect", 3600)?.examples,
    sources = getList("sources")?.sources;
  if (!list || !sources) return waiting("connect");
  const group = (title, kind) =>
    section(
      title,
      list
        .filter((one) => one.kind === kind)
        .map(({ title, page, config, command }) =>
          h(
            "details",
            null,
            h("summary", null, title),
            muted("Put this into the configuration, and read it again. ", code(page), " has more."),
            h("pre", null, config),
            h("pre", null, command)
          )
        )
    );
  return [
    section(
      "Your sources",
      table("Your sources", sources, "name transport dialect", "No source yet.", {
        name: ({ name }) => inside(`sources/${name}`, name),
        firstMessage: ({ lastEvent }) =>
          lastEvent ? [mark("good", "it came"), " ", when(lastEvent)] : mark("off", "waiting for the first message")
      }),
      bar(reload())
    ),
    group("Send messages", "source"),
    group("Let the gateway ask", "harvest"),
    group("Deliver changes", "delivery")
  ];
}
