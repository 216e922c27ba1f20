//! A queue or a topic has one reader among the nodes, which changes when its node is killed. Every message becomes one change.

use std::time::{Duration, Instant};

use lapin::BasicProperties;

use crate::support::{
    amqp_source::{EXCHANGE, QUEUE, SOURCE, connection, events, numbers, until_head, until_state},
    gateway::{Gateway, PATIENCE},
    kafka,
    nodes_fixture::SharedJournal,
    rabbitmq::{Broker, Vhost},
};

/// Returns the node that reads the source, and then the other one. The source may move once, after both have started.
async fn by_reader([a, b]: [Gateway; 2]) -> [Gateway; 2] {
    let began = Instant::now();
    loop {
        let states = [connection(&a).await, connection(&b).await].map(|connection| connection["state"].clone());
        match [states[0].as_str(), states[1].as_str()] {
            [Some("connected"), Some("elsewhere")] => return [a, b],
            [Some("elsewhere"), Some("connected")] => return [b, a],
            _ => assert!(began.elapsed() < 2 * PATIENCE, "no node reads the source: {states:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns a journal whose nodes read a queue of RabbitMQ.
fn journal_with_queue(vhost: &Vhost<'_>) -> SharedJournal {
    SharedJournal::new(&format!(
        "[sources.{SOURCE}]\ntransport = \"amqp\"\ndialect = \"content-change\"\nurl = \"{}\"\n\
         exchange = \"{EXCHANGE}\"\nqueue = \"{QUEUE}\"\nbindings = [\"events.*\"]\nprefetch = 50\n",
        vhost.url()
    ))
}

/// Returns the name of a node.
async fn name(node: &Gateway) -> String {
    let view = node.json("/nodes").await;
    let nodes = view["nodes"].as_array().unwrap();
    nodes.iter().find(|node| node["answering"] == true).unwrap()["name"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_read_by_one_node_and_by_another_one_after_its_death() {
    let vhost = Broker::shared().vhost();
    let journal = journal_with_queue(&vhost);
    let [mut reader, other] = by_reader([journal.node("a"), journal.node("b")]).await;
    let (reader, other) = (&mut reader, &other);
    assert_eq!(connection(other).await["state"], "elsewhere");
    assert_eq!(other.json("/readyz").await["status"], "ready");

    let client = vhost.client().await;
    let persistent = BasicProperties::default().with_delivery_mode(2);
    client.publish_all(EXCHANGE, "events.new", events(1..=1000), &persistent).await;
    until_head(reader, 200).await;
    reader.kill();
    client.publish_all(EXCHANGE, "events.new", events(1001..=1100), &persistent).await;
    until_state(other, "connected").await;
    until_head(other, 1100).await;
    assert_eq!(numbers(other).await, (1..=1100).collect::<Vec<_>>());
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_is_read_by_one_node_and_by_another_one_after_its_death() {
    let broker = kafka::Broker::start().await;
    broker.create_topic("tests.events", 2).await;
    let journal = SharedJournal::new(&format!(
        "[sources.{SOURCE}]\ntransport = \"kafka\"\ndialect = \"content-change\"\nbrokers = \"{}\"\n\
         topics = [\"tests.events\"]\nprefetch = 50\nfetch_bytes = 65536\n",
        broker.address
    ));
    let nodes = [journal.node("a"), journal.node("b")];
    broker.publish("tests.events", 0, events(0..1000), kafka::CODECS[0]).await;
    until_head(&nodes[0], 200).await;
    let [mut reader, other] = by_reader(nodes).await;
    reader.kill();
    broker.publish("tests.events", 1, events(1000..1100), kafka::CODECS[4]).await;
    until_state(&other, "connected").await;
    until_head(&other, 1100).await;
    let (first, second): (Vec<u64>, Vec<u64>) = numbers(&other).await.into_iter().partition(|number| *number < 1000);
    assert!(first.into_iter().eq(0..1000) && second.into_iter().eq(1000..1100));
    // The other node continues where the journal ends.
    kafka::assert_no_repeats(&other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_at_one_node_holds_on_every_node_that_has_the_source() {
    let vhost = Broker::shared().vhost();
    let journal = journal_with_queue(&vhost);
    let [mut reader, other] = by_reader([journal.node("a"), journal.node("b")]).await;
    let client = vhost.client().await;
    let persistent = BasicProperties::default().with_delivery_mode(2);
    client.publish_all(EXCHANGE, "events.new", events(1..=20), &persistent).await;
    until_head(&other, 20).await;
    let control = async |action: &str| other.ask("POST", &format!("/sources/{SOURCE}/{action}"), None).await.0;
    assert_eq!(control("pause").await, 200);
    until_state(&reader, "paused").await;
    client.publish_all(EXCHANGE, "events.new", events(21..=30), &persistent).await;
    assert_eq!(client.waiting(QUEUE).await, 10, "the node that has the duty leaves them with the broker");

    let of_reader = name(&reader).await;
    reader.kill();
    until_state(&other, "paused").await;
    assert_eq!(client.waiting(QUEUE).await, 10, "the node that takes the duty over leaves them too");
    assert_eq!(other.head().await, 20);

    // The killed node gets the duty back, with the pause.
    let reader = journal.node(&of_reader);
    until_state(&reader, "paused").await;
    assert_eq!(connection(&other).await["state"], "elsewhere");
    assert_eq!(client.waiting(QUEUE).await, 10);
    assert_eq!(control("resume").await, 200);
    until_state(&reader, "connected").await;
    until_head(&other, 30).await;
    assert_eq!(numbers(&other).await, (1..=30).collect::<Vec<_>>());
    client.close().await;
}
