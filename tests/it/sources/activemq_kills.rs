//! Messages of Fedora 3 pass from a queue and from a durable subscription into the journal, while ActiveMQ and
//! the gateway are killed and restarted at random. Every message becomes exactly one change.

use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    activemq::Broker,
    amqp_source::{until, until_head, until_state},
    fedora3_messages::Call,
    gateway::Gateway,
    journal_fixture::{configuration, journal_file, verify_ok},
    python::Repository,
};

/// Number of messages, half of them in the queue and half in the topic.
const MESSAGES: u64 = 8000;

/// Number of concurrent senders for each destination.
const SENDERS: u64 = 2;

/// Longest time without progress.
const STANDSTILL: Duration = Duration::from_secs(90);

#[derive(Clone, Copy, Debug)]
enum Victim {
    Broker,
    Gateway,
}

fn message(number: u64) -> (Value, String) {
    let pid = format!("demo:{}", number % 500);
    let datastream = format!("DS{number}");
    let parameters = [("dsID", datastream.as_str()), ("dsState", "A")];
    let call =
        Call { number, method: "addDatastream", pid: &pid, parameters: &parameters, returned: Some(&datastream) };
    (json!({ "methodName": "addDatastream", "pid": pid }), call.message())
}

fn start(folder: &Path) -> Gateway {
    let config = folder.join("tidings.toml");
    Gateway::start_with(&folder.join("data"), &["--config", config.to_str().unwrap()])
}

/// Waits until `reached` holds for the confirmed messages and the changes, as long as there is progress.
async fn until_reached(gateway: &Gateway, repositories: &[Repository], reached: impl Fn(u64, u64) -> bool) {
    let mut last = (0, 0, Instant::now());
    loop {
        let confirmed = repositories.iter().map(|repository| repository.confirmed() as u64).sum();
        let head = gateway.json("/readyz").await["head"].as_u64().unwrap();
        if reached(confirmed, head) {
            return;
        }
        if (confirmed, head) != (last.0, last.1) {
            last = (confirmed, head, Instant::now());
        }
        assert!(last.2.elapsed() < STANDSTILL, "{confirmed} are confirmed, {head} in the journal, and nothing moves");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn activemq_and_gateway_kills_lose_nothing() {
    crate::support::needs_sqlite();
    survive().await;
}

#[expect(clippy::print_stderr, reason = "prints the seed, with which a failed run can be repeated")]
async fn survive() {
    use Victim::{Broker as ABroker, Gateway as AGateway};
    let seed = std::env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    eprintln!("SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut victims = [ABroker, ABroker, AGateway];
    random.shuffle(&mut victims);
    let mut moments = victims.map(|_| random.u64(1..MESSAGES - MESSAGES / 10));
    moments.sort_unstable();

    let mut broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let (queue, topic) = (format!("/queue/{}", broker.name()), format!("/topic/{}", broker.name()));
    let source = |name: &str, destination: &str, lines: &str| {
        format!(
            "[sources.{name}]\ntransport = \"stomp\"\ndialect = \"fedora-apim\"\nurl = \"{}\"\n\
             destination = \"{destination}\"\n{lines}\n",
            broker.url()
        )
    };
    let lines =
        source("harvests", &queue, "acknowledge = \"individual\"") + &source("topic", &topic, "durable = \"tidings\"");
    configuration(folder.path(), &lines);
    let mut gateway = start(folder.path());
    until_state(&gateway, "connected").await;
    // Without the durable subscription the topic would discard messages.
    until(&gateway, "both are read", async || (gateway.json("/readyz").await["status"] == "ready").then_some(())).await;

    let began = Instant::now();
    let repositories: Vec<_> = (0..2 * SENDERS)
        .map(|sender| {
            let messages: Vec<_> =
                (0..MESSAGES).filter(|number| number % (2 * SENDERS) == sender).map(message).collect();
            let own = folder.path().join(sender.to_string());
            std::fs::create_dir(&own).unwrap();
            Repository::start(broker.port, [&queue, &topic][usize::from(sender >= SENDERS)], &messages, &own)
        })
        .collect();
    for (victim, moment) in victims.into_iter().zip(moments) {
        let of_confirmed = random.bool();
        until_reached(&gateway, &repositories, |confirmed, head| moment <= if of_confirmed { confirmed } else { head })
            .await;
        eprintln!("{:?}: {victim:?} at {moment}", began.elapsed());
        match victim {
            ABroker => {
                broker.kill();
                broker.start_again();
            }
            AGateway => {
                gateway.kill();
                gateway = start(folder.path());
            }
        }
    }
    until_reached(&gateway, &repositories, |confirmed, _| confirmed == MESSAGES).await;
    eprintln!("{:?}: all are with the broker", began.elapsed());
    repositories.into_iter().for_each(Repository::wait);
    until_head(&gateway, MESSAGES).await;
    eprintln!("{:?}: all have arrived", began.elapsed());

    let changes = gateway.changes().await;
    let events: BTreeSet<_> = changes.iter().map(|change| change["sourceEventId"].as_str().unwrap()).collect();
    assert_eq!((changes.len() as u64, events.len() as u64), (MESSAGES, MESSAGES), "each change is there exactly once");
    let ids: Vec<_> = (0..MESSAGES).map(|number| format!("urn:uuid:00000000-0000-4000-8000-{number:012x}")).collect();
    assert!(ids.iter().all(|id| events.contains(id.as_str())), "no message is lost");
    assert_eq!(gateway.json("/quarantine").await["messages"], json!([]));
    let sources = gateway.json("/sources").await;
    let repeats = |source: &Value| source["messages"]["duplicate"].as_u64().unwrap_or(0);
    eprintln!(
        "{} repeats since the gateway was started",
        sources["sources"].as_array().unwrap().iter().map(repeats).sum::<u64>()
    );
    assert!(gateway.stop().success());
    assert_eq!(verify_ok(&journal_file(&folder.path().join("data"))).changes, MESSAGES);
}
