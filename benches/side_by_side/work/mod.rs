//! Work of a message: instructions and allocations by stage, which other load on the machine does not change.
//!
//! The gateway is the real program, under callgrind. Each path is taken twice with different numbers of messages. The
//! difference is the work of the messages between, without the start and the end of the program.

mod callgrind;
mod profile;
mod stage;

use std::{collections::BTreeMap, path::Path, sync::atomic::Ordering, thread, time::Duration};

use futures_util::StreamExt;
use serde_json::Value;
use tokio::runtime::Runtime;

use self::{callgrind::CountedGateway, profile::Work};
use super::{
    amqp::{gateway::tables, queue_pair::QueuePair},
    fedora3_messages::Call,
    harvests,
    http::{require, servers},
    journal::{SENDERS, append_batches, close, draft, open, runtime},
    rabbitmq::Broker,
    webhooks::{sink, subscriptions},
};

/// Interval between two looks for the end of a run.
const LOOK: Duration = Duration::from_millis(20);

/// Work of each stage.
type Stages = BTreeMap<&'static str, Work>;

pub(crate) fn measure() {
    require(&[("valgrind", "valgrind")]);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = &runtime();
    print("a hook, one message after the other", [200, 800], |folder, count| hook(runtime, folder, count, 1));
    print("a hook, 64 connections", [640, 3200], |folder, count| hook(runtime, folder, count, 64));
    print("a 304 to If-None-Match", [200, 1200], |folder, count| not_modified(runtime, folder, count));
    print("a webhook, one delivery after the other", [300, 1500], |folder, count| webhook(runtime, folder, count));
    print("a record of an OAI-PMH harvest", [1000, 4000], |folder, count| harvest(runtime, folder, count));
    let broker = Broker::start();
    print("a message from a classic queue to another", [1000, 4000], |folder, count| amqp(&broker, folder, count));
}

/// Measures a path with two numbers of messages, and prints the work of one message by stage.
fn print(title: &str, counts: [u64; 2], path: impl Fn(&Path, u64) -> Stages) {
    let [few, many] = counts.map(|count| path(tempfile::tempdir().unwrap().path(), count));
    let messages = (counts[1] - counts[0]) as f64;
    let of = |stage: &str| {
        let [few, many] = [&few, &many].map(|stages| stages.get(stage).copied().unwrap_or_default());
        let [instructions, allocations] =
            [many.instructions - few.instructions, many.allocations - few.allocations].map(|all| all / messages);
        Work { instructions, allocations }
    };
    let mut rows: Vec<_> = many.keys().map(|stage| (*stage, of(stage))).collect();
    rows.sort_by(|(_, first), (_, second)| second.instructions.total_cmp(&first.instructions));
    let sum = |part: fn(&Work) -> f64| rows.iter().map(|(_, work)| part(work)).sum::<f64>();
    let (instructions, allocations) = (sum(|work| work.instructions), sum(|work| work.allocations));
    println!("\n| {title} | instructions | allocations |\n| --- | ---: | ---: |");
    for (stage, work) in rows.iter().filter(|(_, work)| work.instructions >= instructions / 200.0) {
        println!("| {stage} | {:.0} | {:.1} |", work.instructions, work.allocations);
    }
    println!("| **all** | **{instructions:.0}** | **{allocations:.1}** |");
}

/// Posts messages of a Fedora 3, so many at once.
fn hook(runtime: &Runtime, folder: &Path, count: u64, at_once: usize) -> Stages {
    let gateway = CountedGateway::start(folder, "");
    let (client, url) = (client(), format!("{}/hooks/fedora3", gateway.url));
    let post = |number: u64| {
        let request = client.post(&url).header("content-type", "application/atom+xml").body(message(number));
        async move { assert_eq!(request.send().await.unwrap().status(), 201) }
    };
    runtime.block_on(futures_util::stream::iter(0..count).map(post).buffer_unordered(at_once).count());
    gateway.stop()
}

/// Asks for a page of the archive that the client has.
fn not_modified(runtime: &Runtime, folder: &Path, count: u64) -> Stages {
    fill(runtime, folder, 300);
    let gateway = CountedGateway::start(folder, "");
    let (client, url) = (client(), format!("{}/feed/archive/1", gateway.url));
    let tag = servers::etag(&url);
    runtime.block_on(async {
        for _ in 0..count {
            let response = client.get(&url).header("if-none-match", &tag).send().await.unwrap();
            assert_eq!(response.status(), 304);
        }
    });
    gateway.stop()
}

/// Delivers all changes of a journal to a webhook.
fn webhook(runtime: &Runtime, folder: &Path, count: u64) -> Stages {
    fill(runtime, folder, count);
    let sink = sink();
    let lines = subscriptions(1, &sink).replace("\"now\"", "\"beginning\"");
    let gateway = CountedGateway::start(folder, &format!("[delivery]\nallow = [\"127.0.0.0/8\"]\n{lines}"));
    while sink.received.load(Ordering::Relaxed) < count {
        thread::sleep(LOOK);
    }
    gateway.stop()
}

/// Harvests a repository into an empty journal.
fn harvest(runtime: &Runtime, folder: &Path, count: u64) -> Stages {
    let url = harvests::repository(runtime, count as usize);
    let gateway = CountedGateway::start(folder, &harvests::source(&url));
    runtime.block_on(async {
        loop {
            let response = client().get(format!("{}/harvests/bench", gateway.url)).send().await.unwrap();
            let harvest: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
            if harvest["runs"][0]["state"] == "completed" {
                assert_eq!(harvest["runs"][0]["changes"], count);
                break;
            }
            // Each look is work, which is a small part of that of a run.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    gateway.stop()
}

/// Moves messages of Social Feed Manager from one queue to another.
fn amqp(broker: &Broker, folder: &Path, count: u64) -> Stages {
    let queues = QueuePair::new(broker, "classic");
    queues.fill(count);
    let gateway = CountedGateway::start(folder, &tables(&queues));
    queues.wait_for(count, None);
    gateway.stop()
}

/// Fills the journal of a gateway that does not run.
fn fill(runtime: &Runtime, folder: &Path, count: u64) {
    let (journal, writer) = open(&folder.join("data"));
    append_batches(runtime, &journal, (0..count).map(draft).collect(), SENDERS);
    close(journal, writer);
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// Returns a message of Fedora 3 about another object.
fn message(number: u64) -> String {
    let pid = format!("demo:{number}");
    let parameters = [("dsID", "MD_DESCRIPTIVE"), ("formatURI", "null"), ("dsContent", "[OMITTED]")];
    Call { number, method: "modifyDatastreamByValue", pid: &pid, parameters: &parameters, returned: None }.message()
}
