//! Simulation of the writers of one journal. Messages arrive at random at all nodes. A node with messages waits for the
//! lock of the head, and then writes all messages that wait, at most a full batch. The batches of all nodes follow each
//! other.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, VecDeque},
};

use crate::figures::{BATCH, LOCKED_BATCH, LOCKED_CHANGE};

/// Number of simulated messages.
const MESSAGES: usize = 300_000;

/// Rates of the table, in changes per second.
const RATES: [f64; 4] = [10.0, 1000.0, 4000.0, 8000.0];

/// Numbers of nodes of the table.
const NODES: [usize; 3] = [1, 3, 10];

/// Moment in seconds, ordered.
#[derive(Clone, Copy, PartialEq)]
struct Moment(f64);

impl Eq for Moment {}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Moment {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A message arrives at a node.
    Arrival(usize),
    /// A node has committed its batch.
    Committed(usize),
}

/// A node: the times of arrival of the messages that wait, and of those in its batch.
#[derive(Default)]
struct Node {
    waiting: VecDeque<f64>,
    batch: Vec<f64>,
}

/// Result of a simulation.
struct Outcome {
    /// Times from arrival to commit, sorted, in seconds.
    waits: Vec<f64>,
    batches: usize,
}

/// Simulates a journal with messages at this rate, distributed evenly over the nodes.
fn simulate(rate: f64, nodes: usize) -> Outcome {
    let mut random = fastrand::Rng::with_seed(1);
    let mut all: Vec<Node> = (0..nodes).map(|_| Node::default()).collect();
    // Nodes with messages, in the order in which they get the lock; the first one has it.
    let mut lock: VecDeque<usize> = VecDeque::new();
    let mut events = BinaryHeap::from([Reverse((Moment(0.0), Event::Arrival(0)))]);
    let (mut arrived, mut waits, mut batches) = (0, Vec::with_capacity(MESSAGES), 0);
    while let Some(Reverse((Moment(now), event))) = events.pop() {
        let changed = match event {
            Event::Arrival(node) => {
                all[node].waiting.push_back(now);
                arrived += 1;
                if arrived < MESSAGES {
                    let next = now - random.f64().max(f64::MIN_POSITIVE).ln() / rate;
                    events.push(Reverse((Moment(next), Event::Arrival(random.usize(0..nodes)))));
                }
                node
            }
            Event::Committed(node) => {
                waits.extend(all[node].batch.drain(..).map(|arrival| now - arrival));
                batches += 1;
                lock.pop_front();
                node
            }
        };
        if !lock.contains(&changed) && !all[changed].waiting.is_empty() {
            lock.push_back(changed);
        }
        if let Some(first) = lock.front().filter(|first| all[**first].batch.is_empty()) {
            events.push(Reverse((Moment(now + all[*first].begin()), Event::Committed(*first))));
        }
    }
    waits.sort_by(f64::total_cmp);
    Outcome { waits, batches }
}

impl Node {
    /// Takes the messages that wait, at most a full batch; returns the time for which they lock the head.
    fn begin(&mut self) -> f64 {
        let count = self.waiting.len().min(BATCH.value as usize);
        self.batch.extend(self.waiting.drain(..count));
        (LOCKED_BATCH.value + LOCKED_CHANGE.value * self.batch.len() as f64) * 1e-6
    }
}

/// Returns the rate of a journal whose batches are full, in changes per second.
pub(crate) fn greatest_rate() -> f64 {
    BATCH.value / (LOCKED_BATCH.value + LOCKED_CHANGE.value * BATCH.value) * 1e6
}

pub(crate) fn print() {
    println!("\n| changes/s | nodes | mean batch | median | 99 % |\n| ---: | ---: | ---: | ---: | ---: |");
    for rate in RATES {
        for nodes in NODES {
            let Outcome { waits, batches } = simulate(rate, nodes);
            let at = |part: f64| waits[((waits.len() - 1) as f64 * part) as usize] * 1e3;
            let batch = waits.len() as f64 / batches as f64;
            println!("| {rate:.0} | {nodes} | {batch:.1} | {:.1} ms | {:.1} ms |", at(0.5), at(0.99));
        }
    }
    println!("\nOne journal ends at {:.0} changes/s.", greatest_rate());
}
