//! Independent clients of the stream that are not browsers: httpx-sse, in the example, and sseclient-py.
//! `scripts/python-sse` creates their environment on its first run.

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::support::{
    event_stream::Stream,
    gateway::{Gateway, PATIENCE, free_address},
    printed_lines::printed_lines,
    subscription_fixture::{gateway, post},
};

fn python(arguments: &[&str]) -> Command {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut python = Command::new(here.join("scripts/python-sse"));
    python.args(arguments).current_dir(here).stdin(Stdio::null());
    python
}

/// Running client, with its output in a file.
struct Client {
    child: Child,
    folder: std::path::PathBuf,
}

impl Client {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let output = File::options().create(true).append(true).open(folder.join("out")).unwrap();
        let errors = File::create(folder.join("err")).unwrap();
        let child = python(arguments).stdout(output).stderr(errors).spawn().unwrap();
        Self { child, folder: folder.to_owned() }
    }

    /// Waits until the client has printed that many lines.
    async fn until(&mut self, lines: usize) -> Vec<String> {
        let began = Instant::now();
        loop {
            let printed = printed_lines(&self.folder.join("out"));
            if printed.len() >= lines {
                return printed;
            }
            let errors = || fs::read_to_string(self.folder.join("err")).unwrap();
            assert!(self.child.try_wait().unwrap().is_none(), "it has ended: {}", errors());
            assert!(began.elapsed() < 2 * PATIENCE, "it printed {printed:?}; {}", errors());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn httpx_example_sees_each_change_once_across_kills() {
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let address = free_address();
    let start = || Gateway::start_elsewhere(data.path(), &["--listen", &address], None);
    let mut gateway = start();
    let place = folder.path().join("place");
    let url = format!("http://{address}/stream?after=0");
    let arguments = ["examples/follow.py", &url, place.to_str().unwrap()];
    let mut client = Client::start(folder.path(), &arguments);
    post(&gateway, 1).await;
    client.until(1).await;
    gateway.kill();
    gateway = start();
    post(&gateway, 2).await;
    client.until(2).await;
    drop(client);
    post(&gateway, 3).await;
    let mut client = Client::start(folder.path(), &arguments);
    let printed = client.until(3).await;
    let expected: Vec<_> = (1..=3).map(|number| format!("{number} http://h.example/objects/{number}")).collect();
    assert_eq!(printed, expected);
}

/// Prints each event that the client returns, one line each.
const SSECLIENT: &str = "
import json, sys, requests, sseclient
for event in sseclient.SSEClient(requests.get(sys.argv[1], stream=True)).events():
    print(json.dumps([event.id, event.event, event.data]), flush=True)
";

#[tokio::test]
async fn sseclient_returns_only_changes() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[server]\nheartbeat_seconds = 1\n");
    for number in 1..=2 {
        post(&gateway, number).await;
    }
    let query = "?after=0&format=atom&object=http://h.example/objects/1";
    let mut client = Client::start(folder.path(), &["-c", SSECLIENT, &format!("{}/stream{query}", gateway.url)]);
    client.until(1).await;
    // A later stream has received a heartbeat with an id and one without, so the first stream has too.
    let mut later = Stream::open(&gateway, query, None).await;
    while later.next().await.unwrap().unwrap().id != "2" {}
    assert!(later.next().await.unwrap().unwrap().comment);
    post(&gateway, 10).await;
    let printed = client.until(2).await;
    let mut expected = Vec::new();
    for change in [0, 2] {
        let id = gateway.changes().await[change]["id"].as_str().unwrap().to_owned();
        let one = gateway.http.get(format!("{}/changes/{id}", gateway.url)).send().await.unwrap();
        expected.push(serde_json::json!([(change + 1).to_string(), "add", one.text().await.unwrap()]));
    }
    let printed: Vec<serde_json::Value> = printed.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(printed, expected);
}
