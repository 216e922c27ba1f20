//! A load balancer moves a client to another node with every request: documents have the same bytes and tags, and pages,
//! long polls and WebSub subscriptions continue at any node.

use futures_util::future::join_all;
use reqwest::{Response, header::HeaderMap};

use crate::support::{
    feed_reader::{Element, changes},
    gateway::Gateway,
    http_receiver::{ReceivedRequest, Receiver, Reply},
    nodes_fixture::{SharedJournal, until},
    subscription_fixture::post,
    websub_fixture::{
        LOCAL, challenge, distributed, hub_subscriptions, is_signed, numbers, query, subscribe, unsubscribe,
        until_distributed,
    },
};

/// URL of the load balancer.
const PUBLIC: &str = "http://tidings.example";

/// Nodes behind the load balancer.
struct Nodes {
    _journal: SharedJournal,
    nodes: [Gateway; 2],
    posted: u64,
}

impl Nodes {
    fn start() -> Self {
        let journal = SharedJournal::new(&format!("[server]\npublic_url = \"{PUBLIC}\"\n{LOCAL}"));
        let nodes = ["a", "b"].map(|name| journal.node(name));
        Self { _journal: journal, nodes, posted: 0 }
    }

    /// Posts so many events, at all nodes in turn, and waits until each node has their changes.
    async fn post(&mut self, count: u64) {
        let numbers = self.posted + 1..=self.posted + count;
        join_all(numbers.map(|number| post(self.of(number), number))).await;
        self.posted += count;
        for node in &self.nodes {
            until("the node has every change", async || node.head().await == self.posted).await;
        }
    }

    /// Returns the node for the request with that number.
    fn of(&self, number: u64) -> &Gateway {
        &self.nodes[usize::from(number.is_multiple_of(2))]
    }
}

/// Requests a path, or a link of a document.
async fn ask(node: &Gateway, link: &str, headers: &[(&str, &str)]) -> Response {
    let mut request = node.http.get(format!("{}{}", node.url, link.strip_prefix(PUBLIC).unwrap_or(link)));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap()
}

/// Returns the headers that caches use.
fn cache_headers(headers: &HeaderMap) -> Vec<Option<String>> {
    let names = ["etag", "cache-control", "vary", "content-type", "content-encoding", "last-modified"];
    names.map(|name| headers.get(name).map(|value| value.to_str().unwrap().to_owned())).to_vec()
}

fn tag(response: &Response) -> String {
    response.headers()["etag"].to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_and_their_tags_are_the_same_at_every_node() {
    let mut nodes = Nodes::start();
    nodes.post(420).await;
    let [a, b] = &nodes.nodes;
    let change = a.json("/changes?after=7&limit=1").await["changes"][0]["id"].as_str().unwrap().to_owned();
    let change = format!("/changes/{change}");
    for link in ["/feed", "/feed/archive/1", "/feed?change=ADD", "/feed?change=ADD&limit=7", &change] {
        for encoding in ["identity", "gzip"] {
            let encoding = ("accept-encoding", encoding);
            let [one, other] = [ask(a, link, &[encoding]).await, ask(b, link, &[encoding]).await];
            assert_eq!((one.status().as_u16(), other.status().as_u16()), (200, 200), "{link}");
            assert_eq!(cache_headers(one.headers()), cache_headers(other.headers()), "{link}");
            let tag = tag(&one);
            assert!(one.bytes().await.unwrap() == other.bytes().await.unwrap(), "{link} has the same bytes");
            for node in &nodes.nodes {
                let again = ask(node, link, &[encoding, ("if-none-match", &tag)]).await;
                assert_eq!(again.status(), 304, "{link}");
            }
        }
    }

    // A new change, which either node has accepted, ends the validity at both.
    for _ in 0..2 {
        let before = tag(&ask(&nodes.nodes[0], "/feed", &[]).await);
        nodes.post(1).await;
        let [one, other] = &nodes.nodes;
        let [one, other] = [
            ask(one, "/feed", &[("if-none-match", &before)]).await,
            ask(other, "/feed", &[("if-none-match", &before)]).await,
        ];
        assert_eq!((one.status().as_u16(), other.status().as_u16()), (200, 200));
        assert_eq!(tag(&one), tag(&other));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_of_pages_is_moved_with_every_request() {
    let mut nodes = Nodes::start();
    nodes.post(350).await;
    for (first, rel) in [("/feed", "prev-archive"), ("/feed?change=ADD&limit=60", "next")] {
        let (existing, mut read, mut next, mut requests) = (nodes.posted, Vec::new(), Some(first.to_owned()), 0);
        while let Some(link) = next {
            requests += 1;
            let response = ask(nodes.of(requests), &link, &[]).await;
            assert_eq!(response.status(), 200, "{link}");
            let feed = Element::parse(&response.text().await.unwrap());
            read.extend(changes(&feed).iter().map(|change| change["seq"].as_u64().unwrap()));
            next = feed.link(rel).map(str::to_owned);
            nodes.post(3).await;
        }
        assert!(requests >= 3, "{requests} pages");
        assert_eq!(read, (1..=existing).rev().collect::<Vec<_>>(), "{first}");
    }

    // A poll waits at one node, and the change arrives at the other.
    for number in 0..6 {
        let cursor = nodes.posted;
        let link = format!("/changes?after={cursor}&wait=20");
        let poll = ask(nodes.of(number), &link, &[]);
        let (response, ()) = tokio::join!(poll, post(nodes.of(number + 1), cursor + 1));
        let page: serde_json::Value = response.json().await.unwrap();
        assert_eq!((&page["changes"][0]["seq"], &page["next"]), (&(cursor + 1).into(), &(cursor + 1).into()));
        nodes.posted += 1;
    }
}

/// Returns whether a subscriber got a denial.
fn is_denied(subscriber: &Receiver) -> bool {
    let is_denial = |request: &ReceivedRequest| query(request).get("hub.mode").is_some_and(|mode| mode == "denied");
    subscriber.requests().iter().any(is_denial)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websub_subscriber_is_verified_and_renewed_at_any_node() {
    let nodes = Nodes::start();
    let [a, b] = &nodes.nodes;
    let subscriber = Receiver::start(|_, request| match request.method.as_str() {
        "GET" => Reply::Answer(200, vec![], challenge(request)),
        _ => Reply::of(204),
    })
    .await;
    let (topic, callback) = (format!("{PUBLIC}/feed"), subscriber.url());
    let until_both = async |what: &str, holds: &dyn Fn(&[serde_json::Value]) -> bool| {
        for node in [a, b] {
            until(what, async || holds(&hub_subscriptions(node).await)).await;
        }
    };

    subscribe(a, &callback, &topic, &[("hub.secret", "first")]).await;
    until_both("both nodes have the subscription", &|all| all.len() == 1).await;
    let lease = hub_subscriptions(b).await[0]["definition"]["lease"].clone();
    post(a, 1).await;
    assert!(is_signed(&until_distributed(&subscriber, 1).await[0], "first"));

    // A renewal at the other node replaces the lease and the secret, wherever the subscription is delivered.
    subscribe(b, &callback, &topic, &[("hub.secret", "second"), ("hub.lease_seconds", "3600")]).await;
    until_both("both nodes have the new lease", &|all| all.len() == 1 && all[0]["definition"]["lease"] != lease).await;
    post(b, 2).await;
    assert!(is_signed(&until_distributed(&subscriber, 2).await[1], "second"));

    // It ends at the first node, and another one ends by its lease.
    unsubscribe(a, &callback, &topic).await;
    until_both("the subscription has ended", &<[_]>::is_empty).await;
    let short = format!("{callback}/short");
    subscribe(b, &short, &topic, &[("hub.lease_seconds", "2")]).await;
    post(a, 3).await;
    until_distributed(&subscriber, 3).await;
    until_both("the lease has ended", &<[_]>::is_empty).await;
    let posts = distributed(&subscriber);
    assert_eq!(numbers(&posts), [1, 2, 3]);
    assert!(posts[2].path.ends_with("/short"), "{}", posts[2].path);
    assert!(!is_denied(&subscriber), "no administrator has ended a subscription");
}
