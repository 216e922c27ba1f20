// Words: how times, numbers, states and the members of documents are shown. A member is shown alike wherever it occurs.
const SHOWN_BODY = 65536;
let clockOffset = 0;
const age = (time) => (Date.now() + clockOffset - Date.parse(time)) / 1e3;
const span = (seconds) => {
  const s = Math.abs(seconds);
  return s < 90
    ? `${Math.round(s)} s`
    : s < 5400
      ? `${Math.round(s / 60)} min`
      : s < 129600
        ? `${Math.round(s / 3600)} h`
        : `${Math.round(s / 86400)} d`;
};
const time = (at, text) => h("time", { datetime: at, title: new Date(at).toLocaleString() }, text);
const since = (at) => time(at, span(age(at)));
const clock = (at) => time(at, new Date(at).toLocaleString());
const when = (at) => {
  const s = age(at);
  return Math.abs(s) > 129600 ? clock(at) : time(at, s < 0 ? `in ${span(s)}` : `${span(s)} ago`);
};
// Text with code in backticks, and with times.
const prose = (text = "") =>
  text
    .split(/`(.*?)`|(\d{4}-\d\d-\d\dT[\d:.]+Z)/)
    .map((part, at) => (part && at % 3 ? (at % 3 === 1 ? code(part) : when(part)) : part));
const number = (n) => n.toLocaleString("en").replaceAll(",", "\u202f");
const count = (n, noun) => `${number(n)} ${noun}${n === 1 ? "" : "s"}`;
const bytes = (n) => {
  let unit = 0;
  for (; n >= 1000; unit++) n /= 1000;
  return `${n < 10 && unit ? n.toFixed(1) : Math.round(n)} ${["B", "kB", "MB", "GB", "TB", "PB"][unit]}`;
};
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const HEADINGS = { __proto__: null, seq: "Change", uri: "Item", url: "URL", id: "ID", millis: "ms" };
const heading = (key) => HEADINGS[key] ?? sentence(key.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`));

const MARKS = { bad: "✗", warn: "▲", good: "✓", off: "○" };
const mark = (level, word) => h("span", { class: `mark ${level}` }, `${MARKS[level]} ${word}`);
const LEVELS = { __proto__: null };
const level = (name, words) =>
  words.split(" ").forEach((word) => {
    LEVELS[word] = name;
  });
level(
  "good",
  "connected running completed finished installed current full-dump behind complete delivered archived asked"
);
level("warn", "connecting stalled paused stopped ended orphaned requested cancelling cleaning-up");
level("bad", "retrying failed fell-behind blocked refused retried gone dead-letter circuit-open");
const levelOf = (word) => LEVELS[word] ?? "off";

// The state of a source or subscription: level, word, begin, reason and next attempt. A trouble of moments is not bad yet.
const trouble = (at, limit) => (at && age(at) > limit ? "bad" : "warn");
function stateOf(thing, harvests) {
  const harvest = harvests?.find(({ source }) => source === thing.name);
  if (harvest)
    return {
      level: harvest.state === "waiting" ? "good" : levelOf(harvest.state),
      word: harvest.state,
      why: harvest.lastError?.reason,
      next: harvest.next,
      harvest
    };
  if (thing.messages) {
    const { connection, lookup } = thing,
      { state: word = "hook", since, downSince, lastError, nextAttempt: next } = connection ?? {},
      id = `source/${thing.name}`,
      // The status also has the warnings about the settings.
      warning = getStatus()
        ?.problems.find((one) => one.thing === id && one.code === "source-warning")
        ?.text.replace(/.*?: /, "");
    if (lookup?.state === "circuit-open")
      return { level: "bad", word: "no lookups", why: lookup.lastError?.reason, next: lookup.nextAttempt };
    return {
      level: downSince ? trouble(downSince, 30) : warning ? "warn" : levelOf(word),
      word,
      at: downSince ?? since,
      why: warning ?? (downSince && lastError?.reason),
      next
    };
  }
  const { state: word, failingSince: at, lastError, pausedBy, nextAttempt: next, deadLetters } = thing;
  return {
    level: word === "retrying" ? trouble(at, 60) : deadLetters && word === "running" ? "warn" : levelOf(word),
    word,
    at,
    why: pausedBy ? `by ${pausedBy}` : !["running", "elsewhere"].includes(word) && lastError?.reason,
    next
  };
}
const stateCell = ({ level, word, at, why, next }) => [
  mark(level, word),
  at && h("small", null, " ", since(at)),
  why && h("div", { class: "why" }, prose(why), next && age(next) < 0 && [" · next try ", when(next)])
];

const toObject = (uri) => inside(`objects?uri=${encodeURIComponent(uri)}`, uri);
const toChange = (seq) => inside(`changes/${seq}`, number(seq));
const SIZE = /bytes|size$/i;
const MEMBERS = {
  __proto__: null,
  source: (name) => inside(`sources/${name}`, name),
  object: toObject,
  parent: toObject,
  item: toObject,
  uri: toObject,
  dataset: toObject,
  seq: toChange,
  stuckAt: toChange,
  state: (word) => mark(levelOf(word), word),
  outcome: (word) => mark(levelOf(word), word),
  reason: (text) => h("span", { class: "why" }, prose(text)),
  between: ({ after, before }) => [after && ["after ", when(after), ", "], "before ", when(before)],
  content: ({ url, mediaType, size }) => [link(url ?? ""), ` ${mediaType ?? ""} `, size != null && bytes(size)],
  rate: (n) => `${n.toFixed(1)}/s`,
  lag: (lag) =>
    lag.changes === undefined
      ? number(lag)
      : `${number(lag.changes)}${lag.changes && lag.seconds > 1 ? ` (${span(lag.seconds)})` : ""}`
};
const NESTED = /^(content|lag|between)$/;
// A member of a document of others can have any type.
function show(key, value) {
  try {
    return showMember(key, value);
  } catch {
    return JSON.stringify(value);
  }
}
function showMember(key, value) {
  if (value == null || value === "" || (typeof value === "object" && !Object.keys(value).length)) return null;
  if (MEMBERS[key] && (typeof value === "object" ? NESTED.test(key) : typeof value !== "boolean")) return MEMBERS[key](value);
  if (typeof value === "number") return SIZE.test(key) ? bytes(value) : number(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  // An event without a time is as old as the calendar.
  if (typeof value === "string")
    return /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(value) ? (Date.parse(value) ? when(value) : "unknown") : link(value);
  if (value.line) return `line ${number(value.line)}, column ${number(value.column)}`;
  const entries = Object.entries(value);
  if (entries.every(([key, n]) => typeof n === "number" && !SIZE.test(key)) && !Array.isArray(value))
    return entries.map(([key, n], at) => `${at ? ", " : ""}${number(n)} ${heading(key).toLowerCase()}`).join("");
  return Array.isArray(value)
    ? value.slice(0, 100).map((one, at) => [at > 0 && typeof one !== "object" && ", ", show(key, one)])
    : facts(value);
}
const facts = (thing, omitted = "") =>
  h(
    "dl",
    null,
    Object.entries(thing)
      .filter(([key]) => !omitted.split(" ").includes(key))
      .map(([key, value]) => [heading(key), show(key, value)])
      .filter(([, shown]) => shown != null)
      .map(([name, shown]) => [h("dt", null, name), h("dd", null, shown)])
  );

const CLEAR = /^(received|source|what|object|state|outcome|reason|content)$/;
// A table of some members of things. `own` has other columns, and other cells for members. A column without a value is left
// out.
function table(label, all, members, empty, own = {}) {
  if (!all.length) return muted(empty);
  const [list, more] = some(label, all),
    columns = [...new Set([...members.split(" "), ...Object.keys(own)])]
      .filter((key) => own[key] || list.some((thing) => show(key, thing[key]) != null))
      .map((key) => [
        key,
        heading(key),
        !own[key] && list.some((thing) => typeof (thing[key]?.changes ?? thing[key]) === "number") && "n"
      ]),
    names = new Set();
  const row = (thing, at) => {
    const { id, seq, name, uri, item } = thing;
    let key = `${id ?? seq ?? name ?? uri ?? item ?? at}`;
    if (names.has(key)) key += ` ${at}`;
    names.add(key);
    return h(
      "tr",
      { role: "row", key },
      columns.map(([key, label, kind]) =>
        h(
          "td",
          { role: "cell", "data-label": !own[key] && !CLEAR.test(key) && label, class: kind },
          own[key] ? own[key](thing) : show(key, thing[key])
        )
      )
    );
  };
  return [
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "group", "aria-label": label },
      h(
        "table",
        { role: "table" },
        h(
          "thead",
          { role: "rowgroup" },
          h(
            "tr",
            { role: "row" },
            columns.map(([, label, kind]) => h("th", { scope: "col", role: "columnheader", class: kind }, label))
          )
        ),
        h("tbody", { role: "rowgroup" }, list.map(row))
      )
    ),
    more
  ];
}
