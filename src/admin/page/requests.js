// Requests to the gateway. The token is in this tab alone, and in one header.
const page = { who: "unknown", away: null, wrong: "", paused: false, span: "hour" };
const base = new URL(".", location).href;
// Several gateways can be behind one proxy.
const TOKEN_KEY = `tidings-token ${base}`;
let token = sessionStorage.getItem(TOKEN_KEY);
const credentials = () => (token ? { Authorization: `Bearer ${token}` } : {});

// The gateway has refused a request; with the status 0, it has not answered.
const refused = (status, text) => Object.assign(new Error(text), { status });
const noAnswer = () => refused(0, "the gateway does not answer");

async function call(request, body) {
  const [method, path] = request.split(" ");
  const headers = { Accept: "application/json", ...credentials() };
  let response,
    text,
    value = null;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body && JSON.stringify(body),
      credentials: "omit",
      cache: "no-store",
      signal: AbortSignal.timeout(15000)
    });
    text = await response.text();
  } catch {
    throw noAnswer();
  }
  const offset = Date.parse(response.headers.get("Date")) - Date.now();
  if (Math.abs(offset - clockOffset) > 2000) clockOffset = offset;
  try {
    value = text && JSON.parse(text);
  } catch {
    // A proxy has answered, perhaps with its own page.
    if (response.ok) throw noAnswer();
  }
  // A proxy answers for a gateway that does not. Only the gateway says 503 in JSON.
  const { status } = response;
  if (!response.ok)
    throw refused(status >= 502 && !(value && status === 503) ? 0 : status, value?.detail ?? response.statusText);
  return value;
}

// The resources that the views show. Each render names them, and the next refresh requests those that are older than `every`
// seconds, or known for another `version`.
const known = new Map();
let wanted = new Map();
const getStatus = () => known.get("status")?.value;
function get(path, every = 0, version) {
  wanted.set(path, { every, version });
  return known.get(path)?.value;
}
// While the journal rests, resources are requested less often.
const pace = (path, busy, idle) => (known.get(path)?.head === getStatus()?.journal.head ? idle : busy);
// A list of things is requested at once when the status says that the state of one is another.
function getList(path, busy = 5) {
  const { problems, connections, lookups, harvests, subscriptions, subscribers } = getStatus(),
    troubles = problems.map(({ code, thing }) => code + thing);
  return get(
    path,
    pace(path, busy, 20),
    JSON.stringify([troubles, connections, lookups, harvests, subscriptions, subscribers])
  );
}
const waiting = (path) => muted(known.get(path)?.error?.message ?? "…");
// A view of a resource, when it is known.
const viewOf = (path, make, every, version) => {
  const value = get(path, every, version);
  return value ? make(value) : waiting(path);
};
// A page of a list, with a link to the next one.
const pageOf = (route, query, make, more, resource = route, order = "before") =>
  viewOf(`${resource}?${withQuery(query, "limit", PAGE)}`, (list) => [
    make(list),
    list.next && inside(`${route}?${withQuery(query, order, list.next)}`, more)
  ]);

async function fetchOne(path, version) {
  const entry = known.get(path) ?? {};
  known.set(path, entry);
  entry.head = getStatus()?.journal.head;
  entry.version = version;
  try {
    entry.value = await call(`GET ${path}`);
    entry.error = null;
  } catch (error) {
    // The next refresh tries again.
    entry.version = NaN;
    if (!error.status || error.status === 401 || path === "status") throw error;
    entry.error = error;
    if (error.status === 404) entry.value = null;
  }
  entry.at = Date.now();
}

let timer,
  isRunning = false,
  isAgain = false;
async function refresh() {
  if (isRunning) {
    isAgain = true;
    return;
  }
  isRunning = true;
  clearTimeout(timer);
  const begun = Date.now();
  try {
    if (page.who === "unknown") await begin();
    // The status comes first, because it says which of the others are stale; and a view that has its first answer may want
    // more.
    for (let round = 0; round < 4 && page.who !== "nobody"; round++) {
      const stale = [...wanted].filter(([path, { every, version }]) => {
        const { at, version: former } = known.get(path) ?? {};
        return (
          (round || path === "status") && (!at || (at < begun && (former !== version || begun - at >= every * 1e3)))
        );
      });
      if (!stale.length) {
        if (round) break;
        continue;
      }
      await Promise.all(stale.map(([path, { version }]) => fetchOne(path, version)));
      page.updated = new Date(Date.now() + clockOffset);
      page.away = null;
      render();
    }
    for (const path of known.keys()) if (!wanted.has(path)) known.delete(path);
  } catch (error) {
    if (error.status === 401) leave(token ? error.message : "");
    else if (error.status === 403) {
      // The token is another one now.
      page.who = "unknown";
      isAgain = true;
    } else if ("status" in error) page.away ??= new Date(Date.now() + clockOffset).toISOString();
    else throw error;
    render();
  } finally {
    isRunning = false;
    if (isAgain) {
      isAgain = false;
      refresh();
    } else schedule();
  }
}

// The first request decides what this page shows: an administrator may read the status, a reader may not.
async function begin() {
  try {
    known.set("status", { value: await call("GET status"), at: Date.now() });
    page.who = "admin";
  } catch (error) {
    if (error.status !== 403) throw error;
    page.who = "reader";
  }
  render();
}

// Number of the sign-in. What one person has begun does not go on with the token of the next.
let session = 0;
function leave(wrong) {
  session++;
  busy.clear();
  keepLive(null);
  live.query = null;
  page.paused = false;
  page.who = "nobody";
  page.wrong = wrong;
  token = null;
  sessionStorage.removeItem(TOKEN_KEY);
  known.clear();
  // The next person at the tab reads nothing of this one's.
  notice = null;
  tried = {};
  byId("dialog").close();
  document.title = "Tidings";
}
function signIn(text) {
  keepLive(null);
  if (!/^[!-~]+$/.test(text.trim())) {
    page.wrong = "This is no token.";
    return render();
  }
  token = text.trim();
  sessionStorage.setItem(TOKEN_KEY, token);
  page.who = "unknown";
  refresh();
}

function schedule() {
  clearTimeout(timer);
  if (page.paused || document.hidden || page.who === "nobody") return;
  const isUrgent = page.away || byId("dialog").open || getStatus()?.problems.length;
  timer = setTimeout(refresh, isUrgent ? 2000 : 5000);
}
