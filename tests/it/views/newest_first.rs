//! `/changes` with the newest change first, and the life of one object or item: pages of bounded work whose `next` leads
//! to every selected change once.

use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::support::{
    feed_reader,
    gateway::Gateway,
    subscription_fixture::{gateway, post, post_event},
};

async fn get(gateway: &Gateway, path: &str, accept: &str) -> Response {
    gateway.http.get(format!("{}{path}", gateway.url)).header("accept", accept).send().await.unwrap()
}

fn numbers(page: &Value) -> Vec<u64> {
    page["changes"].as_array().unwrap().iter().map(|change| change["seq"].as_u64().unwrap()).collect()
}

/// Returns the query of the next page, if there is one.
fn next(page: &Response) -> Option<String> {
    let link = page.headers().get("link")?.to_str().unwrap();
    Some(link.strip_prefix("<?").and_then(|rest| rest.strip_suffix(">; rel=\"next\"")).unwrap().to_owned())
}

#[tokio::test]
async fn newest_changes_come_first() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    let empty = gateway.json("/changes?before=5").await;
    assert_eq!((numbers(&empty), &empty["next"]), (vec![], &Value::Null));
    for number in 1..=5 {
        post(&gateway, number).await;
    }
    let third = gateway.changes().await[2]["received"].as_str().unwrap().to_owned();
    let since_third = format!("before=99&since={third}");
    for (query, expected, next) in [
        ("before=99", vec![5, 4, 3, 2, 1], json!(null)),
        ("before=99&limit=2", vec![5, 4], json!(4)),
        ("before=4&limit=2", vec![3, 2], json!(2)),
        ("before=2&limit=2", vec![1], json!(null)),
        ("before=1", vec![], json!(null)),
        ("before=0", vec![], json!(null)),
        ("before=99&object=http://h.example/objects/2", vec![2], json!(null)),
        ("before=99&change=DELETE", vec![], json!(null)),
        ("before=99&since=2999-01-01", vec![], json!(null)),
        ("after=1&before=4", vec![2, 3], json!(3)),
        (since_third.as_str(), vec![5, 4, 3], json!(null)),
    ] {
        let page = gateway.json(&format!("/changes?{query}")).await;
        assert_eq!((numbers(&page), &page["next"]), (expected, &next), "{query}");
    }
    for accept in ["application/json", "application/x-ndjson", "application/cloudevents-batch+json"] {
        let (mut query, mut queries, mut text) =
            (Some("before=99&limit=2&change=add".to_owned()), Vec::new(), String::new());
        while let Some(following) = query {
            let page = get(&gateway, &format!("/changes?{following}"), accept).await;
            query = next(&page);
            queries.push(following);
            text += &page.text().await.unwrap();
        }
        assert_eq!(queries[1..], ["change=ADD&before=4&limit=2", "change=ADD&before=2&limit=2"], "{accept}");
        let places: Vec<_> = (1..=5).map(|number| text.find(&format!("objects/{number}/item")).unwrap()).collect();
        assert!(places.iter().rev().is_sorted(), "{accept}: {text}");
    }
    let refused = get(&gateway, "/changes?before=99&wait=1", "*/*").await;
    assert_eq!(refused.status(), 400);
    assert_eq!(refused.json::<Value>().await.unwrap()["parameter"], "wait");
}

#[tokio::test]
async fn life_of_a_thing_has_exactly_its_changes() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    let object = "http://h.example/objects/demo:1";
    for (object, item, change) in [
        (object, format!("{object}/photo"), "ADD"),
        // Their URIs begin with those of the others.
        ("http://h.example/objects/demo:11", format!("{object}/photo2"), "ADD"),
        (object, format!("{object}/text"), "ADD"),
        (object, format!("{object}/photo"), "DELETE"),
    ] {
        post_event(&gateway, &json!({ "object": object, "items": [{ "uri": item, "change": change }] })).await;
    }
    // The URI is in the change, and the change is about another thing.
    post_event(
        &gateway,
        &json!({ "object": "http://h.example/2", "parent": object, "items": [{ "uri": "http://h.example/2", "change": "ADD" }] }),
    )
    .await;
    for (query, expected, next) in [
        (format!("about={object}"), vec![4, 3, 1], json!(null)),
        (format!("about={object}&limit=1"), vec![4], json!(4)),
        (format!("about={object}&before=4&limit=1"), vec![3], json!(3)),
        (format!("about={object}&change=ADD"), vec![3, 1], json!(null)),
        (format!("about={object}/photo"), vec![4, 1], json!(null)),
        (format!("about={object}/photo2"), vec![2], json!(null)),
        (format!("about={object}&after=0"), vec![1, 3, 4], json!(5)),
        ("about=http://h.example/objects/demo:".to_owned(), vec![], json!(null)),
    ] {
        let page = gateway.json(&format!("/changes?{query}")).await;
        assert_eq!((numbers(&page), &page["next"]), (expected, &next), "{query}");
    }
    let first = get(&gateway, &format!("/changes?limit=1&about={object}"), "*/*").await;
    let about = "http%3A%2F%2Fh.example%2Fobjects%2Fdemo%3A1";
    assert_eq!(next(&first), Some(format!("about={about}&before=4&limit=1")));
    let refused = get(&gateway, "/changes?about=demo", "*/*").await;
    assert_eq!(refused.status(), 400);
    assert_eq!(refused.json::<Value>().await.unwrap()["parameter"], "about");
}

#[tokio::test]
async fn search_is_bounded_and_continues() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = feed_reader::Gateway::open(folder.path()).await;
    // Each item more is a URI of 2000 bytes.
    let add = |number: u64, more: u64| {
        let object = format!("http://h/{number}");
        let item = |at: u64| json!({ "uri": format!("{object}/{at}{}", "x".repeat(if at == 0 { 0 } else { 2000 })), "change": "ADD" });
        feed_reader::draft(json!({ "object": object, "items": (0..=more).map(item).collect::<Vec<_>>() }))
    };
    gateway.append("rare", vec![add(0, 0)]).await;
    gateway.append("frequent", (1..=10_100).map(|number| add(number, 0)).collect()).await;
    let read = async |path: &str| -> Value { gateway.ask(Method::GET, path, &[]).await.json().await.unwrap() };
    let (mut before, mut pages) = (json!(99_999), Vec::new());
    while !before.is_null() {
        let page = read(&format!("/changes?source=rare&before={before}")).await;
        before = page["next"].clone();
        pages.push((numbers(&page), before.clone()));
    }
    assert_eq!(
        pages,
        [(vec![], json!(5_102)), (vec![], json!(102)), (vec![1], json!(null))],
        "each page makes progress"
    );
    let page = read("/changes?about=http://h/0/0").await;
    assert_eq!((numbers(&page), &page["next"]), (vec![1], &json!(null)), "a search parses no others");

    // Sixty-four MiB end a page.
    for number in 0..7 {
        gateway.append("large", (0..10).map(|of| add(20_000 + 10 * number + of, 500)).collect()).await;
    }
    let page = read("/changes?about=http://h/0/0").await;
    let next = page["next"].as_u64().unwrap();
    assert!(numbers(&page).is_empty() && (10_101..10_120).contains(&next), "{next}");
    let page = read(&format!("/changes?about=http://h/0/0&before={next}")).await;
    assert_eq!((numbers(&page), &page["next"]), (vec![1], &json!(null)));
}
