//! Benchmarks, each with a reference. `cargo bench` runs all parts, `cargo bench -- formats` runs one.
//! `docs/performance.md` explains the figures.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

/// ActiveMQ broker of the tests.
#[path = "../../tests/it/support/activemq.rs"]
#[allow(dead_code, clippy::expect_used)]
mod activemq;
mod amqp;
/// Common part of the test brokers.
#[path = "../../tests/it/support/broker_process.rs"]
#[allow(dead_code, clippy::expect_used)]
mod broker_process;
mod database;
mod digests;
mod downloads;
/// Fedora 3 messages of the tests.
#[path = "../../tests/it/support/fedora3_messages.rs"]
#[allow(dead_code)]
mod fedora3_messages;
mod filesets;
mod formats;
mod growth;
mod harvests;
mod http;
mod idle_subscriptions;
mod journal;
mod lookups;
mod measure;
mod nodes;
mod oai_pmh_pages;
/// PostgreSQL server of the tests.
#[path = "../../tests/it/support/postgres.rs"]
#[allow(dead_code, clippy::expect_used)]
mod postgres;
mod postgres_hooks;
/// PostgreSQL server of the tests with a standby.
#[path = "../../tests/it/support/postgres_pair.rs"]
#[allow(dead_code)]
mod postgres_pair;
/// RabbitMQ broker of the tests.
#[path = "../../tests/it/support/rabbitmq.rs"]
#[allow(dead_code, clippy::expect_used)]
mod rabbitmq;
mod segments;
mod stalled;
mod stomp;
/// STOMP client of the tests.
#[path = "../../tests/it/support/stomp_client.rs"]
#[allow(dead_code)]
mod stomp_client;
mod streams;
mod takeover;
mod webhooks;
mod work;
mod xesam;

/// Allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Parts of the benchmark, by name.
const PARTS: [(&str, fn()); 22] = [
    ("formats", formats::measure),
    ("work", work::measure),
    ("appends", journal::appends),
    ("growth", growth::growth),
    ("http", http::measure),
    ("digests", digests::measure),
    ("amqp", amqp::measure),
    ("stomp", stomp::measure),
    ("lookups", lookups::measure),
    ("stalled", stalled::measure),
    ("streams", streams::measure),
    ("webhooks", webhooks::measure),
    ("idle_subscriptions", idle_subscriptions::measure),
    ("postgres", postgres_hooks::measure),
    ("nodes", nodes::measure),
    ("takeover", takeover::measure),
    ("harvests", harvests::measure),
    ("oai_pmh_pages", oai_pmh_pages::measure),
    ("segments", segments::measure),
    ("downloads", downloads::measure),
    ("filesets", filesets::measure),
    ("xesam", xesam::measure),
];

fn main() {
    if let Some(blocks) = std::env::var_os(streams::SERVE_BARE) {
        return streams::serve_bare(blocks.as_ref());
    }
    // Cargo adds `--bench`.
    let selected: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    for (name, measure) in PARTS {
        if selected.is_empty() || selected.iter().any(|selected| selected == name) {
            measure();
        }
    }
}
