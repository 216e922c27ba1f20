//! Retention: a page is no longer linked before it goes, and the root says what is kept.

use serde_json::Value;

use crate::support::{
    gateway::{Gateway, PATIENCE},
    ldes_client::read,
    subscription_fixture::{gateway, post},
};

/// Returns the root with its URL, and the pages that it links.
async fn root(gateway: &Gateway) -> (url::Url, Value, Vec<String>) {
    let root = gateway.http.get(format!("{}/ldes", gateway.url)).send().await.unwrap();
    let (url, root) = (root.url().clone(), root.json::<Value>().await.unwrap());
    let relations = root["view"]["relation"].as_array().unwrap();
    let mut linked: Vec<_> = relations.iter().map(|one| one["node"].as_str().unwrap().to_owned()).collect();
    linked.dedup();
    (url, root, linked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_is_unlinked_before_it_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[journal]\nkeep_changes = 500\n");
    for number in 1..=460 {
        post(&gateway, number).await;
    }
    let (url, now, linked) = root(&gateway).await;
    let get = async |name: &str| gateway.http.get(url.join(name).unwrap()).send().await.unwrap();
    assert_eq!(
        linked,
        ["page-2.jsonld", "page-3.jsonld", "page-4.jsonld", "page-5.jsonld"],
        "450 changes are far from removal"
    );
    let unlinked: Value = get("page-1.jsonld").await.json().await.unwrap();
    assert_eq!(unlinked["member"].as_array().unwrap().len(), 100, "a reader that has the link reads the page");
    let first: Value = get("page-2.jsonld").await.json().await.unwrap();
    let policy = &now["view"]["retentionPolicy"];
    assert_eq!((&policy["id"], &policy["startingFrom"]), (&"#retention".into(), &first["member"][0]["order"]));
    for number in 461..=640 {
        post(&gateway, number).await;
    }
    let began = std::time::Instant::now();
    while get("page-1.jsonld").await.status() != 410 {
        assert!(began.elapsed() < PATIENCE, "retention removes nothing");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let (_, _, linked) = root(&gateway).await;
    assert_eq!(linked[0], "page-3.jsonld");
    for name in linked {
        assert_eq!(get(&name).await.status(), 200, "{name}");
    }
    let client = read(&format!("{}/ldes", gateway.url), None, &[]);
    assert!(client.succeeded, "{}", client.errors);
    assert_eq!(client.numbers(), (201..=640).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_comes_again_while_retention_removes() {
    let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gateway = gateway(folder.path(), "[journal]\nkeep_changes = 300\n");
    let (mut seen, mut number) = (Vec::new(), 0);
    for _ in 0..4 {
        for _ in 0..170 {
            number += 1;
            post(&gateway, number).await;
        }
        let run = read(&format!("{}/ldes", gateway.url), Some(state.path()), &[]);
        assert!(run.succeeded, "{}", run.errors);
        seen.extend(run.numbers());
    }
    assert_eq!(seen, (1..=number).collect::<Vec<_>>());
}
