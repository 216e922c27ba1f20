//! `tidings tail` prints one line for each change, across failures of the gateway, until Ctrl-C.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, PATIENCE, command, free_address},
    gateway_with_auth::{GatewayWithAuth, message},
    printed_lines::printed_lines,
    subscription_fixture::{gateway, post, post_event},
};

fn tail(arguments: &[&str]) -> Command {
    let mut tail = command();
    tail.arg("tail").args(arguments).stdin(Stdio::null());
    tail
}

/// Running command, with its output in files.
struct Tail {
    child: Child,
    folder: PathBuf,
}

impl Tail {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::of(folder, tail(arguments))
    }

    fn of(folder: &Path, mut tail: Command) -> Self {
        let file = |name: &str| File::create(folder.join(name)).unwrap();
        let child = tail.stdout(file("out")).stderr(file("err")).spawn().unwrap();
        Self { child, folder: folder.to_owned() }
    }

    fn read(&self, name: &str) -> Vec<String> {
        printed_lines(&self.folder.join(name))
    }

    /// Waits until the command has written that many lines.
    async fn until(&self, name: &str, lines: usize) -> Vec<String> {
        let began = Instant::now();
        loop {
            let written = self.read(name);
            if written.len() >= lines {
                return written;
            }
            assert!(began.elapsed() < PATIENCE, "{name} has {written:?}, err has {:?}", self.read("err"));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Sends SIGINT; returns the last line of standard error.
    fn interrupt(mut self) -> String {
        let sent = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success() && self.child.wait().unwrap().success());
        self.read("err").pop().unwrap_or_default()
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tail_shows_each_change_once_across_a_gateway_kill() {
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let data = folder.path().join("data");
    let start = || Gateway::start_elsewhere(&data, &["--listen", &address], None);
    let url = format!("http://{address}");
    // The command starts before the gateway.
    let tail = Tail::start(folder.path(), &[&url, "--after", "0"]);
    let lines = tail.until("err", 1).await;
    assert!(lines[0].starts_with("tidings: no connection") && lines[0].ends_with("; retrying"), "{lines:?}");
    let mut gateway = start();
    post(&gateway, 1).await;
    post_event(&gateway, &json!({ "object": "http://h.example/objects/1", "purge": true })).await;
    let details = tail.until("out", 2).await;
    let expected = ["1  ", "Z  add     content-change  http://h.example/objects/1  1 item"];
    assert!(details[0].starts_with(expected[0]) && details[0].ends_with(expected[1]), "{details:?}");
    assert!(details[1].starts_with("2  ") && details[1].contains("  delete  "), "{details:?}");
    gateway.kill();
    // One line announces the failure, and one the reconnection.
    assert_eq!(tail.until("err", 3).await[1], "tidings: reconnected");
    gateway = start();
    post(&gateway, 3).await;
    let details = tail.until("out", 3).await;
    assert!(details.len() == 3 && details[2].starts_with("3  "), "{details:?}");
    assert_eq!(tail.until("err", 4).await.len(), 4);
    assert_eq!(tail.interrupt(), "tidings: stopped; resume with --after 3");
    drop(gateway);
}

#[tokio::test]
async fn tail_applies_filters_and_formats() {
    let folder = tempfile::tempdir().unwrap();
    let data = tempfile::tempdir().unwrap();
    let gateway = gateway(data.path(), "");
    for number in 1..=3 {
        post(&gateway, number).await;
    }
    let filter = ["--filter", "object=http://h.example/objects/2", "--filter", "change=ADD"];
    let arguments = [&[gateway.url.as_str(), "--after", "0", "--format", "json"], &filter[..]].concat();
    let tail = Tail::start(folder.path(), &arguments);
    let details: Vec<Value> =
        tail.until("out", 1).await.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(details, gateway.changes().await[1..2]);
    // The stream also reports that the filter leaves out the third.
    let end = tail.interrupt();
    assert!(["2", "3"].iter().any(|last| end == format!("tidings: stopped; resume with --after {last}")), "{end}");
    // Without a cursor the command starts at the head, and can resume even if it has seen no change.
    let tail = Tail::start(folder.path(), &[&gateway.url]);
    post(&gateway, 4).await;
    let began = Instant::now();
    let mut number = 5;
    while tail.read("out").is_empty() {
        post(&gateway, number).await;
        number += 1;
        assert!(began.elapsed() < PATIENCE);
    }
    assert!(tail.interrupt().starts_with("tidings: stopped; resume with --after "));
}

#[tokio::test]
async fn tail_closed_pipe_is_success() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    let mut child =
        tail(&[&gateway.url, "--after", "0"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    post(&gateway, 1).await;
    let ended = ended(child);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// Waits for the end of the command; kills it after the time limit, which counts as a failure.
fn ended(mut child: Child) -> Output {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > PATIENCE {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Runs the command, which must fail with that exit code; returns standard error.
fn fails(code: i32, mut tail: Command) -> String {
    let child = tail.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let Output { status, stdout, stderr } = ended(child);
    let lines = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!((status.code(), stdout.len()), (Some(code), 0), "{lines}");
    lines
}

#[tokio::test]
async fn tail_prints_the_problem_of_a_refused_request() {
    let guarded = GatewayWithAuth::start();
    assert_eq!(guarded.post("fedora3", &message(1)).bearer_auth("tdg_publisher").send().await.unwrap().status(), 201);
    let url = guarded.gateway.url.as_str();
    assert!(fails(1, tail(&[url])).starts_with("tidings: 401 Unauthorized: this request needs a token"));
    let wrong = fails(1, tail(&[url, "--token", "tdg_s3cret"]));
    assert!(wrong.starts_with("tidings: 401 Unauthorized") && !wrong.contains("s3cret"), "{wrong}");
    let with_token = |arguments: &[&str]| {
        let mut tail = tail(&[&[url], arguments].concat());
        tail.env("TIDINGS_TOKEN", "tdg_reader");
        tail
    };
    assert!(
        fails(1, with_token(&["--after", "700"])).starts_with("tidings: 410 Gone: The journal cannot be read from")
    );
    let unknown = fails(1, with_token(&["--filter", "objekt=x"]));
    assert!(unknown.contains(r#"There is no parameter "objekt"; did you mean "object"?"#), "{unknown}");
    let elsewhere = fails(1, tail(&[&format!("{url}/nowhere")]));
    assert!(elsewhere.starts_with("tidings: 404 Not Found: No resource has the path /nowhere/stream"), "{elsewhere}");
    for wrong in [&["ftp://h"][..], &["--filter", "DELETE"], &["--filter", "after=1"], &["--after", "x"]] {
        fails(2, tail(wrong));
    }
    // With the token the request succeeds.
    let folder = tempfile::tempdir().unwrap();
    let details = Tail::of(folder.path(), with_token(&["--after", "0"])).until("out", 1).await;
    assert!(details[0].starts_with("1  "), "{details:?}");
}
