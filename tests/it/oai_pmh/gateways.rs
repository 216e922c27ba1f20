//! A gateway that harvests the repository of another one has the same registry.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::{
    gateway::Gateway,
    harvest_fixture::run_to_end,
    journal_fixture::configuration,
    oai_pmh_fixture::{Repository, added, object},
};

/// Returns the items of each object that exists, with their contents and states, from `/snapshot`.
async fn registry(gateway: &Gateway) -> BTreeMap<String, Value> {
    let page = gateway.json("/snapshot?limit=1000").await;
    let object = |object: &Value| {
        let items = object["items"].as_array().unwrap().iter();
        let items: Vec<_> = items.map(|item| json!([item["uri"], item["content"], item["state"]])).collect();
        (object["uri"].as_str().unwrap().to_owned(), json!([object["parent"], object["types"], items]))
    };
    page["objects"].as_array().unwrap().iter().map(object).collect()
}

#[tokio::test]
async fn harvesting_gateway_has_the_same_registry() {
    let repository = Repository::start("page = 7\n");
    for number in 0..40 {
        let mut change = added(number);
        change["parent"] = json!("http://h/collection");
        change["types"] = json!(["http://h/types/Thesis"]);
        let digest = json!({ "algorithm": "sha256", "value": "a".repeat(64) });
        change["items"][1]["content"]["digest"] = digest;
        repository.post(&change).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = format!(
        "[sources.other]\ntransport = \"oai-pmh\"\ndialect = \"oai-pmh\"\nurl = \"{}\"\n\
         metadata_prefix = \"content-change\"\nevery = \"1s\"\njitter = \"1s\"\n",
        repository.url()
    );
    let config = configuration(folder.path(), &source);
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
    run_to_end(&gateway, "other").await;
    assert_eq!(registry(&gateway).await, registry(&repository.gateway).await);
    for number in 0..20 {
        let file = format!("{}/file", object(number));
        let change = match number % 4 {
            0 => json!([{ "uri": object(number), "change": "DELETE" }, { "uri": file, "change": "DELETE" }]),
            1 => json!([{ "uri": file, "change": "DELETE" }]),
            2 => json!([{ "uri": file, "stateAfter": "INACTIVE" }]),
            _ => json!([{ "uri": format!("{file}-2"), "change": "ADD", "content": { "url": file, "size": number } }]),
        };
        repository.post(&json!({ "object": object(number), "items": change })).await;
    }
    repository.add(40).await;
    run_to_end(&gateway, "other").await;
    run_to_end(&gateway, "other").await;
    let expected = registry(&repository.gateway).await;
    assert_eq!(expected.len(), 36);
    assert_eq!(registry(&gateway).await, expected);
    // A run without news makes no change.
    let head = gateway.head().await;
    run_to_end(&gateway, "other").await;
    assert_eq!(gateway.head().await, head);
}
