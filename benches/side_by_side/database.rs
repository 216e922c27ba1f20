//! A PostgreSQL server for journals, and gateways over it.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::Command,
    time::Duration,
};

use super::{amqp::processor, postgres::Server, streams};

/// PostgreSQL server that syncs its commits to disk, unlike the servers of the tests.
pub(crate) struct Database {
    server: Server,
    /// Process identifier of the first process of the server.
    postmaster: u32,
}

impl Database {
    pub(crate) fn start() -> Self {
        let server = Server::separate();
        server.run("postgres", "ALTER SYSTEM SET fsync = on");
        server.run("postgres", "SELECT pg_reload_conf()");
        super::broker_process::wait_until("fsync is on", || server.run("postgres", "SHOW fsync") == "on");
        let postmaster = server.run("postgres", "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)");
        Self { server, postmaster: postmaster.parse().unwrap() }
    }

    /// Creates an empty database, and returns its URL.
    pub(crate) fn create(&self) -> String {
        self.server.create_database()
    }

    /// Returns the port for TCP connections.
    pub(crate) fn port(&self) -> u16 {
        self.server.port
    }

    /// Runs a query that returns one number, in the schema of the journal.
    pub(crate) fn number(&self, store: &str, sql: &str) -> u64 {
        let answer = self.server.run(name_of(store), &format!("SET search_path = tidings; {sql}"));
        answer.trim_start_matches("SET").trim().parse().unwrap()
    }

    /// Returns the number of bytes of the write-ahead log so far.
    pub(crate) fn wal(&self) -> u64 {
        self.server.run("postgres", "SELECT (pg_current_wal_lsn() - '0/0')::bigint").parse().unwrap()
    }

    /// Returns the processor time of all processes of the server so far.
    pub(crate) fn processor_time(&self) -> Duration {
        processor::used_by_family(self.postmaster)
    }
}

/// Returns the name of the database in a URL.
pub(crate) fn name_of(store: &str) -> &str {
    store.rsplit_once('/').unwrap().1
}

/// Starts the real program as a node over a database, with these lines of configuration.
pub(crate) fn node(folder: &Path, store: &str, name: &str, lines: &str) -> streams::Server {
    let data = folder.join(format!("{}-{name}", name_of(store)));
    fs::create_dir_all(&data).unwrap();
    let config = data.join("tidings.toml");
    fs::write(&config, lines).unwrap();
    let mut serve = Command::new(env!("CARGO_BIN_EXE_tidings"));
    serve.env("TIDINGS_JOURNAL__STORE", store).env("TIDINGS_NODE__NAME", name);
    serve.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&config).arg("--data").arg(&data);
    streams::Server::start(serve)
}

/// Returns the value of a metric without labels of a gateway.
pub(crate) fn metric(gateway: &streams::Server, name: &str) -> f64 {
    let mut stream = TcpStream::connect(gateway.address()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map_or(0.0, |value| value.parse().unwrap())
}
