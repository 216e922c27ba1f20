//! The documents: what an entry says, caching, and requests that are refused.

use serde_json::json;

use crate::support::{
    gateway::Gateway,
    journal_fixture::{OpenJournal, configuration, journal_file},
    resourcesync_reader::{Destination, Document, Entry, replay},
    subscription_fixture::post_event,
};

fn metadata(entry: &Entry) -> Vec<(&str, &str)> {
    entry.metadata.iter().map(|(key, value)| (&**key, &**value)).filter(|(key, _)| *key != "datetime").collect()
}

#[tokio::test]
async fn entries_say_what_the_public_sees() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let uri = "http://h.example/1?a&b";
    let md5 = json!({ "algorithm": "md5", "value": "d41d8cd98f00b204e9800998ecf8427e" });
    let content = json!({ "url": uri, "mediaType": "text/xml; charset=utf-8", "size": 3, "digest": md5 });
    let elsewhere = json!({ "url": "http://h.example/1/v2?a&b", "mediaType": "image/png",
        "digest": { "algorithm": "sha-512", "value": "0".repeat(128) } });
    for item in [
        json!({ "uri": uri, "change": "ADD", "content": content, "stateAfter": "ACTIVE" }),
        json!({ "uri": uri, "change": "UPDATE", "content": elsewhere }),
        json!({ "uri": uri, "stateAfter": "INACTIVE" }),
        json!({ "uri": uri, "change": "UPDATE", "content": content }),
        json!({ "uri": uri, "stateAfter": "ACTIVE" }),
    ] {
        post_event(&gateway, &json!({ "object": "http://h.example/1", "items": [item] })).await;
    }
    let mut destination = Destination::default();
    let (from, changes) = destination.changes(&gateway).await;
    assert_eq!(from.to_string(), "1970-01-01T00:00:00.000Z", "nothing is before the first change");
    assert!(changes.iter().all(|entry| entry.loc == uri));
    let facts = [("hash", "md5:d41d8cd98f00b204e9800998ecf8427e"), ("length", "3"), ("type", "text/xml")];
    let expected = [
        [&[("change", "created")], &facts[..]].concat(),
        vec![("change", "updated")],
        vec![("change", "deleted")],
        // The update of the hidden item is none.
        [&[("change", "created")], &facts[..]].concat(),
    ];
    assert_eq!(changes.iter().map(metadata).collect::<Vec<_>>(), expected);
    let link = json!(changes[1].links);
    assert_eq!(link, json!([{ "rel": "alternate", "href": "http://h.example/1/v2?a&b", "type": "image/png" }]));
    let baseline = destination.baseline(&gateway).await;
    let part = destination.read(&gateway, &baseline.parts[0]).await;
    assert_eq!(part.entries().iter().map(metadata).collect::<Vec<_>>(), [facts]);
}

#[tokio::test]
async fn empty_gateway_has_all_documents() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let mut destination = Destination::default();
    let baseline = destination.baseline(&gateway).await;
    assert_eq!((baseline.parts.len(), baseline.resources.len()), (1, 0));
    let (from, changes) = destination.changes(&gateway).await;
    assert!(from <= baseline.at && changes.is_empty());
}

#[tokio::test]
async fn journal_is_divided_at_multiples_of_ten_thousand() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let journal = OpenJournal::at(&data);
    for thousand in 0..10 {
        journal.append(thousand * 1000..(thousand + 1) * 1000).await;
    }
    journal.append(10_000..10_003).await;
    journal.close();
    // Without optimisation, a list takes long.
    let config = configuration(folder.path(), "[limits]\nrequest_seconds = 120\n");
    let gateway = Gateway::start_with(&data, &["--config", &config]);
    let mut destination = Destination::default();
    let index = destination.capability(&gateway, "changelist").await;
    let names: Vec<_> = index.entries().iter().map(|list| list.loc.rsplit('/').next().unwrap().to_owned()).collect();
    let expected = [1, 10_001].map(|first| format!("changelist-{first:016}.xml"));
    // A midnight during this test divides once more.
    assert!(expected.iter().all(|name| names.contains(name)) && names.len() <= 3, "{names:?}");
    let (_, changes) = destination.changes(&gateway).await;
    assert_eq!(changes.len(), 10_003);
    let baseline = destination.baseline(&gateway).await;
    assert_eq!(baseline.resources.len(), 10_003);
    assert_eq!(destination.closed_lists(), names.len() - 1);

    // Closed lists may be cached for ever, and others are revalidated.
    for (list, cache) in [
        (&names[0], "max-age=31536000, immutable"),
        (names.last().unwrap(), "no-cache"),
        (&"changelist.xml".into(), "no-cache"),
    ] {
        let url = format!("{}/resourcesync/{list}", gateway.url);
        let response = destination.request(&gateway, &url).await;
        let header = response.headers()["cache-control"].to_str().unwrap().to_owned();
        assert!(header.contains(cache), "{list}: {header}");
        let etag = response.headers()["etag"].clone();
        let again = gateway.http.get(&url).header("if-none-match", etag).send().await.unwrap();
        assert_eq!(again.status(), 304, "{list}");
        let head = gateway.http.head(&url).send().await.unwrap();
        assert!(head.status() == 200 && head.headers().contains_key("content-length"));
    }
}

/// The parts of a list that was read before changes are exact with these changes, and they are in another order then.
#[tokio::test]
async fn registry_is_divided_by_acceptance() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let object = |number: usize| format!("http://h.example/{number}");
    for number in 0..30 {
        let item = |item: usize| json!({ "uri": format!("{}/{item}", object(number)), "change": "ADD" });
        let items: Vec<_> = (0..1000).map(item).collect();
        post_event(&gateway, &json!({ "object": object(number), "items": items })).await;
    }
    let mut destination = Destination::default();
    let baseline = destination.baseline(&gateway).await;
    assert_eq!((baseline.resources.len(), baseline.parts.len()), (30_000, 2));
    let first = destination.read(&gateway, &baseline.parts[0]).await;
    assert_eq!(first.entries().len(), 20_000);
    for (number, change) in [(3, "DELETE"), (4, "UPDATE")] {
        let item = json!({ "uri": format!("{}/7", object(number)), "change": change,
            "content": (change == "UPDATE").then(|| json!({ "url": "http://h.example/c" })) });
        post_event(&gateway, &json!({ "object": object(number), "items": [item] })).await;
    }
    // The first part has two objects less, and the last one has them.
    let first = destination.read(&gateway, &baseline.parts[0]).await;
    let has = |document: &Document, uri: &str| document.bytes.contains(&format!("<loc>{uri}</loc>"));
    assert!(!has(&first, "http://h.example/3/1") && !has(&first, "http://h.example/4/7"));
    let last = destination.read(&gateway, &baseline.parts[1]).await;
    assert!(has(&last, "http://h.example/3/1") && has(&last, "http://h.example/4/7"));
    assert!(!has(&last, "http://h.example/3/7"));
    let (_, changes) = destination.changes(&gateway).await;
    let parts = destination.parts(&gateway, &baseline.parts, baseline.at).await.unwrap();
    let replayed = replay(&parts, baseline.at, &changes);
    assert_eq!(replayed, replay(&baseline.resources, baseline.at, &changes));
    assert_eq!(replayed.len(), 29_999);
}

/// A damaged change costs only its entries, and the others keep their times.
#[tokio::test]
async fn damaged_change_is_left_out_of_its_list() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::start(folder.path());
    for number in 0..6 {
        let uri = format!("http://h.example/{number}");
        post_event(&gateway, &json!({ "object": uri, "items": [{ "uri": uri, "change": "ADD" }] })).await;
    }
    let (from, mut expected) = Destination::default().changes(&gateway).await;
    assert!(gateway.stop().success());
    let journal = rusqlite::Connection::open(journal_file(folder.path())).unwrap();
    let damaged = "UPDATE changes SET json = replace(json, 'h.example', 'h.damaged') WHERE seq IN (1, 3, 4)";
    assert_eq!(journal.execute(damaged, []).unwrap(), 3);
    drop(journal);
    gateway = Gateway::start(folder.path());
    let mut destination = Destination::default();
    for number in [3, 2, 0] {
        expected.remove(number);
    }
    assert_eq!(destination.changes(&gateway).await, (from, expected));
    let baseline = destination.baseline(&gateway).await;
    assert_eq!(baseline.resources.len(), 6, "the registry has the effects of the damaged changes");
}

#[tokio::test]
async fn unknown_documents_and_queries_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    post_event(&gateway, &json!({ "object": "http://h/1", "items": [{ "uri": "http://h/1", "change": "ADD" }] })).await;
    let part = |head: u64| format!("resourcelist-{head:016}-{:016}.xml", 0);
    for (name, status) in [
        ("changelist-0000000000000001.xml", 200),
        ("changelist-0000000000000002.xml", 404),
        ("changelist-0000000000010001.xml", 404),
        ("changelist-1.xml", 404),
        ("resourcedump.xml", 404),
        // The hub does not send them unless it is configured.
        ("notifications.xml", 404),
        (&*part(0), 200),
        (&*part(1), 200),
        (&*part(2), 404),
        ("changelist.xml?object=x", 200),
        ("changelist.xml?object=", 400),
        ("changelist.xml?source=x", 400),
    ] {
        let response = gateway.http.get(format!("{}/resourcesync/{name}", gateway.url)).send().await.unwrap();
        assert_eq!(response.status(), status, "{name}: {}", response.text().await.unwrap());
    }
}
