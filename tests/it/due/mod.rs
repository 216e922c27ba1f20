//! Changes that come due: dates from which and until which the public may see an item.

use chrono::{SecondsFormat, TimeDelta, Utc};
use serde_json::{Value, json};

use crate::support::gateway::Gateway;

mod clocks;
mod dates;
mod list;
mod lookups;
mod lookups_fedora3;
mod mapped;
mod nodes;

/// Returns the time in so many milliseconds.
fn in_millis(millis: i64) -> String {
    (Utc::now() + TimeDelta::milliseconds(millis)).to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Returns a change with one item of an object of its own.
fn change(name: &str, mut item: Value) -> Value {
    let uri = format!("http://h/{name}");
    item["uri"] = json!(format!("{uri}/file"));
    json!({ "object": uri, "items": [item] })
}

/// Returns a new item with dates.
fn added(dates: Value) -> Value {
    let mut item = json!({ "change": "ADD", "stateAfter": "ACTIVE", "content": { "url": "http://h/content" } });
    let Value::Object(dates) = dates else { panic!("dates are an object") };
    item.as_object_mut().unwrap().extend(dates);
    item
}

async fn send(gateway: &Gateway, change: &Value) {
    let (status, answer) = gateway.post("content-change", "application/json", change.to_string()).await;
    assert!([200, 201].contains(&status), "{status}: {answer}");
}

/// Returns the changes that have come due, each as the item, and the states before and after.
async fn due_changes(gateway: &Gateway) -> Vec<(String, String, String)> {
    let changes = gateway.changes().await;
    let due = changes.iter().filter(|change| change["due"] == true);
    let items = due.flat_map(|change| change["items"].as_array().unwrap());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    items.map(|item| (text(&item["uri"]), text(&item["stateBefore"]), text(&item["stateAfter"]))).collect()
}

/// Returns the change of a file from one state to another.
fn moved(name: &str, before: &str, after: &str) -> (String, String, String) {
    (format!("http://h/{name}/file"), before.to_owned(), after.to_owned())
}

/// Returns the announced dates by item.
async fn announced(gateway: &Gateway) -> Vec<(String, String)> {
    let due = gateway.json("/due").await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    due["due"].as_array().unwrap().iter().map(|due| (text(&due["item"]), text(&due["at"]))).collect()
}
