//! A healthy subscriber, alone and together with three stalled ones: the broker of the first accepts connections but
//! never responds, the broker of the second has no memory left, and the queue of the third is full and rejects
//! messages. The result is the rate at which the healthy subscriber receives new changes. Stalled ones may slow it by
//! at most a tenth.
//!
//! All run in one process with one journal. The stalled subscriptions are paused for the turns without them. For the
//! other turns they are resumed until the rejected one has failed several times, because the first attempts follow
//! each other quickly, while a subscription that has been stalled for some time makes one attempt a minute.

use std::{
    collections::BTreeMap,
    net::TcpListener,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::json;
use tidings::{
    delivery::{Definition, DefinitionContext, EngineTimeouts, Subscriptions},
    http_client::OutboundPolicy,
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
    webhooks::only_node,
};

/// Number of changes in a turn.
const TURN: u64 = 20_000;

const ROUNDS: usize = 7;

/// Minimum time until the next attempt of the rejected subscription when a turn starts, in milliseconds.
const QUIET: i64 = 5000;

const HEALTHY: &str = "healthy";
const STALLED: [&str; 3] = ["silent", "starved", "full"];

struct Bench {
    runtime: Runtime,
    journal: Journal,
    subscriptions: Subscriptions,
    next: u64,
}

pub(crate) fn measure() {
    let (broker, starved) = (Broker::start(), Broker::start());
    let (healthy, full) = (broker.vhost(), broker.vhost());
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let silent = format!("amqp://127.0.0.1:{}", silent.local_addr().unwrap().port());
    for (vhost, limit) in
        [(&healthy, r#"{"max-length":1000}"#), (&full, r#"{"max-length":1,"overflow":"reject-publish"}"#)]
    {
        broker.ctl(&["set_policy", "--vhost", &vhost.name, "bound", ".*", limit, "--apply-to", "queues"]);
    }
    let urls = [(HEALTHY, healthy.url()), ("silent", silent), ("starved", starved.vhost().url()), ("full", full.url())];
    let configured = urls.iter().map(|(name, url)| (self::name(name), Arc::new(definition(url))));

    let (runtime, folder) = (runtime(), tempfile::tempdir().unwrap());
    let (journal, writer) = open(folder.path());
    let configured: BTreeMap<_, _> = configured.collect();
    let (subscriptions, runner) = runtime
        .block_on(Subscriptions::open(
            journal.clone(),
            configured,
            OutboundPolicy::unrestricted(),
            EngineTimeouts::default(),
            only_node(),
        ))
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
    let guard = OutboundPolicy::unrestricted();
    Definition::read(definition, &DefinitionContext { made_by: MadeBy::Config, variable: &|_| None, guard: &guard })
        .unwrap()
}

impl Bench {
    /// Appends [`TURN`] changes and waits until the healthy subscriber has received them.
    fn turn(&mut self) -> (u64, Duration) {
        let drafts = (self.next..self.next + TURN).map(draft).collect();
        self.next += TURN;
        let began = Instant::now();
        append_batches(&self.runtime, &self.journal, drafts, SENDERS);
        self.wait_until_idle();
        (TURN, began.elapsed())
    }

    /// Waits until the healthy subscriber is connected and has received all changes.
    fn wait_until_idle(&self) {
        let (name, head) = (name(HEALTHY), self.journal.head());
        loop {
            let status = self.subscriptions.get(&name).unwrap().status;
            if status.cursor == head && status.state == tidings::delivery::SubscriptionState::Running {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn pause(&self) {
        for stalled in STALLED {
            self.runtime.block_on(self.subscriptions.pause(&name(stalled), "the bench".into())).unwrap();
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
