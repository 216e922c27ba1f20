//! Retention: a page is no longer linked before it goes, and the root says what is kept.

use serde_json::Value;

use crate::support::{
    gateway::{Gateway, PATIENCE},
    ldes_client::{FollowingClient, read},
    subscription_fixture::{gateway, post},
};

/// Returns the root with its URL, and the pages that it links.
async fn root(gateway: &Gateway) -> (url::Url, Value, Vec<String>) {
    let root = gateway.http.get(format!("{}/ldes", gateway.url)).send().await.unwrap();
    let (url, root) = (root.url().clone(), root.json::<Value>().await.unwrap());
    // An empty journal has none.
    let relations = root["view"]["relation"].as_array().into_iter().flatten();
    let mut linked: Vec<_> = relations.map(|one| one["node"].as_str().unwrap().to_owned()).collect();
    linked.dedup();
    (url, root, linked)
}

/// Waits until retention has removed all changes before this one.
async fn until_first(gateway: &Gateway, number: u64) {
    let began = std::time::Instant::now();
    while gateway.json("/changes?limit=1").await["changes"][0]["seq"] != number {
        assert!(began.elapsed() < PATIENCE, "retention removes nothing");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn post_all(gateway: &Gateway, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        post(gateway, number).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_is_unlinked_before_it_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[journal]\nkeep_changes = 500\n");
    post_all(&gateway, 1..=460).await;
    let (url, now, linked) = root(&gateway).await;
    let get = async |name: &str| gateway.http.get(url.join(name).unwrap()).send().await.unwrap();
    let members =
        async |name: &str| get(name).await.json::<Value>().await.unwrap()["member"].as_array().unwrap().clone();
    // The newest 450 changes are far from removal: those from change 11 on.
    assert_eq!(linked, ["page-1.jsonld", "page-2.jsonld", "page-3.jsonld", "page-4.jsonld", "page-5.jsonld"]);
    let policy = &now["view"]["retentionPolicy"];
    let first = members("page-1.jsonld").await;
    assert_eq!((&policy["id"], &policy["startingFrom"]), (&"#retention".into(), &first[10]["order"]));
    assert_eq!(now["view"]["relation"][0]["value"], first[0]["order"]);

    post_all(&gateway, 461..=560).await;
    until_first(&gateway, 61).await;
    let (_, now, linked) = root(&gateway).await;
    assert_eq!(linked[0], "page-2.jsonld", "nothing of page 1 stays");
    let second = members("page-2.jsonld").await;
    assert_eq!(now["view"]["retentionPolicy"]["startingFrom"], second[10]["order"]);
    // A reader that has the link reads what is left of the page, and does not come again.
    let truncated = get("page-1.jsonld").await;
    assert_eq!(truncated.headers()["cache-control"], "public, max-age=1, immutable");
    assert_eq!(members("page-1.jsonld").await, first[60..]);

    post_all(&gateway, 561..=600).await;
    until_first(&gateway, 101).await;
    assert_eq!(get("page-1.jsonld").await.status(), 410);
    let (_, _, linked) = root(&gateway).await;
    assert_eq!(linked[0], "page-2.jsonld");
    for name in linked {
        assert_eq!(get(&name).await.status(), 200, "{name}");
    }
    let client = read(&format!("{}/ldes", gateway.url), None, &[]);
    assert!(client.succeeded, "{}", client.errors);
    assert_eq!(client.numbers(), (101..=600).collect::<Vec<_>>());
}

/// The window of a page that has lost changes begins with those that are left, also if the window of the whole page was
/// asked for before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_page_has_the_order_times_that_it_had() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[journal]\nkeep_changes = 200\n");
    post_all(&gateway, 1..=150).await;
    let (url, _, _) = root(&gateway).await;
    let members = async || {
        let page = gateway.http.get(url.join("page-1.jsonld").unwrap()).send().await.unwrap();
        page.json::<Value>().await.unwrap()["member"].as_array().unwrap().clone()
    };
    let whole = members().await;
    let tag = gateway.http.get(url.clone()).send().await.unwrap().headers()["etag"].clone();
    post_all(&gateway, 151..=240).await;
    until_first(&gateway, 41).await;
    assert_eq!(members().await, whole[40..]);
    let root = gateway.http.get(url.clone()).header("if-none-match", tag).send().await.unwrap();
    let root: Value = root.json().await.unwrap();
    assert_eq!(root["view"]["relation"][0]["value"], whole[40]["order"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_comes_again_while_retention_removes() {
    let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gateway = gateway(folder.path(), "[journal]\nkeep_changes = 300\n");
    let (url, mut seen, mut number) = (root(&gateway).await.0, Vec::new(), 0_u64);
    let mut statuses = Vec::new();
    for _ in 0..4 {
        post_all(&gateway, number + 1..=number + 170).await;
        number += 170;
        until_first(&gateway, number.saturating_sub(300) + 1).await;
        let first_page = gateway.http.get(url.join("page-1.jsonld").unwrap()).send().await.unwrap();
        statuses.push(first_page.status().as_u16());
        let run = read(&format!("{}/ldes", gateway.url), Some(state.path()), &[]);
        assert!(run.succeeded, "{}", run.errors);
        seen.extend(run.numbers());
    }
    assert_eq!(seen, (1..=number).collect::<Vec<_>>());
    assert_eq!(statuses, [200, 200, 410, 410], "it has read a page that is gone");
}

/// A client that follows the stream asks again for each document that may change, and ends if one is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn following_client_outlives_the_pages_that_it_has_read() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[journal]\nkeep_changes = 300\n");
    post_all(&gateway, 1..=340).await;
    until_first(&gateway, 41).await;
    let (url, _, linked) = root(&gateway).await;
    assert_eq!(linked[0], "page-1.jsonld");
    let mut client = FollowingClient::start(&format!("{}/ldes", gateway.url));
    client.until(340).await;
    post_all(&gateway, 341..=510).await;
    until_first(&gateway, 211).await;
    for page in ["page-1.jsonld", "page-2.jsonld"] {
        let gone = gateway.http.get(url.join(page).unwrap()).send().await.unwrap();
        assert_eq!(gone.status(), 410, "{page}");
    }
    client.until(510).await;
    // It has asked again since then.
    for number in 511..=513 {
        post(&gateway, number).await;
        client.until(number).await;
    }
    assert_eq!(client.numbers(), (41..=513).collect::<Vec<_>>());
}
