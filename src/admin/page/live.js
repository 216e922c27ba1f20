// The stream of changes. It is read by `fetch`, which sends the token, and resumes after the last number that came.
const LIVE_ROWS = 200;
const live = { rows: [], why: "" };

// Follows the stream of this query until the view is left or paused.
async function follow(query) {
  if (live.query !== query) Object.assign(live, { query, rows: [], last: "" });
  Object.assign(live, { state: "connecting", why: "" });
  const control = (live.control = new AbortController()),
    path = withQuery(query, "format");
  while (!control.signal.aborted) {
    let seconds = 1;
    try {
      const response = await fetch(`stream?${path}`, {
        headers: { ...credentials(), ...(live.last && { "Last-Event-ID": live.last }) },
        credentials: "omit",
        cache: "no-store",
        signal: control.signal
      });
      live.needsToken = response.status === 401;
      if (response.ok) await readEvents(response.body.pipeThrough(new TextDecoderStream()).getReader());
      else {
        seconds = +response.headers.get("Retry-After") || 1;
        // What came last is kept no longer.
        if (response.status === 410) live.last = "";
        live.why = (await response.json()).detail;
        if (response.status < 500) return showLive("refused");
      }
    } catch {
      /* The connection has ended. */
    }
    if (control.signal.aborted) return;
    showLive("reconnecting");
    await new Promise((done) => setTimeout(done, seconds * 1e3));
  }
}
async function readEvents(reader) {
  live.why = "";
  page.away = null;
  showLive("connected");
  for (let text = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (text + value).split("\n\n");
    text = events.pop();
    for (const event of events) {
      const [, id] = event.match(/^id: ?(.*)/m) ?? [],
        [, data] = event.match(/^data: ?(.*)/m) ?? [];
      if (id) live.last = id;
      if (data) live.rows.unshift(brief(JSON.parse(data)));
    }
    live.rows.splice(LIVE_ROWS);
    showLive("connected");
  }
}
let drawing;
function showLive(state) {
  live.state = state;
  drawing ??= requestAnimationFrame(() => {
    drawing = null;
    render();
  });
}
// Each render decides whether the stream is read.
function keepLive(query) {
  const isWanted = query !== null && !page.paused;
  if (live.control && (!isWanted || live.query !== query)) {
    live.control.abort();
    live.control = null;
  }
  if (isWanted && !live.control) follow(query);
}
function liveView(_, query) {
  const { state, why, rows } = live;
  return section(
    "Live",
    filterForm("live", query),
    h(
      "p",
      { id: "state" },
      page.paused ? mark("off", "paused") : mark({ connected: "good", refused: "bad" }[state] ?? "warn", state),
      ` ${why} `,
      page.who === "nobody" && pauseButton()
    ),
    changeTable(rows, ["Nothing yet. ", inside("live?after=0", "Show all")])
  );
}
