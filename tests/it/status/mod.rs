//! Problems of the gateway: each is made by its real cause, is shown by `/status`, `/readyz`, the metrics, the log, the page and
//! `tidings status`, and ends by itself when its cause ends.

pub(crate) mod access_and_certificates;
pub(crate) mod datasets;
mod dates;
mod flow;
mod nodes;
mod publication;
mod repositories;
mod silence;
mod storage;
mod subscriptions;
mod transports;

use std::{
    fs,
    path::PathBuf,
    sync::{Mutex, MutexGuard},
    time::Instant,
};

use serde_json::Value;
use tempfile::TempDir;
use tidings::admin::status::problem::ProblemKind;

use crate::{
    page::OpenPage,
    support::{
        command_line::{command, ended},
        gateway::{Gateway, PATIENCE},
        nodes_fixture::SharedJournal,
    },
};

/// Gateway whose log is in a file and whose page is open, with the token of an administrator if it has access control.
struct ObservedGateway {
    gateway: Gateway,
    page: Mutex<OpenPage>,
    log: PathBuf,
    token: Option<&'static str>,
    /// `None` for a node, whose files are in the folder of the shared journal.
    folder: Option<TempDir>,
}

impl ObservedGateway {
    /// Starts a gateway with these lines of configuration.
    fn start(lines: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        Self::start_in(folder, &data, lines)
    }

    fn start_in(folder: TempDir, data: &std::path::Path, lines: &str) -> Self {
        let (config, log) = (folder.path().join("tidings.toml"), folder.path().join("log"));
        fs::write(&config, lines).unwrap();
        let gateway = Gateway::start_logging(data, &["--config", config.to_str().unwrap()], &log);
        let page = Mutex::new(OpenPage::open(&format!("{}/", gateway.url)));
        Self { gateway, page, log, token: None, folder: Some(folder) }
    }

    /// Observes a node that runs.
    fn of_node(gateway: Gateway, journal: &SharedJournal, name: &str) -> Self {
        let page = Mutex::new(OpenPage::open(&format!("{}/", gateway.url)));
        Self { gateway, page, log: journal.log_path(name), token: None, folder: None }
    }

    fn page(&self) -> MutexGuard<'_, OpenPage> {
        self.page.lock().unwrap()
    }

    async fn get(&self, path: &str) -> String {
        let request = self.gateway.http.get(format!("{}{path}", self.gateway.url));
        let request = self.token.map_or(request.try_clone().unwrap(), |token| request.bearer_auth(token));
        request.send().await.unwrap().text().await.unwrap()
    }

    async fn status(&self) -> Value {
        serde_json::from_str(&self.get("/status").await).unwrap()
    }

    /// Returns the problem of a thing, if it exists.
    async fn problem(&self, code: &str, thing: &str) -> Option<Value> {
        let status = self.status().await;
        let problems = status["problems"].as_array().unwrap().iter();
        problems.clone().find(|problem| problem["code"] == code && problem["thing"] == thing).cloned()
    }

    /// Waits for a problem, and panics unless all readers of the list show it with these facts.
    async fn shows(&self, code: &str, thing: &str, facts: &str) {
        let problem = until(&format!("{thing} has the problem {code}"), async || self.problem(code, thing).await).await;
        let text = problem["text"].as_str().unwrap();
        assert!(text.contains(facts), "{text}");
        let is_error = problem["level"] == "error";
        let ready: Value = serde_json::from_str(&self.get("/readyz").await).unwrap();
        // The journal cannot be used: the response is a problem document.
        if ready["type"].is_null() {
            let shown = ready["problems"].as_array().unwrap();
            assert!(shown.iter().any(|shown| shown["code"] == code && shown["thing"] == thing), "{ready:#}");
            assert!(!is_error || ready["status"] == "degraded", "{ready:#}");
        }
        let metric = format!("tidings_problems{{code=\"{code}\",level={}}} ", problem["level"]);
        let metrics = self.get("/metrics").await;
        let number = metrics.lines().find_map(|line| line.strip_prefix(&metric)).unwrap();
        assert_ne!(number, "0", "{code}");
        // The facts can have changed since the problem was logged.
        let known = text.split(": ").next().unwrap();
        let state = self.state(thing).await;
        self.page().until_problem(code, thing, &state);
        self.logs(&format!("problem: {known}")).await;
        // The command accepts no certificate that is signed by itself.
        if self.gateway.url.starts_with("https") {
            return;
        }
        let (exit_code, out, _) = self.command();
        assert!(out.contains(known), "{out}");
        assert!(exit_code == 2 || !is_error && exit_code == 1, "{exit_code}: {out}");
    }

    /// Waits until a problem has ended, and panics unless the log says so.
    async fn ends(&self, code: &str, thing: &str) {
        let is_over = async || self.problem(code, thing).await.is_none().then_some(());
        until(&format!("{thing} has the problem {code} no more"), is_over).await;
        self.page().until_no_problem(code, thing);
        self.logs(&format!("a problem has ended code=\"{code}\" thing={thing} ")).await;
    }

    /// Returns the state of a subscription, on which its remedies depend; empty for other things.
    async fn state(&self, thing: &str) -> String {
        let Some(name) = thing.strip_prefix("subscription/") else { return String::new() };
        let shown: Value = serde_json::from_str(&self.get(&format!("/subscriptions/{name}")).await).unwrap();
        shown["state"].as_str().unwrap().to_owned()
    }

    async fn logs(&self, text: &str) {
        let is_logged = async || fs::read_to_string(&self.log).unwrap().contains(text).then_some(());
        until(&format!("the log has {text:?}"), is_logged).await;
    }

    /// Runs `tidings status`.
    fn command(&self) -> (i32, String, String) {
        let mut status = command(&["status", "--gateway", &self.gateway.url]);
        if let Some(token) = self.token {
            status.env("TIDINGS_TOKEN", token);
        }
        ended(status.spawn().unwrap())
    }
}

#[test]
fn every_problem_is_made_by_a_test() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/status");
    let files = fs::read_dir(folder).unwrap().map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
    let tests: String = files.collect();
    let is_made = |kind: &ProblemKind| tests.contains(&format!("\"{}\"", kind.name()));
    let others: Vec<_> = ProblemKind::ALL.into_iter().filter(|kind| !is_made(kind)).collect();
    assert_eq!(others, []);
}

/// Waits until `found` returns a value.
async fn until<T>(what: &str, found: impl AsyncFn() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found().await {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "timeout while waiting until {what}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_gateway_without_problems_is_ready() {
    let observed = ObservedGateway::start("");
    let status = observed.status().await;
    assert_eq!((&status["status"], status["problems"].as_array().unwrap().len()), (&"ready".into(), 0), "{status:#}");
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    let room = async || observed.status().await["journal"]["freeBytes"].as_u64();
    assert!(until("the room on the disk is known", room).await > 0);
    let metrics = observed.get("/metrics").await;
    assert!(
        metrics.contains("tidings_problems{code=\"source-not-read\",level=\"error\"} 0\n"),
        "every code is there from the start"
    );
    assert!(metrics.contains("tidings_journal_failures_total{reason=\"full\"} 0\n"), "an alert needs the zero");
    let (exit_code, out, error) = observed.command();
    assert_eq!((exit_code, out.lines().next().unwrap()), (0, "ready: 0 errors, 0 warnings"), "{out}{error}");
    let ready = observed.gateway.json("/readyz").await;
    assert_eq!((&ready["status"], &ready["problems"]), (&"ready".into(), &Value::Null));
}

#[tokio::test]
async fn a_gateway_that_cannot_be_reached_is_critical() {
    let address = format!("http://{}", crate::support::gateway::free_address());
    let (exit_code, out, error) = ended(command(&["status", "--gateway", &address]).spawn().unwrap());
    assert_eq!((exit_code, out.as_str()), (2, ""));
    assert!(error.contains("Connection refused"), "{error}");
}
