//! Resources of a node, a stream and a subscription while nothing changes, and the bytes between node and database.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use super::{Database, Nodes, micros_each, wire::CountingProxy};
use crate::{
    database::{name_of, node},
    streams::readers,
    webhooks::{sink, subscriptions},
};

/// Number of idle subscriptions.
const SUBSCRIPTIONS: u64 = 1000;

/// Number of changes whose bytes are counted.
const CHANGES: u64 = 10_000;

/// Time for which an idle node is watched.
const IDLE: Duration = Duration::from_secs(10);

pub(super) fn measure(folder: &Path, database: &Database) {
    println!("\n| footprint | |\n| --- | ---: |");
    let nodes = Nodes::start(folder, database, 2, "");
    // The work of the start is over.
    std::thread::sleep(Duration::from_secs(2));
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidings/node-0'";
    println!("| connections of a node to the database | {} |", database.number(&nodes.store, sessions));
    let began = (Instant::now(), nodes.used(database));
    std::thread::sleep(IDLE);
    let (used, seconds) = (nodes.used(database).since(&began.1), began.0.elapsed().as_secs_f64());
    let idle = micros_each(used.nodes[1], seconds) / 1e4;
    println!("| processor of an idle node | {idle:.2} % of a core |");
    let idle = micros_each(used.database, seconds) / 1e4 / nodes.nodes.len() as f64;
    println!("| processor of the database for an idle node | {idle:.2} % of a core |");
    let alone = nodes.nodes[1].memory() as f64;
    println!("| memory of an idle node | {:.1} MB |", alone / 1e6);
    drop(nodes);
    idle_subscriptions(folder, database, alone);
    wire(folder, database);
}

fn idle_subscriptions(folder: &Path, database: &Database, alone: f64) {
    let nodes = Nodes::start(folder, database, 1, &subscriptions(SUBSCRIPTIONS, &sink()));
    let duties = "SELECT count(*) FROM duties WHERE name LIKE 'subscription/%'";
    while database.number(&nodes.store, duties) < SUBSCRIPTIONS {
        std::thread::sleep(Duration::from_millis(100));
    }
    // The work begins after the duty is taken.
    std::thread::sleep(Duration::from_secs(2));
    let delivering = nodes.nodes[0].memory() as f64;
    println!("| memory of an idle subscription | {:.1} kB |", (delivering - alone) / SUBSCRIPTIONS as f64 / 1e3);
}

/// Counts the bytes of a change between the database and the node that accepts it, or another node.
fn wire(folder: &Path, database: &Database) {
    let store = database.create();
    let host = format!("postgres://tidings@127.0.0.1:{}/{}?sslmode=disable", "{port}", name_of(&store));
    let proxies = [CountingProxy::start(database.port()), CountingProxy::start(database.port())];
    let nodes = [0, 1].map(|number| {
        let through = host.replace("{port}", &proxies[number].port.to_string());
        node(folder, &through, &format!("wire-{number}"), "")
    });
    for (what, numbers) in [("warm-up", 0..CHANGES), ("of a change", CHANGES..2 * CHANGES)] {
        let before = [0, 1].map(|number| proxies[number].bytes());
        readers::post(&nodes[0].url, numbers).join().unwrap();
        std::thread::sleep(Duration::from_secs(1));
        if what != "warm-up" {
            for (number, name) in ["the node that accepts it", "another node"].iter().enumerate() {
                let bytes = (proxies[number].bytes() - before[number]) as f64 / CHANGES as f64;
                println!("| bytes {what} between the database and {name} | {bytes:.0} |");
            }
        }
    }
}
