//! Life of a harvest in the messages of Social Feed Manager.

use serde_json::{Value, json};

use crate::support::{
    feed_reader::Element,
    gateway::{Gateway, command},
    hoarder_sfm_fixture::{gateway, send},
};

const START: &str = "harvest.start.twitter.twitter_filter.priority";
const STOP: &str = "harvest.stop.twitter.twitter_filter";
const STATUS: &str = "harvest.status.twitter.twitter_filter.priority";
const BEGAN: &str = "2021-03-04T05:06:07.080910-05:00";

fn start(id: &str) -> (&'static str, Value) {
    let message = json!({
        "id": id, "type": "twitter_filter", "path": "/sfm-data/cs/c", "collection_set": {"id": "cs"},
        "collection": {"id": "c"}, "credentials": {"key": "k"}, "options": {}, "seeds": [{"id": "s1", "token": "a"}],
    });
    (START, message)
}

fn stop(id: &str) -> (&'static str, Value) {
    (STOP, json!({ "id": id }))
}

fn status(id: &str, status: &str) -> (&'static str, Value) {
    (STATUS, json!({ "id": id, "status": status, "date_started": BEGAN }))
}

fn with(message: (&'static str, Value), member: &str, value: &Value) -> (&'static str, Value) {
    let (key, mut message) = message;
    message[member] = value.clone();
    (key, message)
}

fn ended(id: &str) -> (&'static str, Value) {
    with(status(id, "completed success"), "date_ended", &json!("2021-03-04T10:16:07.5+00:00"))
}

fn warc(id: &str, harvest: &str) -> (&'static str, Value) {
    let message = json!({
        "warc": {
            "id": id, "path": format!("/sfm-data/cs/c/2021/03/04/10/{id}.warc.gz"), "bytes": 26146,
            "sha1": "7512E1C227C29332172118F0B79B2CA75CBE8979", "date_created": "2021-03-04T10:10:00.5",
        },
        "collection_set": {"id": "cs"}, "collection": {"id": "c"},
        "harvest": {"id": harvest, "type": "twitter_filter"},
    });
    ("warc_created", message)
}

/// Posts all messages; returns the outcome of each.
async fn send_all(gateway: &Gateway, messages: &[(&str, Value)]) -> Vec<String> {
    let mut outcomes = Vec::new();
    for (key, message) in messages {
        let (_, answer) = send(gateway, "sfm", key, message.to_string()).await;
        outcomes.push(answer["outcome"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned());
    }
    outcomes
}

/// Returns the states of the objects before and after each change.
fn states(changes: &[Value]) -> Vec<String> {
    let of_object = |change: &Value| {
        let item = change["items"].as_array()?.iter().find(|item| item["uri"] == change["object"])?.clone();
        let state = |name: &str| item[name].as_str().unwrap_or("-").to_owned();
        Some(format!("{} {}", state("stateBefore"), state("stateAfter")))
    };
    changes.iter().filter_map(of_object).collect()
}

fn life(id: &str) -> Vec<(&'static str, Value)> {
    vec![
        start(id),
        status(id, "running"),
        warc("w1", id),
        with(status(id, "running"), "token_updates", &json!({"s1": "new.name", "s2": null})),
        stop(id),
        status(id, "stopping"),
        warc("w2", id),
        ended(id),
        // SFM requests a second stop for a stream that has failed.
        stop(id),
    ]
}

#[tokio::test]
async fn harvest_states_have_their_previous_state() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path());
    let outcomes = send_all(&gateway, &life("sfmui:45")).await;
    let unchanged: Vec<_> = (0..outcomes.len()).filter(|index| outcomes[*index] != "accepted").collect();
    assert_eq!(unchanged, [5, 8], "{outcomes:?}");
    let changes = gateway.changes().await;
    assert_eq!(
        states(&changes),
        ["- REQUESTED", "REQUESTED RUNNING", "RUNNING STOPPING", "STOPPING COMPLETED_SUCCESS"]
    );
    assert!(changes.iter().all(|change| change.get("late").is_none()), "{changes:#?}");
    let harvest = "https://sfm.example.org/api/v1/harvests/sfmui%3A45/";
    for change in changes.iter().filter(|change| change["object"] == harvest) {
        assert_eq!(change["parent"], "https://sfm.example.org/api/v1/collections/c/");
        assert_eq!(change["types"], json!(["https://sfm.example.org/api/v1/harvest_types/twitter_filter/"]));
    }
    let seed = &changes[3];
    assert_eq!(seed["items"].as_array().unwrap().len(), 1, "RUNNING is no news, and null is no update: {seed}");
    assert_eq!(seed["items"][0]["uri"], "https://sfm.example.org/api/v1/seeds/s1/");
    assert_eq!(changes.last().unwrap()["time"], "2021-03-04T10:16:07.500Z");

    let warc = &changes[2];
    assert_eq!(warc["object"], "https://sfm.example.org/api/v1/collections/c/");
    assert_eq!(warc["parent"], "https://sfm.example.org/api/v1/collection_sets/cs/");
    assert_eq!((&warc["time"], &warc["items"][0]["change"]), (&json!("2021-03-04T10:10:00.500Z"), &json!("ADD")));
    let expected = json!({
        "url": "https://sfm.example.org/sfm-data/cs/c/2021/03/04/10/w1.warc.gz",
        "mediaType": "application/warc",
        "size": 26146,
        "digest": {"algorithm": "sha-1", "value": "7512e1c227c29332172118f0b79b2ca75cbe8979"},
        "generatedBy": harvest,
    });
    assert_eq!(warc["items"][0]["content"], expected);
    let page = gateway.http.get(format!("{}/feed", gateway.url)).send().await.unwrap().text().await.unwrap();
    let links = Element::parse(&page);
    let by_harvest = |entry: &&Element| entry.link("http://www.w3.org/ns/prov#wasGeneratedBy") == Some(harvest);
    assert_eq!(links.all("entry").filter(by_harvest).count(), 2);
}

#[tokio::test]
async fn harvest_states_can_be_rebuilt_from_the_journal() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path());
    for id in ["1", "2"] {
        let mut messages = life(id);
        if id == "2" {
            messages.rotate_left(3);
        }
        send_all(&gateway, &messages).await;
    }
    assert!(gateway.stop().success());
    let mut verify = command();
    let done = verify.args(["verify", "--data"]).arg(folder.path().join("data")).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

#[tokio::test]
async fn harvest_duplicates_make_no_second_change() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path());
    send_all(&gateway, &life("1")).await;
    let first = gateway.changes().await.len();
    let again = send_all(&gateway, &life("1")).await;
    assert!(!again.contains(&"accepted".to_owned()), "{again:?}");
    assert_eq!(gateway.changes().await.len(), first);
}

#[tokio::test]
async fn harvest_state_that_recurs_in_the_same_bytes_is_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path());
    let [running, paused] =
        ["running", "paused"].map(|word| ("harvest.status.a.b", json!({"id": "1", "status": word})));
    let statuses = [running.clone(), running.clone(), paused.clone(), running.clone(), paused];
    assert_eq!(send_all(&gateway, &statuses).await, ["accepted", "duplicate", "accepted", "accepted", "accepted"]);
    assert_eq!(states(&gateway.changes().await), ["- RUNNING", "RUNNING PAUSED", "PAUSED RUNNING", "RUNNING PAUSED"]);
}

#[tokio::test]
async fn harvest_messages_out_of_order_end_in_the_right_state() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path());
    let messages = [warc("w", "1"), ended("1"), status("1", "running"), start("1"), stop("1")];
    assert_eq!(send_all(&gateway, &messages).await, ["accepted", "accepted", "unchanged", "accepted", "unchanged"]);
    let changes = gateway.changes().await;
    assert_eq!(changes[1]["types"][0], "https://sfm.example.org/api/v1/harvest_types/twitter_filter/");
    let harvest = "https%3A%2F%2Fsfm.example.org%2Fapi%2Fv1%2Fharvests%2F1%2F";
    let object = gateway.json(&format!("/objects?uri={harvest}")).await;
    assert_eq!(object["items"][0]["state"], "COMPLETED_SUCCESS", "{object}");
    assert_eq!(object["parent"], "https://sfm.example.org/api/v1/collections/c/");
}

#[tokio::test]
async fn harvest_message_that_is_unreadable_is_quarantined_with_its_routing_key() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path());
    for (key, body, status, place) in [
        (STATUS, "{\n    \"id\": \"1\"\n    \"status\": \"running\"\n}", 400, "line 3, column 5"),
        ("warc_created", "{\"warc\": {\"path\": \"/sfm-data/a\",,}}", 400, "line 1, column 33"),
        (STATUS, r#"{"id": "1", "status": 7}"#, 422, "/status"),
        ("harvest.lost.a.b", r#"{"id": "1"}"#, 422, "header routing-key"),
    ] {
        let (answered, problem) = send(&gateway, "sfm", key, body).await;
        assert_eq!((answered, problem["place"].as_str()), (status, Some(place)), "{problem}");
        let quarantined = gateway.json(problem["instance"].as_str().unwrap()).await;
        assert_eq!((&quarantined["headers"], &quarantined["body"]), (&json!([["routing-key", key]]), &json!(body)));
    }
    let (status, problem) = gateway.post("sfm", "application/json", r#"{"id": "1"}"#).await;
    assert_eq!((status, problem["place"].as_str()), (422, Some("header routing-key")), "{problem}");
    let (status, _) = send(&gateway, "sfm", STOP, r#"{"id": "1"}"#).await;
    assert_eq!(status, 201, "later events are accepted");
}
