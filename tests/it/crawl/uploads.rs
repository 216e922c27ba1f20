//! `POST /sources/{source}/registry` accepts the parts of a crawl in their order, each once.

use serde_json::json;

use crate::support::{crawl_fixture::post_part, gateway::Gateway};

#[tokio::test]
async fn uploads_must_be_in_order_and_duplicates_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    assert_eq!(gateway.json("/sources/fedora/registry").await, json!({ "source": "fedora", "walk": null }));
    let [one, two] = [1, 2].map(|number| format!("00000000-0000-4000-8000-00000000000{number}"));
    let object = json!({ "object": "http://h/1", "at": "2020-01-01T00:00:00Z",
        "items": [{ "uri": "http://h/1", "at": "2020-01-01T00:00:00Z" }] });
    let body = |crawl: &str, part: u64| json!({ "walk": crawl, "part": part, "objects": [object], "place": format!("p{part}") });
    for (crawl, number, status, filled) in [
        (&one, 2, 409, None),
        (&one, 1, 200, Some(1)),
        (&one, 1, 200, Some(0)),
        (&one, 3, 409, None),
        (&one, 2, 200, Some(0)),
        (&one, 1, 409, None),
        (&two, 2, 409, None),
        (&two, 1, 200, Some(0)),
        (&one, 3, 409, None),
    ] {
        let (got, answer) = post_part(&gateway, "fedora", &body(crawl, number)).await;
        assert_eq!((got, answer["filled"].as_u64()), (status, filled), "part {number} of {crawl}: {answer}");
    }
    let crawl = gateway.json("/sources/fedora/registry").await;
    assert_eq!(
        (&crawl["walk"]["id"], &crawl["walk"]["part"], &crawl["walk"]["place"]),
        (&json!(two), &json!(1), &json!("p1"))
    );
    for (wrong, status, why) in [
        (
            json!({ "walk": two, "part": 2, "place": "", "objects": vec![object.clone(); 1001] }),
            422,
            "the limit is 1000",
        ),
        (json!({ "walk": two, "part": 2, "place": "x".repeat(70_000), "objects": [] }), 422, "more than 65536 bytes"),
        (
            json!({ "walk": two, "part": 2, "place": "", "objects": [{ "object": "h", "at": "now", "items": [] }] }),
            400,
            "not a part of a crawl",
        ),
        (
            json!({ "walk": two, "part": 2, "place": "", "objects": [{ "object": "http://h/", "at": "2020-01-01T00:00:00Z", "items": [] }] }),
            400,
            "at least one item",
        ),
    ] {
        let (got, answer) = post_part(&gateway, "fedora", &wrong).await;
        assert!(got == status && answer["detail"].as_str().unwrap().contains(why), "{got} {answer}");
    }
}
