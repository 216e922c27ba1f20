//! `/stream` sends one server-sent event for each change, in order, from a cursor or from the head, in the
//! requested format and with a filter.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{
    event_stream::{Block, Stream},
    gateway::{Gateway, PATIENCE},
    journal_fixture,
    subscription_fixture::{gateway, post, post_event},
};

/// Posts the changes with these numbers. A busy gateway closes slow connections if there are more than it permits.
async fn fill(gateway: &Gateway, numbers: std::ops::RangeInclusive<u64>) {
    let numbers: Vec<_> = numbers.collect();
    for numbers in numbers.chunks(100) {
        futures_util::future::join_all(numbers.iter().map(|number| post(gateway, *number))).await;
    }
}

#[tokio::test]
async fn stream_sends_a_new_change_immediately() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    post(&gateway, 1).await;
    let mut stream = Stream::open(&gateway, "?after=0", None).await;
    let header = |name: &str| stream.response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "text/event-stream");
    assert_eq!(header("cache-control"), "no-store");
    assert_eq!(stream.next().await.unwrap().unwrap(), Block { comment: true, ..Block::default() });
    let first = stream.next().await.unwrap().unwrap();
    assert_eq!((first.id.as_str(), first.event.as_str(), first.retry.as_deref()), ("1", "add", Some("2000")));

    post_event(&gateway, &json!({ "object": "http://h.example/objects/1", "purge": true })).await;
    post_event(&gateway, &json!({ "object": "http://h.example/2", "items": [
        { "uri": "http://h.example/2/a", "change": "ADD" }, { "uri": "http://h.example/2/b", "stateAfter": "INACTIVE" } ] }))
    .await;
    let (second, third) = (stream.next().await.unwrap().unwrap(), stream.next().await.unwrap().unwrap());
    assert_eq!((second.id.as_str(), second.event.as_str(), second.retry.as_deref()), ("2", "delete", None));
    assert_eq!((third.id.as_str(), third.event.as_str()), ("3", "mixed"));
    let events: Vec<Value> =
        [first, second, third].map(|event| serde_json::from_str(&event.data.unwrap()).unwrap()).into();
    assert_eq!(events, gateway.changes().await);
}

#[tokio::test]
async fn stream_formats_equal_those_of_other_views() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    post(&gateway, 1).await;
    let id = gateway.changes().await[0]["id"].as_str().unwrap().to_owned();
    // Formats that leave changes out have a test of their own.
    let formats = tidings::format::FORMATS.iter().copied();
    for format in formats.filter(|format| format.is_self_contained() && format.covers.is_none()) {
        let mut stream = Stream::open(&gateway, &format!("?after=0&format={}", format.name), None).await;
        let data = stream.event().await.data.unwrap();
        let one = gateway.http.get(format!("{}/changes/{id}", gateway.url)).header("accept", format.media_type);
        assert_eq!(data, one.send().await.unwrap().text().await.unwrap(), "{}", format.name);
    }
    let refused = Stream::ask(&gateway, "?format=yaml", None).await;
    assert_eq!(refused.status(), 400);
    let events = refused.text().await.unwrap();
    assert!(events.contains("there is no event format \\\"yaml\\\"; there are atom, json, xml"), "{events}");
}

#[tokio::test]
async fn stream_resumes_and_last_event_id_overrides_the_query() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[journal]\ntail_changes = 3\n");
    fill(&gateway, 1..=40).await;
    // From pages on disk through to changes in memory.
    let whole: Vec<_> = (1..=40).collect();
    assert_eq!(Stream::open(&gateway, "?after=0", None).await.numbers(40).await, whole);
    assert_eq!(Stream::open(&gateway, "?after=1", Some("37")).await.numbers(3).await, [38, 39, 40]);
    assert_eq!(Stream::open(&gateway, "?after=39", Some("")).await.numbers(1).await, [40]);
    let mut waiting = Stream::open(&gateway, "", Some("40")).await;
    post(&gateway, 41).await;
    assert_eq!(waiting.numbers(1).await, [41]);
    let refused = Stream::ask(&gateway, "", Some("forty")).await;
    assert_eq!(refused.status(), 400);
    assert!(refused.text().await.unwrap().contains("urn:tidings:problem:bad-request"));
}

#[tokio::test]
async fn stream_without_cursor_starts_at_the_head_and_sends_its_id() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    fill(&gateway, 1..=3).await;
    let mut stream = Stream::open(&gateway, "", None).await;
    // Without this id, a reader that disconnects before its first event would resume at a later head.
    assert_eq!(stream.next().await.unwrap().unwrap(), Block { id: "3".into(), ..Block::default() });
    post(&gateway, 4).await;
    assert_eq!(stream.numbers(1).await, [4]);
}

#[tokio::test]
async fn stream_refuses_expired_and_unknown_cursors_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[journal]\nkeep_changes = 3\n");
    for number in 1..=6 {
        journal_fixture::post(&gateway, number).await;
    }
    let began = Instant::now();
    // Retention may look at the journal before the last change, and again after it.
    while gateway.http.get(format!("{}/changes?after=2", gateway.url)).send().await.unwrap().status() != 410 {
        assert!(began.elapsed() < PATIENCE, "retention removes too little");
    }
    for (query, last) in [("?after=1", None), ("?after=7", None), ("", Some("1")), ("?after=6", Some("700"))] {
        let refused = Stream::ask(&gateway, query, last).await;
        assert_eq!(refused.status(), 410, "{query} {last:?}");
        let problem: Value = serde_json::from_slice(&refused.bytes().await.unwrap()).unwrap();
        assert_eq!((&problem["type"], &problem["first"]), (&json!("urn:tidings:problem:gone"), &json!(4)));
        assert_eq!(problem["snapshot"], "/snapshot");
        assert!(problem["detail"].as_str().unwrap().contains("/stream?after="), "{problem}");
    }
    assert_eq!(Stream::open(&gateway, "?after=3", None).await.numbers(3).await, [4, 5, 6]);
}

#[tokio::test]
async fn stream_filter_advances_the_cursor_past_other_changes() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[server]\nheartbeat_seconds = 1\n");
    fill(&gateway, 10_000..=11_099).await;
    let object = gateway.changes().await[1049]["object"].clone();
    let query = format!("?object={}/&object={0}&after=0", object.as_str().unwrap());
    let mut stream = Stream::open(&gateway, &query, None).await;
    assert!(stream.next().await.unwrap().unwrap().comment);
    // The filter has rejected a thousand changes, and a resuming reader need not examine them again.
    assert_eq!(stream.next().await.unwrap().unwrap(), Block { id: "1000".into(), ..Block::default() });
    let event = stream.next().await.unwrap().unwrap();
    let events: Value = serde_json::from_str(&event.data.unwrap()).unwrap();
    assert_eq!((event.id.as_str(), &events["object"]), ("1050", &object));
    // A heartbeat sends the id of later rejected changes, once.
    assert_eq!(stream.next().await.unwrap().unwrap(), Block { id: "1100".into(), ..Block::default() });
    assert_eq!(stream.next().await.unwrap().unwrap(), Block { comment: true, ..Block::default() });
    let refused = Stream::ask(&gateway, "?objekt=x", None).await.text().await.unwrap();
    assert!(refused.contains("did you mean \\\"object\\\"?"), "{refused}");
}

#[tokio::test]
async fn stream_with_visibility_shows_the_public_view() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    let item = |number: usize, state: &str| {
        json!({ "object": "http://h.example/1", "sourceEventId": format!("state {number}"),
                "items": [{ "uri": "http://h.example/1/a", "stateAfter": state }] })
    };
    post(&gateway, 1).await;
    let states = ["ACTIVE", "INACTIVE", "ACTIVE", "DELETED"];
    for (number, state) in states.into_iter().enumerate() {
        post_event(&gateway, &item(number, state)).await;
    }
    let mut stream = Stream::open(&gateway, "?visibility=true&after=0&object=http://h.example/1", None).await;
    let mut events = Vec::new();
    for _ in states {
        events.push(stream.event().await.event);
    }
    assert_eq!(events, ["add", "delete", "add", "delete"]);
}

#[tokio::test]
async fn stream_is_uncompressed_and_heartbeats_are_comments() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[server]\nheartbeat_seconds = 1\n");
    let request = gateway.http.get(format!("{}/stream?after=0", gateway.url)).header("accept-encoding", "gzip");
    // Before the request, as the response can be delayed after the gateway has started its clock.
    let began = Instant::now();
    let mut response = request.send().await.unwrap();
    assert!(!response.headers().contains_key("content-encoding"));
    let mut came = Vec::new();
    while came.len() < 6 {
        came.extend_from_slice(&response.chunk().await.unwrap().unwrap());
    }
    // Some clients take an empty line for the end of an event, whatever precedes it.
    assert_eq!(came, b":\n:\n:\n");
    assert!(began.elapsed() >= Duration::from_millis(1900), "{:?}", began.elapsed());
}

#[tokio::test]
async fn stream_metrics_count_readers_and_events() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    fill(&gateway, 1..=3).await;
    let metric = async |line: &str| {
        let text = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap().text().await.unwrap();
        let found = text.lines().find_map(|events| events.strip_prefix(line).map(str::trim).map(str::to_owned));
        found.unwrap_or_default()
    };
    let mut streams = [Stream::open(&gateway, "?after=0", None).await, Stream::open(&gateway, "?after=0", None).await];
    for stream in &mut streams {
        stream.numbers(3).await;
    }
    assert_eq!(metric("tidings_open_streams{kind=\"stream\"}").await, "2");
    assert_eq!(metric("tidings_streamed_changes_total{format=\"json\"}").await, "6");
    drop(streams);
    let began = Instant::now();
    while metric("tidings_open_streams{kind=\"stream\"}").await != "0" {
        assert!(began.elapsed() < PATIENCE, "a stream without a reader is still open");
        post(&gateway, 4 + u64::try_from(began.elapsed().as_millis()).unwrap()).await;
    }
}
