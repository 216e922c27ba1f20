// The page: routes, what surrounds every view, sign-in, and the first request.
const SHOWN_ROWS = 12;
const isNarrow = () => matchMedia("(max-width: 44rem)").matches;
function overview() {
  const status = getStatus(),
    sources = getList("sources")?.sources,
    harvests = harvestList(),
    subscriptions = getList("subscriptions")?.subscriptions.filter(({ from }) => from !== "hub"),
    passed = `flow?span=${page.span}`,
    flow = get(passed, pace(passed, 10, 20)),
    [newest] = changePage("", 8);
  if (!sources || !subscriptions) return waiting("sources");
  // Of many, those with a trouble are here; the others are a click away.
  const few = (list, make) => {
    const bad = list.length > SHOWN_ROWS ? list.filter((one) => stateOf(one, list === sources ? harvests : null).level === "bad") : list;
    return (bad.length > 0 || !list.length) && make(bad.slice(0, SHOWN_ROWS), harvests);
  };
  return [
    !status.journal.head &&
      section("Begin", muted("Nothing yet. ", inside("connect", "Connect"), " says how to send the first message.")),
    picture(status, sources, harvests, subscriptions, flow),
    // On a narrow screen, the flow says enough.
    !isNarrow() && [
      section("Sources", few(sources, sourceTable)),
      section(
        "Subscriptions",
        few(subscriptions, (list) => subscriptionTable(list))
      )
    ],
    section("Newest changes", newest && changeTable(newest.changes.slice(0, isNarrow() ? 4 : 8), NO_CHANGES))
  ];
}

// The part of the address after #/, its name in the navigation, and its views of all and of one.
const ROUTES = {
  __proto__: null,
  "": ["Overview", overview],
  sources: ["Sources", sourcesView, sourceView],
  subscriptions: ["Subscriptions", subscriptionsView, subscriptionView],
  changes: ["Changes", changesView, changeView],
  objects: ["", objectView],
  quarantine: ["Quarantine", quarantineView, messageView],
  datasets: ["Datasets", datasetsView, datasetView],
  due: ["Due", dueView],
  gateway: ["Gateway", gatewayView],
  connect: ["Connect", connectView],
  live: ["Live", liveView],
  docs: ["Interface", docsView]
};
// Everybody may try the stream, which can be public.
const mayShow = (part) =>
  page.who === "admin" || part === "live" || (page.who === "reader" && ["changes", "objects", "docs"].includes(part));
// The part that the path of the document names.
const home = /\/(live|docs)$/.exec(location.pathname)?.[1];
// The name in an address becomes one segment of a path, and never several.
const decoded = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};
function route() {
  const place = location.hash || !home ? location.hash : home + location.search,
    [path, query = ""] = place.replace(/^#\/?/, "").split(/\?(.*)/),
    [part, ...name] = path.split("/");
  return ROUTES[part] && mayShow(part)
    ? { part, name: encodeURIComponent(decoded(name.join("/"))), query }
    : { part: { admin: "", reader: "changes" }[page.who], name: "", query: "" };
}

const signInForm = () =>
  h(
    "section",
    { key: "sign in", "aria-label": "Sign in" },
    h("h2", null, "Sign in"),
    muted("An admin token shows everything, a read token the changes. ", code("tidings token"), " makes one."),
    h(
      "form",
      {
        class: "bar",
        onsubmit: (event) => {
          event.preventDefault();
          signIn(new FormData(event.target).get("token"));
        }
      },
      h(
        "label",
        { class: "wide" },
        "Token",
        h("input", { name: "token", type: "password", required: true, autocomplete: "off" })
      ),
      h("button", { class: "first" }, "Sign in")
    ),
    page.wrong && h("p", { role: "alert" }, mark("bad", page.wrong))
  );

const pauseButton = () =>
  h(
    "button",
    {
      "aria-pressed": `${page.paused}`,
      onclick: () => {
        page.paused = !page.paused;
        render();
        refresh();
      }
    },
    page.paused ? "Refresh again" : "Pause"
  );

function renderFrame(part) {
  const status = getStatus(),
    node = status?.nodes.length > 1 && status.nodes.find(({ answering }) => answering)?.name,
    isIn = page.who !== "nobody" && page.who !== "unknown";
  fill(
    "about",
    location.host,
    status && [` · ${status.version} · up `, since(status.started)],
    node && ` · node ${node} answers`,
    page.updated && ` · updated ${page.updated.toLocaleTimeString()}`
  );
  fill(
    "controls",
    isIn && [
      h(
        "form",
        { class: "bar", role: "search", onsubmit: find },
        h("input", {
          name: "q",
          type: "search",
          "aria-label": "Find an object, an item or a change",
          placeholder: "URI or number"
        }),
        h("button", null, "Find")
      ),
      pauseButton(),
      token &&
        h(
          "button",
          {
            onclick: () => {
              leave("");
              render();
            }
          },
          "Sign out"
        )
    ]
  );
  const n = sum(status?.quarantine.map(({ messages }) => messages) ?? []);
  fill(
    "nav",
    isIn &&
      Object.entries(ROUTES)
        .filter(([name, [words]]) => words && mayShow(name))
        .map(([name, [words]]) =>
          h(
            "a",
            { key: name, href: `#/${name}`, "aria-current": name === part && "page" },
            name === "quarantine" && n ? `${words} (${number(n)})` : words
          )
        )
  );
}

function render() {
  wanted = new Map();
  const focused = document.activeElement;
  const parts = [],
    isAway = page.away && h("p", { key: "away" }, mark("bad", "No answer since "), clock(page.away));
  let place = {};
  if (page.who !== "unknown") place = route();
  keepLive(place.part === "live" ? place.query : null);
  if (page.who === "unknown") parts.push(isAway);
  else if (page.who === "nobody") {
    // A stream that is public is for everybody.
    parts.push(place.part === "live" && !live.needsToken ? liveView("", place.query) : signInForm());
  } else {
    const [, all, one] = ROUTES[place.part],
      status = page.who === "admin" ? get("status") : null,
      old = [...known.values()].find(({ error, value }) => error && value);
    parts.push(
      status
        ? verdict(status, place.part !== "")
        : [isAway, h("p", { key: "reader", class: "muted" }, "This token may read. An admin token shows more.")],
      old && h("p", { key: "old" }, mark("warn", "A part is old: "), old.error.message),
      h(
        "div",
        { key: `${place.part}/${place.name}` },
        place.name && one ? one(place.name, place.query) : all("", place.query)
      )
    );
  }
  document.body.classList.toggle("away", !!page.away);
  fill("main", parts);
  renderFrame(place.part);
  renderNotice();
  renderDialog();
  // A row that moves loses the focus for a moment.
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

addEventListener("hashchange", () => {
  if (!location.hash.startsWith("#/")) return;
  render();
  scrollTo(0, 0);
  byId("main").focus({ preventScroll: true });
  refresh();
});
addEventListener("resize", render);
document.onvisibilitychange = () => (document.hidden ? clearTimeout(timer) : refresh());
document.querySelector(".skip").onclick = (event) => {
  event.preventDefault();
  byId("main").focus();
};
refresh();
