//! A queue has one reader among the nodes, which changes when its node is killed. Every message becomes one change.

use lapin::BasicProperties;

use crate::support::{
    amqp_source::{EXCHANGE, SOURCE, connection, events, numbers, until_head, until_state},
    nodes_fixture::{SharedJournal, duties},
    rabbitmq::Broker,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_read_by_one_node_and_by_another_one_after_its_death() {
    let vhost = Broker::shared().vhost();
    let journal = SharedJournal::new(&format!(
        "[sources.{SOURCE}]\ntransport = \"amqp\"\ndialect = \"content-change\"\nurl = \"{}\"\n\
         exchange = \"{EXCHANGE}\"\nqueue = \"tidings.events\"\nbindings = [\"events.*\"]\nprefetch = 50\n",
        vhost.url()
    ));
    let nodes = [journal.node("a"), journal.node("b")];
    let holder = loop {
        let duties = duties(&nodes[0]).await;
        if let Some((_, node)) = duties.iter().find(|(name, _)| *name == format!("source/{SOURCE}")) {
            break usize::from(node == "b");
        }
    };
    let [mut a, mut b] = nodes;
    let (reader, other) = if holder == 0 { (&mut a, &b) } else { (&mut b, &a) };
    until_state(reader, "connected").await;
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
