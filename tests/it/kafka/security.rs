//! TLS and SASL, against a proxy that terminates both.

use std::fs;

use serde_json::Value;

use crate::support::{
    amqp_source::{until_head, until_state},
    journal_fixture::event,
    kafka::{Broker, start},
    kafka_proxy::{Additions, PASSWORD, USER},
};

const TOPIC: &str = "tests.events";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn source_and_delivery_identify_themselves_over_tls() {
    let (broker, proxy) = Broker::behind(Additions { tls: true, sasl: true, replaced: None }).await;
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    fs::write(&ca, &proxy.certificate).unwrap();
    let ca = ca.to_str().unwrap();
    let secret = folder.path().join("password");
    fs::write(&secret, format!("{PASSWORD}\n")).unwrap();
    broker.prepare_securely(ca, TOPIC, &[event(1), event(2)].map(|event| event.to_string()));
    broker.prepare_securely(ca, "tests.changes", &[]);
    for mechanism in ["plain", "scram-sha-256", "scram-sha-512"] {
        let access = format!(
            "tls = true\nca = \"{ca}\"\nsasl = \"{mechanism}\"\nuser = \"{USER}\"\npassword = {{ file = \"{}\" }}\n",
            secret.display()
        );
        let journal = tempfile::tempdir().unwrap();
        let lines = format!(
            "{access}[subscriptions.index]\ndelivery = \"kafka\"\nstart = \"beginning\"\nbrokers = \"{}\"\n\
             topic = \"tests.changes\"\n{access}",
            broker.address
        );
        let gateway = start(journal.path(), &broker.address, TOPIC, &lines);
        until_head(&gateway, 2).await;
        gateway.until_at("index", 2).await;
        let (_, shown) = gateway.ask("GET", "/subscriptions/index", None).await;
        assert!(gateway.stop().success());
        let log = fs::read_to_string(journal.path().join("log")).unwrap();
        assert!(!log.contains(PASSWORD) && !shown.to_string().contains(PASSWORD), "{mechanism}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_password_and_untrusted_certificate_are_reported() {
    let (broker, proxy) = Broker::behind(Additions { tls: true, sasl: true, replaced: None }).await;
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    fs::write(&ca, &proxy.certificate).unwrap();
    let trusted = format!("tls = true\nca = \"{}\"\n", ca.display());
    let sasl = |mechanism: &str| format!("sasl = \"{mechanism}\"\nuser = \"{USER}\"\npassword = \"wrong-one\"\n");
    for (lines, reason) in [
        (trusted.clone() + &sasl("plain"), "the broker refused the gateway ("),
        (trusted + &sasl("scram-sha-512"), "the broker refused the gateway ("),
        ("tls = true".to_owned(), "no encrypted connection can be made: "),
    ] {
        let journal = tempfile::tempdir().unwrap();
        let gateway = start(journal.path(), &broker.address, TOPIC, &lines);
        let connection: Value = until_state(&gateway, "waiting").await;
        let shown = connection["lastError"]["reason"].as_str().unwrap();
        assert!(shown.starts_with(reason), "{shown}");
        assert!(gateway.stop().success());
        let log = fs::read_to_string(journal.path().join("log")).unwrap();
        assert!(!log.contains("wrong-one") && !shown.contains("wrong-one"), "{shown}");
    }
}
