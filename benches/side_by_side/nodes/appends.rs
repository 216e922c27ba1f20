//! Appends by hooks: at one node, and at three nodes with as many connections in total, or with as many at each.

use std::{
    cell::{Cell, RefCell},
    path::Path,
    time::{Duration, Instant},
};

use super::{Database, NODES, Nodes, Used, micros_each};
use crate::{
    http::wrk::Wrk,
    measure::{Contender, compare, median},
};

const ROUNDS: usize = 5;

/// Name, number of nodes, and number of connections of each node.
const CONTENDERS: [(&str, usize, usize); 4] = [
    ("one node, 64 connections", 1, 64),
    ("three nodes, 64 connections in total", NODES, 21),
    ("one node, 192 connections", 1, 192),
    ("three nodes, 192 connections in total", NODES, 64),
];

/// Processor time, batches and write-ahead log of a turn.
struct Cost {
    requests: f64,
    used: Used,
    batches: f64,
    wal: u64,
}

pub(super) fn measure(folder: &Path, database: &Database) {
    let [one, three] = [1, NODES].map(|count| Nodes::start(folder, database, count, ""));
    let (run, costs) = (Cell::new(0), RefCell::new(CONTENDERS.map(|_| Vec::new())));
    let turn = |which: usize| {
        let (_, count, connections) = CONTENDERS[which];
        let nodes = if count == 1 { &one } else { &three };
        let (before, batches, wal) = (nodes.used(database), nodes.batches(), database.wal());
        let turn = post(nodes, connections, &run);
        let used = nodes.used(database).since(&before);
        let (batches, wal) = (nodes.batches() - batches, database.wal() - wal);
        costs.borrow_mut()[which].push(Cost { requests: turn.0 as f64, used, batches, wal });
        turn
    };
    let turn = &turn;
    let contender = |which: usize| Contender::timed(CONTENDERS[which].0, move || turn(which));
    compare("hooks over one PostgreSQL", "requests", ROUNDS, (0..CONTENDERS.len()).map(contender).collect());
    println!("\n| of a request | processor, all nodes | the database's | write-ahead log | mean batch |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    for ((name, ..), costs) in CONTENDERS.iter().zip(costs.into_inner()) {
        // The first round is the warm-up.
        let each = |of: fn(&Cost) -> f64| median(&mut costs.iter().skip(1).map(of).collect::<Vec<_>>());
        let nodes = each(|cost| micros_each(cost.used.all_nodes(), cost.requests));
        let server = each(|cost| micros_each(cost.used.database, cost.requests));
        let (wal, batch) = (each(|cost| cost.wal as f64 / cost.requests), each(|cost| cost.requests / cost.batches));
        println!("| {name} | {nodes:.1} µs | {server:.1} µs | {wal:.0} bytes | {batch:.0} |");
    }
}

/// Posts with `wrk` to all nodes at the same time.
fn post(nodes: &Nodes, connections: usize, run: &Cell<u32>) -> (u64, Duration) {
    let began = Instant::now();
    let posting: Vec<_> = nodes
        .nodes
        .iter()
        .map(|node| {
            run.set(run.get() + 1);
            let (wrk, url) = (Wrk::posting(run.get()).over(connections), format!("{}/hooks/fedora3", node.url));
            std::thread::spawn(move || wrk.rate(&url))
        })
        .collect();
    let posted: Vec<_> = posting.into_iter().map(|thread| thread.join().unwrap()).collect();
    let took = posted.iter().map(|(_, took)| *took).max().unwrap_or_else(|| began.elapsed());
    (posted.iter().map(|(count, _)| count).sum(), took)
}
