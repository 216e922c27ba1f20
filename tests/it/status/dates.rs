//! Announced dates that their source has denied after they had come.

use chrono::{SecondsFormat, TimeDelta, Utc};
use serde_json::json;

use super::{ObservedGateway, until};

const DENIED: (&str, &str) = ("due-denied", "source/content-change");

#[tokio::test]
async fn embargo_that_is_extended_after_its_end_is_a_problem_until_the_new_end() {
    let observed = ObservedGateway::start("");
    let in_millis =
        |millis| (Utc::now() + TimeDelta::milliseconds(millis)).to_rfc3339_opts(SecondsFormat::Millis, true);
    let send = async |time: &str, from: String| {
        let item = json!({ "uri": "http://h/a/file", "stateAfter": "ACTIVE", "visibleFrom": from });
        let change = json!({ "object": "http://h/a", "time": time, "items": [item] }).to_string();
        let (status, answer) = observed.gateway.post("content-change", "application/json", change).await;
        assert_eq!(status, 201, "{answer}");
    };
    let last = async || observed.gateway.changes().await.pop().unwrap();
    send(&in_millis(0), in_millis(2500)).await;
    until("the date has come", async || (last().await["due"] == true).then_some(())).await;
    assert!(observed.problem(DENIED.0, DENIED.1).await.is_none());
    send(&in_millis(0), in_millis(20_000)).await;
    let denial = last().await;
    assert_eq!(denial["items"][0]["denies"], observed.gateway.changes().await[1]["time"]);
    observed.shows(DENIED.0, DENIED.1, "1 item, such as http://h/a/file").await;
    // The source says an earlier end, which comes.
    send(&in_millis(0), in_millis(300)).await;
    observed.ends(DENIED.0, DENIED.1).await;
}
