//! Fields, categories, and the subjects that crawlers get.

use serde_json::{Value, json};

use crate::support::xesam_fixture::{Record, Target, state_after, until, uri};

fn content(uri: &str, change: &str, media_type: &str) -> Value {
    json!({ "uri": uri, "change": change, "content": { "url": format!("{uri}/file"), "mediaType": media_type } })
}

fn states(records: &[Record]) -> Vec<(&str, bool)> {
    records.iter().map(|record| (record.uri.as_str(), record.is_deleted)).collect()
}

#[tokio::test]
async fn only_wanted_fields_are_sent() {
    let target = Target::start().await;
    let object = uri(1);
    target
        .post(&json!({
            "object": object, "parent": "http://h.example/parent", "types": ["http://h.example/t1", "http://h.example/t2"],
            "time": "2026-01-02T03:04:05.678Z",
            "items": [{ "uri": object, "change": "ADD", "stateAfter": "ACTIVE", "content": {
                "url": "http://h.example/file", "mediaType": "text/plain", "size": 12,
                "digest": { "algorithm": "sha-1", "value": "da39a3ee5e6b4b0d3255bfef95601890afd80709" }
            } }]
        }))
        .await;
    let all = target.crawler(0, 0);
    let record = all.until_records(1).await.remove(0);
    assert_eq!(record.categories, ["xesam:UncategorizedText", "xesam:RemoteFile"]);
    let expected = [
        ("xesam:url", "http://h.example/file"),
        ("xesam:mimeType", "text/plain"),
        ("xesam:size", "12"),
        ("xesam:sha1Hash", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        ("xesam:sourceModified", "2026-01-02T03:04:05.678Z"),
        ("tidings:state", "ACTIVE"),
        ("tidings:parent", "http://h.example/parent"),
        ("tidings:type", "http://h.example/t1"),
        ("tidings:type", "http://h.example/t2"),
    ];
    assert_eq!(record.fields, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let some = target.crawler_with(&json!({ "mtime": 1, "fields": ["size", "tidings:type", "xesam:unknown"] }));
    let record = some.until_records(1).await.remove(0);
    let names: Vec<_> = record.fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["xesam:size", "tidings:type", "tidings:type"]);
}

#[tokio::test]
async fn records_of_other_categories_are_not_sent() {
    let target = Target::start().await;
    let kinds = ["image/png", "video/mp4", "text/xml", "application/pdf"];
    for (number, media_type) in kinds.iter().enumerate() {
        let uri = uri(number);
        target.post(&json!({ "object": uri, "items": [content(&uri, "ADD", media_type)] })).await;
    }
    target.post(&json!({ "object": uri(4), "items": [{ "uri": uri(4), "change": "ADD" }] })).await;
    for (content, source, expected) in [
        (json!(["xesam:Visual"]), json!([]), &[0, 1][..]),
        (json!(["Text"]), json!([]), &[2, 3]),
        (json!(["xesam:Document", "xesam:Image"]), json!([]), &[0, 3]),
        (json!([]), json!(["xesam:Filelike"]), &[0, 1, 2, 3]),
        (json!(["xesam:Content"]), json!(["xesam:RemoteResource"]), &[0, 1, 2, 3, 4]),
        (json!(["xesam:Image"]), json!(["xesam:Filelike"]), &[0]),
    ] {
        for mtime in [0, 1] {
            let crawler = target.crawler_with(&json!({ "mtime": mtime, "content": content, "source": source }));
            until("it has all records", async || {
                target.crawlers().await.iter().all(|crawler| crawler["state"] == "current")
                    && crawler.names().contains(&"UpdateRecords".to_owned())
            })
            .await;
            let records = crawler.records();
            let found: Vec<_> = state_after(&records).into_keys().collect();
            assert_eq!(found, expected.iter().map(|number| uri(*number)).collect::<Vec<_>>(), "{content} {source}");
            // The others may have been in these categories before. After `CleanUp`, the crawler has none of them.
            assert!(mtime == 1 || records.iter().all(|record| !record.is_deleted), "{records:?}");
        }
    }
}

#[tokio::test]
async fn record_that_leaves_the_categories_is_deleted() {
    let target = Target::start().await;
    let crawler = target.crawler_with(&json!({ "mtime": 1, "content": ["xesam:Image"] }));
    crawler.until_event("installed").await;
    let (object, item) = (uri(1), format!("{}/item", uri(1)));
    target.post(&json!({ "object": object, "items": [content(&item, "ADD", "image/png")] })).await;
    assert_eq!(states(&crawler.until_records(1).await), [(item.as_str(), false)]);
    target.post(&json!({ "object": object, "items": [content(&item, "UPDATE", "text/plain")] })).await;
    let records = crawler.until_records(2).await;
    assert_eq!(states(&records), [(item.as_str(), false), (item.as_str(), true)], "the object never was an image");
    assert!(records[1].fields.is_empty());
    target.post(&json!({ "object": object, "items": [content(&item, "UPDATE", "image/gif")] })).await;
    crawler.until_records(3).await;
    // An addition of an item that exists.
    target.post(&json!({ "object": object, "items": [content(&item, "ADD", "text/plain")] })).await;
    let records = crawler.until_records(4).await;
    assert_eq!(states(&records)[2..], [(item.as_str(), false), (item.as_str(), true)]);
    assert!(state_after(&records).is_empty());
    crawler.check_order();
}

#[tokio::test]
async fn crawlers_get_only_what_the_public_sees() {
    let target = Target::start_with("visibility = true", "").await;
    let (object, item) = (uri(1), format!("{}/item", uri(1)));
    let state = |state: &str| json!({ "object": object, "items": [{ "uri": item, "stateAfter": state }] });
    let crawler = target.crawler(1, 0);
    crawler.until_event("installed").await;
    let hidden = json!({ "uri": item, "change": "ADD", "stateAfter": "INACTIVE", "content": { "url": item } });
    target.post(&json!({ "object": object, "items": [hidden] })).await;
    // Otherwise its records could be read when the item is visible already.
    until("it is read", async || target.crawlers().await[0]["position"] == 1).await;
    target.post(&state("ACTIVE")).await;
    let records = crawler.until_records(4).await;
    assert_eq!(
        records.iter().map(|record| record.is_deleted).collect::<Vec<_>>(),
        [true, true, false, false],
        "hidden, then visible"
    );
    assert_eq!(records[3].values("xesam:url"), [item.as_str()], "content comes from the registry");
    target.post(&state("INACTIVE")).await;
    let records = crawler.until_records(6).await;
    assert_eq!(states(&records)[4..], [(object.as_str(), true), (item.as_str(), true)]);
    let full = target.crawler(0, 0);
    full.until_event("CleanUp").await;
    target.add(2).await;
    full.until_record_of(&uri(2)).await;
    // The new object may be in the dump, and again among the changes.
    assert!(full.records().iter().all(|record| record.uri == uri(2)), "a full dump has no hidden item");
}

#[tokio::test]
async fn crawlers_get_only_objects_with_the_configured_beginnings() {
    let target = Target::start_with("objects = [\"http://h.example/00000\"]", "").await;
    for number in [1, 10, 2] {
        target.add(number).await;
    }
    for mtime in [0, 1] {
        let crawler = target.crawler(mtime, 0);
        let records = crawler.until_record_of(&uri(2)).await;
        assert_eq!(states(&records), [(uri(1).as_str(), false), (uri(2).as_str(), false)]);
    }
}

#[tokio::test]
async fn crawlers_get_only_objects_of_the_configured_sources() {
    let other = "[sources.other]\ntransport = \"http\"\ndialect = \"content-change\"\n";
    let target = Target::start_with("sources = [\"other\"]", other).await;
    let post = async |source: &str, number: usize, media_type: &str| {
        let uri = uri(number);
        let message = json!({ "object": uri, "items": [content(&uri, "UPDATE", media_type)] });
        assert_eq!(target.gateway.post(source, "application/json", message.to_string()).await.0, 201);
    };
    let following = target.crawler(1, 0);
    following.until_event("installed").await;
    for (first, second, number) in [("content-change", "other", 1), ("other", "content-change", 2)] {
        post(first, number, "image/png").await;
        post(second, number, "image/gif").await;
    }
    post("other", 3, "image/png").await;
    following.until_record_of(&uri(3)).await;
    let full = target.crawler(0, 0);
    full.until_record_of(&uri(3)).await;
    for crawler in [&following, &full] {
        let state = state_after(&crawler.records());
        assert_eq!(
            state.keys().cloned().collect::<Vec<_>>(),
            [uri(2), uri(3)],
            "the source of the first change counts"
        );
        assert!(state[&uri(2)].contains(&("xesam:mimeType".to_owned(), "image/gif".to_owned())), "{state:?}");
        assert!(crawler.records().iter().all(|record| record.uri != uri(1)));
    }
}

#[tokio::test]
async fn purge_deletes_the_object_and_its_items() {
    let target = Target::start().await;
    let (object, items) = (uri(1), ["a", "b"].map(|name| format!("{}/{name}", uri(1))));
    let added: Vec<_> = items.iter().map(|item| content(item, "ADD", "image/png")).collect();
    target.post(&json!({ "object": object, "items": added })).await;
    let crawler = target.crawler(1, 0);
    crawler.until_records(3).await;
    target.post(&json!({ "object": object, "items": [{ "uri": items[0], "change": "DELETE" }] })).await;
    let records = crawler.until_records(5).await;
    assert_eq!(states(&records)[3..], [(object.as_str(), false), (items[0].as_str(), true)], "the object has an item");
    target.post(&json!({ "object": object, "purge": true })).await;
    let records = crawler.until_record_of(&object).await;
    until("all is deleted", async || state_after(&crawler.records()).is_empty()).await;
    assert!(!records.is_empty());
    crawler.check_order();
}

#[tokio::test]
async fn late_purge_takes_older_facts_from_the_items_that_it_spares() {
    let target = Target::start().await;
    let (object, item) = (uri(1), format!("{}/item", uri(1)));
    let post = async |day: u8, mut message: Value| {
        message["object"] = json!(object);
        message["time"] = json!(format!("2026-01-{day:02}T00:00:00Z"));
        target.post(&message).await;
    };
    let crawler = target.crawler(1, 0);
    post(10, json!({ "items": [content(&item, "ADD", "image/png")] })).await;
    post(20, json!({ "items": [{ "uri": item, "change": "UPDATE" }] })).await;
    let before = state_after(&crawler.until_records(4).await);
    assert_eq!(before[&item][0].1, format!("{item}/file"));
    post(15, json!({ "purge": true })).await;
    target.add(2).await;
    let changed = state_after(&crawler.until_record_of(&uri(2)).await);
    let full = target.crawler(0, 0);
    let dumped = state_after(&full.until_record_of(&uri(2)).await);
    let url = |state: &std::collections::BTreeMap<String, Vec<(String, String)>>| state[&item][0].1.clone();
    assert_eq!(url(&dumped), item, "the content is older than the purge");
    assert_eq!(changed, dumped);
    crawler.check_order();
}

/// Returns a message about one of a few objects, possibly late or about the whole object.
fn random_message(random: &mut fastrand::Rng) -> Value {
    let object = uri(random.usize(0..6));
    let time = format!("2026-01-{:02}T00:00:00Z", random.u8(1..29));
    if random.u8(0..20) == 0 {
        return json!({ "object": object, "time": time, "purge": true });
    }
    let mut items = Vec::new();
    for name in ["", "/a", "/b"] {
        if random.bool() {
            continue;
        }
        let item = format!("{object}{name}");
        let media_type = ["image/png", "text/plain", "application/zip"][random.usize(0..3)];
        let state = ["ACTIVE", "INACTIVE", "DELETED"][random.usize(0..3)];
        let mut changed = match random.u8(0..5) {
            0 => json!({ "change": "DELETE" }),
            1 => json!({ "stateAfter": state }),
            2 => content(&item, "ADD", media_type),
            3 => json!({ "change": "UPDATE" }),
            _ => content(&item, "UPDATE", media_type),
        };
        if random.u8(0..4) == 0 {
            changed["stateAfter"] = json!(state);
        }
        changed["uri"] = json!(item);
        items.push(changed);
    }
    if items.is_empty() {
        items.push(content(&object, "UPDATE", "image/gif"));
    }
    json!({ "object": object, "time": time, "items": items })
}

#[tokio::test]
async fn changes_and_full_dump_end_with_the_same_records() {
    for (visibility, seed) in [(false, fastrand::u64(..)), (true, fastrand::u64(..))] {
        let target = Target::start_with(&format!("visibility = {visibility}"), "").await;
        let options = |mtime: u64, content: &Value| json!({ "mtime": mtime, "content": content, "batch": 7 });
        let categories = [json!([]), json!(["xesam:Image"]), json!(["xesam:Text", "xesam:Archive"])];
        let following = categories.each_ref().map(|content| target.crawler_with(&options(1, content)));
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..300 {
            target.post(&random_message(&mut random)).await;
        }
        // A record that every crawler gets is the last.
        let last = format!("{}/last", uri(99));
        for media_type in ["image/png", "text/plain"] {
            target.post(&json!({ "object": uri(99), "items": [content(&last, "UPDATE", media_type)] })).await;
        }
        for (content, crawler) in categories.iter().zip(&following) {
            crawler.until_record_of(&last).await;
            until("it has all changes", async || {
                target.crawlers().await.iter().all(|crawler| crawler["state"] == "current")
            })
            .await;
            let full = target.crawler_with(&options(0, content));
            full.until_event("CleanUp").await;
            let expected = state_after(&crawler.records());
            until("it has everything", async || {
                let crawlers = target.crawlers().await;
                crawlers.iter().all(|crawler| crawler["state"] == "current" && crawler["unansweredSeconds"].is_null())
            })
            .await;
            crawler.check_order();
            full.check_order();
            let dumped = state_after(&full.records());
            assert_eq!(dumped, expected, "seed {seed}, visibility {visibility}, {content}");
        }
    }
}
