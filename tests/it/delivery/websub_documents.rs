//! Documents of the WebSub hub have a maximum size, whatever the changes.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::json;

use crate::support::{
    gateway::Gateway,
    http_receiver::{ReceivedRequest, Receiver, Reply},
    subscription_fixture::{event, gateway, post, post_event},
    websub_fixture::{
        LOCAL, challenge, confirming_subscriber, distributed, feed, ok_status, subscribe, until, until_subscribed,
    },
};

/// Maximum size of a document with several entries, in bytes.
const BYTES: usize = 500_000;

async fn post_large(gateway: &Gateway, number: u64, items: usize) {
    let mut large = event(number);
    let item = |at: usize| json!({ "uri": format!("http://h.example/{number}/{at}"), "change": "ADD" });
    large["items"] = (0..items).map(item).collect();
    post_event(gateway, &large).await;
}

/// Returns the identifiers of the entries. Each document must be a valid feed.
fn entries(posts: &[ReceivedRequest]) -> Vec<String> {
    let parsed = posts.iter().map(|request| feed_rs::parser::parse(&request.body[..]).unwrap());
    parsed.flat_map(|feed| feed.entries).map(|entry| entry.id).collect()
}

fn distinct(entries: &[String]) -> usize {
    entries.iter().collect::<BTreeSet<_>>().len()
}

/// Starts a subscriber that accepts bodies of up to `bytes` bytes.
async fn accepting(bytes: &Arc<AtomicUsize>) -> Receiver {
    let bytes = Arc::clone(bytes);
    Receiver::start(move |_, request| match request.method.as_str() {
        "GET" => Reply::Answer(200, vec![], challenge(request)),
        _ if request.body.len() > bytes.load(Ordering::SeqCst) => Reply::of(413),
        _ => Reply::of(200),
    })
    .await
}

#[tokio::test]
async fn change_of_many_items_fills_several_documents() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), LOCAL);
    let subscriber = confirming_subscriber(&ok_status()).await;
    subscribe(&gateway, &subscriber.url(), &feed(&gateway), &[("hub.secret", "pssst")]).await;
    let name = until_subscribed(&gateway, 1).await[0]["name"].as_str().unwrap().to_owned();
    post_large(&gateway, 1, 3000).await;
    for number in 2..=5 {
        post_large(&gateway, number, 100).await;
    }
    gateway.until_at(&name, 5).await;
    let posts = distributed(&subscriber);
    let sizes: Vec<_> = posts.iter().map(|request| request.body.len()).collect();
    assert!(sizes.iter().all(|size| *size <= BYTES), "{sizes:?}");
    assert!(sizes.iter().any(|size| *size > BYTES / 2), "{sizes:?}");
    let entries = entries(&posts);
    assert_eq!((entries.len(), distinct(&entries)), (3400, 3400), "each entry comes once");
    assert!(posts.iter().all(|request| crate::support::websub_fixture::is_signed(request, "pssst")));
}

#[tokio::test]
async fn documents_shrink_until_the_subscriber_accepts_them() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), LOCAL);
    let bytes = Arc::new(AtomicUsize::new(60_000));
    let subscriber = accepting(&bytes).await;
    subscribe(&gateway, &subscriber.url(), &feed(&gateway), &[]).await;
    let name = until_subscribed(&gateway, 1).await[0]["name"].as_str().unwrap().to_owned();
    post_large(&gateway, 1, 600).await;
    gateway.until_at(&name, 1).await;
    let posts = distributed(&subscriber);
    let (taken, refused): (Vec<_>, Vec<_>) = posts.into_iter().partition(|request| request.body.len() <= 60_000);
    assert!((1..=5).contains(&refused.len()), "{}", refused.len());
    let entries = entries(&taken);
    assert_eq!((entries.len(), distinct(&entries)), (600, 600));

    // A document that cannot be smaller is retried later from the same entry on.
    bytes.store(0, Ordering::SeqCst);
    post(&gateway, 2).await;
    gateway.until(&name, "the subscription fails", |status_json| status_json["failures"].as_u64() >= Some(1)).await;
    bytes.store(60_000, Ordering::SeqCst);
    gateway.until_at(&name, 2).await;
}

#[tokio::test]
async fn retry_continues_after_the_last_accepted_document() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), LOCAL);
    let subscriber = Receiver::start(|nth, request| match request.method.as_str() {
        "GET" => Reply::Answer(200, vec![], challenge(request)),
        // The second document fails.
        _ => Reply::of(if nth == 2 { 500 } else { 200 }),
    })
    .await;
    subscribe(&gateway, &subscriber.url(), &feed(&gateway), &[]).await;
    let name = until_subscribed(&gateway, 1).await[0]["name"].as_str().unwrap().to_owned();
    post_large(&gateway, 1, 2000).await;
    gateway.until_at(&name, 1).await;
    until("every document has come", || distinct(&entries(&distributed(&subscriber))) == 2000).await;
    let posts = distributed(&subscriber);
    let (failed, again) = (entries(&posts[1..2]), entries(&posts[2..3]));
    assert_eq!(failed, again, "the one that failed comes again, and not the one before it");
    assert_eq!(entries(&posts).len(), 2000 + failed.len());
}
