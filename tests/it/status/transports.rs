//! Brokers, receivers and the message bus.

use std::sync::{
    Arc,
    atomic::{AtomicU16, Ordering},
};

use super::ObservedGateway;
use crate::support::{
    activemq::Broker,
    breakable_proxy::{BreakableProxy, Link},
    dbus_daemon::Bus,
    http_receiver::{Receiver, Reply},
    rabbitmq,
    subscription_fixture::{index, post},
    webhook_fixture::webhook,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broker_that_refuses_connections_is_a_problem_until_it_accepts_one() {
    let broker = Broker::shared();
    let proxy = BreakableProxy::start(broker.port);
    let observed = ObservedGateway::start(&format!(
        "[sources.messages]\ntransport = \"stomp\"\ndialect = \"content-change\"\nurl = \"stomp://127.0.0.1:{}\"\n\
         destination = \"/topic/{}\"\n",
        proxy.port,
        broker.name()
    ));
    // It reads, and may lose messages.
    observed.shows("source-warning", "source/messages", "not durable").await;
    proxy.set_link(Link::Refusing);
    observed.shows("source-not-read", "source/messages", "").await;
    proxy.set_link(Link::Open);
    observed.ends("source-not-read", "source/messages").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receiver_makes_problems_by_its_replies() {
    let reply = Arc::new(AtomicU16::new(500));
    let replies = Arc::clone(&reply);
    let receiver = Receiver::start(move |_, _| Reply::of(replies.load(Ordering::Relaxed))).await;
    let observed = ObservedGateway::start(&format!(
        "[delivery]\nallow = [\"127.0.0.1\"]\n{}",
        webhook("index", &receiver.url(), "refused_statuses = [422]")
    ));
    let thing = "subscription/index";
    post(&observed.gateway, 1).await;
    observed.shows("subscription-fails", thing, "500").await;
    reply.store(422, Ordering::Relaxed);
    observed.ends("subscription-fails", thing).await;
    observed.shows("dead-letters", thing, "1 message").await;
    let letters = format!("{}/subscriptions/index/dead-letters", observed.gateway.url);
    assert!(observed.gateway.http.delete(letters).send().await.unwrap().status().is_success());
    observed.ends("dead-letters", thing).await;
    reply.store(410, Ordering::Relaxed);
    post(&observed.gateway, 2).await;
    observed.shows("subscription-ended", thing, "410").await;
    reply.store(200, Ordering::Relaxed);
    let resume = format!("{}/subscriptions/index/resume", observed.gateway.url);
    assert!(observed.gateway.http.post(resume).send().await.unwrap().status().is_success());
    observed.ends("subscription-ended", thing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broker_that_blocks_publishers_is_a_problem_with_its_reason_until_it_has_room() {
    let broker = rabbitmq::Broker::exclusive();
    let observed = ObservedGateway::start(&index(&broker.vhost().url(), "confirm_seconds = 3"));
    post(&observed.gateway, 1).await;
    observed.gateway.until_at("index", 1).await;
    broker.starve();
    for number in 2..=50 {
        post(&observed.gateway, number).await;
    }
    let (thing, reason) = ("subscription/index", "the broker blocks publishers: low on memory");
    observed.shows("subscription-fails", thing, reason).await;
    let shown = observed.gateway.json("/subscriptions/index").await;
    assert!(shown["lastError"]["reason"].as_str().unwrap().contains(reason), "{shown:#}");
    broker.feed();
    observed.ends("subscription-fails", thing).await;
    observed.gateway.until_at("index", 50).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_bus_that_does_not_run_is_a_problem() {
    let mut bus = Bus::not_running();
    let observed = ObservedGateway::start(&format!("[dbus]\nenabled = true\nbus = \"{}\"\n", bus.address()));
    observed.shows("dbus-disconnected", "gateway", "").await;
    bus.resume();
    observed.ends("dbus-disconnected", "gateway").await;
}
