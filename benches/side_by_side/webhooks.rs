//! Webhooks, compared with a loop that posts the same bytes with the same HTTP client, the same concurrency and the
//! same receiver, which discards everything. The loop does not sign messages, record attempts or move a cursor.
//!
//! Everything runs in one process with one journal. For its turn a subscription is rewound to the beginning and
//! resumed; it is paused when it has delivered all changes.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Empty};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tidings::{
    cluster::{Cluster, NodeSettings},
    delivery::{Definition, DefinitionContext, EngineTimeouts, StartPosition, Subscriptions},
    http_client::OutboundPolicy,
    journal::{Journal, subscriptions::MadeBy},
    model::{NodeName, Seq, SubscriptionName},
    supervision::Supervisor,
};
use tokio::{net::TcpListener, runtime::Runtime};
use tokio_util::sync::CancellationToken;

use super::{
    journal::{SENDERS, append_batches, close, draft, open, runtime},
    measure::{Contender, compare},
};

/// Number of changes in a turn.
const TURN: u64 = 20_000;

const ROUNDS: usize = 5;

/// Secret of the signatures.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Number of messages in flight if they are not ordered.
const WINDOW: usize = 16;

pub(crate) fn measure() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let sink = sink().address;
    let (runtime, folder) = (runtime(), tempfile::tempdir().unwrap());
    let (journal, writer) = open(folder.path());
    append_batches(&runtime, &journal, (0..TURN).map(draft).collect(), SENDERS);
    let bodies = bodies(&runtime, &journal);
    let bytes = bodies.iter().map(Bytes::len).sum::<usize>() / bodies.len();
    let configured =
        [("ordered", None), ("parallel", None), ("ordered-solr", Some("solr")), ("parallel-solr", Some("solr"))];
    let configured = configured
        .map(|(name, preset)| (self::name(name), Arc::new(definition(sink, name.starts_with("ordered"), preset))));
    let opened = Subscriptions::open(
        journal.clone(),
        configured.into(),
        OutboundPolicy::unrestricted(),
        EngineTimeouts::default(),
        only_node(),
    );
    let (subscriptions, runner) = runtime.block_on(opened).unwrap();
    let stop = CancellationToken::new();
    let running = runtime.spawn(runner.run(stop.clone(), Duration::from_secs(10), Supervisor::default()));
    for name in ["ordered", "parallel", "ordered-solr", "parallel-solr"] {
        runtime.block_on(subscriptions.pause(&self::name(name), "the bench".into())).unwrap();
    }
    for (name, at_once) in [("ordered", 1), ("parallel", WINDOW)] {
        compare(
            &format!("posting, {at_once} in flight, {bytes} bytes each"),
            "deliveries",
            ROUNDS,
            vec![
                Contender::timed("reqwest in a bare loop", || bare(&runtime, sink, &bodies, at_once)),
                Contender::timed("Tidings", || turn(&runtime, &journal, &subscriptions, name)),
                Contender::timed("Tidings with the templates for Solr", || {
                    turn(&runtime, &journal, &subscriptions, &format!("{name}-solr"))
                }),
            ],
        );
    }
    stop.cancel();
    runtime.block_on(running).unwrap();
    drop(subscriptions);
    close(journal, writer);
}

fn name(name: &str) -> SubscriptionName {
    SubscriptionName::parse(name).unwrap()
}

fn definition(sink: SocketAddr, ordered: bool, preset: Option<&str>) -> Definition {
    let mut definition = json!({
        "delivery": "webhook", "format": "json", "start": "beginning", "url": format!("http://{sink}/"),
        "secrets": [SECRET], "ordered": ordered,
    });
    if !ordered {
        definition["window"] = WINDOW.into();
    }
    if let Some(preset) = preset {
        definition["request"] = json!({ "preset": preset });
    }
    let guard = OutboundPolicy::unrestricted();
    Definition::read(definition, &DefinitionContext { made_by: MadeBy::Config, variable: &|_| None, guard: &guard })
        .unwrap()
}

/// Returns the message bodies that the subscription sends.
fn bodies(runtime: &Runtime, journal: &Journal) -> Vec<Bytes> {
    let mut bodies = Vec::new();
    while bodies.len() < TURN as usize {
        let page = journal.after_within(Seq(bodies.len() as u64), 1000, usize::MAX);
        bodies.extend(runtime.block_on(page).unwrap().iter().map(|change| change.json().clone()));
    }
    bodies
}

/// Posts every body, `at_once` at the same time.
fn bare(runtime: &Runtime, sink: SocketAddr, bodies: &[Bytes], at_once: usize) -> (u64, Duration) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{sink}/");
    let began = Instant::now();
    let posts = bodies.to_vec();
    let posted = runtime.block_on(runtime.spawn(async move {
        let post = |body: Bytes| {
            let request = client.post(&url).header("content-type", "application/json").body(body);
            async move {
                let response = request.send().await.unwrap();
                assert!(response.status().is_success());
                response.bytes().await.unwrap();
            }
        };
        futures_util::stream::iter(posts).map(post).buffer_unordered(at_once).count().await
    }));
    (posted.unwrap() as u64, began.elapsed())
}

fn turn(runtime: &Runtime, journal: &Journal, subscriptions: &Subscriptions, which: &str) -> (u64, Duration) {
    let name = name(which);
    runtime.block_on(subscriptions.rewind(&name, StartPosition::Beginning)).unwrap();
    let began = Instant::now();
    runtime.block_on(subscriptions.resume(&name)).unwrap();
    while subscriptions.get(&name).unwrap().status.cursor != journal.head() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = began.elapsed();
    runtime.block_on(subscriptions.pause(&name, "the bench".into())).unwrap();
    (TURN, took)
}

/// Receiver that accepts and discards every request.
pub(super) struct Sink {
    pub(super) address: SocketAddr,
    /// Number of requests so far.
    pub(super) received: Arc<AtomicU64>,
}

/// Returns the configuration of so many subscriptions of a receiver, from now on.
pub(super) fn subscriptions(count: u64, sink: &Sink) -> String {
    let one = |number| {
        format!(
            "[subscriptions.s{number}]\ndelivery = \"webhook\"\nformat = \"json\"\nstart = \"now\"\n\
             url = \"http://{}/{number}\"\nsecrets = [\"{SECRET}\"]\n",
            sink.address
        )
    };
    (0..count).map(one).collect()
}

/// Starts a receiver in its own thread.
pub(super) fn sink() -> Sink {
    let (address_sender, address) = std::sync::mpsc::channel();
    let received = Arc::<AtomicU64>::default();
    let counter = Arc::clone(&received);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            address_sender.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let counter = Arc::clone(&counter);
                let accept = service_fn(move |request: Request<Incoming>| {
                    let counter = Arc::clone(&counter);
                    async move {
                        request.into_body().collect().await.unwrap();
                        counter.fetch_add(1, Ordering::Relaxed);
                        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
                    }
                });
                let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), accept);
                tokio::spawn(serving);
            }
        });
    });
    Sink { address: address.recv().unwrap(), received }
}

/// Returns the handle of a node that has every duty.
pub(super) fn only_node() -> Cluster {
    let name = NodeName::parse("bench").unwrap();
    Cluster::single(NodeSettings { name, address: None, lease: Duration::from_secs(10) })
}
