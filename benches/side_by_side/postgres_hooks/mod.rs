//! Durable hooks of one node over PostgreSQL, compared with a handler that inserts rows like those of the gateway with
//! the same library, and with the gateway over SQLite. All are on disk before the response.
//!
//! The server syncs each commit. Client, gateway and database run on the same machine, so a second table shows the
//! processor time of each process.

mod bare;
mod journal;

use std::{cell::RefCell, path::Path, time::Duration};

use tokio_postgres::NoTls;

use self::bare::{BareHandler, Sample};
use super::{
    amqp::processor,
    database::{Database, node},
    http::{require, servers::Gateway, wrk::Wrk},
    measure::{Contender, compare, median},
};

const ROUNDS: usize = 5;

const NAMES: [&str; 3] =
    ["a bare handler that inserts the rows into PostgreSQL", "Tidings over PostgreSQL", "Tidings over SQLite"];

/// Processor time and write-ahead log of a turn.
struct Cost {
    requests: u64,
    own: Duration,
    database: Duration,
    wal: u64,
}

pub(crate) fn measure() {
    require(&[("wrk", "wrk")]);
    let folder = tempfile::tempdir().unwrap();
    let database = Database::start();
    journal::measure(&database);
    let bare = BareHandler::start(&schema_only(&database, folder.path()), &sample(&database, folder.path()));
    let store = database.create();
    let gateway = node(folder.path(), &store, "bench", "");
    let sqlite = Gateway::start(&folder.path().join("sqlite"));
    let servers = [
        (bare.url.as_str(), std::process::id()),
        (gateway.url.as_str(), gateway.id()),
        (sqlite.url.as_str(), sqlite.id()),
    ];
    let run = RefCell::new(0);
    for connections in [64, 256] {
        let costs: [RefCell<Vec<Cost>>; 3] = Default::default();
        let turn = |which: usize| {
            *run.borrow_mut() += 1;
            let (url, process) = servers[which];
            let used = || (processor::used_by(process).unwrap(), database.processor_time(), database.wal());
            let before = used();
            let rate = Wrk::posting(*run.borrow()).over(connections).rate(&format!("{url}/hooks/fedora3"));
            let after = used();
            costs[which].borrow_mut().push(Cost {
                requests: rate.0,
                own: after.0 - before.0,
                database: after.1 - before.1,
                wal: after.2 - before.2,
            });
            rate
        };
        let turn = &turn;
        let contender = |which: usize| Contender::timed(NAMES[which], move || turn(which));
        let title = format!("hooks, {connections} connections, 1.2 kB a message");
        compare(&title, "requests", ROUNDS, (0..NAMES.len()).map(contender).collect());
        print_costs(connections, &costs);
    }
    print_sizes(&database, &store);
}

/// Creates a database with the schema of the gateway.
fn schema_only(database: &Database, folder: &Path) -> String {
    let store = database.create();
    drop(node(folder, &store, "schema", ""));
    store
}

/// Has the gateway write one message, and returns the texts of its rows.
fn sample(database: &Database, folder: &Path) -> Sample {
    let (store, event, object) = (database.create(), "urn:uuid:00000000-0000-4000-8000-0000000000aa", "demo:sample");
    let gateway = node(folder, &store, "sample", "");
    let message = include_str!("sample.xml").replace("EVENT", event).replace("OBJECT", object);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let url = format!("{}/hooks/fedora3", gateway.url);
        let sent = http.post(url).header("content-type", "application/atom+xml").body(message).send().await.unwrap();
        assert_eq!(sent.status(), 201);
        let (client, connection) = tokio_postgres::connect(&store, NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        let row = "SELECT c.json, o.uri, i.uri, i.content FROM tidings.changes c, tidings.objects o, tidings.items i";
        let row = client.query_one(row, &[]).await.unwrap();
        connection.abort();
        Sample { event, object, texts: [0, 1, 2, 3].map(|column| row.get(column)) }
    })
}

fn print_costs(connections: usize, costs: &[RefCell<Vec<Cost>>; NAMES.len()]) {
    println!("\n| {connections} connections: of a request | processor, its own | the database's | write-ahead log |");
    println!("| --- | ---: | ---: | ---: |");
    for (name, costs) in NAMES.iter().zip(costs) {
        let costs = costs.borrow();
        // The first round is the warm-up.
        let each = |of: fn(&Cost) -> f64| {
            median(&mut costs.iter().skip(1).map(|cost| of(cost) / cost.requests as f64).collect::<Vec<_>>())
        };
        let micros = |of: fn(&Cost) -> f64| each(of) * 1e6;
        let own = micros(|cost| cost.own.as_secs_f64());
        let database = micros(|cost| cost.database.as_secs_f64());
        println!("| {name} | {own:.1} µs | {database:.1} µs | {:.0} bytes |", each(|cost| cost.wal as f64));
    }
}

fn print_sizes(database: &Database, store: &str) {
    let changes = database.number(store, "SELECT count(*) FROM changes");
    println!("\n| table of Tidings | bytes with indexes, of a change |\n| --- | ---: |");
    for table in ["changes", "event_keys", "objects", "items"] {
        let size = database.number(store, &format!("SELECT pg_total_relation_size('{table}')"));
        println!("| {table} | {:.0} |", size as f64 / changes as f64);
    }
    let json = database.number(store, "SELECT round(avg(octet_length(json))) FROM changes");
    let objects = database.number(store, "SELECT count(*) FROM objects");
    println!("\n{changes} changes of {json} bytes of JSON, {objects} objects");
}
