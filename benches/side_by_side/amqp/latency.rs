//! Latency of a message from its publication to its receipt by a consumer, at a rate at which no queue grows.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use lapin::{
    options::{BasicCancelOptions, BasicConsumeOptions, BasicPublishOptions},
    types::FieldTable,
};

use super::{
    Mover,
    messages::{KEY, message, number},
    queue_pair::{QueuePair, properties},
};

/// Duration of a round, in seconds.
const ROUND: u64 = 4;

/// Number of rounds of each contender, in turns. The first second of a round is not counted.
const ROUNDS: usize = 2;

/// Number of messages that are published together.
const BURST: u64 = 2;

/// Prints the latency of each contender: median and 99th percentile.
pub(crate) fn measure<'a>(queues: &QueuePair<'_>, rate: u64, contenders: &[(&str, impl Fn() -> Mover<'a>)]) {
    let kind = queues.kind;
    let mut latencies = vec![Vec::new(); contenders.len()];
    for _ in 0..ROUNDS {
        for ((_, start), samples) in contenders.iter().zip(&mut latencies) {
            // The contender is ready when it has moved the first message.
            queues.fill(1);
            let mover = start();
            queues.wait_for_first();
            queues.clear();
            let mut round = queues.runtime.block_on(round(queues, rate));
            samples.extend(round.drain(rate as usize..));
            mover.stop();
            queues.clear();
        }
    }
    println!("\n| {kind} queues: from publication to receipt, {rate} messages/s | p50 | p99 |\n| --- | ---: | ---: |");
    for ((name, _), samples) in contenders.iter().zip(&mut latencies) {
        samples.sort();
        let at = |share: usize| samples[samples.len() * share / 100].as_secs_f64() * 1e3;
        println!("| {name} | {:.1} ms | {:.1} ms |", at(50), at(99));
    }
}

async fn round(queues: &QueuePair<'_>, rate: u64) -> Vec<Duration> {
    let numbers = queues.numbers(rate * ROUND);
    let (publisher, subscriber) = (queues.vhost.client().await, queues.vhost.client().await);
    let options = BasicConsumeOptions { no_ack: false, ..BasicConsumeOptions::default() };
    let consumed = subscriber.channel().basic_consume(QueuePair::OUT.into(), "".into(), options, FieldTable::default());
    let mut consumer = consumed.await.unwrap();
    let from = numbers.start;
    let count = (numbers.end - from) as usize;
    let receiving = tokio::spawn(async move {
        let mut received = vec![None; count];
        for _ in 0..count {
            let delivery = tokio::time::timeout(Duration::from_secs(30), consumer.next()).await.unwrap();
            let delivery = delivery.unwrap().unwrap();
            received[(number(&delivery.data) - from) as usize] = Some(Instant::now());
            delivery.ack(lapin::options::BasicAckOptions::default()).await.unwrap();
        }
        (received, consumer.tag())
    });
    let channel = publisher.channel();
    let mut published = Vec::with_capacity(count);
    let mut ticks = tokio::time::interval(Duration::from_secs(1) * BURST as u32 / rate as u32);
    for at in (numbers.start..numbers.end).step_by(BURST as usize) {
        ticks.tick().await;
        for number in at..numbers.end.min(at + BURST) {
            published.push(Instant::now());
            let options = BasicPublishOptions::default();
            let body = message(number);
            // Confirmations are ignored, because a lost message makes the receiver time out.
            let sent =
                channel.basic_publish(QueuePair::EXCHANGE.into(), KEY.into(), options, &body, properties()).await;
            drop(sent.unwrap());
        }
    }
    let (received, tag) = receiving.await.unwrap();
    subscriber.channel().basic_cancel(tag, BasicCancelOptions::default()).await.unwrap();
    publisher.close().await;
    subscriber.close().await;
    received.into_iter().zip(published).map(|(received, published)| received.unwrap() - published).collect()
}
