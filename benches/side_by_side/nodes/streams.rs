//! Fan-out of posted changes to streams: all at one node, and spread over three nodes. The changes are posted at the
//! first node, and the others read them from the database.

use std::{
    cell::{Cell, RefCell},
    path::Path,
    time::{Duration, Instant},
};

use super::{Database, NODES, Nodes, Used, micros_each};
use crate::{
    measure::{Contender, compare, median},
    streams::{Readers, readers},
};

const ROUNDS: usize = 5;

/// Number of changes in a turn.
const CHANGES: u64 = 2000;

const LIMITS: &str = "[limits]\nconnections = 4000\nstreams = 3500\nstream_seconds = 86400\n";

/// Name, number of nodes, and number of streams at each node.
const CONTENDERS: [(&str, usize, usize); 4] =
    [("one node", 1, 3), ("three nodes", NODES, 1), ("one node", 1, 900), ("three nodes", NODES, 300)];

/// Processor time of a change at the first node, at another node, and in the database, in microseconds.
struct Cost {
    first: f64,
    other: f64,
    database: f64,
}

pub(super) fn measure(folder: &Path, database: &Database) {
    let [one, three] = [1, NODES].map(|count| (Nodes::start(folder, database, count, LIMITS), Cell::new(0)));
    let costs = RefCell::new(CONTENDERS.map(|_| Vec::new()));
    let turn = |which: usize| {
        let (_, count, streams) = CONTENDERS[which];
        let (nodes, head) = if count == 1 { &one } else { &three };
        let before = nodes.used(database);
        let took = fan_out(nodes, head, streams);
        costs.borrow_mut()[which].push(nodes.used(database).since(&before));
        (CHANGES * (count * streams) as u64, took)
    };
    let turn = &turn;
    for pair in [[0, 1], [2, 3]] {
        let (_, count, streams) = CONTENDERS[pair[0]];
        let contender = |which: usize| Contender::timed(CONTENDERS[which].0, move || turn(which));
        compare(&format!("changes to {} streams", count * streams), "events", ROUNDS, pair.map(contender).into());
    }
    print(&costs.into_inner().map(|used| median_cost(&used)));
}

/// Posts changes and waits until every stream has received them; returns the time that this took.
fn fan_out(nodes: &Nodes, head: &Cell<u64>, streams: usize) -> Duration {
    let mut readers = Readers::new();
    nodes.nodes.iter().for_each(|node| readers.open(node.address(), "/stream", streams));
    let last = head.get() + CHANGES;
    let began = Instant::now();
    let posting = readers::post(&nodes.nodes[0].url, head.get()..last);
    readers.until(last);
    let took = began.elapsed();
    posting.join().unwrap();
    head.set(last);
    took
}

fn median_cost(used: &[Used]) -> Cost {
    let changes = CHANGES as f64;
    // The first round is the warm-up.
    let each = |of: &dyn Fn(&Used) -> f64| median(&mut used.iter().skip(1).map(of).collect::<Vec<_>>());
    Cost {
        first: each(&|used| micros_each(used.nodes[0], changes)),
        other: each(&|used| micros_each(used.others(), changes * (NODES - 1) as f64)),
        database: each(&|used| micros_each(used.database, changes)),
    }
}

fn print(costs: &[Cost; CONTENDERS.len()]) {
    println!("\n| processor time of a change | node with the posts | each other node | database |");
    println!("| --- | ---: | ---: | ---: |");
    for ((name, _, streams), Cost { first, other, database }) in CONTENDERS.iter().zip(costs) {
        println!("| {name}, {streams} streams each | {first:.0} µs | {other:.0} µs | {database:.0} µs |");
    }
    let [few, few_each, many, many_each] = costs;
    let at_one = (many.first - few.first) / (CONTENDERS[2].2 - CONTENDERS[0].2) as f64;
    let spread = CONTENDERS[3].2 - CONTENDERS[1].2;
    let at_first = (many_each.first - few_each.first) / spread as f64;
    let at_others = (many_each.other - few_each.other) / spread as f64;
    println!("\n| processor time of an event to one stream | |\n| --- | ---: |");
    println!("| one node with all streams | {at_one:.2} µs |");
    println!("| node with the posts, with a third of the streams | {at_first:.2} µs |");
    println!("| another node, with a third of the streams | {at_others:.2} µs |");
}
