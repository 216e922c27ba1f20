// Changes, the life of an object or item, and the quarantine.
const PAGE = 50,
  NEWEST = 1e15;
const kinds = ({ items, purge }) =>
  purge
    ? "PURGE"
    : Object.entries(Object.groupBy(items, ({ change, stateAfter }) => change ?? `→ ${stateAfter}`))
        .map(([kind, { length }]) => (length > 1 ? `${kind} ×${length}` : kind))
        .join(", ");
// A change can be large, and lists are drawn often.
const brief = ({ seq, received, source, object, what, ...change }) => ({
  seq,
  received,
  source,
  object,
  what: what ?? kinds(change)
});
const getChanges = (path, every) => {
  const list = get(path, every);
  if (list) list.changes = list.changes.map(brief);
  return list;
};
const changeTable = (list, empty) =>
  table(
    "Changes",
    list,
    "seq received source what object",
    empty,
    page.who === "admin" ? {} : { source: ({ source }) => source }
  );

// A page of changes, newest first, with its path. While nothing is appended, it is requested seldom: the
// node that answered may have known less than the status.
function changePage(query, limit) {
  const all = new URLSearchParams(`before=${NEWEST}`);
  for (const [name, value] of new URLSearchParams(query)) all.set(name, value);
  all.set("limit", limit);
  const path = `changes?${all}`;
  return [getChanges(path, getStatus() && pace(path, 5, 60)), path];
}
const withQuery = (query, name, value) => {
  const all = new URLSearchParams(query);
  if (value) all.set(name, value);
  else all.delete(name);
  return all;
};
const NO_CHANGES = "No change yet. Each event of a source becomes one.";

function filterForm(route, query) {
  const form = new URLSearchParams(query);
  const field = (name, label, isWide) =>
    h("label", { key: name + query, class: isWide && "wide" }, label, h("input", { name, value: form.get(name) }));
  const onsubmit = (event) => {
    event.preventDefault();
    location.hash = `#/${route}?${new URLSearchParams([...new FormData(event.target)].filter(([, value]) => value))}`;
  };
  return h(
    "form",
    { class: "bar", onsubmit },
    field("source", "Source"),
    field("change", "Change"),
    field("object", "Object begins with", true),
    h("button", null, "Filter")
  );
}
function changesView(_, query) {
  const [list, path] = changePage(query, PAGE);
  return section(
    "Changes",
    filterForm("changes", query),
    list
      ? [
          changeTable(list.changes, query ? "No change fulfils these conditions." : NO_CHANGES),
          list.next > 1 && inside(`changes?${withQuery(query, "before", list.next)}`, "Older changes")
        ]
      : waiting(path)
  );
}

function changeView(name) {
  const path = `changes/${name}`,
    deliveries = page.who === "admin" && get(`${path}/deliveries`)?.deliveries;
  return viewOf(
    path,
    (change) => [
      section(`Change ${number(change.seq)}`, facts({ what: kinds(change), ...change }, "seq items")),
      section("Items", table("Items", change.items, "uri change stateBefore stateAfter content", "")),
      deliveries &&
        section(
          "Deliveries",
          table("Deliveries", deliveries, "name outcome at between reason", "No subscription.", {
            name: ({ name }) => inside(`subscriptions/${name}`, name)
          })
        ),
      fold("JSON", "JSON", () => json(change))
    ],
    3600
  );
}

function objectView(_, query) {
  const uri = new URLSearchParams(query).get("uri") ?? "",
    path = `objects?uri=${encodeURIComponent(uri)}`,
    object = get(path);
  const life = `changes?${new URLSearchParams({ about: uri, before: new URLSearchParams(query).get("before") ?? NEWEST, limit: PAGE })}`,
    list = getChanges(life);
  return [
    section(
      "Object or item",
      h("p", null, link(uri)),
      object
        ? [
            facts(object, "uri items"),
            table("Items", object.items, "uri live since state content", "It has no items.", {
              uri: ({ uri }) => link(uri)
            })
          ]
        : object === null
          ? muted("No object; it may be an item.")
          : waiting(path)
    ),
    section(
      "Its life",
      list
        ? [
            changeTable(list.changes, list.next ? "None here, but older ones may be." : "No change is about it."),
            list.next > 1 &&
              inside(`objects?${withQuery(query, "before", list.next)}`, `Before change ${number(list.next)}`)
          ]
        : waiting(life)
    )
  ];
}

function find(event) {
  event.preventDefault();
  const text = new FormData(event.target).get("q").trim();
  if (text)
    location.hash = /^\d+$|^(urn:uuid:)?[\da-f-]{36}$/i.test(text)
      ? `#/changes/${text}`
      : `#/objects?uri=${encodeURIComponent(text)}`;
}

const tryOut = (id) => button("Try it", `message ${id}`, `POST quarantine/${id}/dry-run`);
const retry = (id) => button("Read it again", `message ${id}`, `POST quarantine/${id}/retry`, first);
const drop = ({ id, source, size }) =>
  button("Drop", `message ${id}`, `DELETE quarantine/${id}`, {
    ask: `1 message of ${source}, ${bytes(size)}, will be deleted for good, unread.`
  });
const choice = (label, route, name, chosen, values) =>
  h(
    "label",
    { key: label + chosen },
    label,
    h(
      "select",
      {
        onchange: (event) => {
          location.hash = `#/${route}?${withQuery("", name, event.target.value)}`;
        }
      },
      [["", "All"], ...values].map(([value, words]) => h("option", { value, selected: value === chosen }, words))
    )
  );

function quarantineView(_, query) {
  const source = new URLSearchParams(query).get("source") ?? "",
    { quarantine: shares, quarantineReasons: reasons } = getStatus();
  const share = shares.find((share) => share.source === source),
    isChosen = (one) => !source || one.source === source;
  return section(
    "Quarantine",
    bar(
      choice(
        "Source",
        "quarantine",
        "source",
        source,
        shares.map((share) => [share.source, `${share.source} (${number(share.messages)})`])
      ),
      share && [retryAll(source), dropAll(source, share.messages)]
    ),
    reasons.some(isChosen) && table("Reasons", reasons.filter(isChosen).slice(0, 5), "messages source reason", ""),
    h("h3", null, "Messages"),
    pageOf(
      "quarantine",
      query,
      ({ messages }) =>
        table("Messages", messages, "id received source", "Empty: every message could be read.", {
          id: ({ id }) => inside(`quarantine/${id}`, id),
          why: ({ place, reason }) => show("reason", `${place}: ${reason}`),
          size: ({ size }) => bytes(size),
          actions: (one) => bar(retry(one.id), drop(one))
        }),
      "Older messages"
    )
  );
}

// The body with the place of the error, which is an offset in bytes.
function markedBody(body, offset = 0) {
  const all = new TextEncoder().encode(body),
    text = (from, to) => new TextDecoder().decode(all.slice(from, to)),
    begin = Math.max(0, offset - SHOWN_BODY / 2),
    [wrong = "", ...rest] = text(offset, begin + SHOWN_BODY);
  return h(
    "pre",
    null,
    begin > 0 && "…",
    text(begin, offset),
    offset ? h("mark", null, wrong || "…") : wrong,
    rest.join("")
  );
}

function messageView(id) {
  const path = `quarantine/${id}`,
    message = get(path, 3600);
  if (!message) return message === null ? muted("It is no longer in the quarantine.") : waiting(path);
  return [
    section(`Message ${id}`, bar(tryOut(id), retry(id), drop(message)), facts(message, "id body bodyHex headers")),
    tried.request === `POST quarantine/${id}/dry-run` &&
      tried.changes.length > 0 &&
      section(
        "It would make",
        tried.changes.map((change) => facts({ what: kinds(change), ...change }, "seq id"))
      ),
    message.headers.length > 0 &&
      section(
        "Headers",
        h(
          "dl",
          null,
          message.headers.map(([name, value]) => [h("dt", null, name), h("dd", null, value)])
        )
      ),
    section("Body", message.size > SHOWN_BODY && muted("64 KiB of it:"), markedBody(message.body, message.at?.offset))
  ];
}
