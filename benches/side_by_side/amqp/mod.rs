//! AMQP: from a queue through the gateway to another queue, beside RabbitMQ's own shovel and beside a
//! bare forwarder, which move the same messages between queues of the same type on the same broker. The forwarder
//! once more, publishing what is like the gateway's, tells what of the difference is the broker's.
//!
//! The broker is the bench's own. The gateway is the real program in a process of its own; the shovel runs
//! in the broker, the forwarder in this process. All share the machine, and so does who looks at the queue.

mod bare;
mod gateway;
mod latency;
mod messages;
pub(crate) mod processor;
mod shovel;
mod yard;

use std::{cell::RefCell, path::Path, time::Duration};

use self::{
    bare::{Bare, Publishing},
    gateway::Moving,
    processor::Used,
    shovel::Shovel,
    yard::Yard,
};
use super::{
    measure::{Contender, compare},
    rabbitmq::Broker,
};

/// How many messages wait when a contender begins.
const MESSAGES: u64 = 20_000;

/// Rounds of each comparison, beside the one that warms up.
const ROUNDS: usize = 3;

/// A tenth of what the gateway does, and a little less: messages a second while latency is measured.
const QUORUM_PACE: u64 = 1500;
const CLASSIC_PACE: u64 = 1000;

/// The contenders; the first is what the others are measured by.
const NAMES: [&str; 4] =
    ["a bare forwarder", "RabbitMQ's shovel", "Tidings", "a bare forwarder that publishes as Tidings does"];

/// Who moves messages, for as long as it is there.
pub(crate) enum Mover<'a> {
    Gateway(Moving),
    Shovel(Shovel<'a>),
    Bare(Bare),
}

impl Mover<'_> {
    fn process(&self) -> Option<u32> {
        match self {
            Self::Gateway(moving) => Some(moving.process()),
            Self::Bare(_) => Some(std::process::id()),
            Self::Shovel(_) => None,
        }
    }

    fn stop(self) {
        match self {
            Self::Gateway(moving) => moving.stop(),
            Self::Shovel(shovel) => shovel.stop(),
            Self::Bare(bare) => bare.stop(),
        }
    }
}

fn start<'a>(which: usize, yard: &'a Yard<'a>, folder: &Path) -> Mover<'a> {
    match which {
        0 => Mover::Bare(Bare::start(yard, Publishing::Same)),
        1 => Mover::Shovel(Shovel::start(yard)),
        2 => Mover::Gateway(Moving::start(yard, folder)),
        _ => Mover::Bare(Bare::start(yard, Publishing::AsTheGateway)),
    }
}

pub(crate) fn measure() {
    let broker = Broker::start();
    for (kind, pace) in [("quorum", QUORUM_PACE), ("classic", CLASSIC_PACE)] {
        let folder = tempfile::tempdir().unwrap();
        let yard = Yard::new(&broker, kind);
        let (yard, folder) = (&yard, folder.path());
        let used = RefCell::new(NAMES.map(|_| Vec::new()));
        let contender = |which: usize| {
            let used = &used;
            Contender::timed(NAMES[which], move || {
                yard.fill(MESSAGES);
                let mover = start(which, yard, folder);
                let (moved, took, spent) = yard.wait_for(MESSAGES, mover.process());
                mover.stop();
                yard.clear();
                used.borrow_mut()[which].push(spent);
                (moved, took)
            })
        };
        let title = format!("{kind} queues, 2 kB a message");
        compare(&title, "messages", ROUNDS, (0..NAMES.len()).map(contender).collect());
        processor_time(kind, &used.into_inner());
        latency::measure(yard, pace, &[1, 2].map(|which| (NAMES[which], move || start(which, yard, folder))));
    }
}

/// What each took of the processors, of all rounds but the first: the wall clock depends on what else
/// the machine does, this hardly.
fn processor_time(kind: &str, used: &[Vec<Used>; NAMES.len()]) {
    println!("\n| {kind} queues: processor time of a message | its own | the broker's |\n| --- | ---: | ---: |");
    for (name, used) in NAMES.iter().zip(used) {
        let median = |of: fn(&Used) -> Option<Duration>| {
            let mut all: Vec<_> = used.iter().skip(1).filter_map(of).collect();
            all.sort();
            all.get(all.len() / 2)
                .map_or("in the broker".to_owned(), |time| format!("{:.1} µs", time.as_secs_f64() * 1e6))
        };
        println!("| {name} | {} | {} |", median(|used| used.own), median(|used| used.broker));
    }
}
