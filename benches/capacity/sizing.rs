//! The sizing table: nodes and databases for rates of changes and numbers of subscribers that read all changes.

use crate::{
    figures::{
        ACCEPT, ACCEPT_WIRE, CORES, DELIVERY, DISK, EDGES, EVENT, EVENT_BYTES, FOLLOW, FOLLOW_WIRE, LOAD, LOG, NETWORK,
        NODES, PAGE, PAGE_BYTES, PAGE_CHANGES, SERVE, STORE, STREAMS, SUBSCRIPTIONS,
    },
    journal::greatest_rate,
};

const RATES: [f64; 3] = [10.0, 1e3, 1e5];

const SUBSCRIBERS: [f64; 3] = [1e2, 1e4, 1e6];

/// Smallest number of nodes, so that the loss of one interrupts nobody.
const FEWEST: usize = 2;

const DAY: f64 = 86_400.0;

/// Way of the changes to the subscribers.
#[derive(Clone, Copy)]
enum Delivery {
    Streams,
    Webhooks,
    Pages,
}

impl Delivery {
    /// Returns the processor time, in microseconds, and the bytes of a change for all subscribers.
    fn costs(self, subscribers: f64) -> (f64, f64) {
        match self {
            Self::Streams => (EVENT.value * subscribers, EVENT_BYTES.value * subscribers),
            // The headers of a request are about as long as the change is.
            Self::Webhooks => (DELIVERY.value * subscribers, 2.0 * EVENT_BYTES.value * subscribers),
            Self::Pages => (PAGE.value / PAGE_CHANGES.value * EDGES.value, PAGE_BYTES.value * EDGES.value),
        }
    }

    fn greatest(self) -> f64 {
        match self {
            Self::Streams => STREAMS.value * NODES.value,
            Self::Webhooks => SUBSCRIPTIONS.value,
            Self::Pages => f64::INFINITY,
        }
    }

    /// Returns the number of nodes of a journal with this rate; `None` if there would be too many.
    fn nodes(self, rate: f64, subscribers: f64) -> Option<usize> {
        if subscribers > self.greatest() {
            return None;
        }
        (FEWEST..=NODES.value as usize).find(|nodes| self.is_enough(*nodes as f64, rate, subscribers))
    }

    fn is_enough(self, nodes: f64, rate: f64, subscribers: f64) -> bool {
        let (micros, bytes) = self.costs(subscribers);
        let own = ACCEPT.value / nodes + FOLLOW.value * (nodes - 1.0) / nodes;
        let cores = rate * (own + micros / nodes) * 1e-6;
        let is_narrow = matches!(self, Self::Streams) && subscribers / nodes > STREAMS.value;
        cores <= CORES.value * LOAD.value
            && rate * bytes / nodes * 8.0 <= NETWORK.value * 1e9 * LOAD.value
            && !is_narrow
    }
}

pub(crate) fn print() {
    println!("\n| changes/s | journals | a database: cores | log | disk a day | network |");
    println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
    for rate in RATES {
        let (journals, each) = divide(rate);
        let others = 2.0;
        let cores = each * (STORE.value + SERVE.value * others) * 1e-6 / LOAD.value;
        let network = each * (ACCEPT_WIRE.value + FOLLOW_WIRE.value * others);
        println!(
            "| {rate:.0} | {journals:.0} | {cores:.2} | {}/s | {} | {}/s |",
            bytes(each * LOG.value),
            bytes(each * DISK.value * DAY),
            bytes(network)
        );
    }
    println!("\n| changes/s | subscribers | to subscribers | nodes: streams | webhooks | pages for a CDN |");
    println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
    for rate in RATES {
        for subscribers in SUBSCRIBERS {
            let (journals, each) = divide(rate);
            let nodes = |delivery: Delivery| match delivery.nodes(each, subscribers) {
                Some(nodes) if journals > 1.0 => format!("{journals:.0} × {nodes}"),
                Some(nodes) => nodes.to_string(),
                None => "–".to_owned(),
            };
            let all = bytes(rate * subscribers * EVENT_BYTES.value);
            let [streams, webhooks, pages] = [Delivery::Streams, Delivery::Webhooks, Delivery::Pages].map(nodes);
            println!("| {rate:.0} | {subscribers:.0} | {all}/s | {streams} | {webhooks} | {pages} |");
        }
    }
}

/// Divides the changes among as few journals as possible; returns their number, and the rate of each.
fn divide(rate: f64) -> (f64, f64) {
    let journals = (rate / (greatest_rate() * LOAD.value)).ceil();
    (journals, rate / journals)
}

/// Returns a number of bytes with its unit.
fn bytes(count: f64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let (unit, name) = units.into_iter().find(|(unit, _)| count >= *unit).unwrap_or((1.0, "bytes"));
    let value = count / unit;
    if value < 10.0 { format!("{value:.1} {name}") } else { format!("{value:.0} {name}") }
}
