//! Messages pass from a queue through the journal to a subscriber's queue, while the broker and the gateway are
//! killed and restarted at random. Every message becomes exactly one change, and the subscriber gets every
//! change in order, with repeats only under the same identifier.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    gateway::Gateway,
    journal_fixture::{configuration, journal_file, verify_ok},
    rabbitmq::{Broker, Client},
    reconnecting_client::{Progress, ReceivedMessage, consume, publish},
    run_length::lengthened,
};

const EXCHANGE: &str = "sfm_exchange";
const QUEUE: &str = "tidings.sfm";

/// Longest time without progress.
const STANDSTILL: Duration = Duration::from_secs(90);

#[derive(Clone, Copy, Debug)]
enum Victim {
    Broker,
    Gateway,
}

/// Returns the smallest message about a WARC.
fn warc(number: usize) -> String {
    json!({
        "warc": { "id": format!("w{number}"), "path": format!("/sfm-data/{number}.warc.gz") },
        "collection": { "id": format!("c{}", number % 100) },
        "harvest": { "id": "h", "type": "twitter_filter" },
    })
    .to_string()
}

fn lines(url: &str, kind: &str) -> String {
    format!(
        "[sources.sfm]\ntransport = \"amqp\"\ndialect = \"sfm\"\nurl = \"{url}\"\nexchange = \"{EXCHANGE}\"\n\
         queue = \"{QUEUE}\"\nqueue_type = \"{kind}\"\nbindings = [\"warc_created\"]\n\
         settings = {{ base_url = \"https://sfm.example.org\" }}\n\
         [subscriptions.index]\ndelivery = \"amqp\"\nstart = \"beginning\"\nurl = \"{url}\"\nexchange = \"content\"\n\
         queues = [{{ name = \"index\", bindings = [\"content.#\"], type = \"{kind}\" }}]\n"
    )
}

fn start(folder: &Path) -> Gateway {
    let config = folder.join("tidings.toml");
    Gateway::start_with(&folder.join("data"), &["--config", config.to_str().unwrap()])
}

/// Sends one message through, so that all queues exist and their names are on the broker's disk.
async fn settle(broker: &Broker, url: &str, kind: &str) {
    let client = Client::connect(url).await;
    client.exchange(EXCHANGE).await;
    client.exchange("content").await;
    for (queue, exchange) in [(QUEUE, EXCHANGE), ("index", "content")] {
        client.queue(queue, kind).await;
        client.bind(queue, exchange, "#").await;
        client.publish(exchange, "probe", "probe").await;
        client.read(queue, 1).await;
    }
    client.close().await;
    broker.settle();
}

/// Waits until `reached` returns true, as long as there is progress.
async fn until(progress: &Progress, mut reached: impl FnMut(usize, usize) -> bool) {
    let mut last = (0, 0, Instant::now());
    loop {
        let (confirmed, received) = {
            let counts = progress.counts();
            (counts.confirmed, counts.ids.len())
        };
        if reached(confirmed, received) {
            return;
        }
        if (confirmed, received) != (last.0, last.1) {
            last = (confirmed, received, Instant::now());
        }
        assert!(last.2.elapsed() < STANDSTILL, "{confirmed} are confirmed, {received} received, and nothing moves");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Sends `count` messages and kills the victims meanwhile.
#[expect(clippy::print_stderr, reason = "prints the seed, with which a failed run can be repeated")]
async fn survive(kind: &str, count: usize, mut victims: Vec<Victim>) {
    let seed = std::env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    eprintln!("{kind}: SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    random.shuffle(&mut victims);
    let mut moments: Vec<usize> = victims.iter().map(|_| random.usize(1..count - count / 10)).collect();
    moments.sort_unstable();

    let mut broker = Broker::exclusive();
    let url = broker.vhost().url();
    let folder = tempfile::tempdir().unwrap();
    configuration(folder.path(), &lines(&url, kind));
    settle(&broker, &url, kind).await;
    let mut gateway = start(folder.path());
    let progress = Arc::new(Progress::default());
    let bodies: Vec<_> = (1..=count).map(warc).collect();
    let began = Instant::now();
    let publishing = tokio::spawn({
        let (progress, url) = (Arc::clone(&progress), url.clone());
        async move { publish(&url, EXCHANGE, "warc_created", &bodies, &progress).await }
    });
    let consuming = tokio::spawn({
        let (progress, url) = (Arc::clone(&progress), url.clone());
        async move { consume(&url, "index", count, &progress).await }
    });
    for (victim, moment) in victims.into_iter().zip(moments) {
        // Kills at a number of published messages, or at a number of received ones.
        let of_published = random.bool();
        until(&progress, |confirmed, received| moment <= if of_published { confirmed } else { received }).await;
        eprintln!("{:?}: {victim:?} at {moment}", began.elapsed());
        tokio::task::block_in_place(|| match victim {
            Victim::Broker => {
                broker.kill_immediately();
                broker.start_again();
            }
            Victim::Gateway => {
                gateway.kill();
                gateway = start(folder.path());
            }
        });
    }
    until(&progress, |confirmed, received| confirmed == count && received == count).await;
    eprintln!("{:?}: all have arrived", began.elapsed());
    publishing.await.unwrap();
    consuming.await.unwrap();
    assert_complete(&gateway, count, &progress).await;
    assert!(gateway.stop().success());
    assert_eq!(verify_ok(&journal_file(&folder.path().join("data"))).changes, count as u64);
}

/// Panics unless the journal has every message once and the subscriber got the same changes in order.
#[expect(clippy::print_stderr, reason = "prints the number of repeats")]
async fn assert_complete(gateway: &Gateway, count: usize, progress: &Progress) {
    let changes = gateway.changes().await;
    assert_eq!(changes.len(), count, "one change for each message");
    let warcs: BTreeSet<_> = changes.iter().map(|change| change["items"][0]["uri"].as_str().unwrap()).collect();
    let expected = (1..=count).map(|number| format!("https://sfm.example.org/api/v1/warcs/w{number}/"));
    assert!(
        expected.into_iter().all(|warc| warcs.contains(warc.as_str())) && warcs.len() == count,
        "each change is there exactly once"
    );
    assert_eq!(gateway.json("/quarantine").await["messages"], json!([]));

    let counts = progress.counts();
    let again = counts.received.len() - counts.ids.len();
    eprintln!("{} were published again, {again} received again", counts.republished);
    let id = |change: &Value| change["id"].as_str().unwrap().to_owned();
    let journaled: Vec<_> = changes.iter().map(id).collect();
    let mut ids = BTreeSet::new();
    let first = counts.received.iter().filter(|message| ids.insert(message.seq) && !message.redelivered);
    let first: Vec<_> = first.map(|message| message.seq).collect();
    let out_of_order = first.windows(2).find(|pair| pair[1] <= pair[0]);
    assert_eq!(out_of_order, None, "first deliveries are in order");
    assert!(counts.ids.keys().copied().eq(1..=count as u64), "every number is there");
    assert!(counts.ids.values().eq(&journaled), "the identifiers are those of the journal");
    let same = |message: &ReceivedMessage| counts.ids[&message.seq] == message.id;
    assert!(counts.received.iter().all(same), "a repeat has the same identifier");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_and_gateway_kills_lose_nothing() {
    crate::support::needs_sqlite();
    use Victim::{Broker, Gateway};
    let victims = [Broker, Broker, Gateway, Gateway].repeat(lengthened(1));
    survive("classic", lengthened(12_000), victims).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_kills_lose_nothing_with_quorum_queues() {
    crate::support::needs_sqlite();
    use Victim::{Broker, Gateway};
    survive("quorum", lengthened(3000), [Broker, Gateway].repeat(lengthened(1))).await;
}
