//! The feed for people: titles that name what changed, links to pages, the configured title and author, and a style that
//! a browser applies.

use reqwest::Method;
use serde_json::json;

use crate::support::{
    browser::Browser,
    feed_reader::{self, Element},
    gateway::Gateway,
    subscription_fixture::{gateway, post, post_event},
};

async fn feed(gateway: &Gateway) -> Element {
    let feed = gateway.http.get(format!("{}/feed", gateway.url)).send().await.unwrap();
    Element::parse(&feed.text().await.unwrap())
}

#[tokio::test]
async fn entries_name_the_object_and_link_to_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "[feed]\ntitle = \"Changes at <Example>\"\nauthor = \"Example Library\"\n";
    let gateway = gateway(folder.path(), lines);
    let object = "http://h.example/objects/caf%C3%A9";
    post_event(
        &gateway,
        &json!({ "object": object, "description": "ingest", "items": [
            { "uri": format!("{object}/photo"), "change": "ADD", "content": { "url": "http://h.example/1" } },
            { "uri": object, "change": "ADD" },
        ]}),
    )
    .await;
    post_event(&gateway, &json!({ "object": object, "items": [{ "uri": object, "change": "DELETE" }] })).await;
    let feed = feed(&gateway).await;
    assert_eq!(feed.text_of("title"), "Changes at <Example>");
    assert_eq!(feed.one("author").unwrap().text_of("name"), "Example Library");
    let entries: Vec<_> = feed.children.iter().filter(|child| child.name == "entry").collect();
    let titles: Vec<_> = entries.iter().map(|entry| entry.text_of("title")).collect();
    assert_eq!(titles, ["Deleted: café", "Added: café/photo", "Added: café"]);
    // The description of the source is still there, for programs that rebuild the change.
    assert_eq!(entries[1].one("source").unwrap().text_of("title"), "ingest");
    for entry in entries {
        let alternates: Vec<_> = entry
            .children
            .iter()
            .filter(|child| child.name == "link" && child.attributes["rel"] == "alternate")
            .map(|link| (link.attributes["type"].as_str(), link.attributes["href"].as_str()))
            .collect();
        let [("text/html", page), ("application/atom+xml", atom)] = alternates[..] else { panic!("{alternates:?}") };
        assert_eq!(page, atom);
        let page = gateway.http.get(page).header("accept", "text/html").send().await.unwrap();
        assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
        assert!(page.text().await.unwrap().contains("café"));
    }
    let service = gateway.http.get(format!("{}/service", gateway.url)).send().await.unwrap().text().await.unwrap();
    assert!(service.contains("<atom:title>Changes at &lt;Example&gt;</atom:title>"), "{service}");
}

#[tokio::test]
async fn archive_page_does_not_depend_on_later_changes() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = feed_reader::Gateway::open(folder.path()).await;
    let changes = |range: std::ops::Range<u64>| {
        let draft = |number: u64| {
            let object = format!("http://h/objects/{}", number % 7);
            feed_reader::draft(json!({
                "object": object, "sourceEventId": number.to_string(), "description": format!("event {number}"),
                "items": [{ "uri": object, "change": "UPDATE", "content": { "url": format!("http://h/{number}") } }],
            }))
        };
        range.map(draft).collect::<Vec<_>>()
    };
    gateway.append("fedora3", changes(0..250)).await;
    let read = async || {
        let page = gateway.ask(Method::GET, "/feed/archive/1", &[]).await;
        (page.headers()["etag"].clone(), page.text().await.unwrap())
    };
    let before = read().await;
    assert!(
        before.1.starts_with("<?xml version=\"1.0\"?>\n<?xml-stylesheet type=\"text/css\" href=\"../../feed.css\"?>\n")
    );
    gateway.append("fedora3", changes(250..600)).await;
    // Rendered again instead of read from the disk.
    std::fs::remove_dir_all(folder.path().join("pages")).unwrap();
    gateway.close().await;
    let gateway = feed_reader::Gateway::open(folder.path()).await;
    let page = gateway.ask(Method::GET, "/feed/archive/1", &[]).await;
    assert_eq!((page.headers()["etag"].clone(), page.text().await.unwrap()), before);
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn browser_applies_the_style_of_the_feed() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    post(&gateway, 1).await;
    let mut browser = Browser::start();
    browser.go(&format!("{}/feed", gateway.url));
    browser.until("getComputedStyle(document.querySelector('entry > title')).display", &json!("block"));
    browser.until("getComputedStyle(document.querySelector('entry > id')).display", &json!("none"));
}
