//! Nodes stop one after another while messages of a STOMP queue pass to an AMQP exchange and to webhooks. A planned stop
//! leaves no gap, changes no order and repeats nothing.

use std::{collections::BTreeMap, sync::Arc};

use crate::support::{
    activemq,
    amqp_source::{SOURCE, events, numbers},
    http_receiver::{ReceivedRequest, Receiver, Reply},
    nodes_fixture::{SharedJournal, until},
    rabbitmq,
    reconnecting_client::{Progress, consume},
    stomp_client::Client,
    subscription_fixture::index,
    webhook_fixture::webhook,
};

/// Number of messages between two stops.
const CHUNK: u64 = 200;

/// Duties whose node stops, in order.
const STOPS: [&str; 6] = [
    "source/harvests",
    "subscription/index",
    "subscription/single",
    "source/harvests",
    "subscription/batches",
    "subscription/index",
];

/// Returns the numbers of the changes that a webhook has received.
fn received(receiver: &Receiver) -> Vec<u64> {
    let seq = |change: &serde_json::Value| change["seq"].as_u64().unwrap();
    let seqs = |request: &ReceivedRequest| match request.json()["changes"].as_array() {
        Some(changes) => changes.iter().map(seq).collect(),
        None => vec![request.seq()],
    };
    receiver.requests().iter().flat_map(seqs).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planned_stops_under_load_leave_no_gap_and_repeat_nothing() {
    let (vhost, broker) = (rabbitmq::Broker::shared().vhost(), activemq::Broker::shared());
    let (single, batches) =
        (Receiver::start(|_, _| Reply::of(200)).await, Receiver::start(|_, _| Reply::of(200)).await);
    let queue = format!("/queue/{}", broker.name());
    let source = format!(
        "[sources.{SOURCE}]\ntransport = \"stomp\"\ndialect = \"content-change\"\nurl = \"{}\"\n\
         destination = \"{queue}\"\nprefetch = 30\n",
        broker.url()
    );
    let lines = source
        + &index(&vhost.url(), "")
        + &webhook("single", &single.url(), "")
        + &webhook("batches", &batches.url(), "max_batch = 20");
    let journal = SharedJournal::new(&lines);
    let mut nodes: BTreeMap<_, _> = ["a", "b", "c"].map(|name| (name.to_owned(), journal.node(name))).into();
    let count = CHUNK * (STOPS.len() as u64 + 1);
    until("the queue of the subscription exists", async || {
        journal.query("SELECT count(*) FROM duties WHERE name = 'subscription/index'") == "1"
    })
    .await;
    let by_amqp = Arc::<Progress>::default();
    let consumer = {
        let (url, progress) = (vhost.url(), Arc::clone(&by_amqp));
        tokio::spawn(async move { consume(&url, "index", usize::try_from(count).unwrap(), &progress).await })
    };

    let mut client = Client::connect(broker.port);
    for (number, duty) in (0..).zip(STOPS) {
        client.send_all(&queue, &[], events(number * CHUNK + 1..=(number + 1) * CHUNK));
        let begun = format!("SELECT head >= {} FROM journal_head", number * CHUNK + CHUNK / 10);
        until("the messages arrive", async || journal.query(&begun) == "t").await;
        let holder =
            format!("SELECT n.name FROM duties d JOIN nodes n ON n.instance = d.holder WHERE d.name = '{duty}'");
        until("a node has the duty", async || !journal.query(&holder).is_empty()).await;
        let name = journal.query(&holder);
        assert!(nodes.remove(&name).unwrap().stop().success());
        let node = journal.node(&name);
        nodes.insert(name, node);
    }
    client.send_all(&queue, &[], events(count - CHUNK + 1..=count));
    let expected: Vec<_> = (1..=count).collect();
    until("the webhooks have everything", async || {
        [&single, &batches].iter().all(|receiver| received(receiver).last() == Some(&count))
    })
    .await;
    tokio::time::timeout(crate::support::gateway::PATIENCE, consumer).await.unwrap().unwrap();
    assert_eq!(numbers(&nodes["a"]).await, expected, "the order of the queue");
    assert_eq!(received(&single), expected, "single");
    assert_eq!(received(&batches), expected, "batches");
    let messages: Vec<_> = by_amqp.counts().received.iter().map(|message| message.seq).collect();
    assert_eq!(messages, expected, "AMQP");
}
