//! Administrators pause, resume and reconnect a source that reads a broker.

use serde_json::json;

use crate::support::{
    activemq::Broker,
    amqp_source::{SOURCE, connection, events, numbers, until, until_head, until_state},
    breakable_proxy::{BreakableProxy, Link},
    command_line::{command, ended},
    gateway::Gateway,
    stomp_client::Client,
    stomp_source::start,
};

async fn control(gateway: &Gateway, action: &str) {
    let (status, answer) = gateway.ask("POST", &format!("/sources/{SOURCE}/{action}"), None).await;
    assert_eq!((status, &answer["name"]), (200, &json!(SOURCE)), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_source_leaves_its_messages_with_the_broker_until_it_is_resumed() {
    let broker = Broker::shared();
    let queue = format!("/queue/{}", broker.name());
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &broker.url(), &queue, "");
    let mut client = Client::connect(broker.port);
    client.send_all(&queue, &[], events(1..=3));
    until_head(&gateway, 3).await;
    control(&gateway, "pause").await;
    until_state(&gateway, "paused").await;
    client.send_all(&queue, &[], events(4..=6));
    assert_eq!(client.browse(&queue).len(), 3, "the broker has what was sent after the pause");
    assert!(gateway.stop().success());

    let gateway = start(folder.path(), &broker.url(), &queue, "");
    until_state(&gateway, "paused").await;
    let status = gateway.json("/status").await;
    assert_eq!((&status["status"], &status["problems"]), (&json!("ready"), &json!([])), "a pause is intended");
    control(&gateway, "reconnect").await;
    // A node of several ends its duty and takes it again, and is paused as before.
    until_state(&gateway, "paused").await;
    assert_eq!(client.browse(&queue).len(), 3, "only a resumption ends a pause");
    let arguments = ["sources", "resume", SOURCE, "--gateway", &gateway.url];
    let (code, out, error) = ended(command(&arguments).spawn().unwrap());
    assert!(code == 0 && error.contains("is resumed") && out.contains(&queue), "{out}{error}");
    until_head(&gateway, 6).await;
    assert_eq!(numbers(&gateway).await, (1..=6).collect::<Vec<_>>());
    until_state(&gateway, "connected").await;
    assert!(gateway.stop().success());
    assert_eq!(client.browse(&queue).len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_shows_since_when_it_is_down_and_connects_again_on_request() {
    let broker = Broker::shared();
    let proxy = BreakableProxy::start(broker.port);
    let queue = format!("/queue/{}", broker.name());
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &format!("stomp://127.0.0.1:{}", proxy.port), &queue, "");
    let mut client = Client::connect(broker.port);
    client.send_all(&queue, &[], events([1]));
    until_head(&gateway, 1).await;
    let received = gateway.changes().await[0]["received"].clone();
    let last_event = async || gateway.json(&format!("/sources/{SOURCE}")).await["lastEvent"].clone();
    until(&gateway, "the time of the change is known", async || (last_event().await == received).then_some(())).await;
    assert_eq!(connection(&gateway).await["downSince"], json!(null));
    proxy.set_link(Link::Refusing);
    until_state(&gateway, "waiting").await;
    let down_since = connection(&gateway).await["downSince"].clone();
    assert!(down_since.is_string());
    // Each failed attempt changes the last error, but not since when the source is down.
    let failed = connection(&gateway).await["lastError"]["at"].clone();
    until(&gateway, "another attempt fails", async || {
        (connection(&gateway).await["lastError"]["at"] != failed).then_some(())
    })
    .await;
    assert_eq!(connection(&gateway).await["downSince"], down_since);
    proxy.set_link(Link::Open);
    control(&gateway, "reconnect").await;
    until_state(&gateway, "connected").await;
    assert_eq!(connection(&gateway).await["downSince"], json!(null));
}

#[tokio::test]
async fn only_a_source_that_reads_a_broker_is_paused() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let (status, answer) = gateway.ask("POST", "/sources/content-change/pause", None).await;
    assert_eq!(status, 409);
    assert_eq!(
        answer["detail"],
        "The source content-change reads no broker: senders post its messages; stop them there."
    );
    for (method, path) in [("POST", "/sources/none/resume"), ("GET", "/sources/none")] {
        let (status, answer) = gateway.ask(method, path, None).await;
        assert_eq!((status, &answer["detail"]), (404, &json!("There is no source none. GET /sources lists all.")));
    }
}
