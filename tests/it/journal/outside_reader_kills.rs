//! Many clients post concurrently, another program opens the journal for reading and writing again and again,
//! and the gateway is killed many times. No acknowledged change is lost, none is in the journal twice, and the
//! numbers have no gap.
//!
//! `TIDINGS_TEST_KILLS` and `TIDINGS_TEST_CHANGES` make the test longer (see CONTRIBUTING.md).

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{
    gateway::Gateway,
    journal_fixture::{journal_file, verify_ok},
};

const POSTERS: u64 = 16;

/// Returns a number from the environment, or `usual`.
fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text:?}")))
}

/// Another program that opens the journal for reading and writing, reads it, and closes it, at random moments.
struct OutsideReader {
    program: Child,
    /// File with one byte for each read.
    reads: PathBuf,
}

impl OutsideReader {
    fn start(journal: &Path, reads: PathBuf) -> Self {
        const SCRIPT: &str = "\
import random, sqlite3, sys, time
while True:
    try:
        connection = sqlite3.connect(sys.argv[1])
        try:
            connection.execute('SELECT max(seq) FROM changes').fetchone()
            print(end='.', flush=True)
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        if 'locked' not in str(error):
            raise
    time.sleep(random.uniform(0, 0.05))
";
        let mut program = Command::new("python3");
        program.args(["-c", SCRIPT]).arg(journal).stdout(File::create(&reads).unwrap()).stderr(Stdio::inherit());
        Self { program: program.spawn().unwrap(), reads }
    }

    /// Number of reads so far.
    fn reads(&mut self) -> u64 {
        assert!(self.program.try_wait().unwrap().is_none(), "the outside reader has failed");
        self.reads.metadata().unwrap().len()
    }
}

impl Drop for OutsideReader {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn event(number: u64) -> Value {
    let object = format!("http://localhost/objects/{}", number / 10);
    let item = json!({ "uri": format!("{object}/items/{number}"), "change": "ADD" });
    json!({ "object": object, "sourceEventId": number.to_string(), "items": [item] })
}

/// Posts an event; returns the number of its change, or `None` if there was no response.
async fn post(http: &reqwest::Client, url: &str, number: u64) -> Option<u64> {
    let request = http.post(format!("{url}/hooks/content-change")).header("content-type", "application/json");
    let answer = request.body(event(number).to_string()).send().await.ok()?;
    let status = answer.status();
    let answer: Value = serde_json::from_slice(&answer.bytes().await.ok()?).ok()?;
    assert!(status.is_success(), "{status}: {answer}");
    answer["changes"][0]["seq"].as_u64()
}

/// Reads the changes after `after` and adds them to `events`: the number of the change by event.
async fn read_on(gateway: &Gateway, mut after: u64, events: &mut BTreeMap<u64, u64>) -> u64 {
    loop {
        let page = gateway.json(&format!("/changes?after={after}&limit=1000")).await;
        let changes = page["changes"].as_array().unwrap();
        if changes.is_empty() {
            return after;
        }
        for change in changes {
            let seq = change["seq"].as_u64().unwrap();
            assert_eq!(seq, after + 1, "the numbers have a gap");
            let event = change["sourceEventId"].as_str().unwrap().parse().unwrap();
            let earlier = events.insert(event, seq);
            assert_eq!(earlier, None, "event {event} is in the journal twice: the second time as change {seq}");
            after = seq;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outside_reader_and_kills_lose_or_duplicate_no_acknowledged_change() {
    crate::support::needs_sqlite();
    let (kills, changes) = (number("TIDINGS_TEST_KILLS", 6), number("TIDINGS_TEST_CHANGES", 1500));
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    assert!(Gateway::start(&data).stop().success());
    let mut reader = OutsideReader::start(&journal_file(&data), folder.path().join("reads"));
    let next = Arc::new(AtomicU64::new(1));
    let (mut events, mut head, mut unanswered) = (BTreeMap::new(), 0, Vec::new());
    for round in 1..=kills {
        let mut gateway = Gateway::start(&data);
        let reads = reader.reads();
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        // An event without a response may have been stored or not, so its sender sends it again.
        for number in unanswered.drain(..) {
            let seq = post(&gateway.http, &gateway.url, number).await.unwrap();
            acknowledged.lock().unwrap().push((number, seq));
        }
        let posters: Vec<_> = (0..POSTERS)
            .map(|_| {
                let (http, url) = (gateway.http.clone(), gateway.url.clone());
                let (acknowledged, next) = (Arc::clone(&acknowledged), Arc::clone(&next));
                tokio::spawn(async move {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        match post(&http, &url, number).await {
                            Some(seq) => acknowledged.lock().unwrap().push((number, seq)),
                            None => return number,
                        }
                    }
                })
            })
            .collect();
        let posted = || acknowledged.lock().unwrap().len() as u64;
        let enough = changes.div_ceil(kills) + fastrand::u64(0..100);
        while posted() < enough || reader.reads() < reads + 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        gateway.kill();
        for poster in posters {
            unanswered.push(poster.await.unwrap());
        }
        let gateway = Gateway::start(&data);
        head = read_on(&gateway, head, &mut events).await;
        for (number, seq) in acknowledged.lock().unwrap().iter() {
            assert_eq!(events.get(number), Some(seq), "event {number} was acknowledged as change {seq}, kill {round}");
        }
        if kills > 20 && round % 10 == 0 {
            println!("{round} kills, {head} changes, {} reads from outside", reader.reads());
        }
    }
    assert!(head >= changes, "{head} changes");
    let gateway = Gateway::start(&data);
    let mut in_the_end = BTreeMap::new();
    assert_eq!(read_on(&gateway, 0, &mut in_the_end).await, head);
    assert!(in_the_end == events, "a change differs from its earlier version");
    assert!(gateway.stop().success());
    let report = verify_ok(&journal_file(&data));
    assert_eq!((report.changes, report.complete), (head, true));
}
