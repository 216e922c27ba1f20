//! Records and crawlers that could harm others: another crawler still gets everything.

use serde_json::json;

use crate::support::xesam_fixture::{Crawler, Target, until, uri};

/// Posts an object, and waits until the witness has its record.
async fn check(target: &Target, witness: &Crawler, number: usize) {
    target.add(number).await;
    witness.until_record_of(&uri(number)).await;
    witness.check_order();
}

#[tokio::test]
async fn crawlers_with_unexpected_answers_harm_nobody() {
    let target = Target::start().await;
    let witness = target.crawler(1, 0);
    witness.until_event("installed").await;
    let mut failing = target.crawler(1, 0);
    failing.until_event("installed").await;
    failing.tell("fail");
    let mut texting = target.crawler(1, 0);
    texting.until_event("installed").await;
    texting.tell("text");
    // The commands are read before the calls that follow them.
    target.until_crawlers(3).await;
    until("a crawler has failed", async || {
        target.add(fastrand::usize(1_000..100_000)).await;
        failing.names().contains(&"Invalidate".to_owned())
    })
    .await;
    let text = failing.until_event("Invalidate").await["text"].clone();
    assert!(text.as_str().unwrap().contains("org.example.Error.Broken: it is broken"), "{text}");
    target.until_crawlers(2).await;
    check(&target, &witness, 1).await;
    texting.until_record_of(&uri(1)).await;
}

#[tokio::test]
async fn requests_that_make_no_sense_harm_nobody() {
    let target = Target::start().await;
    let mut witness = target.crawler(1, 0);
    witness.until_event("installed").await;
    witness.tell("wrong");
    let refused = witness.until_event("error").await;
    assert_eq!(refused["name"], "org.freedesktop.DBus.Error.InvalidArgs");
    // An object that does not exist, also in a full dump.
    for mtime in [0, 1] {
        let mut lost = target.crawler_with(&json!({ "mtime": mtime, "install": false }));
        lost.tell("install /nobody");
        lost.until_event("installed").await;
        check(&target, &witness, 10 + mtime).await;
        target.until_crawlers(1).await;
    }
    // A client that invalidates itself and leaves at once.
    for _ in 0..10 {
        let mut hasty = target.crawler_with(&json!({ "install": false }));
        hasty.until_event("connected").await;
        hasty.tell("flood");
    }
    check(&target, &witness, 20).await;
    target.until_crawlers(1).await;
    // A client that stays, and whose signals may be read before the requests that they follow.
    let mut fickle = target.crawler_with(&json!({ "install": false }));
    fickle.until_event("connected").await;
    fickle.tell("flash 100");
    let is_installed = |name: &String| name == "installed";
    until("all requests are answered", async || fickle.names().iter().filter(|name| is_installed(name)).count() == 100)
        .await;
    target.until_crawlers(1).await;
}

#[tokio::test]
async fn texts_that_d_bus_does_not_allow_harm_nobody() {
    let target = Target::start_with("", "[limits]\nbody_bytes = 104857600\nheld_bytes = 419430400\n").await;
    let witness = target.crawler(1, 0);
    witness.until_event("installed").await;
    let post = async |body: String| target.gateway.post("content-change", "application/json", body).await.0;
    // JSON escapes of U+0000 and of a lone surrogate.
    for (number, text) in ["\\u0000", "a\\u0000b", "\\ud800", "\\udfff\\ud800"].into_iter().enumerate() {
        for member in ["object", "parent", "types", "description", "uri", "mediaType"] {
            let value = |name: &str, valid: &str| if name == member { text.to_owned() } else { valid.to_owned() };
            let uri = uri(100 + number);
            let body = format!(
                r#"{{"object":"{}","parent":"{}","types":["{}"],"description":"{}","user":{{"name":"{text}"}},"items":[
                    {{"uri":"{}","change":"ADD","content":{{"url":"{uri}","mediaType":"{}"}}}}]}}"#,
                value("object", &uri),
                value("parent", "http://h.example/p"),
                value("types", "http://h.example/t"),
                value("description", "d"),
                value("uri", &uri),
                value("mediaType", "text/plain"),
            );
            let status = post(body).await;
            assert!(status < 500, "{member} {text}: {status}");
        }
    }
    check(&target, &witness, 1).await;
    // A body of 70 MB.
    let large = json!({
        "object": uri(2), "description": "x".repeat(70_000_000), "items": [{ "uri": uri(2), "change": "ADD" }]
    });
    assert_eq!(post(large.to_string()).await, 201);
    witness.until_record_of(&uri(2)).await;
    check(&target, &witness, 3).await;
    assert_eq!(target.crawlers().await.len(), 1, "the connection has never broken");
    assert_eq!(target.crawlers().await[0]["id"], 1);
}

#[tokio::test]
async fn large_records_arrive_in_batches_of_limited_size() {
    let target = Target::start_with("batch_bytes = 200000", "").await;
    for number in 0..20 {
        let kind = |kind: usize| format!("http://h.example/types/{kind}/{}", "x".repeat(1500));
        let types: Vec<_> = (0..60).map(kind).collect();
        target
            .post(&json!({ "object": uri(number), "types": types, "items": [{ "uri": uri(number), "change": "ADD" }] }))
            .await;
    }
    for mtime in [0, 1] {
        let crawler = target.crawler(mtime, 0);
        crawler.until_records(20).await;
        crawler.check_order();
        let events = crawler.events();
        let batches: Vec<_> = events.iter().filter_map(|event| event["records"].as_array()).collect();
        assert!(batches.iter().all(|batch| batch.len() <= 2), "each record has 90 KB: {} batches", batches.len());
    }
}
