// Buttons that change something. What cannot be undone is first said in a sentence with a number, and the safe answer has the
// focus. Afterwards a line says what the gateway answered, and which request it was.
const busy = new Set();
let question = null,
  notice = null,
  // The changes that the last message which was tried would make.
  tried = {};

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const curl = (method, path, body) =>
  `curl -X ${method}${token ? ' -H "Authorization: Bearer $TOKEN"' : ""}${body ? ` -d ${quoted(JSON.stringify(body))}` : ""} ${quoted(base + path)}`;
const announce = (text) => {
  byId("announcement").textContent = visible(text);
};
function say(text, isBad, command) {
  notice = { text, isBad, command };
  announce(text);
  render();
}

// Two things can have the same name, and two requests are never about the same thing.
const idOf = (name, request) => (typeof request === "string" ? `${name} ${request}` : name);

async function act(name, request, body) {
  const id = idOf(name, request);
  if (busy.has(id)) return;
  busy.add(id);
  render();
  const own = session,
    command = typeof request === "string" && curl(...request.split(" "), body);
  try {
    const answer = command ? await call(request, body) : await request();
    const said = Object.entries(answer ?? {})
      .filter(([key]) => /^(outcome|reason|affected|repeated|skipped|changes)$/.test(key))
      .map(([key, value]) => `${key} ${Array.isArray(value) ? value.length : value}`);
    if (own !== session) return;
    tried = { request, changes: answer?.changes?.[0]?.items ? answer.changes : [] };
    say(`${name}: ${said.join(", ") || "done"}.`, false, command);
  } catch (error) {
    if (own !== session) return;
    say(`${name}: ${error.message}`, true, command);
  }
  busy.delete(id);
  for (const entry of known.values()) entry.at = 0;
  refresh();
}

// A button with `ask`, the sentence about the consequence, asks first. The sentence is that of the newest refresh.
function button(label, thing, request, { body, ask, isFirst } = {}) {
  const name = `${label} ${thing}`.trim();
  const id = idOf(name, request);
  const run = () => act(name, request, body);
  if (question?.id === id) question = { id, name, ask, run };
  const onclick = ({ detail }) => {
    // The second click of two would meet what the first has made of the button.
    if (detail > 1) return;
    if (!ask) return void run();
    question = { id, name, ask, run };
    render();
    byId("dialog").showModal();
    byId("keep").focus();
    refresh();
  };
  return h(
    "button",
    {
      type: "button",
      // No button becomes another one below the pointer, but the focus stays when something is paused.
      key: name.replace("Resume", "Pause"),
      "aria-label": name,
      class: ask ? "danger" : isFirst && "first",
      "aria-disabled": busy.has(id) && "true",
      onclick
    },
    ask ? `${label}…` : label
  );
}
const first = { isFirst: true };

function renderDialog() {
  const dialog = byId("dialog");
  if (!question) return;
  const { name, ask, run } = question;
  dialog.onclose = () => {
    question = null;
  };
  fill(
    "dialog",
    h("h2", { id: "question" }, `${name}?`),
    h("p", null, ask),
    bar(
      h("button", { id: "keep", onclick: () => dialog.close() }, "Cancel"),
      h(
        "button",
        {
          class: "danger",
          onclick: () => {
            dialog.close();
            run();
          }
        },
        name
      )
    )
  );
}

function renderNotice() {
  fill(
    "notice",
    notice &&
      h(
        "div",
        { class: `notice ${notice.isBad ? "bad" : "good"}` },
        h("div", null, notice.text, notice.command && code(notice.command)),
        h(
          "button",
          {
            onclick: () => {
              notice = null;
              render();
            }
          },
          "Close"
        )
      )
  );
}

// Does one request for each message of a source in the quarantine, the oldest first, so that the order of events stays, and at
// most so many.
async function forAll(source, request, most) {
  const ids = [],
    own = session;
  for (let before = ""; before !== null;) {
    const { messages, next } = await call(`GET quarantine?source=${source}&limit=1000${before && `&before=${before}`}`);
    ids.push(...messages.map(({ id }) => id));
    before = next;
  }
  let done = 0,
    reason = "";
  for (const [at, id] of ids.reverse().slice(0, most).entries()) {
    if (own !== session) break;
    if (at % 20 === 0) {
      notice = { text: `${number(at)} of ${number(ids.length)} messages` };
      renderNotice();
    }
    try {
      await call(request(id));
      done++;
    } catch (error) {
      // Others concern every message.
      if (![400, 404, 422].includes(error.status)) throw error;
      reason = error.message;
    }
  }
  return { outcome: `${number(done)} of ${count(ids.length, "message")}`, reason };
}

const reconnect = (name) => button("Connect now", name, `POST sources/${name}/reconnect`, first);
const run = (name) => button("Run now", name, `POST harvests/${name}/run`, first);
const runFull = (name) => button("List all records", name, `POST harvests/${name}/run?full=true`);
const pause = (kind, name, word) =>
  /paused|ended/.test(word)
    ? button("Resume", name, `POST ${kind}/${name}/resume`, first)
    : /elsewhere|orphaned|stopped|fell-behind|failed/.test(word) || button("Pause", name, `POST ${kind}/${name}/pause`);
const retryAll = (source) =>
  button("Read all again", source, () => forAll(source, (id) => `POST quarantine/${id}/retry`), first);
const dropAll = (source, n) =>
  button("Drop all", source, () => forAll(source, (id) => `DELETE quarantine/${id}`, n), {
    ask: `${count(n, "message")} of ${source} will be deleted for good, unread.`
  });
const sendAll = (name) => button("Send all again", name, `POST subscriptions/${name}/dead-letters/replay`, first);
const dropLetters = (name, n) =>
  button("Drop all", `dead letters of ${name}`, `DELETE subscriptions/${name}/dead-letters`, {
    ask: `${count(n, "message")} and all changes that wait to be sent again will be deleted for good, and not be sent to ${name}.`
  });
const remove = ({ name, lag, deadLetters }) =>
  button("Delete", name, `DELETE subscriptions/${name}`, {
    ask: `The subscription ${name} will be deleted with its position and ${count(deadLetters, "dead letter")}. It is ${count(lag.changes, "change")} behind.`
  });
const reload = () => button("Read the configuration again", "", "POST reload");
const details = (route, thing, label = "Details of") =>
  h("a", { href: `#/${route}`, "aria-label": `${label} ${thing}` }, label.split(" ")[0]);
