//! `/changes?wait=` returns existing changes immediately, waits for new ones otherwise, and returns an empty
//! page at the end of the wait.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{
    gateway::Gateway,
    subscription_fixture::{gateway, post},
};

#[tokio::test]
async fn poll_returns_existing_changes_immediately() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    post(&gateway, 1).await;
    let began = Instant::now();
    let page = gateway.json("/changes?after=0&wait=20").await;
    assert_eq!((page["changes"].as_array().unwrap().len(), &page["next"]), (1, &json!(1)));
    assert!(began.elapsed() < Duration::from_secs(10), "the poll waited");
}

#[tokio::test]
async fn poll_returns_a_new_change_when_it_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[limits]\nrequest_seconds = 1\n");
    post(&gateway, 1).await;
    let (url, http) = (gateway.url.clone(), gateway.http.clone());
    let poll = tokio::spawn(async move {
        let answer = http.get(format!("{url}/changes?after=1&wait=20")).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    });
    until_one_waits(&gateway).await;
    // A long poll may last longer than other requests.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(!poll.is_finished());
    post(&gateway, 2).await;
    let (status, page) = poll.await.unwrap();
    assert_eq!(status, 200, "{page}");
    assert!(page.contains(r#""seq":2"#) && page.contains(r#"],"next":2,"#), "{page}");
}

async fn until_one_waits(gateway: &Gateway) {
    gateway.until_metric("tidings_open_streams{kind=\"poll\"} 1").await;
}

#[tokio::test]
async fn poll_times_out_with_an_empty_page_and_the_same_cursor() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[limits]\nrequest_seconds = 1\nwait_seconds = 2\n");
    post(&gateway, 1).await;
    // A longer wait than allowed is shortened to the limit.
    for wait in ["1", "3600"] {
        let began = Instant::now();
        let page = gateway.json(&format!("/changes?after=1&wait={wait}")).await;
        assert_eq!(page, json!({ "changes": [], "next": 1, "journal": page["journal"] }));
        let waited = began.elapsed().as_secs_f64();
        let expected = if wait == "1" { 1.0 } else { 2.0 };
        assert!(waited >= expected - 0.1 && waited < expected + 5.0, "{wait}: {waited}");
    }
    assert_eq!(gateway.json("/changes?after=1&wait=0").await["next"], 1);
    let wrong = gateway.http.get(format!("{}/changes?after=1&wait=30000", gateway.url)).send().await.unwrap();
    assert_eq!(wrong.status(), 400);
    assert!(wrong.text().await.unwrap().contains("wait is 30000; give 0 to 3600 seconds."));
    let response = gateway.http.get(format!("{}/changes?after=9&wait=20", gateway.url)).send().await.unwrap();
    assert_eq!(response.status(), 410);
}
