//! The documents: what the root says, which documents never change, and what they mean as RDF.

use std::{path::Path, process::Command};

use reqwest::Response;
use serde_json::{Value, json};

use crate::support::{
    gateway::Gateway,
    subscription_fixture::{gateway, post, post_event},
};

const FIXED: &str = "public, max-age=31536000, immutable";

fn header<'r>(response: &'r Response, name: &str) -> &'r str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

/// Returns a document of the present stream.
async fn get(gateway: &Gateway, name: &str) -> Response {
    let root = gateway.http.get(format!("{}/ldes", gateway.url)).send().await.unwrap();
    gateway.http.get(root.url().join(name).unwrap()).send().await.unwrap()
}

#[tokio::test]
async fn root_describes_the_stream_and_links_to_windows() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[ldes]\ntitle = \"Changes of a library\"\npolling_seconds = 30\n");
    let empty: Value = gateway.json("/ldes").await;
    assert_eq!(empty["view"], json!({ "id": "", "type": "tree:Node" }));
    let tag = header(&get(&gateway, "root.jsonld").await, "etag").to_owned();
    post(&gateway, 1).await;
    let url = get(&gateway, "root.jsonld").await.url().clone();
    let begun = gateway.http.get(url).header("if-none-match", tag).send().await.unwrap();
    assert_eq!(begun.status(), 200, "the first change makes a window");
    for number in 2..=201 {
        post(&gateway, number).await;
    }
    let root = gateway.json("/ldes").await;
    for (member, expected) in [
        ("type", "ldes:EventStream"),
        ("title", "Changes of a library"),
        ("timestampPath", "tidings:order"),
        ("sequencePath", "tidings:seq"),
        ("versionOfPath", "as:object"),
        ("versionTimestampPath", "tidings:version"),
        ("versionSequencePath", "tidings:seq"),
        ("versionDeleteObject", "as:Delete"),
        ("transactionPath", "tidings:transaction"),
    ] {
        assert_eq!(root[member], expected, "{member}");
    }
    assert_eq!(root["pollingInterval"], 30);
    assert_eq!(root["view"]["retentionPolicy"], Value::Null, "everything is still there");
    let mut orders = Vec::new();
    for page in 1..=3 {
        let document: Value = get(&gateway, &format!("page-{page}.jsonld")).await.json().await.unwrap();
        assert_eq!(document["view"]["immutable"], if page < 3 { json!(true) } else { Value::Null });
        assert_eq!(document["id"], root["id"]);
        let members = document["member"].as_array().unwrap();
        orders.push(members.iter().map(|member| member["order"].as_str().unwrap().to_owned()).collect::<Vec<_>>());
    }
    let all = orders.concat();
    assert!(all.len() == 201 && all.is_sorted_by(|one, next| one < next), "strictly increasing");
    assert!(all.iter().all(|time| time.len() == 24 && time.ends_with('Z')));
    let bound = |kind: &str, page: usize, value: &str| {
        json!({ "type": format!("tree:{kind}Relation"), "node": format!("page-{page}.jsonld"), "path": "tidings:order",
            "value": value })
    };
    let begin = |page: usize| orders[page - 1][0].as_str();
    let expected = json!([
        bound("GreaterThanOrEqualTo", 1, begin(1)),
        bound("LessThan", 1, begin(2)),
        bound("GreaterThanOrEqualTo", 2, begin(2)),
        bound("LessThan", 2, begin(3)),
        bound("GreaterThanOrEqualTo", 3, begin(3)),
    ]);
    assert_eq!(root["view"]["relation"], expected);
}

#[tokio::test]
async fn closed_pages_never_change_and_caches_may_keep_them() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    for number in 1..=150 {
        post(&gateway, number).await;
    }
    let (closed, open) = (get(&gateway, "page-1.jsonld").await, get(&gateway, "page-2.jsonld").await);
    assert_eq!((header(&closed, "cache-control"), header(&closed, "content-type")), (FIXED, "application/ld+json"));
    assert_eq!(header(&open, "cache-control"), "public, max-age=1");
    let again = |response: &Response| {
        gateway.http.get(response.url().clone()).header("if-none-match", header(response, "etag").to_owned())
    };
    assert_eq!(again(&closed).send().await.unwrap().status(), 304);
    let root = get(&gateway, "root.jsonld").await;
    assert_eq!(
        (header(&root, "cache-control"), header(&root, "vary")),
        ("public, max-age=1", "Accept, Accept-Encoding")
    );
    assert_eq!(again(&root).send().await.unwrap().status(), 304);
    for number in 151..=310 {
        post(&gateway, number).await;
    }
    let later = gateway.http.get(closed.url().clone()).send().await.unwrap();
    assert_eq!(later.bytes().await.unwrap(), closed.bytes().await.unwrap());
    assert_eq!(again(&root).send().await.unwrap().status(), 200);
    for (name, status) in [("page-5.jsonld", 404), ("block-1.jsonld", 200), ("block-2.jsonld", 404), ("x.jsonld", 404)]
    {
        assert_eq!(get(&gateway, name).await.status(), status, "{name}");
    }
    let turtle = gateway.http.get(root.url().clone()).header("accept", "text/turtle").send().await.unwrap();
    assert_eq!(turtle.status(), 406);
}

/// An independent reader of RDF finds the same, and no list in any document.
#[tokio::test]
async fn documents_are_rdf_without_lists() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    for number in 1..=120 {
        post(&gateway, number).await;
    }
    for (time, content) in [("2026-01-02T03:04:05.678Z", "http://h/new"), ("2001-01-02T03:04:05.678Z", "http://h/old")]
    {
        let item = json!({ "uri": "http://h/late", "change": "UPDATE", "content": { "url": content } });
        post_event(&gateway, &json!({ "object": "http://h/late", "time": time, "items": [item] })).await;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut python = Command::new(crate::support::python::environment("rdf"));
    python.arg(here.join("tests/it/support/ldes_documents.py")).arg(format!("{}/ldes", gateway.url));
    let output = python.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["members"], &found["lists"], &found["views"]), (&122.into(), &0.into(), &3.into()), "{found}");
    let change = gateway.changes().await.pop().unwrap();
    let expected = json!({
        "type": "https://www.w3.org/ns/activitystreams#Update", "object": change["object"],
        "published": change["received"], "endTime": "2001-01-02T03:04:05.678Z", "version": "1970-01-01T00:00:00.000Z",
        "late": "true", "source": "content-change", "id": change["id"],
    });
    assert_eq!(found["late"], expected, "a late change says so");
}
