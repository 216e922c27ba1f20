//! Look-ups: messages of a Fedora 3 from a queue of an ActiveMQ into the journal, each completed by its repository, beside a
//! loop that asks the same with the same client and does nothing else. The repository takes 20 ms for an answer, and
//! 64 requests are on their way at once.
//!
//! The repository is a thread of this process, the gateway the real program in a process of its own. All share the machine.

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

/// How many messages wait when the gateway begins. Each has two things asked.
const MESSAGES: u64 = 6_000;

/// How many of them are sent in one transaction.
const AT_ONCE: u64 = 1000;

/// Rounds, beside the one that warms up.
const ROUNDS: usize = 3;

const IN_FLIGHT: usize = 64;

/// How long an answer takes.
const ANSWER: Duration = Duration::from_millis(20);

/// Asks so often, with so many requests on their way.
async fn ask(client: &reqwest::Client, url: &str, count: u64) {
    let request = |number: u64| async move {
        let pid = number / 2 % 1000;
        let path =
            if number.is_multiple_of(2) { format!("DS{number}?format=xml") } else { "RELS-EXT/content".to_owned() };
        let answer = client.get(format!("{url}/objects/demo:{pid}/datastreams/{path}")).send().await.unwrap();
        assert!(!answer.bytes().await.unwrap().is_empty());
    };
    stream::iter(0..count).map(request).buffer_unordered(IN_FLIGHT).for_each(|()| async {}).await;
}

fn bare(url: &str) -> (u64, Duration) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        ask(&client, url, IN_FLIGHT as u64 * 2).await;
        let began = Instant::now();
        ask(&client, url, MESSAGES * 2).await;
        (MESSAGES * 2, began.elapsed())
    })
}

pub(crate) fn measure() {
    let (broker, folder) = (Broker::start(), tempfile::tempdir().unwrap());
    let (queue, repository) = (format!("/queue/{}", broker.name()), Repository::start(ANSWER));
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
        for from in numbers.clone().step_by(AT_ONCE as usize) {
            client.send_all(&queue, &[("methodName", "addDatastream")], (from..from + AT_ONCE).map(message));
        }
        let done = gateway::drain(&broker.url(), &queue, &lines, folder.path(), MESSAGES, &|_| repository.answered());
        assert_eq!(client.browse(&queue).len(), 0, "all is acknowledged");
        done
    };
    let contenders = vec![
        Contender::timed("reqwest in a bare loop", || bare(&url)),
        Contender::timed("Tidings, into the journal", tidings),
    ];
    compare("look-ups of 20 ms, 64 in flight", "look-ups", ROUNDS, contenders);
}
