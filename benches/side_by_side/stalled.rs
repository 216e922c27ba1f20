//! A subscriber that is well, alone and beside three that are stalled, each in a way of its own: one whose broker
//! accepts and says nothing, one whose broker is short of memory, one whose queue is full and refuses. What
//! counts is how fast the healthy one gets what is appended meanwhile: it is to be slowed by no more than
//! a tenth.
//!
//! In one process, over one journal: for the turns alone the others are paused, and for every other turn
//! they go on, until that which is refused at once has been refused a few times. The first attempts are close
//! together, and one that has been stalled for a while makes one a minute.

use std::{
    collections::BTreeMap,
    net::TcpListener,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::json;
use tidings::{
    delivery::{Definition, Maker, Subscriptions, Tuning},
    http_client::Guard,
    journal::{Journal, subscriptions::MadeBy},
    model::{SubscriptionName, Timestamp},
    supervision::Supervisor,
};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::{
    journal::{SENDERS, append_batches, close, draft, open, runtime},
    measure::{Contender, compare},
    rabbitmq::Broker,
};

/// How many changes there are in a turn.
const TURN: u64 = 20_000;

const ROUNDS: usize = 7;

/// How far away the next attempt of that which is refused is before a turn begins, in milliseconds.
const QUIET: i64 = 5000;

const WELL: &str = "well";
const STALLED: [&str; 3] = ["silent", "starved", "full"];

struct Bench {
    runtime: Runtime,
    journal: Journal,
    subscriptions: Subscriptions,
    next: u64,
}

pub(crate) fn measure() {
    let (broker, starved) = (Broker::start(), Broker::start());
    let (well, full) = (broker.vhost(), broker.vhost());
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let silent = format!("amqp://127.0.0.1:{}", silent.local_addr().unwrap().port());
    for (vhost, limit) in
        [(&well, r#"{"max-length":1000}"#), (&full, r#"{"max-length":1,"overflow":"reject-publish"}"#)]
    {
        broker.ctl(&["set_policy", "--vhost", &vhost.name, "bound", ".*", limit, "--apply-to", "queues"]);
    }
    let urls = [(WELL, well.url()), ("silent", silent), ("starved", starved.vhost().url()), ("full", full.url())];
    let configured = urls.iter().map(|(name, url)| (self::name(name), Arc::new(definition(url))));

    let (runtime, folder) = (runtime(), tempfile::tempdir().unwrap());
    let (journal, writer) = open(folder.path());
    let configured: BTreeMap<_, _> = configured.collect();
    let (subscriptions, runner) = runtime
        .block_on(Subscriptions::open(journal.clone(), configured, Guard::of_the_operator(), Tuning::default()))
        .unwrap();
    let stop = CancellationToken::new();
    let running = runtime.spawn(runner.run(stop.clone(), Duration::from_secs(10), Supervisor::default()));
    let bench = Bench { runtime, journal, subscriptions, next: 0 };
    bench.wait_until_idle();
    starved.starve();
    bench.pause();
    let bench = std::cell::RefCell::new(bench);
    compare(
        "delivering what is appended meanwhile",
        "changes",
        ROUNDS,
        vec![
            Contender::timed("a healthy subscriber alone", || bench.borrow_mut().turn()),
            Contender::timed("beside three that are stalled", || {
                bench.borrow().resume();
                let turn = bench.borrow_mut().turn();
                bench.borrow().pause();
                turn
            }),
        ],
    );
    let bench = bench.into_inner();
    stop.cancel();
    bench.runtime.block_on(running).unwrap();
    let Bench { journal, subscriptions, .. } = bench;
    drop(subscriptions);
    close(journal, writer);
}

fn name(name: &str) -> SubscriptionName {
    SubscriptionName::parse(name).unwrap()
}

fn definition(url: &str) -> Definition {
    let definition = json!({
        "delivery": "amqp", "url": url, "exchange": "content", "start": "beginning",
        "queues": [{ "name": "index", "type": "classic" }],
    });
    let guard = Guard::of_the_operator();
    Definition::read(definition, &Maker { made_by: MadeBy::Config, variable: &|_| None, guard: &guard }).unwrap()
}

impl Bench {
    /// Appends so many changes, and waits until the healthy one has them.
    fn turn(&mut self) -> (u64, Duration) {
        let drafts = (self.next..self.next + TURN).map(draft).collect();
        self.next += TURN;
        let began = Instant::now();
        append_batches(&self.runtime, &self.journal, drafts, SENDERS);
        self.wait_until_idle();
        (TURN, began.elapsed())
    }

    /// Waits until the healthy one is connected and has all that there is.
    fn wait_until_idle(&self) {
        let (name, head) = (name(WELL), self.journal.head());
        loop {
            let status = self.subscriptions.get(&name).unwrap().status;
            if status.cursor == head && status.state == tidings::delivery::State::Running {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn pause(&self) {
        for stalled in STALLED {
            self.runtime.block_on(self.subscriptions.pause(&name(stalled))).unwrap();
        }
    }

    fn resume(&self) {
        for stalled in STALLED {
            self.runtime.block_on(self.subscriptions.resume(&name(stalled))).unwrap();
        }
        let is_soon = || {
            let next = self.subscriptions.get(&name("full")).unwrap().status.next_attempt;
            next.is_none_or(|next| next.millis() < Timestamp::now().millis() + QUIET)
        };
        while is_soon() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
