//! Gateways that share a journal in a PostgreSQL database.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    gateway::{Gateway, PATIENCE, command},
    journal_fixture::configuration,
    postgres::Server,
    shifted_clock::shift_clock,
    webhook_fixture::SECRET,
};

/// Lease of the nodes.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// Number of the duties that every journal has: the hub, the audits, the segments, and the changes that come due.
pub(crate) const COMMON_DUTIES: usize = 4;

/// A database, and the configuration that all nodes share.
pub(crate) struct SharedJournal {
    pub(crate) folder: TempDir,
    /// Name of the database.
    pub(crate) database: String,
    store: String,
    config: String,
}

impl SharedJournal {
    /// Creates an empty database, and a configuration with these lines.
    pub(crate) fn new(lines: &str) -> Self {
        Self::with_lease(lines, LEASE)
    }

    /// Creates an empty database, and a configuration with these lines for nodes with a lease.
    pub(crate) fn with_lease(lines: &str, lease: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::shared();
        let store = server.create_database();
        let database = store.rsplit('/').next().unwrap().to_owned();
        let lines = format!("[node]\nlease_seconds = {}\n{lines}", lease.as_secs());
        let config = configuration(folder.path(), &lines);
        Self { folder, database, store, config }
    }

    /// Fills the empty database with the journal of a folder.
    pub(crate) fn migrate(&self, from: &Path) {
        let migrated = command().arg("migrate").arg("--from").arg(from).args(["--to", &self.store]).output().unwrap();
        assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
    }

    /// Returns the command of a node.
    fn command(&self, name: &str) -> Command {
        let mut command = command();
        command.env("TIDINGS_JOURNAL__STORE", &self.store).env("TIDINGS_NODE__NAME", name);
        command.env("TIDINGS_SECRET_KEY", SECRET);
        command
    }

    /// Starts a node and waits until it listens.
    pub(crate) fn node(&self, name: &str) -> Gateway {
        self.start(name, self.command(name))
    }

    /// Starts a node that reaches the database through a proxy at a port.
    pub(crate) fn node_through(&self, name: &str, port: u16) -> Gateway {
        let mut serve = self.command(name);
        let store = format!("postgres://tidings@127.0.0.1:{port}/{}?sslmode=disable", self.database);
        serve.env("TIDINGS_JOURNAL__STORE", store);
        self.start(name, serve)
    }

    /// Starts a node without the variable `TIDINGS_SECRET_KEY`, which all others have.
    pub(crate) fn node_without_secret(&self, name: &str) -> Gateway {
        let mut serve = self.command(name);
        serve.env_remove("TIDINGS_SECRET_KEY");
        self.start(name, serve)
    }

    /// Returns the log of a node.
    pub(crate) fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.log_path(name)).unwrap()
    }

    /// Returns the path of the log of a node.
    pub(crate) fn log_path(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    /// Starts a node whose clock is ahead by so many seconds, or behind if they are negative.
    pub(crate) fn node_with_clock(&self, name: &str, seconds: i64) -> Gateway {
        let mut serve = self.command(name);
        shift_clock(&mut serve, seconds);
        self.start(name, serve)
    }

    fn start(&self, name: &str, mut serve: Command) -> Gateway {
        let log = std::fs::File::create(self.log_path(name)).unwrap();
        serve.stderr(log);
        let data = self.folder.path().join(name);
        Gateway::start_as(serve, &data, &["--listen", "127.0.0.1:0", "--config", &self.config])
    }

    /// Runs a node that does not start.
    pub(crate) fn refused_node(&self, name: &str) -> Output {
        let data = self.folder.path().join("refused");
        let mut serve = self.command(name);
        serve.args(["serve", "--listen", "127.0.0.1:0", "--config", &self.config, "--data"]).arg(data);
        serve.stdout(Stdio::null()).output().unwrap()
    }

    /// Runs a query that returns one value.
    pub(crate) fn query(&self, sql: &str) -> String {
        let output = Server::shared().run(&self.database, &format!("SET search_path = tidings; {sql}"));
        // The client program prints the result of the first statement too.
        output.trim_start_matches("SET").trim_start().to_owned()
    }
}

/// Returns the node that has a duty, and the other one, of the nodes `a` and `b`. Waits until a node has it.
pub(crate) async fn holder_and_other<T>([a, b]: [T; 2], journal: &SharedJournal, duty: &str) -> (T, T) {
    let sql = format!("SELECT n.name FROM duties d JOIN nodes n ON n.instance = d.holder WHERE d.name = '{duty}'");
    until("a node has the duty", async || !journal.query(&sql).is_empty()).await;
    if journal.query(&sql) == "a" { (a, b) } else { (b, a) }
}

/// Waits until each of these nodes knows all of them, so that they agree about the owner of each duty.
pub(crate) async fn until_acquainted(nodes: &[&Gateway]) {
    for node in nodes {
        until("the nodes know each other", async || {
            node.json("/nodes").await["nodes"].as_array().is_some_and(|known| known.len() == nodes.len())
        })
        .await;
    }
}

/// Returns the duties of the nodes, each with its node, as a node shows them.
pub(crate) async fn duties(node: &Gateway) -> Vec<(String, String)> {
    let view = node.json("/nodes").await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of_node = |one: &Value| -> Vec<_> {
        one["duties"].as_array().unwrap().iter().map(|duty| (text(&duty["name"]), text(&one["name"]))).collect()
    };
    let mut duties: Vec<_> = view["nodes"].as_array().unwrap().iter().flat_map(of_node).collect();
    duties.sort();
    duties
}

/// Waits until the database shows that these nodes have so many duties together, each at least one; returns the time
/// that this took.
pub(crate) async fn until_spread(journal: &SharedJournal, count: usize, nodes: &[&str]) -> Duration {
    let began = Instant::now();
    let sql = "SELECT string_agg(n.name, ' ') FROM duties d JOIN nodes n ON n.instance = d.holder
        WHERE n.expires > clock_timestamp()";
    loop {
        let shown = journal.query(sql);
        let holders: Vec<_> = shown.split_whitespace().collect();
        let is_spread = nodes.iter().all(|node| holders.contains(node));
        if holders.len() == count && is_spread && holders.iter().all(|holder| nodes.contains(holder)) {
            return began.elapsed();
        }
        assert!(began.elapsed() < PATIENCE, "{holders:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
