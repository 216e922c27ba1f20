//! AMQP: from one queue through the gateway to another, compared with the shovel of RabbitMQ and with a minimal
//! forwarder. All move the same messages between queues of the same type on the same broker. A second forwarder
//! publishes messages like those of the gateway, which shows the part of the difference that is due to the broker.
//!
//! The benchmark starts its own broker. The gateway is the real program in its own process, the shovel runs in the
//! broker, and the forwarder and the code that observes the queue run in this process, on the same machine.

mod bare;
pub(crate) mod gateway;
mod latency;
mod messages;
pub(crate) mod processor;
pub(crate) mod queue_pair;
mod shovel;

use std::{cell::RefCell, path::Path, time::Duration};

use self::{
    bare::{BareForwarder, Publishing},
    gateway::GatewayProcess,
    processor::ProcessorTime,
    queue_pair::QueuePair,
    shovel::Shovel,
};
use super::{
    measure::{Contender, compare},
    rabbitmq::Broker,
};

/// Number of messages in the queue when a contender starts.
const MESSAGES: u64 = 20_000;

/// Number of rounds of each comparison, after a warm-up round.
const ROUNDS: usize = 3;

/// Messages per second while latency is measured in quorum queues: somewhat less than a tenth of the rate of the
/// gateway.
const QUORUM_RATE: u64 = 1500;
/// The same for classic queues.
const CLASSIC_RATE: u64 = 1000;

/// Names of the contenders; the first is the reference.
const NAMES: [&str; 4] =
    ["a bare forwarder", "RabbitMQ's shovel", "Tidings", "a bare forwarder that publishes as Tidings does"];

/// Running contender.
pub(crate) enum Mover<'a> {
    Gateway(GatewayProcess),
    Shovel(Shovel<'a>),
    Bare(BareForwarder),
}

impl Mover<'_> {
    fn process(&self) -> Option<u32> {
        match self {
            Self::Gateway(gateway) => Some(gateway.process()),
            Self::Bare(_) => Some(std::process::id()),
            Self::Shovel(_) => None,
        }
    }

    fn stop(self) {
        match self {
            Self::Gateway(gateway) => gateway.stop(),
            Self::Shovel(shovel) => shovel.stop(),
            Self::Bare(forwarder) => forwarder.stop(),
        }
    }
}

fn start<'a>(which: usize, queues: &'a QueuePair<'a>, folder: &Path) -> Mover<'a> {
    match which {
        0 => Mover::Bare(BareForwarder::start(queues, Publishing::Same)),
        1 => Mover::Shovel(Shovel::start(queues)),
        2 => Mover::Gateway(GatewayProcess::start(queues, folder)),
        _ => Mover::Bare(BareForwarder::start(queues, Publishing::LikeGateway)),
    }
}

pub(crate) fn measure() {
    let broker = Broker::start();
    for (kind, rate) in [("quorum", QUORUM_RATE), ("classic", CLASSIC_RATE)] {
        let folder = tempfile::tempdir().unwrap();
        let queues = QueuePair::new(&broker, kind);
        let (queues, folder) = (&queues, folder.path());
        let used = RefCell::new(NAMES.map(|_| Vec::new()));
        let contender = |which: usize| {
            let used = &used;
            Contender::timed(NAMES[which], move || {
                queues.fill(MESSAGES);
                let mover = start(which, queues, folder);
                let (moved, took, spent) = queues.wait_for(MESSAGES, mover.process());
                mover.stop();
                queues.clear();
                used.borrow_mut()[which].push(spent);
                (moved, took)
            })
        };
        let title = format!("{kind} queues, 2 kB a message");
        compare(&title, "messages", ROUNDS, (0..NAMES.len()).map(contender).collect());
        processor_time(kind, &used.into_inner());
        latency::measure(queues, rate, &[1, 2].map(|which| (NAMES[which], move || start(which, queues, folder))));
    }
}

/// Prints the median processor time of each contender, without the warm-up round. It hardly depends on other load on
/// the machine, unlike the elapsed time.
fn processor_time(kind: &str, used: &[Vec<ProcessorTime>; NAMES.len()]) {
    println!("\n| {kind} queues: processor time of a message | its own | the broker's |\n| --- | ---: | ---: |");
    for (name, used) in NAMES.iter().zip(used) {
        let median = |of: fn(&ProcessorTime) -> Option<Duration>| {
            let mut all: Vec<_> = used.iter().skip(1).filter_map(of).collect();
            all.sort();
            all.get(all.len() / 2)
                .map_or("in the broker".to_owned(), |time| format!("{:.1} µs", time.as_secs_f64() * 1e6))
        };
        println!("| {name} | {} | {} |", median(|used| used.own), median(|used| used.broker));
    }
}
