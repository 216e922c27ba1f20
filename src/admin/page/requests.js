// Requests to the gateway. The token is in this tab alone, and in one header.
const page = { who: "unknown", away: null, wrong: "", paused: false, span: "hour" };
const base = new URL(".", location).href;
// Several gateways can be behind one proxy.
const TOKEN = `tidings-token ${base}`;
let token = sessionStorage.getItem(TOKEN);
const credentials = () => (token ? { Authorization: `Bearer ${token}` } : {});

// The gateway has refused a request; with the status 0, it has not answered.
class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

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
    throw new Refused(0, "the gateway does not answer");
  }
  const offset = Date.parse(response.headers.get("Date")) - Date.now();
  if (Math.abs(offset - clockOffset) > 2000) clockOffset = offset;
  try {
    value = text && JSON.parse(text);
  } catch {
    // A proxy has answered, perhaps with its own page.
    if (response.ok) throw new Refused(0, "the gateway does not answer");
  }
  // Without JSON, a proxy answers for a gateway that does not.
  if (!response.ok)
    throw new Refused(response.status >= 502 && !value ? 0 : response.status, value?.detail ?? response.statusText);
  return value;
}

// The resources that the views show. Each render names them, and the next refresh requests those that are older than `every`
// seconds, or known for another `version`.
const known = new Map();
let wanted = new Map();
function get(path, every = 0, version) {
  wanted.set(path, { every, version });
  return known.get(path)?.value;
}
const waiting = (path) => muted(known.get(path)?.error?.message ?? "…");

async function fetchOne(path, version) {
  const entry = known.get(path) ?? {};
  known.set(path, entry);
  try {
    entry.value = await call(`GET ${path}`);
    entry.error = null;
  } catch (error) {
    if (!error.status || error.status === 401) throw error;
    entry.error = error;
    if (error.status === 404) entry.value = null;
  }
  entry.at = Date.now();
  entry.version = version;
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
  try {
    if (page.who === "unknown") await begin();
    // A view that has its first answer may want more.
    for (let round = 0; round < 3 && page.who !== "nobody"; round++) {
      const isStale = ([path, { every, version }]) => {
        const entry = known.get(path);
        return !entry?.at || (round === 0 && (entry.version !== version || Date.now() - entry.at >= every * 1e3));
      };
      await Promise.all([...wanted].filter(isStale).map(([path, { version }]) => fetchOne(path, version)));
      page.updated = new Date(Date.now() + clockOffset);
      page.away = null;
      render();
    }
    for (const path of known.keys()) if (!wanted.has(path)) known.delete(path);
  } catch (error) {
    if (error.status === 401) leave(token ? error.message : "");
    else if (error.status === 0) page.away ??= new Date(Date.now() + clockOffset).toISOString();
    else throw error;
  } finally {
    isRunning = false;
    if (isAgain) {
      isAgain = false;
      refresh();
    } else schedule();
    render();
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

function leave(wrong) {
  keepLive(null);
  live.query = null;
  page.who = "nobody";
  page.wrong = wrong;
  token = null;
  sessionStorage.removeItem(TOKEN);
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
  sessionStorage.setItem(TOKEN, token);
  page.who = "unknown";
  refresh();
}

function schedule() {
  clearTimeout(timer);
  if (page.paused || document.hidden || page.who === "nobody") return;
  const isUrgent = page.away || byId("dialog").open || known.get("status")?.value?.problems.length;
  timer = setTimeout(refresh, isUrgent ? 2000 : 5000);
}
