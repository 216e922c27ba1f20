//! Speed, always beside something: `cargo bench` measures everything, `cargo bench -- formats` one
//! part. What the figures are and what they are for is in `docs/performance.md`.

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

/// The other broker of the tests.
#[path = "../../tests/it/support/activemq.rs"]
#[allow(dead_code, clippy::expect_used)]
mod activemq;
mod amqp;
/// What the brokers of the tests have in common.
#[path = "../../tests/it/support/broker_process.rs"]
#[allow(dead_code, clippy::expect_used)]
mod broker_process;
/// The messages of a Fedora 3 of the tests.
#[path = "../../tests/it/support/fedora3_messages.rs"]
#[allow(dead_code)]
mod fedora3_messages;
mod formats;
mod growth;
mod http;
mod journal;
mod lookups;
mod measure;
/// The broker of the tests.
#[path = "../../tests/it/support/rabbitmq.rs"]
#[allow(dead_code, clippy::expect_used)]
mod rabbitmq;
mod stalled;
mod stomp;
/// The client of the tests.
#[path = "../../tests/it/support/stomp_client.rs"]
#[allow(dead_code)]
mod stomp_client;
mod streams;
mod webhooks;

/// The program's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The parts, by name.
const PARTS: [(&str, fn()); 10] = [
    ("formats", formats::measure),
    ("appends", journal::appends),
    ("growth", growth::growth),
    ("http", http::measure),
    ("amqp", amqp::measure),
    ("stomp", stomp::measure),
    ("lookups", lookups::measure),
    ("stalled", stalled::measure),
    ("streams", streams::measure),
    ("webhooks", webhooks::measure),
];

fn main() {
    if let Some(blocks) = std::env::var_os(streams::SERVE_BARE) {
        return streams::serve_bare(blocks.as_ref());
    }
    // cargo adds `--bench`.
    let wanted: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    for (name, measure) in PARTS {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            measure();
        }
    }
}
