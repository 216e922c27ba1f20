//! At its date an item appears or disappears, in the journal and for the public, without an event of its source.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::{added, change, due_changes, in_millis, moved, send};
use crate::support::{
    gateway::Gateway,
    journal_fixture::{journal_file, verify_ok},
    nodes_fixture::until,
    views_fixture::{SURFACES, ViewedGateway},
};

#[tokio::test]
async fn items_appear_and_disappear_at_their_dates() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let (soon, later) = (in_millis(4000), in_millis(9000));
    let dates = |from: &str, until: &str| added(json!({ "visibleFrom": from, "visibleUntil": until }));
    send(&gateway, &change("a", dates(&soon, &later))).await;
    send(&gateway, &change("b", added(json!({ "visibleFrom": in_millis(3_600_000) })))).await;
    send(&gateway, &change("c", added(json!({ "visibleFrom": "2001-02-03" })))).await;
    let changes = gateway.changes().await;
    let items: Vec<_> = changes.iter().map(|change| &change["items"][0]).collect();
    assert_eq!((&items[0]["stateAfter"], &items[0]["visibleFrom"]), (&json!("EMBARGOED"), &json!(soon)));
    assert_eq!((&items[2]["stateAfter"], items[2].get("visibleFrom")), (&json!("ACTIVE"), None));
    until("both dates have come", async || due_changes(&gateway).await.len() == 2).await;
    let expected = [moved("a", "EMBARGOED", "ACTIVE"), moved("a", "ACTIVE", "EXPIRED")];
    assert_eq!(due_changes(&gateway).await, expected);
    let changes = gateway.changes().await;
    assert_eq!((&changes[3]["time"], &changes[4]["time"]), (&json!(soon), &json!(later)));
    assert_eq!(
        (&changes[3]["source"], &changes[3]["description"]),
        (&json!("content-change"), &json!("an announced date has come"))
    );
    assert_eq!((&changes[3]["asOf"], changes[3]["items"][0].get("late")), (&changes[0]["asOf"], None));
    let received = |change: &Value| DateTime::parse_from_rfc3339(change["received"].as_str().unwrap()).unwrap();
    let early =
        |change: &Value| received(change) < DateTime::parse_from_rfc3339(change["time"].as_str().unwrap()).unwrap();
    assert!(!changes.iter().skip(3).any(early), "{changes:#?}");
    assert!(gateway.stop().success());
    verify_ok(&journal_file(folder.path()));
}

#[tokio::test]
async fn deletion_extension_and_lifting_before_the_date_count() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let soon = in_millis(5000);
    for name in ["deleted", "purged", "extended", "lifted", "kept"] {
        send(&gateway, &change(name, added(json!({ "visibleFrom": soon })))).await;
    }
    send(&gateway, &change("deleted", json!({ "change": "DELETE" }))).await;
    send(&gateway, &json!({ "object": "http://h/purged", "purge": true })).await;
    let extended = json!({ "stateAfter": "ACTIVE", "visibleFrom": in_millis(3_600_000) });
    send(&gateway, &change("extended", extended)).await;
    send(&gateway, &change("lifted", json!({ "stateAfter": "ACTIVE" }))).await;
    send(&gateway, &change("kept", json!({ "content": { "url": "http://h/new" } }))).await;
    until("the date has come", async || !due_changes(&gateway).await.is_empty()).await;
    assert_eq!(due_changes(&gateway).await, [moved("kept", "EMBARGOED", "ACTIVE")]);
    let left = gateway.json("/due").await["due"].clone();
    assert_eq!((left.as_array().unwrap().len(), &left[0]["object"]), (1, &json!("http://h/extended")));
    assert!(gateway.stop().success());
    verify_ok(&journal_file(folder.path()));
}

#[tokio::test]
async fn public_hears_of_an_item_only_after_its_date() {
    let gateway = ViewedGateway::start(&format!("[access.public]\nsurfaces = {SURFACES}\n"));
    let date = in_millis(3000);
    gateway.post(&change("embargoed", added(json!({ "visibleFrom": date })))).await;
    let date: DateTime<Utc> = date.parse().unwrap();
    let surfaces = ["/feed", "/changes?after=0", "/snapshot", "/objects?uri=http://h/embargoed"];
    until("the public sees the item", async || {
        let mut seen = 0;
        for surface in surfaces {
            let answer = gateway.get(surface, None).await;
            // A problem repeats the URI of its request.
            let names_it = answer.status == 200 && answer.everything.contains("http://h/embargoed");
            assert!(!names_it || Utc::now() >= date, "{surface}: {}", answer.everything);
            seen += usize::from(names_it);
        }
        seen == surfaces.len()
    })
    .await;
    let public = gateway.changes("", None).await;
    assert_eq!(public.len(), 1);
    let item = &public[0]["items"][0];
    assert_eq!((&item["change"], &item["content"]["url"]), (&json!("ADD"), &json!("http://h/content")));
    assert!(
        ["due", "description"].iter().all(|member| public[0].get(member).is_none_or(|value| value == "")),
        "{public:?}"
    );
    assert!(item.get("visibleUntil").is_none());
}

#[tokio::test]
async fn unreadable_and_contradictory_dates_make_nothing_public() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    for (dates, place) in [
        (json!({ "visibleFrom": "next spring" }), "/items/0/visibleFrom"),
        (json!({ "visibleFrom": "2030-01-02", "visibleUntil": "2030-01-01" }), "/items/0"),
    ] {
        let body = change("a", added(dates)).to_string();
        let (status, answer) = gateway.post("content-change", "application/json", body).await;
        assert_eq!((status, answer["place"].as_str()), (422, Some(place)), "{answer}");
    }
    assert!(gateway.changes().await.is_empty());
}
