//! A signature of the body gives access only to the hook of the source whose key made it. It covers the bytes
//! as sent, so a compressed body is signed in its compressed form.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use reqwest::Method;

use crate::support::{
    gateway::Gateway,
    gateway_with_auth::{GatewayWithAuth, KEY, configuration, message, signature, status_and_body},
};

#[tokio::test]
async fn signature_is_valid_only_at_the_hook_of_its_source() {
    let gateway = GatewayWithAuth::start();
    let (body, other) = (message(1), message(2));
    let right = signature(KEY, &body);
    let post = async |source: &str, signature: Option<&str>, authorization: Option<&str>| {
        let mut request = gateway.post(source, &body);
        if let Some(signature) = signature {
            request = request.header("x-hub-signature-256", signature);
        }
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        status_and_body(request.send().await.unwrap()).await.0
    };
    for (source, signature, status) in [
        ("fedora3", None, 401),
        ("fedora3", Some("sha256="), 401),
        ("fedora3", Some(right.trim_start_matches("sha256=")), 401),
        ("fedora3", Some(&*signature("another key altogether", &body)), 401),
        ("fedora3", Some(&*signature(KEY, &other)), 401),
        ("fedora3", Some(&*signature(KEY, "")), 401),
        ("fedora", Some(&right), 401),
        ("nowhere", Some(&right), 401),
        ("fedora3", Some(&right), 201),
        ("fedora3", Some(&right), 200),
    ] {
        assert_eq!(post(source, signature, None).await, status, "{source} {signature:?}");
    }
    for (authorization, status) in
        [("Bearer tdg_unknown", 200), ("Bearer tdg_reader", 200), ("Bearer tdg_expired", 200)]
    {
        assert_eq!(post("fedora3", Some(&right), Some(authorization)).await, status, "{authorization}");
    }
    // A valid token is enough, whatever the signature.
    assert_eq!(post("fedora3", Some("sha256=00"), Some("Bearer tdg_fedora3")).await, 200);
    // A signature gives no access to other routes.
    let read = gateway.request(&Method::GET, "/changes").header("x-hub-signature-256", signature(KEY, ""));
    assert_eq!(status_and_body(read.send().await.unwrap()).await.0, 401);
}

#[tokio::test]
async fn signature_of_an_oversized_body_is_not_computed() {
    let gateway = GatewayWithAuth::start();
    let body = "x".repeat((4 << 20) + 1);
    for signed in [signature(KEY, &body), signature("another key altogether", &body)] {
        let post = gateway.post("fedora3", &body).header("x-hub-signature-256", signed);
        assert_eq!(status_and_body(post.send().await.unwrap()).await.0, 413);
    }
}

#[tokio::test]
async fn signature_covers_the_compressed_bytes() {
    let gateway = GatewayWithAuth::start();
    let body = message(1);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body.as_bytes()).unwrap();
    let gzip = encoder.finish().unwrap();
    let zstd = zstd::encode_all(body.as_bytes(), 3).unwrap();
    let post = async |coding: &str, sent: &[u8], signed: &[u8]| {
        let request = gateway.request(&Method::POST, "/hooks/fedora3").body(sent.to_vec());
        let request = request.header("content-encoding", coding).header("x-hub-signature-256", signature(KEY, signed));
        status_and_body(request.send().await.unwrap()).await.0
    };
    assert_eq!(post("gzip", &gzip, body.as_bytes()).await, 401);
    assert_eq!(post("gzip", &gzip, &gzip).await, 201);
    assert_eq!(post("zstd", &zstd, body.as_bytes()).await, 401);
    assert_eq!(post("zstd", &zstd, &zstd).await, 200);
    // Only an authenticated sender learns what is wrong with the encoding.
    assert_eq!(post("br", &gzip, &gzip).await, 415);
    assert_eq!(post("br", &gzip, &zstd).await, 401);
    assert_eq!(post("gzip", &gzip[1..], &gzip[1..]).await, 400);
    assert_eq!(post("gzip", &gzip[1..], &gzip).await, 401);
}

#[tokio::test]
async fn signature_does_not_cover_event_headers() {
    let folder = tempfile::tempdir().unwrap();
    let keys: String = ["fedora", "content-change"]
        .map(|source| format!("[sources.{source}.signature]\nsecret = \"{KEY}\"\n"))
        .concat();
    let config = configuration(folder.path(), &keys);
    let log = folder.path().join("log");
    let gateway = Gateway::start_logging(&folder.path().join("data"), &["--config", &config], &log);
    let post = async |source: &str, body: &str, fields: &[(&str, &str)]| {
        let request = gateway.http.post(format!("{}/hooks/{source}", gateway.url)).body(body.to_owned());
        let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let event = [
        ("org.fcrepo.jms.baseURL", "http://other.example/rest"),
        ("org.fcrepo.jms.identifier", "/everything"),
        ("org.fcrepo.jms.eventID", "urn:uuid:2b1bd3f2-1d30-4b4b-8a3c-6a0f8e4f5c11"),
        ("org.fcrepo.jms.timestamp", "1700000000000"),
        ("org.fcrepo.jms.eventType", "http://fedora.info/definitions/v4/event#ResourceDeletion"),
    ];
    // Every event without a body has the same signature, because the signature does not cover headers.
    let with = |field: (&'static str, String)| -> Vec<(&'static str, String)> {
        event.iter().map(|(name, value)| (*name, (*value).to_owned())).chain([field]).collect()
    };
    for (field, body, status) in [
        (("x-hub-signature-256", signature(KEY, "")), "", 401),
        (("x-hub-signature-256", signature(KEY, "{}")), "{}", 422),
        (("authorization", "Bearer tdg_publisher".to_owned()), "", 201),
    ] {
        let fields = with(field);
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let (got, answer) = post("fedora", body, &fields).await;
        assert_eq!(got, status, "{answer}");
        assert_ne!(got == 201, answer.contains("signature covers only the body"), "{answer}");
    }
    // A replayed message remains a duplicate under another idempotency key, because its identifier is signed.
    let body = r#"{"sourceEventId":"1","object":"http://h/1","items":[{"uri":"http://h/1","change":"ADD"}]}"#;
    let signed = signature(KEY, body);
    for (key, status) in [("one", 201), ("two", 200), ("three", 200)] {
        let fields = [("x-hub-signature-256", signed.as_str()), ("idempotency-key", key)];
        let (got, answer) = post("content-change", body, &fields).await;
        assert_eq!((got, answer.contains("duplicate")), (status, status == 200), "{key}: {answer}");
    }
    let log = std::fs::read_to_string(log).unwrap();
    let warned: Vec<_> = log.lines().filter(|line| line.contains("a signature covers only the body")).collect();
    assert!(warned.len() == 1 && warned[0].contains("fedora-events"), "{warned:?}");
}
