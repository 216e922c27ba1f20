//! Measured figures and assumptions of the model. Each is printed, so that the tables show them.

/// A number of the model.
pub(crate) struct Figure {
    pub(crate) value: f64,
    unit: &'static str,
    name: &'static str,
    /// Part of the bench program that measured the figure, or the reason for an assumption.
    source: &'static str,
}

const fn figure(value: f64, unit: &'static str, name: &'static str, source: &'static str) -> Figure {
    Figure { value, unit, name, source }
}

/// Processor time of the node that accepts a change by a hook.
pub(crate) const ACCEPT: Figure = figure(92.0, "µs", "accepting a change: processor of its node", "`postgres`");
/// Processor time of the database to store a change.
pub(crate) const STORE: Figure = figure(60.0, "µs", "storing a change: processor of the database", "`postgres`");
/// Processor time of a node to read a change that another node has accepted.
pub(crate) const FOLLOW: Figure =
    figure(20.0, "µs", "reading a change of another node: processor of the node", "`nodes`");
/// Processor time of the database for one node that reads a change.
pub(crate) const SERVE: Figure = figure(12.5, "µs", "the same: processor of the database", "`nodes`");
/// Processor time of an event to one stream.
pub(crate) const EVENT: Figure = figure(1.1, "µs", "sending a change to one stream: processor of the node", "`nodes`");
/// Processor time of a delivery to one webhook.
pub(crate) const DELIVERY: Figure =
    figure(48.0, "µs", "delivering a change to one webhook: processor of the node", "`nodes`");
/// Processor time of the database for the cursor of a delivery.
const CURSOR: Figure = figure(2.5, "µs", "the same: processor of the database", "`nodes`");
/// Processor time to serve an archive page.
pub(crate) const PAGE: Figure = figure(48.0, "µs", "serving an archive page: processor of the node, at most", "`http`");
/// Time for which a batch locks the head, apart from its changes.
pub(crate) const LOCKED_BATCH: Figure =
    figure(3800.0, "µs", "a batch: time in which no other one is written", "`postgres`");
/// The same for each change of the batch.
pub(crate) const LOCKED_CHANGE: Figure =
    figure(67.0, "µs", "the same, more for each change of the batch", "`postgres`");
/// Bytes of a change on the disk of the database.
pub(crate) const DISK: Figure =
    figure(1130.0, "bytes", "a change on the disk of the database, with indexes", "`postgres`");
/// Bytes of a change in the write-ahead log.
pub(crate) const LOG: Figure = figure(1640.0, "bytes", "a change in the write-ahead log", "`postgres`");
/// Bytes of a change between the database and the node that accepts it.
pub(crate) const ACCEPT_WIRE: Figure = figure(1420.0, "bytes", "a change between its node and the database", "`nodes`");
/// Bytes of a change between the database and another node.
pub(crate) const FOLLOW_WIRE: Figure =
    figure(950.0, "bytes", "a change between another node and the database", "`nodes`");
/// Bytes of an event of a stream.
pub(crate) const EVENT_BYTES: Figure = figure(1000.0, "bytes", "a change in a stream", "`streams`");
/// Bytes of a change in an archive page.
pub(crate) const PAGE_BYTES: Figure = figure(1430.0, "bytes", "a change in an archive page, not compressed", "`http`");
/// Memory of a node.
const NODE_MEMORY: Figure = figure(30.0, "MB", "memory of a node", "`nodes`");
/// Memory of an idle stream.
const STREAM_MEMORY: Figure = figure(14.9, "kB", "memory of an idle stream", "`streams`");
/// Memory of an idle subscription.
const SUBSCRIPTION_MEMORY: Figure = figure(70.0, "kB", "memory of an idle webhook subscription", "`nodes`");
/// Processor time of a node without changes.
const IDLE: Figure = figure(0.3, "% of a core", "an idle node, and nearly as much of the database for it", "`nodes`");
/// Connections of a node to the database.
const SESSIONS: Figure =
    figure(3.0, "", "connections of a node to the database; up to four more for readers", "`nodes`");

/// Maximum number of changes in a batch.
pub(crate) const BATCH: Figure = figure(512.0, "", "changes in a batch, at most", "`journal.batch`");
/// Cores of a node.
pub(crate) const CORES: Figure = figure(8.0, "", "cores of a node, as fast as those of the measurement", "assumed");
/// Share of processor, lock and network that is used.
pub(crate) const LOAD: Figure =
    figure(0.5, "", "share of processor, lock and network in use", "assumed: peaks, and the loss of a node");
/// Network of a node.
pub(crate) const NETWORK: Figure = figure(10.0, "Gbit/s", "network of a node", "assumed");
/// Streams of a node.
pub(crate) const STREAMS: Figure = figure(20_000.0, "", "streams of a node, at most", "assumed; measured up to 10 000");
/// Nodes of a journal.
pub(crate) const NODES: Figure =
    figure(20.0, "", "nodes of a journal, at most", "assumed: each reads all changes from one database");
/// Subscriptions of a journal.
pub(crate) const SUBSCRIPTIONS: Figure =
    figure(10_000.0, "", "webhook subscriptions of a journal, at most", "the greatest `hub.subscriptions`");
/// Changes on an archive page.
pub(crate) const PAGE_CHANGES: Figure = figure(100.0, "", "changes on an archive page", "the feed");
/// Places of a CDN that request each page once.
pub(crate) const EDGES: Figure = figure(100.0, "", "caches of a CDN that request a page once each", "assumed");

const MEASURED: [&Figure; 21] = [
    &ACCEPT,
    &STORE,
    &LOCKED_BATCH,
    &LOCKED_CHANGE,
    &FOLLOW,
    &SERVE,
    &EVENT,
    &DELIVERY,
    &CURSOR,
    &PAGE,
    &DISK,
    &LOG,
    &ACCEPT_WIRE,
    &FOLLOW_WIRE,
    &EVENT_BYTES,
    &PAGE_BYTES,
    &IDLE,
    &NODE_MEMORY,
    &STREAM_MEMORY,
    &SUBSCRIPTION_MEMORY,
    &SESSIONS,
];

const ASSUMED: [&Figure; 9] =
    [&BATCH, &CORES, &LOAD, &NETWORK, &STREAMS, &NODES, &SUBSCRIPTIONS, &PAGE_CHANGES, &EDGES];

pub(crate) fn print() {
    for (title, figures) in [("measured", &MEASURED[..]), ("assumption", &ASSUMED[..])] {
        println!("\n| {title} | value | source |\n| --- | ---: | --- |");
        for Figure { value, unit, name, source } in figures {
            println!("| {name} | {} | {source} |", format!("{value} {unit}").trim_end());
        }
    }
}
