//! The end of an embargo in the metadata of a record: its files appear at that time, and the record is public all the time.

use std::collections::BTreeMap;

use chrono::{SecondsFormat, TimeDelta, Utc};
use serde_json::Value;

use crate::support::{
    gateway::Gateway,
    harvest_fixture::{configuration, run_to_end},
    journal_fixture::{journal_file, verify_ok},
    nodes_fixture::until,
    scripted_repository::{ScriptedRepository, identifier},
};

/// Returns the metadata of a record with a file, and with the end of its embargo, if it has one.
fn title(number: usize, end: Option<&str>) -> String {
    let end = end.map(|end| format!("\ninfo:eu-repo/date/embargoEnd/{end}")).unwrap_or_default();
    format!("http://h/{number}.pdf{end}")
}

/// Returns the state of each file, and of the records.
async fn states(gateway: &Gateway) -> BTreeMap<String, Value> {
    let objects = gateway.json("/snapshot?limit=1000").await["objects"].clone();
    let items = objects.as_array().unwrap().iter().flat_map(|object| object["items"].as_array().unwrap());
    items
        .map(|item| (item["uri"].as_str().unwrap().rsplit('/').next().unwrap().to_owned(), item["state"].clone()))
        .collect()
}

#[tokio::test]
async fn files_appear_at_the_end_of_the_embargo_and_when_it_is_lifted() {
    crate::support::needs_sqlite();
    let repository = ScriptedRepository::start(0).await;
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), &repository.url(), "settings.files = 'http://h/.*[.]pdf'");
    let data = folder.path().join("data");
    let gateway = Gateway::start_with(&data, &["--config", &config]);
    let soon = (Utc::now() + TimeDelta::seconds(4)).to_rfc3339_opts(SecondsFormat::Secs, true);
    for (number, end) in [(1, None), (2, Some("2001-02-03")), (3, Some(&*soon)), (4, Some("2999-01-01"))] {
        repository.put_now(&identifier(number), &title(number, end));
    }
    run_to_end(&gateway, "scripted").await;
    let found = states(&gateway).await;
    let of = |number: usize| found[&format!("{number}.pdf")].clone();
    assert_eq!([of(1), of(2), of(4)], [Value::Null, Value::Null, "EMBARGOED".into()]);
    assert_eq!(found.values().filter(|state| **state == "EMBARGOED").count(), 2, "the records are public: {found:?}");
    until("the embargo ends", async || states(&gateway).await["3.pdf"] == "ACTIVE").await;
    // Nothing has changed in the repository.
    let head = gateway.head().await;
    run_to_end(&gateway, "scripted").await;
    assert_eq!(gateway.head().await, head);
    // The repository lifts an embargo.
    repository.put_now(&identifier(4), &title(4, None));
    run_to_end(&gateway, "scripted").await;
    assert_eq!(states(&gateway).await["4.pdf"], "ACTIVE");
    assert_eq!(gateway.json("/due").await["due"].as_array().unwrap().len(), 0);
    assert!(gateway.stop().success());
    verify_ok(&journal_file(&data));
}

/// Without the end of its embargo, a file would become public.
#[tokio::test]
async fn files_are_hidden_while_the_end_of_the_embargo_cannot_be_read() {
    crate::support::needs_sqlite();
    let repository = ScriptedRepository::start(0).await;
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), &repository.url(), "settings.files = 'http://h/.*[.]pdf'");
    let data = folder.path().join("data");
    let gateway = Gateway::start_with(&data, &["--config", &config]);
    let put = |number: usize, end: Option<&str>| repository.put_now(&identifier(number), &title(number, end));
    let run = async || {
        run_to_end(&gateway, "scripted").await;
        let found = states(&gateway).await;
        [1, 2, 3].map(|number| found[&format!("{number}.pdf")].clone())
    };
    put(1, Some("next-spring"));
    put(2, Some("2999-01-01"));
    put(3, None);
    assert_eq!(run().await, ["EMBARGOED".into(), "EMBARGOED".into(), Value::Null]);
    let description = gateway.changes().await[0]["description"].as_str().unwrap().to_owned();
    assert!(description.ends_with("the end of the embargo cannot be read: \"next-spring\""), "{description}");
    put(1, Some("2001-01-01"));
    put(2, Some("?"));
    put(3, Some("?"));
    assert_eq!(run().await, ["ACTIVE", "EMBARGOED", "EMBARGOED"].map(Value::from));
    assert_eq!(gateway.json("/due").await["due"].as_array().unwrap().len(), 0);
    put(2, None);
    put(3, Some("2999-01-01"));
    assert_eq!(run().await, ["ACTIVE", "ACTIVE", "EMBARGOED"].map(Value::from));
    assert_eq!(gateway.json("/due").await["due"].as_array().unwrap().len(), 1);
    assert!(gateway.stop().success());
    verify_ok(&journal_file(&data));
}
