//! Durable hooks, with `wrk`, beside webhooks that wait for changes of another source.

use std::cell::Cell;

use super::{
    http::{require, servers::Gateway, wrk::Wrk},
    measure::{Contender, compare},
    webhooks::{sink, subscriptions},
};

const ROUNDS: usize = 3;

/// Numbers of subscriptions, up to the maximum.
const COUNTS: [u64; 3] = [0, 100, 1000];

pub(crate) fn measure() {
    require(&[("wrk", "wrk")]);
    let (folder, sink, run) = (tempfile::tempdir().unwrap(), sink(), Cell::new(0));
    let gateways = COUNTS.map(|count| {
        let idle = "start = \"now\"\nfilter = { sources = [\"content-change\"] }\n";
        let lines = subscriptions(count, &sink).replace("start = \"now\"\n", idle);
        let folder = folder.path().join(count.to_string());
        (
            format!("{count} subscriptions"),
            Gateway::with_config(&folder, &format!("[delivery]\nallow = [\"127.0.0.0/8\"]\n{lines}")),
        )
    });
    for connections in [1, 64] {
        let run = &run;
        let contenders = gateways.iter().map(|(name, gateway)| {
            Contender::timed(name, move || {
                run.set(run.get() + 1);
                Wrk::posting(run.get()).over(connections).rate(&format!("{}/hooks/fedora3", gateway.url))
            })
        });
        let title = format!("hooks, {connections} connections, beside subscriptions that wait");
        compare(&title, "requests", ROUNDS, contenders.collect());
    }
}
