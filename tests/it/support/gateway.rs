//! Gateway process for a test: the real program, on a free port, with its own data folder.
//!
//! With the environment variable `TIDINGS_TEST_STORE=postgres` the journal is in a database of its own, on a server that
//! all tests share.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::Value;

use super::postgres;

/// Time limit for any single operation of a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Variable with the URL of the journal's database.
const STORE: &str = "TIDINGS_JOURNAL__STORE";

/// Returns whether the gateways of this run have their journals in PostgreSQL.
pub(crate) fn is_over_postgres() -> bool {
    std::env::var("TIDINGS_TEST_STORE").is_ok_and(|store| store == "postgres")
}

/// Running gateway; dropping it kills the process.
pub(crate) struct Gateway {
    child: Child,
    /// Base URL of the gateway.
    pub(crate) url: String,
    /// HTTP client for the gateway.
    pub(crate) http: reqwest::Client,
}

impl Gateway {
    /// Starts a gateway with the journal in `data` and waits until it listens.
    pub(crate) fn start(data: &Path) -> Self {
        Self::start_with(data, &[])
    }

    /// Starts a gateway with further command-line arguments.
    pub(crate) fn start_with(data: &Path, arguments: &[&str]) -> Self {
        Self::start_elsewhere(data, &[&["--listen", "127.0.0.1:0"], arguments].concat(), None)
    }

    /// Starts a gateway that logs everything to the file `log`.
    pub(crate) fn start_logging(data: &Path, arguments: &[&str], log: &Path) -> Self {
        Self::start_elsewhere(data, &[&["--listen", "127.0.0.1:0"], arguments].concat(), Some(log))
    }

    /// Starts a gateway whose arguments include the listen address.
    pub(crate) fn start_elsewhere(data: &Path, arguments: &[&str], log: Option<&Path>) -> Self {
        let mut serve = command();
        if log.is_some() {
            serve.env("TIDINGS_LOG__FILTER", "trace");
        }
        serve.stderr(log.map_or_else(Stdio::null, |log| File::create(log).unwrap().into()));
        Self::start_as(serve, data, arguments)
    }

    /// Starts a gateway with a given environment.
    pub(crate) fn start_as(serve: Command, data: &Path, arguments: &[&str]) -> Self {
        Self::try_start(serve, data, arguments).expect("the gateway starts")
    }

    /// Starts a gateway with a given environment; returns `None` if it ends instead.
    pub(crate) fn try_start(mut serve: Command, data: &Path, arguments: &[&str]) -> Option<Self> {
        static STARTS: AtomicUsize = AtomicUsize::new(0);
        let has = |serve: &Command, variable: &str| serve.get_envs().any(|(name, _)| name == variable);
        if !has(&serve, STORE) && is_over_postgres() {
            fs::create_dir_all(data).unwrap();
            serve.env(STORE, postgres::connection(data));
        }
        if has(&serve, STORE) && !has(&serve, "TIDINGS_NODE__NAME") {
            // A name of its own, so that no start waits for the lease of a gateway that a test has killed.
            let name = format!("start-{}", STARTS.fetch_add(1, Ordering::Relaxed));
            serve.env("TIDINGS_NODE__NAME", name).env("TIDINGS_NODE__LEASE_SECONDS", "3");
        }
        let serve = serve.args(["serve", "--data"]).arg(data).args(arguments);
        let mut child = serve.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        let gateway = Self { child, url, http: client() };
        gateway.url.starts_with("http").then_some(gateway)
    }

    /// Posts a message to a hook; returns the status and the JSON of the response.
    pub(crate) async fn post(&self, source: &str, content_type: &str, body: impl Into<reqwest::Body>) -> (u16, Value) {
        let url = format!("{}/hooks/{source}", self.url);
        let sent = self.http.post(url).header("content-type", content_type).body(body).send().await.unwrap();
        (sent.status().as_u16(), serde_json::from_slice(&sent.bytes().await.unwrap()).unwrap())
    }

    /// Returns the JSON at a path.
    pub(crate) async fn json(&self, path: &str) -> Value {
        let answer = self.http.get(format!("{}{path}", self.url)).send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
    }

    /// Waits until the metrics contain this line.
    pub(crate) async fn until_metric(&self, line: &str) {
        let began = std::time::Instant::now();
        loop {
            let metrics = self.http.get(format!("{}/metrics", self.url)).send().await.unwrap().text().await.unwrap();
            if metrics.contains(line) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "there is no {line}");
        }
    }

    /// Returns the number of the newest change, even while messages cannot be written.
    pub(crate) async fn head(&self) -> u64 {
        self.json("/snapshot?limit=1").await["head"].as_u64().unwrap()
    }

    /// Returns every change of the journal, in order.
    pub(crate) async fn changes(&self) -> Vec<Value> {
        let mut all = Vec::new();
        let mut after = 0;
        loop {
            let page = self.json(&format!("/changes?after={after}&limit=1000")).await;
            let changes = page["changes"].as_array().unwrap();
            if changes.is_empty() {
                return all;
            }
            all.extend(changes.iter().cloned());
            after = page["next"].as_u64().unwrap();
        }
    }

    /// Returns the process identifier.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the gateway like a power cut.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM and waits for the exit.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits until the process has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let began = std::time::Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "the gateway does not stop");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a free socket address for a server that is restarted there, or starts later. The port is outside the ephemeral
/// range, because another process could otherwise get it in the meantime, and no other test gets it.
pub(crate) fn free_address() -> String {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let port = fastrand::u16(10_000..32_000);
        let address = format!("127.0.0.1:{port}");
        if GIVEN.lock().unwrap().insert(port) && std::net::TcpListener::bind(&address).is_ok() {
            return address;
        }
    }
}

/// Returns the program without `TIDINGS_` variables from the environment of the test.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TIDINGS_")) {
        command.env_remove(name);
    }
    command
}

/// Returns an HTTP client with time limits.
pub(crate) fn client() -> reqwest::Client {
    // Another test may have installed the provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The gateway may close idle connections after `server.head_seconds`, and a busy test may notice that too
    // late.
    let idle = Duration::from_millis(500);
    reqwest::Client::builder().timeout(PATIENCE).pool_idle_timeout(idle).no_proxy().build().unwrap()
}
