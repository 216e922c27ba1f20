//! A failing broker is reported precisely, without its password, and retried for as long as necessary.
//! Everything else continues.

use std::{fs, net::TcpListener, time::Instant};

use crate::support::{
    amqp_source::{EXCHANGE, QUEUE, connection, events, numbers, start, until, until_head, until_state},
    gateway::Gateway,
    journal_fixture::{event, post},
    rabbitmq::Broker,
};

fn reason(connection: &serde_json::Value) -> &str {
    connection["lastError"]["reason"].as_str().unwrap_or_default()
}

async fn text(gateway: &Gateway, path: &str) -> String {
    gateway.http.get(format!("{}{path}", gateway.url)).send().await.unwrap().text().await.unwrap()
}

#[tokio::test]
async fn credentials_refused_are_reported_without_the_password() {
    let broker = Broker::shared();
    let vhost = broker.vhost();
    let user = format!("user-{}", vhost.name);
    broker.ctl(&["add_user", &user, "another"]);
    broker.ctl(&["set_permissions", "--vhost", &vhost.name, &user, ".*", ".*", ".*"]);
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &vhost.url_as(&user, "hush-hush"), "");
    let waiting = until_state(&gateway, "waiting").await;
    assert!(reason(&waiting).contains("the broker refused the user or the password"), "{waiting:#}");
    assert_eq!(gateway.json("/healthz").await["status"], "ok");
    assert_eq!(gateway.json("/readyz").await["status"], "degraded");
    // Hooks and readers are served meanwhile.
    post(&gateway, 1).await;
    broker.ctl(&["change_password", &user, "hush-hush"]);
    until_state(&gateway, "connected").await;
    let client = vhost.client().await;
    client.publish(EXCHANGE, "a", event(2).to_string()).await;
    // A body may contain credentials too, and an unreadable message is quarantined.
    client.publish(EXCHANGE, "a", "{ \"token\": \"hush-hush\"").await;
    until_head(&gateway, 2).await;
    let metrics = until(&gateway, "the failure is counted", async || {
        let metrics = text(&gateway, "/metrics").await;
        metrics.contains("outcome=\"quarantined\"} 1").then_some(metrics)
    })
    .await;
    let of_it = "connection=\"sources.harvests\"";
    assert!(metrics.contains(&format!("tidings_connection_state_info{{{of_it},state=\"connected\"}} 1")), "{metrics}");
    assert!(metrics.contains(&format!("tidings_connection_state_info{{{of_it},state=\"waiting\"}} 0")), "{metrics}");
    assert!(!metrics.contains(&format!("tidings_connection_failures_total{{{of_it}}} 0")), "{metrics}");
    for details in [text(&gateway, "/sources").await, text(&gateway, "/readyz").await, metrics] {
        assert!(!details.contains("hush"), "{details}");
    }
    assert!(gateway.stop().success());
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("cannot read the source; retrying") && log.contains("reading the source"), "{log}");
    assert!(log.contains("DEBUG tidings"), "the log has every level");
    assert!(!log.contains("hush"), "a password is in the log");
    // The AMQP library logs bytes as numbers; these spell "hush".
    assert!(!log.contains("104, 117, 115, 104"), "a password is in the log, byte by byte");
}

#[tokio::test]
async fn queue_deletion_is_followed_by_a_new_declaration() {
    let vhost = Broker::shared().vhost();
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &vhost.url(), "");
    until_state(&gateway, "connected").await;
    let client = vhost.client().await;
    client.publish_all(EXCHANGE, "a", events(1..=20), &Default::default()).await;
    until_head(&gateway, 20).await;
    client.delete_queue(QUEUE).await;
    until(&gateway, "the deletion is noticed", async || {
        let connection = connection(&gateway).await;
        (reason(&connection).contains("cancelled") && connection["state"] == "connected").then_some(())
    })
    .await;
    client.publish_all(EXCHANGE, "a", events(21..=40), &Default::default()).await;
    until_head(&gateway, 40).await;
    assert_eq!(numbers(&gateway).await, (1..=40).collect::<Vec<_>>());
}

#[tokio::test]
async fn declare_false_uses_the_existing_queue() {
    let vhost = Broker::shared().vhost();
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &vhost.url(), "declare = false");
    let waiting = until_state(&gateway, "waiting").await;
    assert!(reason(&waiting).contains(&format!("no exchange '{EXCHANGE}'")), "{waiting:#}");
    assert!(reason(&waiting).contains("set declare = true"), "{waiting:#}");
    let client = vhost.client().await;
    client.exchange(EXCHANGE).await;
    // With `declare = false` a queue of any type is accepted.
    client.queue(QUEUE, "classic").await;
    until_state(&gateway, "connected").await;
    // The gateway does not bind the queue either, so it has no binding.
    client.publish("", QUEUE, event(1).to_string()).await;
    until_head(&gateway, 1).await;
    client.bind(QUEUE, EXCHANGE, "#").await;
    client.publish(EXCHANGE, "a", event(2).to_string()).await;
    until_head(&gateway, 2).await;
}

#[tokio::test]
async fn queue_of_another_type_is_reported_and_unchanged() {
    let vhost = Broker::shared().vhost();
    let client = vhost.client().await;
    client.queue(QUEUE, "classic").await;
    client.publish("", QUEUE, "one").await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &vhost.url(), "");
    let waiting = until_state(&gateway, "waiting").await;
    assert!(reason(&waiting).contains("inequivalent arg 'x-queue-type'"), "{waiting:#}");
    assert!(reason(&waiting).contains("set declare = false to use it as it is"), "{waiting:#}");
    assert_eq!(client.read(QUEUE, 1).await[0].data, b"one");
}

#[tokio::test]
async fn silent_peer_costs_one_thread_and_delays_no_shutdown() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("amqp://127.0.0.1:{}", silent.local_addr().unwrap().port());
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &url, "");
    // Accepted sockets stay open here, as with a peer that hangs.
    let accepting =
        std::thread::spawn(move || [silent.accept().unwrap(), silent.accept().unwrap(), silent.accept().unwrap()]);
    post(&gateway, 1).await;
    until(&gateway, "three attempts are made", async || {
        post(&gateway, 1).await;
        accepting.is_finished().then_some(())
    })
    .await;
    assert!(reason(&connection(&gateway).await).contains("the broker did not respond within 10 seconds"));
    let threads = fs::read_dir(format!("/proc/{}/task", gateway.id())).unwrap();
    let names = threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("comm")).unwrap_or_default());
    let library = names.filter(|name| name.starts_with("lapin")).count();
    assert!(library <= 1, "{library} threads of the library");
    let began = Instant::now();
    assert!(gateway.stop().success());
    assert!(began.elapsed().as_secs() < 5, "stopping took {:?}", began.elapsed());
}

#[tokio::test]
async fn frozen_broker_is_detected_and_memory_alarm_stops_no_reading() {
    let broker = Broker::exclusive();
    let vhost = broker.vhost();
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(folder.path(), &vhost.url(), "");
    until_state(&gateway, "connected").await;
    let client = vhost.client().await;
    client.publish(EXCHANGE, "a", event(1).to_string()).await;
    until_head(&gateway, 1).await;
    broker.freeze();
    let waiting = until_state(&gateway, "waiting").await;
    assert!(reason(&waiting).contains("no heartbeat"), "{waiting:#}");
    broker.thaw();
    until_state(&gateway, "connected").await;
    drop(client);

    // Messages from before the memory alarm are read in spite of it.
    let client = vhost.client().await;
    drop(gateway);
    client.publish_all(EXCHANGE, "a", events(2..=500), &Default::default()).await;
    broker.starve();
    let gateway = start(folder.path(), &vhost.url(), "");
    until_head(&gateway, 500).await;
    assert_eq!(connection(&gateway).await["state"], "connected");
    let began = Instant::now();
    assert!(gateway.stop().success());
    assert!(began.elapsed().as_secs() < 8, "stopping took {:?}", began.elapsed());
    broker.feed();
}
