//! A message that the client library cannot parse ends neither the process nor the source: it is quarantined
//! with the reason, and the next one is journaled. RabbitMQ accepts and forwards such messages.

use serde_json::{Value, json};

use crate::support::{
    amqp_source::{EXCHANGE, QUEUE, connection, events, numbers, start, until, until_head, until_state},
    cutting_proxy::CuttingProxy,
    fake_amqp_broker::{ChannelBehaviour, FakeAmqpBroker},
    journal_fixture::{configuration, event},
    rabbitmq::{Broker, RawMessage, RawPublisher, nested},
    subscription_fixture::{gateway, index, post},
};

/// Returns each message with the reason that the quarantine shows.
fn messages() -> Vec<(RawMessage, &'static str)> {
    let good = RawMessage {
        routing_key: b"events.new".to_vec(),
        content_type: b"application/json".to_vec(),
        headers: Vec::new(),
        body: event(7).to_string().into_bytes(),
    };
    vec![
        (RawMessage { headers: nested(18_000), ..good.clone() }, "its headers are nested more than 32 levels deep"),
        (RawMessage { routing_key: b"events.\xe9t\xe9".to_vec(), ..good.clone() }, "the routing key is not UTF-8"),
        (RawMessage { content_type: b"text/\xff".to_vec(), ..good.clone() }, "the property content-type is not UTF-8"),
        (RawMessage { headers: b"\x02h\xe9V".to_vec(), ..good }, "the name of a header is not UTF-8"),
    ]
}

#[tokio::test]
async fn malformed_messages_are_quarantined_and_the_next_one_is_journaled() {
    let broker = Broker::shared();
    for encrypted in [false, true] {
        let vhost = broker.vhost();
        let folder = tempfile::tempdir().unwrap();
        let (url, ca) = if encrypted {
            let ca = format!("ca = \"{}\"", broker.certificate().display());
            (format!("amqps://localhost:{}/{}", broker.tls_port, vhost.name), ca)
        } else {
            (vhost.url(), String::new())
        };
        let gateway = start(folder.path(), &url, &ca);
        until_state(&gateway, "connected").await;
        let client = vhost.client().await;
        let mut raw = RawPublisher::connect(broker.port, &vhost.name);
        for (number, (message, reason)) in (1..).zip(messages()) {
            raw.publish(EXCHANGE, &message);
            client.publish(EXCHANGE, "events.new", event(number).to_string()).await;
            until_head(&gateway, number).await;
            let quarantined = until(&gateway, reason, async || {
                let quarantined = gateway.json("/quarantine").await["messages"].as_array().unwrap().clone();
                (quarantined.len() as u64 == number).then(|| quarantined[0].clone())
            })
            .await;
            assert!(quarantined["reason"].as_str().unwrap().starts_with(reason), "{quarantined:#}");
            assert_eq!(quarantined["size"], message.body.len(), "the body is unchanged");
        }
        assert_eq!(numbers(&gateway).await, [1, 2, 3, 4]);
        let details = connection(&gateway).await;
        assert_eq!((&details["state"], &details["lastError"]), (&json!("connected"), &Value::Null), "{details:#}");
        assert!(gateway.stop().success());
        assert_eq!(client.waiting(QUEUE).await, 0);
        client.close().await;
    }
}

#[tokio::test]
async fn malformed_message_costs_no_other_under_a_delivery_limit() {
    let broker = Broker::shared();
    let vhost = broker.vhost();
    broker.ctl(&["set_policy", "--vhost", &vhost.name, "limit", ".*", "{\"delivery-limit\": 4}"]);
    let folder = tempfile::tempdir().unwrap();
    assert!(start(folder.path(), &vhost.url(), "").stop_when_connected().await);
    let client = vhost.client().await;
    let persistent = lapin::BasicProperties::default().with_delivery_mode(2);
    client.publish_all(EXCHANGE, "events.new", events(1..=20), &persistent).await;
    let (bad, _) = messages().swap_remove(1);
    RawPublisher::connect(broker.port, &vhost.name).publish(EXCHANGE, &bad);
    client.publish_all(EXCHANGE, "events.new", events(21..=1500), &persistent).await;
    let gateway = start(folder.path(), &vhost.url(), "");
    until_head(&gateway, 1500).await;
    assert_eq!(numbers(&gateway).await, (1..=1500).collect::<Vec<_>>());
    let quarantined = gateway.json("/quarantine").await;
    assert_eq!(quarantined["messages"].as_array().unwrap().len(), 1, "{quarantined:#}");
    client.close().await;
}

#[tokio::test]
async fn malformed_message_costs_no_other_when_it_ends_each_connection() {
    const BAD: &[u8] = b"the message that ends each connection";
    let broker = Broker::shared();
    let vhost = broker.vhost();
    broker.ctl(&["set_policy", "--vhost", &vhost.name, "limit", ".*", "{\"delivery-limit\": 4}"]);
    let folder = tempfile::tempdir().unwrap();
    assert!(start(folder.path(), &vhost.url(), "").stop_when_connected().await);
    let client = vhost.client().await;
    let persistent = lapin::BasicProperties::default().with_delivery_mode(2);
    client.publish_all(EXCHANGE, "events.new", events(1..=20), &persistent).await;
    client.publish_all(EXCHANGE, "events.new", [BAD], &persistent).await;
    client.publish_all(EXCHANGE, "events.new", events(21..=1500), &persistent).await;
    let proxy = CuttingProxy::start(broker.port, BAD);
    let url = format!("amqp://guest:guest@127.0.0.1:{}/{}", proxy.port, vhost.name);
    let gateway = start(folder.path(), &url, "");
    // The broker drops the malformed message at the delivery limit. It would also drop good messages that were
    // redelivered with it each time.
    until_head(&gateway, 1500).await;
    let mut numbers = numbers(&gateway).await;
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=1500).collect::<Vec<_>>());
    let quarantined = gateway.json("/quarantine").await;
    assert_eq!(quarantined["messages"], json!([]), "the bad message never arrived");
    client.close().await;
}

#[tokio::test]
async fn malformed_return_is_tolerated() {
    let broker = FakeAmqpBroker::start(ChannelBehaviour::ReturnsThirdMessage);
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &index(&broker.url(), "format = \"json\""));
    for number in 1..=5 {
        post(&gateway, number).await;
    }
    // The message id identifies the returned message, not the next confirmation, which belongs to the first
    // message. The cursor therefore passes the first message and never the third.
    let details =
        gateway.until("index", "the subscription waits for a queue", |details| details["state"] == "retrying").await;
    let cursor = details["cursor"].as_u64().unwrap();
    assert!((1..=2).contains(&cursor), "{details:#}");
    let reason = details["lastError"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("it reached no queue"), "{reason}");
    broker.set_behaviour(ChannelBehaviour::Acks);
    gateway.until_at("index", 5).await;
    let seqs: Vec<_> =
        broker.published(ChannelBehaviour::Acks).iter().map(|body| body["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (cursor + 1..=5).collect::<Vec<_>>());
}

#[tokio::test]
async fn malformed_reply_text_is_tolerated() {
    let broker = FakeAmqpBroker::start(ChannelBehaviour::ClosesWithInvalidText);
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &index(&broker.url(), "format = \"json\""));
    post(&gateway, 1).await;
    let details = gateway.until("index", "the subscription retries", |details| details["state"] == "retrying").await;
    let reason = details["lastError"]["reason"].as_str().unwrap();
    assert!(reason.contains("NO CAF?"), "{reason}");
    broker.set_behaviour(ChannelBehaviour::Acks);
    gateway.until_at("index", 1).await;
}

#[tokio::test]
async fn second_consumer_of_the_queue_is_reported() {
    let vhost = Broker::shared().vhost();
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = start(one.path(), &vhost.url(), "");
    until_state(&first, "connected").await;
    assert_eq!(connection(&first).await["warning"], Value::Null);
    let second = start(other.path(), &vhost.url(), "");
    until_state(&second, "connected").await;
    for gateway in [&second, &first] {
        let details = until(gateway, "the other one is noticed", async || {
            let details = connection(gateway).await;
            details["warning"].as_str().map(str::to_owned)
        })
        .await;
        assert!(details.starts_with("the queue has other consumers (1)"), "{details}");
    }
    let log = std::fs::read_to_string(other.path().join("log")).unwrap();
    assert_eq!(log.matches("reading the source with a warning").count(), 1, "{log}");
    assert!(first.stop().success());
    until(&second, "the warning about another consumer ends", async || {
        connection(&second).await["warning"].is_null().then_some(())
    })
    .await;
}

#[tokio::test]
async fn stream_queue_is_refused_and_a_forged_offset_is_ignored() {
    let vhost = Broker::shared().vhost();
    let client = vhost.client().await;
    client.exchange(EXCHANGE).await;
    let forged = || {
        let mut headers = lapin::types::FieldTable::default();
        headers.insert("x-stream-offset".into(), lapin::types::AMQPValue::LongLongInt(7));
        lapin::BasicProperties::default().with_content_type("application/json".into()).with_headers(headers)
    };
    for kind in ["stream", "quorum", "classic"] {
        let queue = format!("{QUEUE}.{kind}");
        client.queue(&queue, kind).await;
        client.bind(&queue, EXCHANGE, kind).await;
        let folder = tempfile::tempdir().unwrap();
        let table = format!(
            "[sources.{}]\ntransport = \"amqp\"\ndialect = \"content-change\"\nurl = \"{}\"\nqueue = \"{queue}\"\n\
             declare = false\n",
            crate::support::amqp_source::SOURCE,
            vhost.url()
        );
        let config = configuration(folder.path(), &table);
        let gateway = crate::support::gateway::Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
        until_state(&gateway, "connected").await;
        for number in 1..=3 {
            client.publish_with(EXCHANGE, kind, event(number).to_string(), forged()).await;
        }
        if kind == "stream" {
            let details = until(&gateway, "the stream is refused", async || {
                let details = connection(&gateway).await;
                details["lastError"]["reason"].as_str().map(str::to_owned)
            })
            .await;
            assert!(details.starts_with("the queue is a stream"), "{details}");
        } else {
            until_head(&gateway, 3).await;
            assert_eq!(connection(&gateway).await["lastError"], Value::Null);
        }
    }
}
