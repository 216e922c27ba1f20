//! An AMQP subscription created over HTTP may connect only to public addresses with encryption, or to
//! destinations that the operator has allowed. The resolved IP address decides.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::support::subscription_fixture::{gateway, post};

fn definition(url: &str) -> Value {
    json!({ "delivery": "amqp", "url": url, "exchange": "x", "start": "beginning" })
}

#[tokio::test]
async fn url_that_is_not_allowed_is_refused_at_creation() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[delivery]\nallow = [\"broker.internal\"]\n");
    for (url, told) in [
        ("amqps://127.0.0.1:18062", "a loopback address"),
        ("amqp://127.0.0.1:18062", "a loopback address"),
        ("amqps://[::1]", "a loopback address"),
        ("amqp://169.254.169.254:80", "it leads to 169.254.169.254"),
        ("amqps://10.0.0.1:22", "it leads to 10.0.0.1"),
        ("amqps://2130706433", "it leads to 127.0.0.1"),
        ("amqps://localhost", "the host of the gateway itself"),
        ("amqp://rabbit.example.org", "it is not encrypted"),
        ("amqp://192.0.2.7", "it"),
    ] {
        let (status, problem) = gateway.ask("PUT", "/subscriptions/w", Some(definition(url))).await;
        assert_eq!((status, &problem["key"]), (422, &json!("url")), "{url}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(told), "{url}: {problem}");
    }
    for url in ["amqps://rabbit.example.org", "amqp://broker.internal"] {
        assert_eq!(gateway.ask("PUT", "/subscriptions/w", Some(definition(url))).await.0 / 100, 2, "{url}");
    }
}

#[tokio::test]
async fn name_with_a_private_ip_is_refused() {
    let service = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    service.set_nonblocking(true).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // The name may resolve into an allowed network, so it is resolved before the decision.
    let gateway = gateway(folder.path(), "[delivery]\nallow = [\"10.0.0.0/8\"]\n");
    let url = format!("amqp://localhost:{}", service.local_addr().unwrap().port());
    assert_eq!(gateway.ask("PUT", "/subscriptions/w", Some(definition(&url))).await.0, 201);
    post(&gateway, 1).await;
    let status_json =
        gateway.until("w", "the subscription fails", |status_json| status_json["state"] == "retrying").await;
    let reason = status_json["lastError"]["reason"].as_str().unwrap();
    assert!(reason.contains("a loopback address; if that is intended, list it"), "{reason}");
    assert!(service.accept().is_err(), "nobody connected");
}
