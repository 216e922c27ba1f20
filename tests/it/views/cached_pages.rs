//! Pages of `/changes` that caches may keep.

use reqwest::Response;
use serde_json::{Value, json};

use crate::support::{
    gateway::Gateway,
    subscription_fixture::{gateway, post},
    views_fixture::ViewedGateway,
};

fn header<'r>(response: &'r Response, name: &str) -> &'r str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

async fn get(gateway: &Gateway, query: &str, tag: &str) -> Response {
    let request = gateway.http.get(format!("{}/changes?{query}", gateway.url));
    request.header("if-none-match", tag).send().await.unwrap()
}

#[tokio::test]
async fn page_before_the_head_is_kept_for_ever_if_it_names_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    for number in 1..=25 {
        post(&gateway, number).await;
    }
    let journal = gateway.json("/changes?limit=1").await["journal"].as_str().unwrap().to_owned();
    let immutable = "public, max-age=31536000, immutable";
    for (query, cache) in [
        (format!("after=0&limit=10&journal={journal}"), immutable),
        (format!("after=10&limit=10&journal={journal}"), immutable),
        (format!("after=20&limit=10&journal={journal}"), "no-cache"),
        (format!("after=15&limit=10&journal={journal}"), "no-cache"),
        (format!("after=0&limit=10&object=http://h.example/objects/2&journal={journal}"), "no-cache"),
        (format!("after=0&limit=2&object=http://h.example/objects/1&journal={journal}"), immutable),
        (format!("limit=10&journal={journal}"), "no-cache"),
        ("after=0&limit=10".to_owned(), "no-cache"),
        ("before=10&limit=5".to_owned(), "no-store"),
    ] {
        let page = get(&gateway, &query, "").await;
        // Pages with the newest change first have no end in the journal.
        let expected = if cache == "no-store" { "no-cache" } else { cache };
        assert_eq!(header(&page, "cache-control"), expected, "{query}");
    }
    let full = get(&gateway, &format!("after=15&limit=10&journal={journal}"), "").await;
    let tag = header(&full, "etag").to_owned();
    post(&gateway, 26).await;
    let known = get(&gateway, &format!("after=15&limit=10&journal={journal}"), &tag).await;
    assert_eq!((known.status().as_u16(), header(&known, "cache-control")), (304, immutable));
    let other = get(&gateway, "after=0&limit=10&journal=00000000-0000-0000-0000-000000000001", "").await;
    assert_eq!(other.status(), 410);
    assert_eq!(other.json::<Value>().await.unwrap()["journal"], journal);
}

#[tokio::test]
async fn poll_without_news_is_not_modified() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    post(&gateway, 1).await;
    let page = get(&gateway, "after=1", "").await;
    let tag = header(&page, "etag").to_owned();
    assert_eq!(get(&gateway, "after=1", &tag).await.status(), 304);
    let lines = gateway.http.get(format!("{}/changes?after=1", gateway.url)).header("accept", "application/x-ndjson");
    assert_eq!(lines.header("if-none-match", &tag).send().await.unwrap().status(), 200, "another format");
    post(&gateway, 2).await;
    let page = get(&gateway, "after=1", &tag).await;
    assert_eq!(page.status(), 200);
    assert_eq!(page.json::<Value>().await.unwrap()["next"], 2);
}

/// A shared cache gives a public response to readers without a token.
#[tokio::test]
async fn responses_to_tokens_are_private() {
    let gateway = ViewedGateway::start("[access.public]\nsurfaces = [\"changes\"]\n");
    let items = json!([{ "uri": "http://h/1", "change": "ADD", "stateAfter": "ACTIVE" }]);
    gateway.post(&json!({ "object": "http://h/1", "items": items })).await;
    for (reader, scope) in [(None, "public"), (Some("reader"), "private")] {
        for path in ["/streams/changes?offset=-1", "/streams/changes?offset=now"] {
            let answer = gateway.get(path, reader).await;
            assert_eq!(answer.status, 200, "{}", answer.everything);
            assert_eq!(answer.cache_control, format!("{scope}, max-age=1"), "{reader:?} {path}");
            assert!(answer.vary.contains("authorization"), "{}", answer.vary);
        }
    }
}
