//! Senders of the dialect mapped over their own transports: Alma with its challenge and signature, MinIO with its token, and
//! Alfresco over a durable topic of ActiveMQ.

use std::fs;

use base64::{Engine, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    activemq::Broker,
    amqp_source::{until_head, until_state},
    fixtures,
    gateway::Gateway,
    gateway_with_auth::{KEY, configuration, signature},
    stomp_client::Client,
    stomp_source::start_with,
};

fn message(fixture: &str) -> String {
    fs::read_to_string(fixtures::folder("mapped").join(fixture)).unwrap()
}

/// Starts a gateway with the tokens of the tests, and sources of Alma and of MinIO. The log is beside the data.
fn start(folder: &tempfile::TempDir) -> Gateway {
    let sources = format!(
        "[sources.alma]\ntransport = \"http\"\ndialect = \"mapped\"\n\
         settings = {{ preset = \"alma\", base_url = \"https://alma.example.org\" }}\n\
         signature = {{ header = \"X-Exl-Signature\", secret = \"{KEY}\" }}\n\
         [sources.minio]\ntransport = \"http\"\ndialect = \"mapped\"\nsettings.preset = \"s3\"\n\
         [sources.fedora3.signature]\nsecret = \"{KEY}\"\n"
    );
    let config = configuration(folder.path(), &sources);
    Gateway::start_logging(&folder.path().join("data"), &["--config", &config], &folder.path().join("log"))
}

/// Returns the signature of Alma.
fn base64_signature(key: &str, body: &str) -> String {
    let mac = Hmac::<sha2::Sha256>::new_from_slice(key.as_bytes()).unwrap().chain_update(body);
    BASE64_STANDARD.encode(mac.finalize().into_bytes())
}

async fn send(gateway: &Gateway, source: &str, header: (&str, &str), body: &str) -> (u16, Value) {
    let request = gateway.http.post(format!("{}/hooks/{source}", gateway.url)).header(header.0, header.1);
    let answer = request.header("content-type", "application/json").body(body.to_owned()).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

async fn changes(gateway: &Gateway) -> Vec<Value> {
    let read = gateway.http.get(format!("{}/changes", gateway.url)).bearer_auth("tdg_reader").send().await.unwrap();
    let page: Value = read.json().await.unwrap();
    page["changes"].as_array().unwrap().clone()
}

#[tokio::test]
async fn alma_gets_its_challenge_back() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(&folder);
    let ask = async |path: &str| {
        let answer = gateway.http.get(format!("{}{path}", gateway.url)).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let answer = ask("/hooks/alma?challenge=a%20%22b%22%3C").await;
    assert_eq!(answer, (200, json!({ "challenge": "a \"b\"<" })));
    let long = format!("/hooks/alma?challenge={}", "x".repeat(257));
    for (path, status) in
        [("/hooks/fedora3?challenge=x", 404), ("/hooks/none?challenge=x", 404), ("/hooks/alma", 405), (&long, 400)]
    {
        assert_eq!(ask(path).await.0, status, "{path}");
    }
}

#[tokio::test]
async fn alma_signs_with_its_own_header() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(&folder);
    let (body, other) =
        (message("alma-bib-created-suppressed-synthetic.json"), message("alma-bib-updated-synthetic.json"));
    let right = base64_signature(KEY, &body);
    let of_hub = signature(KEY, &body);
    let wrong_key = base64_signature("another key altogether", &body);
    for (source, header, status) in [
        ("alma", ("x-exl-signature", "".to_owned()), 401),
        ("alma", ("x-exl-signature", wrong_key), 401),
        ("alma", ("x-exl-signature", base64_signature(KEY, &other)), 401),
        ("alma", ("x-exl-signature", right[1..].to_owned()), 401),
        ("alma", ("x-hub-signature-256", of_hub.clone()), 401),
        ("fedora3", ("x-exl-signature", right.clone()), 401),
        ("minio", ("x-exl-signature", right.clone()), 401),
        ("alma", ("x-exl-signature", right.clone()), 201),
        ("alma", ("x-exl-signature", right.clone()), 200),
    ] {
        let (answered, answer) = send(&gateway, source, (header.0, &header.1), &body).await;
        assert_eq!(answered, status, "{source} {header:?}: {answer}");
    }
    let other_signature = base64_signature(KEY, &other);
    // The second event has the identifier of the first one in the fixtures, and is another event.
    let second = other.replace("5964501992488800017", "5964501992488800099");
    assert_eq!(send(&gateway, "alma", ("x-exl-signature", &base64_signature(KEY, &second)), &second).await.0, 201);
    let items: Vec<_> = changes(&gateway).await.iter().map(|change| change["items"][0].clone()).collect();
    assert_eq!((&items[0]["change"], &items[0]["stateAfter"]), (&json!("ADD"), &json!("INACTIVE")));
    assert_eq!(
        (&items[1]["change"], &items[1]["stateBefore"], &items[1]["stateAfter"]),
        (&json!("UPDATE"), &json!("INACTIVE"), &json!("ACTIVE")),
    );
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    for secret in [KEY, &right, &other_signature, of_hub.trim_start_matches("sha256=")] {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
    // Alma sends no facts in headers, so the log has no warning about them.
    assert!(!log.contains("source alma: "), "{log}");
}

#[tokio::test]
async fn minio_asks_with_head_and_sends_its_token() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(&folder);
    let url = format!("{}/hooks/minio", gateway.url);
    // MinIO takes any answer as a sign that the endpoint is there.
    let head = gateway.http.request(Method::HEAD, &url).bearer_auth("tdg_publisher").send().await.unwrap();
    assert!(head.status().is_client_error());
    let token = ("authorization", "Bearer tdg_publisher");
    let put = message("s3-minio-put-synthetic.json");
    assert_eq!(send(&gateway, "minio", ("authorization", "Bearer tdg_x"), &put).await.0, 401);
    for (body, status, outcome) in [
        (put.clone(), 201, "accepted"),
        (put.clone(), 200, "duplicate"),
        // The same sequencer in another wrapping is the same event.
        (put.replace("\"EventName\"", "\"Name\""), 200, "duplicate"),
        (message("s3-aws-test-event-synthetic.json"), 200, "unchanged"),
    ] {
        let (answered, answer) = send(&gateway, "minio", token, &body).await;
        assert_eq!((answered, answer["outcome"].as_str()), (status, Some(outcome)), "{answer}");
    }
    // A new object that is written again is an update.
    let again = put.replace("17D2A1B9C0FFEE01", "17D2A1B9C0FFEE02").replace("06:07.089Z", "06:08.089Z");
    assert_eq!(send(&gateway, "minio", token, &again).await.0, 201);
    let kinds: Vec<_> = changes(&gateway).await.iter().map(|change| change["items"][0]["change"].clone()).collect();
    assert_eq!(kinds, ["ADD", "UPDATE"]);
    let (status, problem) = send(&gateway, "minio", token, &message("refused-s3-unknown-event-synthetic.json")).await;
    assert_eq!((status, problem["place"].as_str()), (422, Some("/Records/0")), "{problem}");
}

#[tokio::test]
async fn alfresco_sends_through_a_durable_topic() {
    let broker = Broker::shared();
    let (topic, name) = (format!("/topic/{}", broker.name()), broker.name());
    let folder = tempfile::tempdir().unwrap();
    let settings = "settings = { preset = \"alfresco\", base_url = \"https://alfresco.example.org\" }";
    let lines = format!("durable = \"{name}\"\n{settings}");
    let begin = || start_with(folder.path(), &broker.url(), &topic, "mapped", &lines);
    let gateway = begin();
    until_state(&gateway, "connected").await;
    let mut client = Client::connect(broker.port);
    let created = message("alfresco-created-synthetic.json");
    client.send_all(&topic, &[], [created.as_str()]);
    until_head(&gateway, 1).await;
    assert!(gateway.stop().success());
    // While the gateway is away: new content, other metadata, the first event again, a folder, and the deletion.
    let later = |fixture: &str, second: u8| {
        let id = format!("8b1c0d54-0000-4000-8000-0000000001{second:02}");
        let message = message(fixture).replace("8b1c0d54-0000-4000-8000-000000000004", &id);
        message.replace("\"time\": \"2026-03-04T05:06:07", &format!("\"time\": \"2026-03-04T05:06:{second:02}"))
    };
    let messages = [
        later("alfresco-content-updated-synthetic.json", 8),
        later("alfresco-metadata-updated-synthetic.json", 9),
        created,
        later("alfresco-folder-is-skipped-synthetic.json", 10),
        later("alfresco-deleted-synthetic.json", 11),
    ];
    client.send_all(&topic, &[], &messages);
    let gateway = begin();
    until_head(&gateway, 3).await;
    let page = gateway.json("/changes").await;
    let kinds: Vec<_> =
        page["changes"].as_array().unwrap().iter().map(|change| &change["items"][0]["change"]).collect();
    assert_eq!(kinds, ["ADD", "UPDATE", "DELETE"], "{page}");
    assert_eq!(gateway.json("/quarantine").await["messages"], json!([]));
}
