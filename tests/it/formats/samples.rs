//! Golden tests of the formats: changes of several sources in every format, with headers and body, are compared
//! with the snapshots `<format>__<change>`.

use std::fmt::Write as _;

use serde_json::json;
use tidings::{
    format::{FORMATS, FormatKind, HeaderProtocol},
    model::Change,
};

#[test]
fn samples_match_their_snapshots() {
    for (name, change) in changes() {
        for kind in FORMATS {
            insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
                insta::assert_snapshot!(format!("{}__{name}", kind.name), render(kind, &change));
            });
        }
    }
}

#[test]
fn samples_of_several_changes_are_one_body() {
    let bodies = |kind: &FormatKind| changes().iter().map(|(_, change)| (kind.write)(change)).collect::<Vec<_>>();
    for kind in FORMATS {
        let Some(batch) = kind.batch else {
            assert!(!["json", "cloudevents"].contains(&kind.name));
            continue;
        };
        let bodies = bodies(kind);
        let joined: serde_json::Value = serde_json::from_slice(&batch.join(&bodies)).unwrap();
        let each: Vec<serde_json::Value> = bodies.iter().map(|body| serde_json::from_slice(body).unwrap()).collect();
        let expected = match kind.name {
            "json" => json!({ "changes": each }),
            _ => json!(each),
        };
        assert_eq!(joined, expected, "{}", kind.name);
        let alone: serde_json::Value = serde_json::from_slice(&batch.join(&bodies[..1])).unwrap();
        assert!(alone.is_array() || alone["changes"].is_array(), "one is a batch too: {alone}");
    }
    let cloudevents = FORMATS.iter().copied().find(|kind| kind.name == "cloudevents").unwrap();
    assert_eq!(cloudevents.batch.unwrap().media_type, "application/cloudevents-batch+json");
}

fn render(kind: &FormatKind, change: &Change) -> String {
    let mut details = format!("Content-Type: {}\n", kind.media_type);
    for carrier in [HeaderProtocol::Http, HeaderProtocol::Amqp] {
        for header in kind.headers(change, carrier) {
            writeln!(details, "{carrier:?}: {}: {}", header.name, header.value).unwrap();
        }
    }
    details.push('\n');
    let body = (kind.write)(change);
    if kind.media_type.ends_with("json") {
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        details.push_str(&serde_json::to_string_pretty(&body).unwrap());
    } else {
        details.push_str(&String::from_utf8(body).unwrap());
    }
    details
}

/// Changes as the journal stores them, one for each relation between an object and its items.
pub(crate) fn changes() -> Vec<(&'static str, Change)> {
    let ids = ["00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"];
    let change = |name, rest: serde_json::Value| {
        let mut modification = json!({
            "seq": 42, "id": format!("urn:uuid:{}", ids[0]), "received": "2026-03-01T10:00:00.500Z",
            "time": "2026-03-01T10:00:00.000Z", "description": "",
        });
        let items = rest["items"].as_array().unwrap().iter().enumerate().map(|(at, item)| {
            let mut item = item.clone();
            item["id"] = json!(format!("urn:uuid:{}{at}", &ids[1][..35]));
            item
        });
        let items: Vec<_> = items.collect();
        modification.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        modification["items"] = json!(items);
        (
            name,
            serde_json::from_value::<Change>(modification.clone())
                .unwrap_or_else(|error| panic!("{error}: {modification}")),
        )
    };
    let datastreams = "http://localhost:8080/fedora/objects/demo:1/datastreams";
    vec![
        change(
            "fedora-6-resource",
            json!({
                "source": "fedora", "sourceEventId": "urn:uuid:7d1c2f30-6a5b-4c1e-9f0a-000000000007",
                "user": { "name": "bypassAdmin", "uri": "info:fedora/local-user#bypassAdmin" },
                "object": "http://localhost:8080/rest/a/image.tif", "parent": "http://localhost:8080/rest",
                "types": ["http://www.w3.org/ns/ldp#NonRDFSource", "http://www.w3.org/ns/prov#Entity"],
                "description": "create resource",
                "items": [{ "uri": "http://localhost:8080/rest/a/image.tif", "change": "ADD",
                            "content": { "url": "http://localhost:8080/rest/a/image.tif" } }],
            }),
        ),
        change(
            "fedora-3-datastream-deleted",
            json!({
                "source": "fedora3", "user": { "name": "fedoraAdmin" },
                "object": "http://localhost:8080/fedora/objects/demo:1", "types": ["urn:x:type"],
                "items": [{ "uri": format!("{datastreams}/DC/content"), "change": "DELETE", "stateBefore": "ACTIVE" }],
            }),
        ),
        change(
            "fedora-3-object-purged",
            json!({
                "source": "fedora3", "user": { "name": "fedoraAdmin" }, "purge": true,
                "object": "http://localhost:8080/fedora/objects/demo:1", "types": ["urn:x:type"],
                "items": [{ "uri": format!("{datastreams}/DC/content"), "change": "DELETE", "stateBefore": "ACTIVE" }],
            }),
        ),
        change(
            "several-items-and-states",
            json!({
                "source": "fedora3", "user": { "name": "Zoë \"Z\" 100%", "uri": "urn:x:zoë" },
                "object": "http://localhost:8080/fedora/objects/demo:Ä%20b", "description": "new image, text withdrawn",
                "items": [
                    { "uri": format!("{datastreams}/IMG/content"), "change": "UPDATE", "content": {
                        "url": format!("{datastreams}/IMG/content?asOfDateTime=2026-03-01T10:00:00.000Z"),
                        "mediaType": "image/jpeg", "size": 1234 } },
                    { "uri": format!("{datastreams}/TXT/content"), "stateBefore": "ACTIVE", "stateAfter": "INACTIVE" },
                ],
            }),
        ),
        change(
            "islandora-node-deleted",
            json!({
                "source": "islandora", "user": { "name": "unknown" },
                "object": "urn:uuid:9541c0c1-5bee-4973-a93a-69b3c1a1f906",
                "items": [
                    { "uri": "http://localhost:8000/node/1?_format=json", "change": "DELETE" },
                    { "uri": "http://localhost:8000/node/1?_format=jsonld", "change": "DELETE" },
                ],
            }),
        ),
    ]
}
