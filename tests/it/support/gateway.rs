//! A gateway of the test's own: the real program, on a free port, with its own data folder.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use serde_json::Value;

/// How long anything may take before the test gives up on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A running gateway; it is killed when the test is done with it.
pub(crate) struct Gateway {
    child: Child,
    /// Where it listens.
    pub(crate) url: String,
    /// A client for it.
    pub(crate) http: reqwest::Client,
}

impl Gateway {
    /// Starts one over the journal in `data`, and waits until it listens.
    pub(crate) fn start(data: &Path) -> Self {
        Self::start_with(data, &[])
    }

    /// The same with further arguments.
    pub(crate) fn start_with(data: &Path, arguments: &[&str]) -> Self {
        Self::start_elsewhere(data, &[&["--listen", "127.0.0.1:0"], arguments].concat(), None)
    }

    /// The same with its log, all of it, going to the file `log`.
    pub(crate) fn start_logging(data: &Path, arguments: &[&str], log: &Path) -> Self {
        Self::start_elsewhere(data, &[&["--listen", "127.0.0.1:0"], arguments].concat(), Some(log))
    }

    /// The same with an address among the arguments.
    pub(crate) fn start_elsewhere(data: &Path, arguments: &[&str], log: Option<&Path>) -> Self {
        let mut serve = command();
        if log.is_some() {
            serve.env("TIDINGS_LOG__FILTER", "trace");
        }
        serve.stderr(log.map_or_else(Stdio::null, |log| File::create(log).unwrap().into()));
        Self::start_as(serve, data, arguments)
    }

    /// The same with an environment of the test's own.
    pub(crate) fn start_as(mut serve: Command, data: &Path, arguments: &[&str]) -> Self {
        let serve = serve.args(["serve", "--data"]).arg(data).args(arguments);
        let mut child = serve.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        assert!(url.starts_with("http"), "the gateway did not start: {line:?}");
        Self { child, url, http: client() }
    }

    /// Posts a message to a hook; gives the status and the JSON of the answer.
    pub(crate) async fn post(&self, source: &str, content_type: &str, body: impl Into<reqwest::Body>) -> (u16, Value) {
        let url = format!("{}/hooks/{source}", self.url);
        let sent = self.http.post(url).header("content-type", content_type).body(body).send().await.unwrap();
        (sent.status().as_u16(), serde_json::from_slice(&sent.bytes().await.unwrap()).unwrap())
    }

    /// The JSON at a path.
    pub(crate) async fn json(&self, path: &str) -> Value {
        let answer = self.http.get(format!("{}{path}", self.url)).send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
    }

    /// The number of the newest change, whether messages can be written at present or not.
    pub(crate) async fn head(&self) -> u64 {
        self.json("/snapshot?limit=1").await["head"].as_u64().unwrap()
    }

    /// Every change of the journal, in order.
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

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }

    /// Sends it a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits until it has ended by itself.
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

/// A free address for what is to be started again under it. It is none of those that the system gives to connections
/// and to who asks for any: somebody else would have it by then.
pub(crate) fn free_address() -> String {
    loop {
        let address = format!("127.0.0.1:{}", fastrand::u16(10_000..32_000));
        if std::net::TcpListener::bind(&address).is_ok() {
            return address;
        }
    }
}

/// The program, without what the environment of the test might say to it.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TIDINGS_")) {
        command.env_remove(name);
    }
    command
}

/// A client that gives up rather than hang.
pub(crate) fn client() -> reqwest::Client {
    // Whoever comes second finds it installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // A connection that was idle for longer may have been closed by the gateway (`server.head_seconds`), which
    // a test that was busy with something else has not noticed yet.
    let idle = Duration::from_millis(500);
    reqwest::Client::builder().timeout(PATIENCE).pool_idle_timeout(idle).no_proxy().build().unwrap()
}
