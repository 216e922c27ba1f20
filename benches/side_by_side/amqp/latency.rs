//! How long a message takes from its publication to whoever reads what comes out, at a pace at which
//! nothing queues up.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use lapin::{
    options::{BasicCancelOptions, BasicConsumeOptions, BasicPublishOptions},
    types::FieldTable,
};

use super::{
    Mover,
    messages::{KEY, message, number},
    yard::{Yard, properties},
};

/// How long a contender is measured in a round.
const ROUND: u64 = 4;

/// Rounds, in turns; the first second of each is not counted.
const ROUNDS: usize = 2;

/// How many messages are published at once.
const AT_ONCE: u64 = 2;

/// Prints what half and what 99 of 100 messages took at most.
pub(crate) fn measure<'a>(yard: &Yard<'_>, pace: u64, contenders: &[(&str, impl Fn() -> Mover<'a>)]) {
    let kind = yard.kind;
    let mut took = vec![Vec::new(); contenders.len()];
    for _ in 0..ROUNDS {
        for ((_, start), took) in contenders.iter().zip(&mut took) {
            // It is known to move messages when the first has come through.
            yard.fill(1);
            let mover = start();
            yard.wait_for_first();
            yard.clear();
            let mut round = yard.runtime.block_on(round(yard, pace));
            took.extend(round.drain(pace as usize..));
            mover.stop();
            yard.clear();
        }
    }
    println!("\n| {kind} queues: from publication to receipt, {pace} messages/s | p50 | p99 |\n| --- | ---: | ---: |");
    for ((name, _), took) in contenders.iter().zip(&mut took) {
        took.sort();
        let at = |share: usize| took[took.len() * share / 100].as_secs_f64() * 1e3;
        println!("| {name} | {:.1} ms | {:.1} ms |", at(50), at(99));
    }
}

async fn round(yard: &Yard<'_>, pace: u64) -> Vec<Duration> {
    let numbers = yard.numbers(pace * ROUND);
    let (publisher, subscriber) = (yard.vhost.client().await, yard.vhost.client().await);
    let options = BasicConsumeOptions { no_ack: false, ..BasicConsumeOptions::default() };
    let consumed = subscriber.channel().basic_consume(Yard::OUT.into(), "".into(), options, FieldTable::default());
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
    let mut ticks = tokio::time::interval(Duration::from_secs(1) * AT_ONCE as u32 / pace as u32);
    for at in (numbers.start..numbers.end).step_by(AT_ONCE as usize) {
        ticks.tick().await;
        for number in at..numbers.end.min(at + AT_ONCE) {
            published.push(Instant::now());
            let options = BasicPublishOptions::default();
            let body = message(number);
            // The confirmation is of no interest: what does not come through is missed in the end.
            let sent = channel.basic_publish(Yard::EXCHANGE.into(), KEY.into(), options, &body, properties()).await;
            drop(sent.unwrap());
        }
    }
    let (received, tag) = receiving.await.unwrap();
    subscriber.channel().basic_cancel(tag, BasicCancelOptions::default()).await.unwrap();
    publisher.close().await;
    subscriber.close().await;
    received.into_iter().zip(published).map(|(received, published)| received.unwrap() - published).collect()
}
