//! `GET /due`: pages in the order of the dates, for administrators.

use serde_json::{Value, json};

use super::{added, change};
use crate::support::views_fixture::ViewedGateway;

/// Returns all pages with so many items.
async fn pages(gateway: &ViewedGateway, limit: usize) -> Vec<Value> {
    let (mut all, mut next) = (Vec::new(), String::new());
    loop {
        let page = gateway.get(&format!("/due?limit={limit}{next}"), Some("admin")).await.json();
        all.extend(page["due"].as_array().unwrap().iter().cloned());
        let Some(after) = page["next"].as_str() else { return all };
        let after: String = url::form_urlencoded::byte_serialize(after.as_bytes()).collect();
        next = format!("&after={after}");
    }
}

#[tokio::test]
async fn pages_have_each_item_once_in_the_order_of_the_dates() {
    let gateway = ViewedGateway::start("");
    for number in 0..25 {
        // Several items have the same date.
        let year = 2900 + (number * 7) % 5;
        let dates = json!({ "visibleFrom": format!("{year}-05-06"), "visibleUntil": "2999-01-01" });
        gateway.post(&change(&format!("{number}"), added(dates))).await;
    }
    gateway.post(&change("ends", added(json!({ "visibleUntil": "2950-01-01" })))).await;
    let all = pages(&gateway, 1000).await;
    assert_eq!(all.len(), 26);
    let at: Vec<_> = all.iter().map(|item| item["at"].as_str().unwrap()).collect();
    assert!(at.is_sorted(), "{at:?}");
    for limit in [1, 7, 13] {
        assert_eq!(pages(&gateway, limit).await, all, "pages of {limit}");
    }
    let first = &all[0];
    assert_eq!(first["item"], json!(format!("{}/file", first["object"].as_str().unwrap())));
    let shown = ["at", "what", "state", "until", "source"].map(|member| first[member].as_str().unwrap());
    let expected = ["2900-05-06T00:00:00.000Z", "appears", "EMBARGOED", "2999-01-01T00:00:00.000Z", "content-change"];
    assert_eq!(shown, expected);
    let last = all.last().unwrap();
    assert_eq!((&last["what"], &last["state"], last.get("until")), (&json!("disappears"), &json!("ACTIVE"), None));
}

#[tokio::test]
async fn only_administrators_see_the_dates_and_invalid_queries_are_refused() {
    let gateway = ViewedGateway::start("[access.public]\nsurfaces = [\"feed\"]\n");
    assert_eq!(gateway.get("/due", None).await.status, 401);
    assert_eq!(gateway.get("/due", Some("reader")).await.status, 403);
    for query in ["limit=0", "limit=1001", "after=x", "after=1-2", "after=1-99999999999999999999-x"] {
        let answer = gateway.get(&format!("/due?{query}"), Some("admin")).await;
        assert_eq!(answer.status, 400, "{query}: {}", answer.everything);
    }
    assert_eq!(gateway.get("/due", Some("admin")).await.json(), json!({ "due": [], "next": null }));
}
