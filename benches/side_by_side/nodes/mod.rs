//! Three nodes over one PostgreSQL, compared with one node: appends, and the fan-out to streams and webhooks.
//!
//! All processes share the cores of one machine, so the rates say only whether the nodes hinder each other. The
//! processor time of each process shows the effect of more machines.

mod appends;
mod footprint;
mod streams;
mod webhooks;
mod wire;

use std::{path::Path, time::Duration};

use super::{
    amqp::processor,
    database::{Database, metric, node},
    http::require,
    streams::Server,
};

/// Number of nodes that are compared with one.
const NODES: usize = 3;

/// A database, and nodes over it.
struct Nodes {
    store: String,
    nodes: Vec<Server>,
}

/// Processor time of nodes and database.
#[derive(Clone)]
struct Used {
    /// Time of each node.
    nodes: Vec<Duration>,
    database: Duration,
}

impl Nodes {
    /// Starts nodes with these lines of configuration over an empty database.
    fn start(folder: &Path, database: &Database, count: usize, lines: &str) -> Self {
        let store = database.create();
        let nodes = (0..count).map(|number| node(folder, &store, &format!("node-{number}"), lines)).collect();
        Self { store, nodes }
    }

    /// Returns the number of batches that the nodes have written so far.
    fn batches(&self) -> f64 {
        self.nodes.iter().map(|node| metric(node, "tidings_append_batch_events_count")).sum()
    }

    fn used(&self, database: &Database) -> Used {
        let nodes = self.nodes.iter().map(|node| processor::used_by(node.id()).unwrap()).collect();
        Used { nodes, database: database.processor_time() }
    }
}

impl Used {
    fn since(&self, before: &Self) -> Self {
        let nodes = self.nodes.iter().zip(&before.nodes).map(|(after, before)| *after - *before).collect();
        Self { nodes, database: self.database - before.database }
    }

    /// Returns the time of all nodes.
    fn all_nodes(&self) -> Duration {
        self.nodes.iter().sum()
    }

    /// Returns the time of all nodes but the first.
    fn others(&self) -> Duration {
        self.nodes.iter().skip(1).sum()
    }
}

/// Returns a time divided by a number, in microseconds.
fn micros_each(time: Duration, count: f64) -> f64 {
    time.as_secs_f64() * 1e6 / count
}

pub(crate) fn measure() {
    require(&[("wrk", "wrk")]);
    let folder = tempfile::tempdir().unwrap();
    let database = Database::start();
    appends::measure(folder.path(), &database);
    streams::measure(folder.path(), &database);
    webhooks::measure(folder.path(), &database);
    footprint::measure(folder.path(), &database);
}
