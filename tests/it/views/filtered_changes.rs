//! `/changes` with a filter: pages of bounded work whose links lead to every matching change once, also as a change on
//! each line, and as the public sees the changes.

use std::collections::BTreeMap;

use reqwest::{Response, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    feed_reader,
    gateway::Gateway,
    subscription_fixture::{gateway, post, post_event},
};

/// Media type of a page with a change on each line.
const LINES: &str = "application/x-ndjson";

async fn get(gateway: &Gateway, path: &str, accept: &str) -> Response {
    gateway.http.get(format!("{}{path}", gateway.url)).header("accept", accept).send().await.unwrap()
}

fn numbers(page: &Value) -> Vec<u64> {
    page["changes"].as_array().unwrap().iter().map(|change| change["seq"].as_u64().unwrap()).collect()
}

fn media_type(page: &Response) -> &str {
    page.headers()["content-type"].to_str().unwrap().split(';').next().unwrap()
}

/// Returns the URL of the next page, relative to the gateway.
fn next(page: &Response) -> String {
    let link = page.headers()["link"].to_str().unwrap();
    let query = link.strip_prefix("<?").and_then(|rest| rest.strip_suffix(">; rel=\"next\""));
    format!("/changes?{}", query.unwrap_or_else(|| panic!("{link}")))
}

/// Posts an event about one item of an object.
async fn change(gateway: &Gateway, object: u64, change: &Value) {
    let object = format!("http://h.example/objects/{object}");
    let mut item = json!({ "uri": format!("{object}/item") });
    item.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    post_event(gateway, &json!({ "object": object, "items": [item] })).await;
}

/// Adds two objects, withdraws one, deletes the other, and adds a third: five changes.
async fn lives(gateway: &Gateway) {
    change(gateway, 1, &json!({ "change": "add", "stateAfter": "ACTIVE" })).await;
    change(gateway, 2, &json!({ "change": "Add", "stateAfter": "ACTIVE" })).await;
    change(gateway, 1, &json!({ "stateBefore": "ACTIVE", "stateAfter": "INACTIVE" })).await;
    change(gateway, 2, &json!({ "change": "delete" })).await;
    change(gateway, 3, &json!({ "change": "ADD", "stateAfter": "INACTIVE" })).await;
}

#[tokio::test]
async fn filter_selects_changes_in_any_spelling() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    lives(&gateway).await;
    let day = gateway.changes().await[0]["received"].as_str().unwrap()[..10].to_owned();
    let by_day = format!("since={day}&state=INACTIVE");
    let by_time = format!("since={day}T00:00:00%2B00:00&after=3");
    for (query, expected, next) in [
        ("change=delete", vec![4], 5),
        ("change=Delete&change=STATE", vec![3, 4], 5),
        ("change=ADD&limit=2", vec![1, 2], 2),
        ("change=ADD&after=2", vec![5], 5),
        ("change=ADD&after=0&before=5", vec![1, 2], 4),
        ("after=0&before=3", vec![1, 2], 2),
        ("after=1&before=3", vec![2], 2),
        ("after=2&before=2", vec![], 2),
        ("object=http://h.example/objects/2", vec![2, 4], 5),
        ("source=nobody", vec![], 5),
        ("since=2999-01-01", vec![], 5),
        (by_day.as_str(), vec![3, 5], 5),
        (by_time.as_str(), vec![4, 5], 5),
    ] {
        let page = gateway.json(&format!("/changes?{query}")).await;
        assert_eq!((numbers(&page), &page["next"]), (expected, &json!(next)), "{query}");
    }
    let public = gateway.json("/changes?visibility=true").await;
    let kinds = public["changes"].as_array().unwrap().iter().map(|change| change["items"][0]["change"].clone());
    assert_eq!(kinds.collect::<Vec<_>>(), ["ADD", "ADD", "DELETE", "DELETE"], "the withdrawn item and the hidden one");
    assert_eq!(numbers(&public), [1, 2, 3, 4]);

    for (query, parameter, detail) in [
        ("change=gone", "change", "give ADD, UPDATE, DELETE or STATE"),
        ("since=yesterday", "since", "is not a date and time"),
        (
            "since=2026-11-25T00:00:00+01:00",
            "since",
            "write it as in 2011-08-03T08:14:25.943Z, and the + before an offset as %2B",
        ),
        ("sourc=a", "sourc", "did you mean \"source\"?"),
    ] {
        let refused = get(&gateway, &format!("/changes?{query}"), "*/*").await;
        assert_eq!(refused.status(), 400, "{query}");
        let problem: Value = refused.json().await.unwrap();
        assert_eq!(problem["parameter"], parameter);
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{problem}");
    }
    let gone = get(&gateway, "/changes?after=9&since=2999-01-01", "*/*").await;
    assert_eq!(gone.status(), 410, "a cursor of another journal is reported, wherever the page would begin");
}

#[tokio::test]
async fn pages_are_negotiated_and_linked() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    lives(&gateway).await;
    let journal: BTreeMap<_, _> =
        gateway.changes().await.into_iter().map(|change| (change["seq"].as_u64().unwrap(), change)).collect();
    for accept in [LINES, "application/json", "application/cloudevents-batch+json"] {
        let (mut path, mut seen) = ("/changes?change=add&change=delete&limit=1".to_owned(), Vec::new());
        loop {
            let page = get(&gateway, &path, accept).await;
            assert_eq!((page.status(), media_type(&page)), (StatusCode::OK, accept));
            assert_eq!(page.headers()["vary"], "Accept, Accept-Encoding");
            let following = next(&page);
            let text = page.text().await.unwrap();
            match accept {
                LINES => {
                    let numbers = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].clone());
                    seen.extend(numbers);
                }
                "application/json" => {
                    let page: Value = serde_json::from_str(&text).unwrap();
                    seen.extend(numbers(&page).into_iter().map(Value::from));
                }
                _ => {
                    let events: Vec<Value> = serde_json::from_str(&text).unwrap();
                    seen.extend(events.iter().map(|event| {
                        Value::from(event["sequence"].as_str().unwrap().trim_start_matches('0').parse::<u64>().unwrap())
                    }));
                }
            }
            // The page at the end leads to itself.
            if following == path {
                break;
            }
            path = following;
        }
        assert_eq!(json!(seen), json!([1, 2, 4, 5]), "{accept}");
        assert_eq!(path, "/changes?change=ADD&change=DELETE&after=5&limit=1");
    }
    let lines = get(&gateway, "/changes", LINES).await.text().await.unwrap();
    let changes: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(changes, journal.into_values().collect::<Vec<_>>());
    assert_eq!(get(&gateway, "/changes?after=5", LINES).await.text().await.unwrap(), "", "no empty line");

    let feed = json!([
        "application/atom+xml;type=feed;charset=utf-8",
        "application/xml;charset=utf-8",
        "text/xml;charset=utf-8"
    ]);
    for (path, accept, offered) in [
        ("/changes", "text/csv", json!(["application/json", LINES, "application/cloudevents-batch+json"])),
        ("/feed", "application/rss+xml", feed.clone()),
        ("/feed?source=x", "text/html", feed),
    ] {
        let refused = get(&gateway, path, accept).await;
        assert_eq!(refused.status(), 406, "{path}");
        assert_eq!(refused.json::<Value>().await.unwrap()["offered"], offered);
    }
    for (accept, expected) in [
        ("*/*", "application/atom+xml"),
        ("application/atom+xml, application/rss+xml, application/xml;q=0.9, */*;q=0.1", "application/atom+xml"),
        // The default of Java.
        ("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", "application/atom+xml"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "application/xml"),
        ("text/xml", "text/xml"),
    ] {
        let feed = get(&gateway, "/feed", accept).await;
        assert_eq!((feed.status(), media_type(&feed)), (StatusCode::OK, expected), "{accept}");
    }
}

#[tokio::test]
async fn poll_with_a_filter_waits_for_a_matching_change() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    post(&gateway, 1).await;
    let (url, http) = (gateway.url.clone(), gateway.http.clone());
    let poll = tokio::spawn(async move {
        http.get(format!("{url}/changes?change=DELETE&wait=60")).send().await.unwrap().json::<Value>().await.unwrap()
    });
    gateway.until_metric("tidings_open_streams{kind=\"poll\"} 1").await;
    post(&gateway, 2).await;
    change(&gateway, 1, &json!({ "change": "DELETE" })).await;
    let page = poll.await.unwrap();
    assert_eq!((numbers(&page), &page["next"]), (vec![3], &json!(3)), "the addition did not end the poll");
}

#[tokio::test]
async fn page_examines_a_bounded_number_of_changes() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = feed_reader::Gateway::open(folder.path()).await;
    let add = |number: u64| {
        feed_reader::draft(
            json!({"object": format!("http://h/{number}"), "items": [{"uri": "http://h/i", "change": "ADD"}]}),
        )
    };
    gateway.append("frequent", (1..=10_100).map(add).collect()).await;
    gateway.append("rare", vec![add(0)]).await;
    let (mut path, mut pages) = ("/changes?source=rare".to_owned(), Vec::new());
    loop {
        let page = gateway.ask(reqwest::Method::GET, &path, &[]).await;
        let following = next(&page);
        let page: Value = page.json().await.unwrap();
        pages.push((numbers(&page), page["next"].as_u64().unwrap()));
        if following == path {
            break;
        }
        path = following;
    }
    assert_eq!(
        pages,
        [(vec![], 5_000), (vec![], 10_000), (vec![10_101], 10_101), (vec![], 10_101)],
        "each page makes progress"
    );
    let recent = gateway.ask(reqwest::Method::GET, "/changes?since=2999-01-01T00:00:00Z", &[]).await;
    assert_eq!(recent.json::<Value>().await.unwrap()["next"], 10_101, "`since` skips what is older at once");
}
