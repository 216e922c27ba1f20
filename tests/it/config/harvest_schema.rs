//! The description of `POST /harvests` shows the settings of each transport.

use serde_json::{Value, json};

use crate::support::gateway::Gateway;

#[tokio::test]
async fn openapi_document_has_the_settings_of_each_harvest() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let document = gateway.json("/openapi.json").await;
    let shapes = document["components"]["schemas"]["NewHarvest"]["oneOf"].as_array().unwrap().clone();
    let names: Vec<_> = shapes.iter().map(|shape| shape["title"].as_str().unwrap()).collect();
    assert_eq!(names, ["oai-pmh", "feed", "gateway"]);
    for (shape, own) in shapes.iter().zip(["full_every", "websub", "token"]) {
        assert_eq!(shape["additionalProperties"], json!(false));
        assert_eq!(shape["properties"]["transport"]["enum"], json!([shape["title"]]));
        let is_there = |key: &str| shape["properties"].get(key).is_some();
        for key in ["name", "dialect", "url", "every", "hours", "page_bytes", own] {
            assert!(is_there(key), "{} has no {key}", shape["title"]);
        }
        // Only the configuration file may have these.
        assert!(!["ca", "lookup", "repository", "enabled", "harvest", "allow"].into_iter().any(is_there), "{shape:#}");
        let required: Vec<_> = shape["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        for key in ["name", "transport", "dialect", "url"] {
            assert!(required.contains(&key), "{key} of {}", shape["title"]);
        }
    }
    let page_bytes = &shapes[0]["properties"]["page_bytes"];
    assert_eq!((&page_bytes["minimum"], &page_bytes["maximum"]), (&json!(1_048_576), &json!(1_073_741_824)));
    assert_eq!(shapes[0]["properties"]["mode"]["enum"], json!(["periodic", "once"]));
    let about = shapes[0]["properties"]["every"]["description"].as_str().unwrap();
    assert_eq!(about, "Time from the start of a run to the start of the next one. Default: \"1h\".");
}
