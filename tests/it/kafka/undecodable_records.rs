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
