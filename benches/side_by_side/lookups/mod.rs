//! Lookups: the gateway consumes messages of a Fedora 3 from an ActiveMQ queue, completes each by lookups in its
//! repository, and journals it. A loop that sends the same requests with the same HTTP client is the reference. The
//! repository responds after 20 ms, and 64 requests are in flight.
//!
//! The repository is a thread of this process, and the gateway is the real program in its own process, on the same
//! machine.

mod repository;

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};

use super::{
    activemq::Broker,
    fedora3_messages::BASE,
    measure::{Contender, compare},
    stomp::{gateway, message},
    stomp_client::Client,
};
use repository::Repository;

/// Number of messages in the queue when the gateway starts. Each needs two lookups.
const MESSAGES: u64 = 6_000;

/// Number of messages that are sent in one transaction.
const TRANSACTION: u64 = 1000;

/// Number of rounds, after a warm-up round.
const ROUNDS: usize = 3;

const IN_FLIGHT: usize = 64;

/// Response time of the repository.
const RESPONSE_TIME: Duration = Duration::from_millis(20);

/// Sends `count` lookup requests, [`IN_FLIGHT`] at the same time.
async fn look_up(client: &reqwest::Client, url: &str, count: u64) {
    let request = |number: u64| async move {
        let pid = number / 2 % 1000;
        let path =
            if number.is_multiple_of(2) { format!("DS{number}?format=xml") } else { "RELS-EXT/content".to_owned() };
        let response = client.get(format!("{url}/objects/demo:{pid}/datastreams/{path}")).send().await.unwrap();
        assert!(!response.bytes().await.unwrap().is_empty());
    };
    stream::iter(0..count).map(request).buffer_unordered(IN_FLIGHT).for_each(|()| async {}).await;
}

fn bare(url: &str) -> (u64, Duration) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        look_up(&client, url, IN_FLIGHT as u64 * 2).await;
        let began = Instant::now();
        look_up(&client, url, MESSAGES * 2).await;
        (MESSAGES * 2, began.elapsed())
    })
}

pub(crate) fn measure() {
    let (broker, folder) = (Broker::start(), tempfile::tempdir().unwrap());
    let (queue, repository) = (format!("/queue/{}", broker.name()), Repository::start(RESPONSE_TIME));
    let next = Cell::new(0);
    let url = repository.url();
    let lines = format!(
        "lookup = \"required\"\n[sources.fedora3.repository]\nurl = \"{url}\"\npublic_urls = [\"{BASE}\"]\n\
         in_flight = {IN_FLIGHT}\n"
    );
    let tidings = || {
        let numbers = next.get()..next.get() + MESSAGES;
        next.set(numbers.end);
        let mut client = Client::connect(broker.port);
        for from in numbers.clone().step_by(TRANSACTION as usize) {
            client.send_all(&queue, &[("methodName", "addDatastream")], (from..from + TRANSACTION).map(message));
        }
        let done = gateway::drain(&broker.url(), &queue, &lines, folder.path(), MESSAGES, &|_| repository.responses());
        assert_eq!(client.browse(&queue).len(), 0, "all is acknowledged");
        done
    };
    let contenders = vec![
        Contender::timed("reqwest in a bare loop", || bare(&url)),
        Contender::timed("Tidings, into the journal", tidings),
    ];
    compare("lookups of 20 ms, 64 in flight", "lookups", ROUNDS, contenders);
}
