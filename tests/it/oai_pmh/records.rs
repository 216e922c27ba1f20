//! Records: identifiers, datestamps, formats, sets and deletions.

use std::time::Instant;

use chrono::{DateTime, Utc};
use serde_json::json;

use crate::support::{
    gateway::PATIENCE,
    oai_pmh_fixture::{Repository, added, object},
};

#[tokio::test]
async fn identify_describes_the_repository() {
    let repository = Repository::start("repository_name = \"Objects & more\"\n");
    let empty = repository.get("verb=Identify").await;
    assert_eq!(empty.text("earliestDatestamp"), empty.text("responseDate"));
    assert_eq!(repository.get("verb=ListSets").await.errors(), ["noSetHierarchy"]);
    repository.add(1).await;
    let identify = repository.get("verb=Identify").await;
    assert_eq!(identify.text("baseURL"), repository.url());
    assert!(identify.body.contains("<repositoryName>Objects &amp; more</repositoryName>"), "{}", identify.body);
    assert_eq!(identify.text("deletedRecord"), "persistent");
    assert_eq!(identify.text("earliestDatestamp"), repository.list("").await[0].1);
}

#[tokio::test]
async fn record_has_the_facts_of_the_registry_in_each_format() {
    let repository = Repository::start("");
    let mut change = added(1);
    change["parent"] = json!("http://h/collection?a=1&b=2");
    change["types"] = json!(["http://h/types/Thesis"]);
    change["items"].as_array_mut().unwrap().push(json!({ "uri": "http://h/objects/1/draft", "change": "ADD",
        "stateAfter": "INACTIVE" }));
    repository.post(&change).await;
    let get = async |prefix: &str| {
        let query = format!("verb=GetRecord&metadataPrefix={prefix}&identifier={}", object(1));
        repository.get(&query).await
    };
    let dublin_core = get("oai_dc").await;
    assert_eq!(dublin_core.texts("dc:identifier"), [object(1)]);
    assert_eq!(dublin_core.texts("dc:type"), ["http://h/types/Thesis"]);
    assert_eq!(dublin_core.texts("dc:format"), ["text/plain"]);
    assert_eq!(dublin_core.texts("dc:relation").len(), 3, "{}", dublin_core.body);
    let sets = [
        "parent.http!3A!2F!2Fh!2Fcollection!3Fa!3D1!26b!3D2",
        "source.content-change",
        "type.http!3A!2F!2Fh!2Ftypes!2FThesis",
    ];
    let mut listed = dublin_core.texts("setSpec");
    listed.sort();
    assert_eq!(listed, sets);
    // A reader of the message 0.1 gets the same facts.
    let message = get("content-change").await;
    assert!(message.body.contains(&format!("<link rel=\"via\" href=\"{}\">", object(1))), "{}", message.body);
    assert!(message.body.contains("term=\"INACTIVE\"") && message.body.contains("length=\"7\""), "{}", message.body);
    let formats = repository.get(&format!("verb=ListMetadataFormats&identifier={}", object(1))).await;
    assert_eq!(formats.texts("metadataPrefix"), ["oai_dc", "content-change"]);
    // Each record names the schema of its format, which the gateway serves.
    for (response, schema) in [(&dublin_core, 0), (&message, 1)] {
        let schema = &formats.texts("schema")[schema];
        assert!(response.body.contains(&format!(" {schema}\"")), "{schema}: {}", response.body);
    }
    let schema = repository.gateway.http.get(&formats.texts("schema")[1]).send().await.unwrap();
    assert!(schema.text().await.unwrap().contains("http://www.w3.org/2005/Atom"));
    for set in repository.get("verb=ListSets").await.texts("setSpec") {
        assert_eq!(repository.list(&format!("&set={set}")).await.len(), 1, "{set}");
    }
}

#[tokio::test]
async fn datestamp_is_the_time_of_acceptance_and_selects() {
    let repository = Repository::start("");
    let before = Utc::now();
    let mut event = added(1);
    event["sourceEventId"] = json!("event 1");
    repository.post(&event).await;
    let first = repository.list("").await.remove(0);
    let time = DateTime::parse_from_rfc3339(&first.1).unwrap().to_utc();
    assert!(before.timestamp() <= time.timestamp() && time <= Utc::now(), "{first:?}");
    let begun = Instant::now();
    // Until the next change has another second.
    let second = loop {
        repository.add(2).await;
        let second = repository.list("").await.remove(1);
        if second.1 != first.1 {
            break second;
        }
        let delete = json!({ "object": object(2), "items": [{ "uri": object(2), "change": "DELETE" },
            { "uri": format!("{}/file", object(2)), "change": "DELETE" }] });
        repository.post(&delete).await;
        assert!(begun.elapsed() < PATIENCE);
    };
    for (dates, expected) in [
        (format!("&from={}", first.1), vec![&first, &second]),
        (format!("&from={}", second.1), vec![&second]),
        (format!("&until={}", first.1), vec![&first]),
        (format!("&from={0}&until={0}", first.1), vec![&first]),
        (format!("&from={0}&until={1}", &first.1[..10], &second.1[..10]), vec![&first, &second]),
    ] {
        assert_eq!(repository.list(&dates).await.iter().collect::<Vec<_>>(), expected, "{dates}");
    }
    // A repetition moves no datestamp.
    let (_, repeated) = repository.gateway.post("content-change", "application/json", event.to_string()).await;
    assert_eq!(repeated["outcome"], "duplicate");
    assert_eq!(repository.list("").await[0], first);
}

#[tokio::test]
async fn deleted_record_stays_with_its_sets() {
    let repository = Repository::start("");
    repository.add(1).await;
    repository.add(2).await;
    let delete = json!({ "object": object(1), "items": [{ "uri": object(1), "change": "DELETE" },
        { "uri": format!("{}/file", object(1)), "change": "DELETE" }] });
    repository.post(&delete).await;
    let get = repository.get(&format!("verb=GetRecord&metadataPrefix=oai_dc&identifier={}", object(1))).await;
    assert!(get.headers()[0].2 && !get.body.contains("<metadata>"), "{}", get.body);
    let deleted = |list: Vec<(String, String, bool)>| -> Vec<_> {
        list.into_iter().map(|(identifier, _, is_deleted)| (identifier, is_deleted)).collect()
    };
    let all = [(object(2), false), (object(1), true)];
    assert_eq!(deleted(repository.list("").await), all);
    assert_eq!(deleted(repository.list("&set=source.content-change").await), all);
    repository.add(1).await;
    assert_eq!(deleted(repository.list("").await), [(object(2), false), (object(1), false)]);
}

#[tokio::test]
async fn transient_repository_lists_deletions_only_with_dates() {
    let repository = Repository::start("deleted = \"transient\"\n");
    assert_eq!(repository.get("verb=Identify").await.text("deletedRecord"), "transient");
    repository.add(1).await;
    repository.add(2).await;
    let delete = json!({ "object": object(2), "items": [{ "uri": object(2), "change": "DELETE" },
        { "uri": format!("{}/file", object(2)), "change": "DELETE" }] });
    repository.post(&delete).await;
    assert_eq!(repository.list("").await.len(), 1);
    assert_eq!(repository.list("&from=2000-01-01").await.len(), 2);
    assert_eq!(repository.list("&from=1970-01-01").await.len(), 2, "the time before which no record is");
    assert_eq!(repository.list("&until=9000-01-01").await.len(), 2);
}
