//! A private message bus, a gateway with its target on it, and crawlers that are not ours.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    dbus_daemon::Bus,
    gateway::{Gateway, PATIENCE},
    journal_fixture::configuration,
    python,
};

/// Name of the target on the bus.
pub(crate) const NAME: &str = "org.tidings.Tidings1";

/// Path of the target.
pub(crate) const TARGET: &str = "/org/freedesktop/xesam/pmh/Target";

/// A gateway with its target on a private bus.
pub(crate) struct Target {
    pub(crate) gateway: Gateway,
    pub(crate) bus: Bus,
    folder: TempDir,
    lines: String,
}

impl Target {
    /// Starts a bus and a gateway, and waits until crawlers can be installed.
    pub(crate) async fn start() -> Self {
        Self::start_with("", "").await
    }

    /// Starts both with these lines of `[dbus]`, and these other lines.
    pub(crate) async fn start_with(dbus: &str, others: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), dbus, others).await
    }

    /// Starts both with the journal in the folder `data` of a folder.
    pub(crate) async fn start_in(folder: TempDir, dbus: &str, others: &str) -> Self {
        Self::start_on(Bus::start(), folder, dbus, others).await
    }

    /// Starts a gateway on a bus.
    pub(crate) async fn start_on(bus: Bus, folder: TempDir, dbus: &str, others: &str) -> Self {
        let lines = format!("{others}\n{}", settings(&bus, dbus));
        let target = Self { gateway: serve(folder.path(), &lines), bus, folder, lines };
        target.until_connected().await;
        target
    }

    /// Waits until crawlers can be installed.
    pub(crate) async fn until_connected(&self) {
        until("the target is on the bus", async || self.view().await["connection"]["state"] == "connected").await;
    }

    /// Kills the gateway like a power cut, and starts it again.
    pub(crate) async fn restart_after_kill(&mut self) {
        self.gateway.kill();
        self.gateway = serve(self.folder.path(), &self.lines);
        self.until_connected().await;
    }

    /// Returns the folder of the journal.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Returns the target as `GET /subscriptions` shows it.
    pub(crate) async fn view(&self) -> Value {
        self.gateway.json("/subscriptions").await["dbus"].clone()
    }

    /// Returns the crawlers as `GET /subscriptions` shows them.
    pub(crate) async fn crawlers(&self) -> Vec<Value> {
        self.view().await["crawlers"].as_array().unwrap().clone()
    }

    /// Waits until there are so many crawlers.
    pub(crate) async fn until_crawlers(&self, count: usize) {
        until("the number of crawlers is right", async || self.crawlers().await.len() == count).await;
    }

    /// Posts a message, which must be accepted.
    pub(crate) async fn post(&self, message: &Value) {
        let (status, answer) = self.gateway.post("content-change", "application/json", message.to_string()).await;
        assert!(status == 201 || status == 200, "{status}: {answer}");
    }

    /// Adds the object with this number, which is an image.
    pub(crate) async fn add(&self, number: usize) {
        self.post(&image(number)).await;
    }

    /// Starts a crawler that asks for records after `mtime`, in batches of `batch`.
    pub(crate) fn crawler(&self, mtime: u64, batch: u32) -> Crawler {
        Crawler::start(&self.bus.address(), &json!({ "mtime": mtime, "batch": batch }))
    }

    /// Starts a crawler with options of `xesam_crawler.py`.
    pub(crate) fn crawler_with(&self, options: &Value) -> Crawler {
        Crawler::start(&self.bus.address(), options)
    }
}

/// Returns the lines of `[dbus]` for a bus.
pub(crate) fn settings(bus: &Bus, lines: &str) -> String {
    format!("[dbus]\nenabled = true\nbus = \"{}\"\n{lines}\n", bus.address())
}

/// Starts a gateway whose configuration, log and journal are in a folder.
pub(crate) fn serve(folder: &Path, lines: &str) -> Gateway {
    let file = configuration(folder, lines);
    let mut command = crate::support::gateway::command();
    let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).unwrap();
    command.stderr(log);
    Gateway::start_as(command, &folder.join("data"), &["--listen", "127.0.0.1:0", "--config", &file])
}

/// Returns the message that adds the object with a number. The object is its only item.
pub(crate) fn image(number: usize) -> Value {
    let uri = uri(number);
    json!({ "object": uri, "items": [
        { "uri": uri, "change": "ADD", "content": { "url": format!("{uri}.png"), "mediaType": "image/png" } }
    ] })
}

/// Returns the URI of the object with a number.
pub(crate) fn uri(number: usize) -> String {
    format!("http://h.example/{number:06}")
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < 2 * PATIENCE, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until a new second begins, and returns it as seconds since 1970.
pub(crate) async fn next_second() -> u64 {
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let began = now();
    until("a new second begins", async || now() > began).await;
    now()
}

/// A record as a crawler got it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) uri: String,
    pub(crate) time: String,
    pub(crate) categories: [String; 2],
    pub(crate) is_deleted: bool,
    pub(crate) fields: Vec<(String, String)>,
}

impl Record {
    fn of(value: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let field = |field: &Value| (text(&field[0]), text(&field[1]));
        let state = value[4].as_u64().unwrap();
        assert!(state == 1 || state == 2, "{value}");
        Self {
            uri: text(&value[0]),
            time: text(&value[1]),
            categories: [text(&value[2]), text(&value[3])],
            is_deleted: state == 2,
            fields: value[5].as_array().unwrap().iter().map(field).collect(),
        }
    }

    /// Returns the values of a field.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        self.fields.iter().filter(|(field, _)| field == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Returns the whole seconds of the timestamp since 1970, which a crawler keeps.
    pub(crate) fn second(&self) -> u64 {
        let time = chrono::DateTime::parse_from_rfc3339(&self.time).unwrap();
        u64::try_from(time.timestamp()).unwrap()
    }
}

/// A running `xesam_crawler.py`.
pub(crate) struct Crawler {
    child: Child,
    input: ChildStdin,
    events: Arc<Mutex<Vec<Value>>>,
}

/// Returns the Python that has the libraries of the crawlers.
pub(crate) fn crawler_python() -> PathBuf {
    python::environment("xesam")
}

impl Crawler {
    /// Starts a crawler on a bus.
    pub(crate) fn start(bus: &str, options: &Value) -> Self {
        let mut command = Command::new(crawler_python());
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/xesam_crawler.py"));
        command.args([bus, NAME, &options.to_string()]);
        Self::run(command)
    }

    /// Runs a program that prints events as JSON lines.
    pub(crate) fn run(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let events = Arc::<Mutex<Vec<Value>>>::default();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let adding = Arc::clone(&events);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                adding.lock().unwrap().push(serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}")));
            }
        });
        Self { child, input, events }
    }

    /// Sends a command.
    pub(crate) fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }

    /// Returns all events so far.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.events.lock().unwrap().clone()
    }

    /// Returns the names of the events so far, without `connected`.
    pub(crate) fn names(&self) -> Vec<String> {
        let events = self.events.lock().unwrap();
        events.iter().skip(1).map(|event| event["event"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits for an event, and returns it.
    pub(crate) async fn until_event(&self, name: &str) -> Value {
        let found = || self.events.lock().unwrap().iter().find(|event| event["event"] == name).cloned();
        until(&format!("there is an event {name}"), async || found().is_some()).await;
        found().unwrap()
    }

    /// Returns all records so far, in the order of the frames.
    pub(crate) fn records(&self) -> Vec<Record> {
        let events = self.events.lock().unwrap();
        let batches = events.iter().filter(|event| event["event"] == "UpdateRecords");
        batches.flat_map(|batch| batch["records"].as_array().unwrap().iter().map(Record::of)).collect()
    }

    /// Returns all records so far of the object at a path.
    pub(crate) fn records_of(&self, path: &str) -> Vec<Record> {
        let events = self.events.lock().unwrap();
        let batches = events.iter().filter(|event| event["event"] == "UpdateRecords" && event["path"] == path);
        batches.flat_map(|batch| batch["records"].as_array().unwrap().iter().map(Record::of)).collect()
    }

    /// Returns the number of records so far.
    pub(crate) fn count(&self) -> usize {
        let events = self.events.lock().unwrap();
        let batches = events.iter().filter(|event| event["event"] == "UpdateRecords");
        batches.map(|batch| batch["records"].as_array().unwrap().len()).sum()
    }

    /// Waits until the crawler has so many records, and returns all.
    pub(crate) async fn until_records(&self, count: usize) -> Vec<Record> {
        until(&format!("the crawler has {count} records"), async || self.count() >= count).await;
        self.records()
    }

    /// Waits until the crawler has a record of an object, and returns all.
    pub(crate) async fn until_record_of(&self, uri: &str) -> Vec<Record> {
        let has = || self.records().iter().any(|record| record.uri == uri);
        until(&format!("the crawler has a record of {uri}"), async || has()).await;
        self.records()
    }

    /// Returns the unique name of the crawler on the bus.
    pub(crate) async fn owner(&self) -> String {
        self.until_event("connected").await["owner"].as_str().unwrap().to_owned()
    }

    /// Kills the crawler like a power cut.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Checks the order on the wire: one call without an answer at a time, and timestamps that never decrease.
    pub(crate) fn check_order(&self) {
        for event in self.events().iter().filter(|event| event["event"] == "UpdateRecords") {
            assert_eq!((&event["waiting"], &event["signature"]), (&json!(0), &json!("a(ssssta(ss))")));
        }
        check_order(&self.records());
    }
}

impl Drop for Crawler {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Checks that timestamps grow, as texts too, and are never a whole second.
pub(crate) fn check_order(records: &[Record]) {
    for pair in records.windows(2) {
        assert!(pair[0].time < pair[1].time, "{pair:?}");
    }
    for record in records {
        let (seconds, fraction) = record.time.split_once('.').unwrap();
        let fraction = fraction.strip_suffix('Z').unwrap();
        assert!(
            seconds.len() == 19 && fraction.len() == 9 && fraction.bytes().any(|digit| digit != b'0'),
            "{record:?}"
        );
    }
}

/// Returns what a crawler has after these records: the fields of each subject that exists.
pub(crate) fn state_after(records: &[Record]) -> BTreeMap<String, Vec<(String, String)>> {
    let mut state = BTreeMap::new();
    for record in records {
        match record.is_deleted {
            true => state.remove(&record.uri),
            false => state.insert(record.uri.clone(), record.fields.clone()),
        };
    }
    state
}
