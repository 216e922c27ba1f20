//! Records that no client can decode are skipped and reported in the quarantine, and block nothing.

use crate::support::{
    amqp_source::{events, numbers, until_head, until_state},
    kafka::{Broker, CODECS, record, start},
    kafka_proxy::Additions,
};

const TOPIC: &str = "tests.events";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_with_a_wrong_checksum_is_skipped_and_reported() {
    // The proxy changes octets of the values, and with them the checksum of their batch is wrong.
    let replaced = Some((&b"breaks on its way"[..], &b"BREAKS on its way"[..]));
    let (broker, _proxy) = Broker::behind(Additions { replaced, ..Additions::default() }).await;
    broker.create_topic(TOPIC, 1).await;
    broker.publish(TOPIC, 0, events(0..250), CODECS[1]).await;
    let partition = broker.partition(TOPIC, 0).await;
    for size in [1, 7] {
        let value = || record(Some(b"a message that breaks on its way".to_vec()));
        partition.produce((0..size).map(|_| value()).collect(), CODECS[0]).await.unwrap();
        broker.publish(TOPIC, 0, events(250 * size..250 * size + 250), CODECS[0]).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &broker.address, TOPIC, "");
    until_head(&gateway, 750).await;
    let expected = (0..500).chain(1750..2000);
    assert!(numbers(&gateway).await.into_iter().eq(expected), "all other messages arrive in order");
    let quarantine = gateway.json("/quarantine").await;
    let messages = quarantine["messages"].as_array().unwrap();
    let skipped = |index: usize| messages[index]["reason"].as_str().unwrap().split(" of partition").next().unwrap();
    assert_eq!(messages.len(), 2, "{quarantine:#}");
    assert_eq!(skipped(1), "the records with the offsets 250 to 250", "{quarantine:#}");
    assert_eq!(skipped(0), "the records with the offsets 501 to 507", "{quarantine:#}");
    assert!(gateway.stop_when_connected().await);
    // They are not skipped again.
    let gateway = start(folder.path(), &broker.address, TOPIC, "");
    until_state(&gateway, "connected").await;
    broker.publish(TOPIC, 0, events(2000..2001), CODECS[0]).await;
    until_head(&gateway, 751).await;
    assert_eq!(gateway.json("/quarantine").await["messages"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_of_many_unreadable_messages_puts_a_bounded_number_into_the_quarantine() {
    let broker = Broker::start().await;
    broker.create_topic(TOPIC, 1).await;
    let partition = broker.partition(TOPIC, 0).await;
    let many = (0..3000).map(|_| record(Some(b"x".to_vec()))).collect();
    partition.produce(many, CODECS[1]).await.unwrap();
    partition.produce(vec![record(Some(b"y".to_vec()))], CODECS[0]).await.unwrap();
    broker.publish(TOPIC, 0, events(0..1), CODECS[0]).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &broker.address, TOPIC, "");
    until_head(&gateway, 1).await;
    let page = gateway.json("/quarantine?limit=1000").await;
    let messages = page["messages"].as_array().unwrap();
    let reason = |index: usize| messages[index]["reason"].as_str().unwrap();
    // The newest is first: the one of the other batch, and the one that speaks for the others.
    assert!(!reason(0).contains("further ones"), "{}", reason(0));
    let remark = "more than 1000 messages of a batch (offsets 0 to 2999 of partition 0 of tests.events) cannot be read";
    assert!(reason(1).contains(remark), "{}", reason(1));
    assert!(!reason(2).contains("further ones"), "{}", reason(2));
    assert_eq!(messages.len(), 1000);
    let rest = gateway.json(&format!("/quarantine?limit=1000&before={}", page["next"])).await;
    assert_eq!(rest["messages"].as_array().unwrap().len(), 2);
}
