//! Fan-out of posted changes to webhooks: one node delivers all subscriptions, and three nodes share them.

use std::{
    cell::{Cell, RefCell},
    path::Path,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use super::{Database, NODES, Nodes, micros_each};
use crate::{
    measure::{Contender, compare, median},
    streams::readers,
    webhooks::{Sink, sink, subscriptions},
};

const ROUNDS: usize = 5;

/// Number of changes in a turn.
const CHANGES: u64 = 2000;

const SUBSCRIPTIONS: u64 = 12;

pub(super) fn measure(folder: &Path, database: &Database) {
    let sinks = [sink(), sink()];
    let nodes = [1, NODES].map(|count| {
        let sink = &sinks[usize::from(count > 1)];
        let nodes = Nodes::start(folder, database, count, &subscriptions(SUBSCRIPTIONS, sink));
        wait_until_spread(&nodes, database);
        (nodes, Cell::new(0))
    });
    let costs = RefCell::new([Vec::new(), Vec::new()]);
    let turn = |which: usize| {
        let (nodes, posted) = &nodes[which];
        let before = nodes.used(database);
        let took = fan_out(nodes, posted, &sinks[which]);
        costs.borrow_mut()[which].push(nodes.used(database).since(&before));
        (CHANGES * SUBSCRIPTIONS, took)
    };
    let turn = &turn;
    let names = ["one node", "three nodes"];
    let contenders = [0, 1].map(|which| Contender::timed(names[which], move || turn(which)));
    compare(&format!("changes to {SUBSCRIPTIONS} webhooks"), "deliveries", ROUNDS, contenders.into());
    println!("\n| processor time of a delivery, with its part of the change | all nodes | database |");
    println!("| --- | ---: | ---: |");
    for (name, used) in names.iter().zip(costs.into_inner()) {
        let deliveries = (CHANGES * SUBSCRIPTIONS) as f64;
        // The first round is the warm-up.
        let each = |of: &dyn Fn(&super::Used) -> f64| median(&mut used.iter().skip(1).map(of).collect::<Vec<_>>());
        let (all, database) = (
            each(&|used| micros_each(used.all_nodes(), deliveries)),
            each(&|used| micros_each(used.database, deliveries)),
        );
        println!("| {name} | {all:.1} µs | {database:.1} µs |");
    }
}

/// Waits until every node has duties, and all subscriptions are delivered.
fn wait_until_spread(nodes: &Nodes, database: &Database) {
    let began = Instant::now();
    let holders = "SELECT count(DISTINCT holder) FROM duties";
    while database.number(&nodes.store, holders) < nodes.nodes.len() as u64 {
        assert!(began.elapsed() < Duration::from_secs(60), "the duties do not spread");
        std::thread::sleep(Duration::from_millis(50));
    }
    // The work begins after the duty is taken.
    std::thread::sleep(Duration::from_secs(1));
}

/// Posts changes and waits until all are delivered; returns the time that this took.
fn fan_out(nodes: &Nodes, posted: &Cell<u64>, sink: &Sink) -> Duration {
    let numbers = posted.get()..posted.get() + CHANGES;
    posted.set(numbers.end);
    let all = numbers.end * SUBSCRIPTIONS;
    let began = Instant::now();
    let posting = readers::post(&nodes.nodes[0].url, numbers);
    while sink.received.load(Ordering::Relaxed) < all {
        assert!(began.elapsed() < Duration::from_secs(120), "the deliveries do not come to their end");
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = began.elapsed();
    posting.join().unwrap();
    took
}
