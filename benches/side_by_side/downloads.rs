//! Downloads of files, compared with `curl --parallel` into a folder. The gateway also hashes each file, writes it to the
//! disk before it goes on, and journals its copy.
//!
//! The files come from memory, in the process of the benchmark, at eight addresses, because the gateway sends one request
//! at a time to a host. `curl` has eight connections.

use std::{
    fmt::Write,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use axum::{Router, extract, http::header::CONTENT_TYPE, response::IntoResponse, routing::get};
use serde_json::{Value, json};
use tokio::{net::TcpListener, runtime::Runtime, time::sleep};

use super::{
    harvests::{duration, write_config},
    journal::runtime,
    measure::{Contender, compare},
};

const FILES: usize = 1000;

/// Size of a file, in bytes.
const BYTES: usize = 1_000_000;

/// Number of hosts, and of connections of `curl`.
const HOSTS: usize = 8;

const ROUNDS: usize = 3;

pub(crate) fn measure() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = runtime();
    let port = server(&runtime);
    let url = |number: usize| format!("http://127.0.0.{}:{port}/{number}", 1 + number % HOSTS);
    let urls: Vec<String> = (0..FILES).map(url).collect();
    compare(
        &format!("download of {FILES} files of {BYTES} bytes"),
        "files",
        ROUNDS,
        vec![
            Contender::timed("curl --parallel", || curl(&urls, HOSTS)),
            Contender::timed("Tidings", || tidings(&runtime, &urls)),
        ],
    );
}

/// Starts the server of the files, and returns its port.
fn server(runtime: &Runtime) -> u16 {
    let file = |extract::Path(number): extract::Path<u64>| async move {
        // No two files have the same bytes.
        let mut content = vec![b'x'; BYTES];
        content[..8].copy_from_slice(&number.to_be_bytes());
        ([(CONTENT_TYPE, "application/x-bench")], content).into_response()
    };
    let listener = runtime.block_on(TcpListener::bind("0.0.0.0:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    runtime.spawn(async move { axum::serve(listener, Router::new().route("/{number}", get(file))).await.unwrap() });
    port
}

/// Downloads files into a folder; returns their number and the time.
pub(crate) fn curl(urls: &[String], connections: usize) -> (u64, Duration) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = String::new();
    for (number, url) in urls.iter().enumerate() {
        writeln!(config, "url = \"{url}\"\noutput = \"{number}\"").unwrap();
    }
    fs::write(folder.path().join("urls"), config).unwrap();
    let began = Instant::now();
    let connections = connections.to_string();
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--fail", "--parallel", "--parallel-max", &connections, "--config", "urls"]);
    assert!(curl.current_dir(folder.path()).status().unwrap().success());
    (urls.len() as u64, began.elapsed())
}

fn tidings(runtime: &Runtime, urls: &[String]) -> (u64, Duration) {
    let folder = tempfile::tempdir().unwrap();
    let source = "[sources.repo]\ntransport = \"http\"\ndialect = \"content-change\"\n";
    let reporting = HarvestingGateway::start(folder.path(), source);
    runtime.block_on(async {
        for (number, url) in urls.iter().enumerate() {
            let item = json!({ "uri": format!("urn:item:{number}"), "change": "ADD", "content": { "url": url } });
            let event = json!({ "object": format!("urn:object:{number}"), "items": [item] });
            reporting.report(&event).await;
        }
    });
    drop(reporting);
    let lines = format!(
        "[delivery]\nallow = [\"127.0.0.0/8\"]\n{source}[sources.files]\ntransport = \"download\"\n\
         dialect = \"download\"\nof = [\"repo\"]\nurls = '.*'\nrobots = false\n"
    );
    let gateway = HarvestingGateway::start(folder.path(), &lines);
    runtime.block_on(async {
        loop {
            let harvest = gateway.json("/harvests/files").await;
            let newest = &harvest["runs"][0];
            if newest["state"] == "completed" {
                assert_eq!(newest["changes"], FILES, "{newest}");
                return (FILES as u64, duration(newest));
            }
            sleep(Duration::from_millis(50)).await;
        }
    })
}

/// A gateway with a configuration. Dropping it kills the process.
pub(crate) struct HarvestingGateway {
    process: Child,
    url: String,
    client: reqwest::Client,
}

impl HarvestingGateway {
    pub(crate) fn start(folder: &Path, lines: &str) -> Self {
        let config = write_config(folder, lines);
        let mut serve = Command::new(env!("CARGO_BIN_EXE_tidings"));
        serve.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.join("data"));
        let mut process =
            serve.arg("--config").arg(config).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().rsplit(' ').next().unwrap().to_owned();
        Self { process, url, client: reqwest::Client::builder().no_proxy().build().unwrap() }
    }

    pub(crate) async fn json(&self, path: &str) -> Value {
        let response = self.client.get(format!("{}{path}", self.url)).send().await.unwrap();
        serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
    }

    pub(crate) async fn post(&self, path: &str) {
        let response = self.client.post(format!("{}{path}", self.url)).send().await.unwrap();
        assert!(response.status().is_success());
    }

    async fn report(&self, event: &Value) {
        let request = self.client.post(format!("{}/hooks/repo", self.url)).header("content-type", "application/json");
        assert!(request.body(event.to_string()).send().await.unwrap().status().is_success());
    }
}

impl Drop for HarvestingGateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
