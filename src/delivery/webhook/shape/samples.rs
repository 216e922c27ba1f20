//! A change of each kind, with which templates are tried when the configuration is read.

use serde_json::{Value, json};

/// A sample, and what it is, for messages.
pub(super) struct Sample {
    pub(super) what: &'static str,
    pub(super) change: Value,
}

/// Returns a change of each kind: each kind of item with all that it can have, and with the least.
pub(super) fn samples() -> Vec<Sample> {
    let uri = "http://repository.example.org/objects/1/files/image?version=1";
    let content = json!({
        "url": uri, "mediaType": "image/jpeg", "size": 1234,
        "digest": { "algorithm": "sha-1", "value": "da39a3ee5e6b4b0d3255bfef95601890afd80709" },
        "original": { "url": uri }, "generatedBy": "http://repository.example.org/activities/7"
    });
    let items = [
        ("an item that was added", json!({ "change": "ADD", "content": content, "stateAfter": "ACTIVE" })),
        ("an item that was added without content", json!({ "change": "ADD", "beginsIn": "ACTIVE" })),
        (
            "an item with new content",
            json!({ "change": "UPDATE", "content": content, "stateBefore": "INACTIVE", "stateAfter": "ACTIVE",
                "inferred": true }),
        ),
        (
            "an item with new content of which only the URL is known",
            json!({ "change": "UPDATE", "content": { "url": uri } }),
        ),
        ("an item that was updated without content", json!({ "change": "UPDATE" })),
        ("an item that was deleted", json!({ "change": "DELETE", "stateBefore": "ACTIVE" })),
        ("an item whose state before its deletion is unknown", json!({ "change": "DELETE" })),
        ("an item with a new state", json!({ "stateBefore": "ACTIVE", "stateAfter": "INACTIVE" })),
        ("an item whose former state is unknown", json!({ "stateAfter": "INACTIVE" })),
        ("an item with late facts", json!({ "change": "UPDATE", "content": content, "late": ["content"] })),
        ("an item whose deletion is late", json!({ "change": "DELETE", "late": ["existence"] })),
    ];
    let mut samples: Vec<_> = items.into_iter().map(|(what, item)| Sample { what, change: least(item) }).collect();
    let all: Vec<_> = samples.iter().map(|sample| sample.change["items"][0].clone()).collect();
    samples.push(Sample { what: "a change with everything", change: everything(&all) });
    let mut purge = everything(&all[5..7]);
    purge["purge"] = json!(true);
    samples.push(Sample { what: "a purge", change: purge });
    samples
}

/// Returns a change with one item, and with the members that every change of the journal has.
fn least(item: Value) -> Value {
    let object = "http://repository.example.org/objects/1";
    let mut item = item;
    item["id"] = json!("urn:uuid:66666666-7777-4888-8999-aaaaaaaaaaaa");
    item["uri"] = json!(format!("{object}/files/image"));
    json!({
        "seq": 42, "id": "urn:uuid:11111111-2222-4333-8444-555555555555", "source": "repository",
        "received": "2024-05-06T07:08:10.000Z", "time": "2024-05-06T07:08:09.010Z", "user": { "name": "unknown" },
        "object": object, "description": "", "items": [item]
    })
}

/// Returns a change with every member.
fn everything(items: &[Value]) -> Value {
    let mut change = least(json!({}));
    let more = json!({
        "sourceEventId": "event-1", "sourceVersion": "3.8.1",
        "user": { "name": "curator", "uri": "http://repository.example.org/users/curator" },
        "parent": "http://repository.example.org/collections/1", "types": ["http://example.org/types/image"],
        "description": "modified \"the image\"", "report": { "result": {} }, "filled": ["types"], "late": ["parent"],
        "asOf": "2024-05-06T07:08:09.000Z", "lookup": "newer", "items": items
    });
    if let (Some(change), Value::Object(more)) = (change.as_object_mut(), more) {
        change.extend(more);
    }
    change
}

#[cfg(test)]
mod tests {
    use super::samples;
    use crate::model::Change;

    /// A sample that no change can be would prove nothing.
    #[test]
    fn every_sample_is_a_change_that_the_model_reads() {
        for sample in samples() {
            let mut change = sample.change;
            // The report has a form of its own, which templates do not name.
            change.as_object_mut().unwrap().remove("report");
            let text = change.to_string();
            serde_json::from_str::<Change>(&text).unwrap_or_else(|error| panic!("{}: {error}: {text}", sample.what));
        }
    }
}
