//! Pages: full ones never change, caches may keep them, and retention takes the oldest ones.

use reqwest::Response;
use serde_json::Value;

use crate::support::{
    gateway::{Gateway, PATIENCE},
    iiif_walk::walk,
    subscription_fixture::{gateway, post},
};

const FIXED: &str = "public, max-age=31536000, immutable";
const MEDIA_TYPE: &str = "application/ld+json;profile=\"http://iiif.io/api/discovery/1/context.json\"";

fn header<'r>(response: &'r Response, name: &str) -> &'r str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

async fn post_all(gateway: &Gateway, numbers: std::ops::RangeInclusive<u64>) {
    use futures_util::{StreamExt, stream};
    stream::iter(numbers).for_each_concurrent(32, |number| post(gateway, number)).await;
}

/// Returns the URL of a page of the present stream.
async fn page(gateway: &Gateway, number: u64) -> String {
    let collection = gateway.json("/iiif").await;
    let last = collection["last"]["id"].as_str().unwrap();
    format!("{}/page-{number}.json", last.rsplit_once('/').unwrap().0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_pages_never_change_and_caches_may_keep_them() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    post_all(&gateway, 1..=250).await;
    let get = async |url: &str, tag: &str| gateway.http.get(url).header("if-none-match", tag).send().await.unwrap();
    let mut full = Vec::new();
    for number in [1, 2] {
        let url = page(&gateway, number).await;
        let response = get(&url, "").await;
        assert_eq!((header(&response, "cache-control"), header(&response, "content-type")), (FIXED, MEDIA_TYPE));
        let tag = header(&response, "etag").to_owned();
        let again = get(&url, &tag).await;
        assert_eq!((again.status().as_u16(), header(&again, "cache-control")), (304, FIXED));
        full.push((url, response.bytes().await.unwrap()));
    }
    let newest = page(&gateway, 3).await;
    let growing = get(&newest, "").await;
    // A walk passes it once, on the way back from later pages.
    assert_eq!(header(&growing, "cache-control"), "no-cache");
    let tag = header(&growing, "etag").to_owned();
    assert_eq!(get(&newest, &tag).await.status(), 304);
    assert_eq!(growing.json::<Value>().await.unwrap()["orderedItems"].as_array().unwrap().len(), 50);

    // A page is full before the next one begins, and has another link then.
    post_all(&gateway, 251..=300).await;
    assert_eq!(header(&get(&newest, "").await, "cache-control"), "no-cache");
    post_all(&gateway, 301..=360).await;
    let closed = get(&newest, &tag).await;
    assert_eq!((closed.status().as_u16(), header(&closed, "cache-control")), (200, FIXED));
    for (url, bytes) in &full {
        assert_eq!(get(url, "").await.bytes().await.unwrap(), bytes, "{url}");
    }
    let missing = page(&gateway, 5).await;
    for url in [missing.clone(), missing.replace("page-5", "page-0"), missing.replace("page-5", "block-1")] {
        assert_eq!(get(&url, "").await.status(), 404, "{url}");
    }
    assert_eq!(get(&missing.replace("/iiif/", "/iiif/0"), "").await.status(), 404, "no identity of a stream");
    let compressed = gateway.http.get(&full[0].0).header("accept-encoding", "gzip").send().await.unwrap();
    assert_eq!(header(&compressed, "content-encoding"), "gzip");
    let plain = gateway.http.get(&full[0].0).header("accept", "application/json").send().await.unwrap();
    assert!(header(&plain, "content-type").starts_with("application/json"), "{plain:?}");
    let none = gateway.http.get(&full[0].0).header("accept", "text/turtle").send().await.unwrap();
    assert_eq!(none.status(), 406);
}

/// Waits until retention has removed all changes before this one.
async fn until_first(gateway: &Gateway, number: u64) {
    let began = std::time::Instant::now();
    while gateway.json("/changes?limit=1").await["changes"][0]["seq"] != number {
        assert!(began.elapsed() < PATIENCE, "retention removes nothing");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_page_is_gone_and_the_oldest_one_has_no_link_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[journal]\nkeep_changes = 220\n");
    post_all(&gateway, 1..=150).await;
    let url = format!("{}/iiif", gateway.url);
    let since = gateway.changes().await[149]["received"].as_str().unwrap().to_owned();
    post_all(&gateway, 151..=450).await;
    until_first(&gateway, 231).await;
    let get = async |number: u64| gateway.http.get(page(&gateway, number).await).send().await.unwrap();
    for number in [1, 2] {
        let removed = get(number).await;
        assert_eq!(removed.status(), 410);
        assert_eq!(removed.json::<Value>().await.unwrap()["snapshot"], "/snapshot");
    }
    // Page 3 has lost its first changes, and keeps the others.
    assert_eq!(walk(&url, None, None).unwrap().included.len(), 220);
    let truncated = get(3).await;
    assert_eq!(header(&truncated, "cache-control"), "public, max-age=1", "it loses more changes");
    let tag = header(&truncated, "etag").to_owned();
    let truncated: Value = truncated.json().await.unwrap();
    assert_eq!((truncated["orderedItems"].as_array().unwrap().len(), &truncated["prev"]), (70, &Value::Null));
    let kept = get(4).await;
    assert_eq!(header(&kept, "cache-control"), "public, max-age=3600", "its link to the page before will vanish");
    let tag_of_kept = header(&kept, "etag").to_owned();
    assert!(kept.json::<Value>().await.unwrap()["prev"]["id"].as_str().unwrap().ends_with("page-3.json"));

    post_all(&gateway, 451..=519).await;
    until_first(&gateway, 300).await;
    let truncated = gateway.http.get(page(&gateway, 3).await).header("if-none-match", &tag).send().await.unwrap();
    assert_eq!(truncated.status(), 200, "it has fewer changes now");
    assert_eq!(truncated.json::<Value>().await.unwrap()["orderedItems"].as_array().unwrap().len(), 1);
    post_all(&gateway, 520..=520).await;
    until_first(&gateway, 301).await;
    assert_eq!(get(3).await.status(), 410, "its last change has been removed");
    let kept = gateway.http.get(page(&gateway, 4).await).header("if-none-match", &tag_of_kept).send().await.unwrap();
    assert_eq!(kept.status(), 200, "it has no link any more");
    assert_eq!(kept.json::<Value>().await.unwrap()["prev"], Value::Null);
    // A reader that retention has overtaken.
    assert!(walk(&url, Some(&since), None).is_ok(), "the walk ends at the oldest page");
}

/// Readers find the changes that are left of a page while retention removes one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_can_be_read_while_retention_removes() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[journal]\nkeep_changes = 90\n");
    post_all(&gateway, 1..=100).await;
    let write = async {
        for from in (101..=700).step_by(20) {
            post_all(&gateway, from..=from + 19).await;
        }
    };
    let read = async {
        loop {
            let collection = gateway.json("/iiif").await;
            let first = gateway.http.get(collection["first"]["id"].as_str().unwrap()).send().await.unwrap();
            let page: u64 =
                first.url().path().rsplit_once("page-").unwrap().1.trim_end_matches(".json").parse().unwrap();
            match (first.status().as_u16(), first.json::<Value>().await.unwrap()) {
                (200, document) => assert_ne!(document["orderedItems"], Value::Null),
                // The page has been removed since it was linked.
                (410, problem) => assert!(problem["first"].as_u64().unwrap() > 100 * page, "{problem}"),
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::select! {
        () = write => {}
        () = read => {}
    }
}
