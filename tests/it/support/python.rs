//! Python programs of the tests: Social Feed Manager's publisher (kombu), a repository (stomp.py), and the examples:
//! indexer (pika), webhook receiver (standardwebhooks), OAI-PMH repository. `scripts/python` creates their environment on
//! its first run.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{gateway::PATIENCE, printed_lines::printed_lines};

fn python(script: &str) -> Command {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    // A background job of a shell ignores Ctrl-C, and Python would inherit that.
    let mut command = Command::new("env");
    command.arg("--default-signal=INT").arg(here.join("scripts/python")).arg(here.join(script));
    command
}

/// Publishes messages, each with a routing key and a body, as Social Feed Manager does. A text body is sent
/// unchanged.
pub(crate) fn publish_as_sfm(url: &str, messages: &[(impl AsRef<str>, Value)]) {
    let mut publisher = python("examples/sfm.py");
    publisher.arg(url).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut publisher = publisher.spawn().unwrap();
    let mut input = publisher.stdin.take().unwrap();
    for (key, body) in messages {
        writeln!(input, "{}", json!([key.as_ref(), body])).unwrap();
    }
    drop(input);
    let done = publisher.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Reads a destination with stomp.py until that many different changes have arrived. Each message has headers and a body.
pub(crate) fn consume_with_stomp_py(port: u16, destination: &str, changes: u64) -> Vec<Value> {
    let mut consumer = python("tests/it/support/stomp_consumer.py");
    let done = consumer.args([&format!("127.0.0.1:{port}"), destination, &changes.to_string()]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let lines = String::from_utf8(done.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the Python of an environment with the packages of `scripts/requirements/NAME.txt`, and creates the environment
/// on the first call.
pub(crate) fn environment(name: &str) -> PathBuf {
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/venv");
    let made = Command::new(venv).arg(name).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Path::new(String::from_utf8(made.stdout).unwrap().trim()).join("bin/python")
}

/// Parses messages with the CloudEvents SDK. Each message is an object with a binding, headers, a content type
/// and a body.
pub(crate) fn read_cloudevents(messages: &[Value]) -> Vec<Value> {
    let mut reader = Command::new(environment("cloudevents"));
    reader.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/read_cloudevents.py"));
    let mut reader = reader.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = reader.stdin.take().unwrap();
    let lines: String = messages.iter().map(|message| format!("{message}\n")).collect();
    let writing = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let done = reader.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    writing.join().unwrap().unwrap();
    let lines = String::from_utf8(done.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the files of a dataset with their MD5, as pooch lists them. The host of the URL plays the platform.
pub(crate) fn pooch_registry(platform: &str, url: &str) -> BTreeMap<String, String> {
    let mut reader = Command::new(environment("pooch"));
    reader.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/pooch_registry.py"));
    let done = reader.args([platform, url]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

/// Returns path, size, digest and URL of each file of a dataset, as datahugger lists them. The host of the URL plays the
/// platform.
pub(crate) fn datahugger_files(platform: &str, url: &str) -> Value {
    let mut reader = Command::new(environment("datahugger"));
    reader.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/datahugger_files.py"));
    let done = reader.args([platform, url]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

/// Reads a WARC file with warcio, and indexes it with cdxj-indexer. Returns the records with the digests of their bodies,
/// whether the digests of the records are true, and the index.
pub(crate) fn read_warc(warc: &Path) -> Value {
    let mut reader = Command::new(environment("warc"));
    reader.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/read_warc.py"));
    let done = reader.arg(warc).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

/// Returns the headers with which internetarchive, the client of archive.org, uploads the first file of an item.
pub(crate) fn internetarchive_headers(metadata: &Value) -> Vec<(String, String)> {
    let mut reader = Command::new(environment("internetarchive"));
    reader.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/internetarchive_headers.py"));
    let done = reader.arg(metadata.to_string()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

/// Running example program.
pub(crate) struct Example {
    child: Child,
    output: PathBuf,
}

impl Example {
    /// Starts the indexer with its output in files of the folder.
    pub(crate) fn indexer(url: &str, queue: &str, folder: &Path) -> Self {
        let mut indexer = python("examples/indexer.py");
        indexer.args([url, queue]);
        Self::start(indexer, folder, "indexed")
    }

    /// Starts the webhook receiver with these secrets; returns its port.
    pub(crate) async fn webhook_receiver(secrets: &str, folder: &Path) -> (Self, u16) {
        let mut receiver = python("examples/webhook_receiver.py");
        receiver.args(["127.0.0.1", "0"]).env("WEBHOOK_SECRETS", secrets);
        let mut receiver = Self::start(receiver, folder, "received");
        receiver.until_printed(1).await;
        let port = receiver.lines()[0].rsplit(' ').next().unwrap().parse().unwrap();
        (receiver, port)
    }

    /// Starts the stand-in for Solr at a port, with its documents in the folder; returns its port.
    pub(crate) async fn solr(port: &str, folder: &Path) -> (Self, u16) {
        let mut solr = python("examples/solr.py");
        solr.arg(port).arg(folder.join("documents"));
        let mut solr = Self::start(solr, folder, "solr");
        solr.until_printed(1).await;
        let port = solr.lines()[0].split(':').nth(2).unwrap().split('/').next().unwrap().parse().unwrap();
        (solr, port)
    }

    /// Starts a repository of `examples/` at a port.
    pub(crate) async fn repository(program: &str, port: &str, folder: &Path) -> Self {
        let mut repository = python(&format!("examples/{program}"));
        repository.arg(port);
        let mut repository = Self::start(repository, folder, "repository");
        repository.until_printed(1).await;
        repository
    }

    fn start(mut example: Command, folder: &Path, name: &str) -> Self {
        let output = folder.join(name);
        example.stdin(Stdio::null()).stdout(File::create(&output).unwrap());
        example.stderr(File::create(output.with_extension("err")).unwrap());
        Self { child: example.spawn().unwrap(), output }
    }

    /// Returns the lines of standard output.
    pub(crate) fn lines(&self) -> Vec<String> {
        printed_lines(&self.output)
    }

    /// Waits until the program has printed that many lines.
    pub(crate) async fn until_printed(&mut self, lines: usize) {
        let began = Instant::now();
        while self.lines().len() < lines {
            let ended = self.child.try_wait().unwrap();
            let text = fs::read_to_string(self.output.with_extension("err")).unwrap();
            assert!(ended.is_none(), "it has ended: {text}");
            assert!(began.elapsed() < 2 * PATIENCE, "it takes too long: {:?}", self.lines());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends SIGINT, waits for a clean exit and returns all printed lines.
    pub(crate) fn stop(mut self) -> Vec<String> {
        let sent = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let began = Instant::now();
        let ended = loop {
            if let Some(ended) = self.child.try_wait().unwrap() {
                break ended;
            }
            assert!(began.elapsed() < PATIENCE, "the program does not end at Ctrl-C");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(ended.success(), "{ended}");
        self.lines()
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Fake repository that uses stomp.py: it sends messages, each with headers and a body, until the broker has
/// confirmed all of them.
pub(crate) struct Repository {
    child: Child,
    output: PathBuf,
}

impl Repository {
    /// Starts the sender with its output in files of the folder.
    pub(crate) fn start(port: u16, destination: &str, messages: &[(Value, String)], folder: &Path) -> Self {
        let (input, output) = (folder.join("messages"), folder.join("confirmed"));
        let lines: Vec<_> = messages.iter().map(|message| json!(message).to_string()).collect();
        fs::write(&input, lines.join("\n")).unwrap();
        let mut repository = python("examples/repository.py");
        repository.args([&format!("127.0.0.1:{port}"), destination]).stdin(File::open(input).unwrap());
        let errors = File::create(folder.join("repository.err")).unwrap();
        Self { child: repository.stdout(File::create(&output).unwrap()).stderr(errors).spawn().unwrap(), output }
    }

    /// Returns the number of confirmed messages.
    pub(crate) fn confirmed(&self) -> usize {
        printed_lines(&self.output).len()
    }

    /// Waits until every message is confirmed.
    pub(crate) fn wait(mut self) {
        let done = self.child.wait().unwrap();
        let text = fs::read_to_string(self.output.with_file_name("repository.err")).unwrap();
        assert!(done.success(), "{text}");
    }
}

impl Drop for Repository {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
