//! Batches of some kilobytes that inflate to hundreds of megabytes take no memory, and stop no other message.

use std::fs;

use crate::support::{
    amqp_source::{events, numbers, until, until_head},
    gateway::Gateway,
    kafka::{Broker, CODECS, start},
    kafka_batches::{Batch, GZIP, LZ4, SNAPPY, ZSTD, produce},
};

const TOPIC: &str = "tests.events";

/// Maximum peak resident memory of the gateway, in KiB.
const MOST_KIB: u64 = 300 << 10;

/// Returns the peak resident memory of the gateway, in KiB.
fn peak(gateway: &Gateway) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_inflate_without_end_are_skipped_and_reported() {
    let broker = Broker::start().await;
    broker.create_topic(TOPIC, 5).await;
    // More than the bound on the memory, but for Snappy, whose compressed bytes are a twentieth. How records are decoded does
    // not depend on the codec.
    let batches = [(0, GZIP, 400, 1_000_000), (1, SNAPPY, 100, 20_000), (2, LZ4, 400, 20_000), (3, ZSTD, 800, 20_000)];
    for (partition, codec, megabytes, tombstones) in batches {
        let first = 100 * u64::try_from(partition).unwrap();
        broker.publish(TOPIC, partition, events(first..first + 50), CODECS[0]).await;
        // Three bad batches of one record, and one of tombstones, which are no messages.
        let bad = Batch::at(0, codec).zeros(megabytes << 20);
        for _ in 0..3 {
            produce(&broker.address, TOPIC, partition, &bad).await;
        }
        let many = Batch::at(0, codec).tombstones(tombstones).bytes();
        produce(&broker.address, TOPIC, partition, &many).await;
        broker.publish(TOPIC, partition, events(first + 50..first + 100), CODECS[0]).await;
    }
    broker.publish(TOPIC, 4, events(400..500), CODECS[0]).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &broker.address, TOPIC, "");
    until_head(&gateway, 500).await;
    let mut journaled = numbers(&gateway).await;
    journaled.sort_unstable();
    assert!(journaled.into_iter().eq(0..500), "every message before, after and beside the bad batches arrives");
    let quarantine = until(&gateway, "the bad batches are in the quarantine", async || {
        let quarantine = gateway.json("/quarantine").await;
        (quarantine["messages"].as_array().unwrap().len() == 12).then_some(quarantine)
    })
    .await;
    for partition in 0..4 {
        for offset in 50..53 {
            let start = format!(
                "the records with the offsets {offset} to {offset} of partition {partition} of {TOPIC} were skipped"
            );
            let reasons =
                quarantine["messages"].as_array().unwrap().iter().map(|message| message["reason"].as_str().unwrap());
            let mut reasons = reasons.filter(|reason| reason.starts_with(&start));
            let reason = reasons.next();
            assert!(reason.is_some_and(|reason| reason.contains(" inflates to more than ")), "{start}: {quarantine:#}");
        }
    }
    let peak = peak(&gateway);
    println!("the gateway had at most {peak} KiB");
    assert!(peak < MOST_KIB, "{peak} KiB");
    assert!(gateway.stop_when_connected().await);
}
