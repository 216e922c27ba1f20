//! Records to crawlers on D-Bus, compared with a loop that sends the same batches over the same library, the same bus and
//! to the same crawler, which parses them and discards them. The loop reads no journal and no registry.
//!
//! Everything runs in one process, with a `dbus-daemon` of its own beside it. For its turn a crawler is installed, gets
//! all changes, and is invalidated.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tidings::{
    dbus::{Bus, Name},
    delivery::xesam::{self, CRAWLER_INTERFACE, Selection, TARGET_INTERFACE, TargetSettings},
};
use tokio::{runtime::Runtime, sync::watch};
use tokio_util::sync::CancellationToken;
use zbus::wire::ObjectPath;

use super::{
    journal::{SENDERS, append_batches, close, draft, open, runtime},
    measure::{Contender, compare},
    webhooks::only_node,
};

/// Number of changes in a turn.
const TURN: u64 = 20_000;

const ROUNDS: usize = 5;

/// Number of crawlers that are installed together.
const MANY: usize = 10;

const NAME: &str = "org.tidings.Bench1";
const TARGET: &str = "/org/freedesktop/xesam/pmh/Target";

/// A record: URI, timestamp, content category, source category, state, and fields.
type Payload = (String, String, String, String, u64, Vec<(String, String)>);

pub(crate) fn measure() {
    let (runtime, folder) = (runtime(), tempfile::tempdir().unwrap());
    let bus = Daemon::start(&folder.path().join("bus"));
    let (journal, writer) = open(&folder.path().join("journal"));
    append_batches(&runtime, &journal, (0..TURN).map(draft).collect(), SENDERS);
    let stop = CancellationToken::new();
    let (crawlers, target) = xesam::open(journal.clone(), settings(&bus.address));
    let running = runtime.spawn(target.run(stop.clone(), only_node()));
    let client = runtime.block_on(Client::connect(&bus.address));
    let batches = runtime.block_on(client.turn(1));
    let records: usize = batches.iter().map(Vec::len).sum();
    let sender = runtime.block_on(zbus::connection::Builder::address(&*bus.address).build()).unwrap();
    compare(
        &format!("{records} records in {} batches", batches.len()),
        "records",
        ROUNDS,
        vec![
            Contender::timed("zbus in a bare loop", || bare(&runtime, &sender, &client, &batches)),
            Contender::timed("Tidings, one crawler", || turn(&runtime, &client, 1)),
            Contender::timed("Tidings, ten crawlers", || turn(&runtime, &client, MANY)),
        ],
    );
    stop.cancel();
    runtime.block_on(running).unwrap();
    drop(crawlers);
    close(journal, writer);
}

/// A `dbus-daemon` of its own.
struct Daemon {
    child: Child,
    address: String,
}

impl Daemon {
    fn start(socket: &Path) -> Self {
        let address = format!("unix:path={}", socket.display());
        let mut command = Command::new("dbus-daemon");
        command.args(["--session", "--nofork", "--print-address", "--address", &address]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("dbus-daemon is installed");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, address }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn settings(bus: &str) -> TargetSettings {
    TargetSettings {
        bus: Bus::parse(bus).unwrap(),
        name: Name::parse(NAME).unwrap(),
        path: tidings::dbus::Path::parse(TARGET).unwrap(),
        crawlers: 1000,
        batch_records: 500,
        batch_bytes: 131_072,
        selection: Selection::default(),
    }
}

/// The crawler's object, which counts records.
struct Crawler {
    count: watch::Sender<usize>,
    /// Batches of the first turn.
    batches: Arc<Mutex<Option<Vec<Vec<Payload>>>>>,
}

#[zbus::interface(name = "org.freedesktop.xesam.pmh.Crawler")]
impl Crawler {
    fn update_records(&self, payloads: Vec<Payload>) {
        self.count.send_modify(|count| *count += payloads.len());
        if let Some(batches) = &mut *self.batches.lock().unwrap() {
            batches.push(payloads);
        }
    }

    fn clean_up(&self) {}

    fn invalidate(&self, _debug_message: &str) {}
}

/// A connection with crawlers.
struct Client {
    connection: zbus::Connection,
    counts: Vec<watch::Receiver<usize>>,
    batches: Arc<Mutex<Option<Vec<Vec<Payload>>>>>,
}

fn path(crawler: usize) -> String {
    format!("/crawler/{crawler}")
}

impl Client {
    async fn connect(bus: &str) -> Self {
        let (mut builder, mut counts) = (zbus::connection::Builder::address(bus), Vec::new());
        let batches = Arc::new(Mutex::new(Some(Vec::new())));
        for crawler in 0..MANY {
            let (count, counted) = watch::channel(0);
            counts.push(counted);
            builder = builder.serve_at(path(crawler), Crawler { count, batches: Arc::clone(&batches) });
        }
        Self { connection: builder.build().await.unwrap(), counts, batches }
    }

    /// Installs so many crawlers, waits until they have all changes, and returns the batches if this is the first turn.
    async fn turn(&self, crawlers: usize) -> Vec<Vec<Payload>> {
        let before: Vec<_> = self.counts.iter().map(|count| *count.borrow()).collect();
        for crawler in 0..crawlers {
            self.install(crawler).await;
        }
        for (count, before) in self.counts.iter().zip(before).take(crawlers) {
            count.clone().wait_for(|count| *count >= before + TURN as usize * 2).await.unwrap();
        }
        for crawler in 0..crawlers {
            let signal =
                self.connection.emit_signal(None::<&str>, path(crawler), CRAWLER_INTERFACE, "Invalidated", &"");
            signal.await.unwrap();
        }
        self.batches.lock().unwrap().take().unwrap_or_default()
    }

    /// Installs a crawler. Until the target is on the bus, and has removed the crawler of the last turn, it is refused.
    async fn install(&self, crawler: usize) {
        let none = Vec::<String>::new();
        let path = path(crawler);
        let arguments = (1_u64, &none, &none, &none, 0_u32, ObjectPath::try_from(&*path).unwrap());
        let call =
            || self.connection.call_method(Some(NAME), TARGET, Some(TARGET_INTERFACE), "ListRecords", &arguments);
        let began = Instant::now();
        while call().await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(30), "the crawler is not installed");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn turn(runtime: &Runtime, client: &Client, crawlers: usize) -> (u64, Duration) {
    let began = Instant::now();
    runtime.block_on(client.turn(crawlers));
    (TURN * 2 * crawlers as u64, began.elapsed())
}

/// Sends the batches one after the other.
fn bare(runtime: &Runtime, sender: &zbus::Connection, client: &Client, batches: &[Vec<Payload>]) -> (u64, Duration) {
    let owner = client.connection.unique_name().unwrap().clone();
    let (began, mut records) = (Instant::now(), 0);
    runtime.block_on(async {
        for batch in batches {
            let arguments = (batch,);
            let sent = sender.call_method(Some(&*owner), path(0), Some(CRAWLER_INTERFACE), "UpdateRecords", &arguments);
            sent.await.unwrap();
            records += batch.len() as u64;
        }
    });
    (records, began.elapsed())
}
