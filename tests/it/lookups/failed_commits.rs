//! After a failed commit a source reads its messages again and repeats their lookups, so that a required lookup
//! is never skipped.

use std::fs;

use serde_json::{Value, json};

use crate::{
    lookups::failures::{modified, repository, url},
    support::{
        activemq::Broker,
        amqp_source::{SOURCE, connection, until, until_head, until_state},
        fedora3_messages::BASE,
        gateway::Gateway,
        journal_fixture::configuration,
        small_disk::SmallDisk,
        stomp_client::Client,
    },
};

/// Number of messages in one transaction.
const AT_ONCE: u64 = 100;

#[tokio::test(flavor = "multi_thread")]
async fn lookups_repeat_after_a_failed_commit() {
    let (broker, repository, disk) = (Broker::shared(), repository().await, SmallDisk::of(24));
    let (folder, queue) = (tempfile::tempdir().unwrap(), format!("/queue/{}", broker.name()));
    let lines = format!(
        "[sources.{SOURCE}]\ntransport = \"stomp\"\ndialect = \"fedora-apim\"\nurl = \"{}\"\n\
         destination = \"{queue}\"\nprefetch = 40\nlookup = \"required\"\n\
         [sources.{SOURCE}.repository]\nurl = \"{}\"\npublic_urls = [\"{BASE}\"]\n",
        broker.url(),
        url(&repository),
    );
    let config = configuration(folder.path(), &lines);
    let gateway = Gateway::start_with(&disk.path().join("data"), &["--config", &config]);
    until_state(&gateway, "connected").await;
    let mut client = Client::connect(broker.port);
    let filling = disk.fill();
    let mut sent = 0;
    // Events are still accepted while the existing files have free space.
    loop {
        let seconds = sent + 2..sent + 2 + AT_ONCE;
        seconds.clone().for_each(|second| repository.api.write("demo:1", "OBJ", "image/jp2", second));
        client.send_all(&queue, &[("methodName", "modifyDatastreamByValue"), ("pid", "demo:1")], seconds.map(modified));
        sent += AT_ONCE;
        let is_full = until(&gateway, "they are taken, or the disk is full", async || {
            let reason = connection(&gateway).await["lastError"]["reason"].to_string();
            let head = gateway.head().await;
            let is_full = reason.contains("the disk is full");
            (is_full || head == sent).then_some(is_full)
        });
        if is_full.await {
            break;
        }
    }
    fs::remove_file(filling).unwrap();
    until_head(&gateway, sent).await;
    let changes = gateway.changes().await;
    assert_eq!(changes.len() as u64, sent);
    for change in &changes {
        assert_eq!(change["items"][0]["content"]["mediaType"], json!("image/jp2"), "{change:#}");
        assert!(matches!(&change["lookup"], Value::Null) || change["lookup"] == "newer", "{change:#}");
    }
    assert!(gateway.stop().success());
    assert_eq!(client.browse(&queue).len(), 0);
}
