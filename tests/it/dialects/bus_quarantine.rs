//! Messages that neither Social Feed Manager nor librairy sends are quarantined with their routing key and the
//! location of the error, and the rest of the queue is read.

use lapin::BasicProperties;
use serde_json::{Value, json};

use crate::support::{
    amqp_source::{until, until_head},
    gateway::Gateway,
    journal_fixture::configuration,
    rabbitmq::Broker,
};

const STATUS: &str = "harvest.status.flickr.flickr_user";
const BUS: &str = "librairy.eventbus";
const SFM: &str = "sfm_exchange";

fn config(url: &str) -> String {
    let source = |name: &str, dialect: &str, exchange: &str| {
        format!(
            "[sources.{name}]\ntransport = \"amqp\"\ndialect = \"{dialect}\"\nurl = \"{url}\"\n\
             exchange = \"{exchange}\"\nqueue = \"tidings.{name}\"\nsettings = {{ base_url = \"https://h.example\" }}\n"
        )
    };
    source("sfm", "sfm", SFM) + &source("hoarder", "hoarder", BUS)
}

/// Returns the unreadable messages, each with the expected location and some words of the reason.
fn unreadable_messages() -> Vec<(&'static str, &'static str, Vec<u8>, &'static str, &'static str)> {
    let huge = json!({ "id": "sfmui:45", "status": "running", "infos": ["x".repeat(10 << 20)] }).to_string();
    let warc = json!({ "warc": { "id": "w", "path": "/sfm-data/a", "bytes": "many", "sha1": "00" } });
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        (SFM, STATUS, text("{\n    \"id\": \"1\"\n    \"status\": \"running\"\n}"), "line 3, column 5", "JSON"),
        (SFM, "warc_created", text("{\"warc\": {\"path\": \"/sfm-data/a\",,}}"), "line 1, column 33", "JSON"),
        (SFM, STATUS, text(""), "line 1, column 1", "EOF"),
        (SFM, STATUS, text("[]"), "the JSON document", "expected an object"),
        (SFM, STATUS, text(r#"{"id": "1", "status": 7}"#), "/status", "expected a string"),
        (SFM, STATUS, text(r#"{"id": "1"}"#), "the JSON document", "missing field `status`"),
        (SFM, STATUS, text(r#"{"status": "running"}"#), "the JSON document", "missing field `id`"),
        (SFM, "warc_created", text(&warc.to_string()), "/warc/bytes", "expected u64"),
        (SFM, "harvest.lost.a.b", text(r#"{"id": "1"}"#), "header routing-key", "harvest.lost.a.b"),
        (SFM, STATUS, text(&huge), "the message", "limits.body_bytes"),
        (
            BUS,
            "item.created",
            b"\xAC\xED\x00\x05sr\x00\x0Eorg.example.Foo".to_vec(),
            "the message",
            "serialised Java object",
        ),
        (BUS, "domain.created", text("domains/1"), "header routing-key", "domain.created"),
        (BUS, "item.created", text(""), "the message", "the body is empty"),
        (BUS, "item.created", vec![b'x'; 10 << 20], "the message", "limits.body_bytes"),
    ]
}

async fn quarantine(gateway: &Gateway) -> Vec<Value> {
    gateway.json("/quarantine?limit=100").await["messages"].as_array().unwrap().clone()
}

#[tokio::test]
async fn bus_errors_are_quarantined_with_their_location_and_the_rest_is_read() {
    let (vhost, folder) = (Broker::shared().vhost(), tempfile::tempdir().unwrap());
    let file = configuration(folder.path(), &config(&vhost.url()));
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &file]);
    until(&gateway, "both queues are read", async || {
        (gateway.json("/readyz").await["status"] == "ready").then_some(())
    })
    .await;
    let client = vhost.client().await;
    let persistent = BasicProperties::default().with_delivery_mode(2);
    for (number, (exchange, key, body, place, reason)) in unreadable_messages().into_iter().enumerate() {
        client.publish_with(exchange, key, &body, persistent.clone()).await;
        let good = format!("{exchange}/{number}");
        let (good_key, good) = match exchange {
            SFM => (STATUS, json!({ "id": good, "status": "running" }).to_string()),
            _ => ("item.created", good),
        };
        client.publish_with(exchange, good_key, good, persistent.clone()).await;
        until_head(&gateway, number as u64 + 1).await;
        // In one commit the changes become visible before the quarantine.
        let quarantined = until(&gateway, &format!("{key} is quarantined: {place}"), async || {
            let quarantined = quarantine(&gateway).await;
            (quarantined.len() > number).then_some(quarantined)
        })
        .await;
        assert_eq!(quarantined.len(), number + 1, "{key}: {place}");
        let location_and_reason =
            (quarantined[0]["place"].as_str().unwrap(), quarantined[0]["reason"].as_str().unwrap());
        assert_eq!(location_and_reason.0, place, "{key}: {location_and_reason:?}");
        assert!(location_and_reason.1.contains(reason), "{key}: {location_and_reason:?}");
        assert_eq!(quarantined[0]["size"], body.len(), "the quarantine preserves the body");
        let details = gateway.json(&format!("/quarantine/{}", quarantined[0]["id"])).await;
        assert!(
            details["headers"].to_string().contains(&format!("[\"routing-key\",\"{key}\"]")),
            "{}",
            details["headers"]
        );
    }
    assert!(gateway.stop().success());
    for queue in ["tidings.sfm", "tidings.hoarder"] {
        assert_eq!(client.waiting(queue).await, 0, "{queue}");
    }
}
