//! A filter that selects few changes skips the segments that have none of them.

use serde_json::json;

use super::{fill, segments};
use crate::support::{gateway::Gateway, journal_fixture::configuration};

#[tokio::test]
async fn rare_changes_are_found_in_few_pages() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 41_000).await;
    let lines = "[sources.rare]\ntransport = \"http\"\ndialect = \"content-change\"\n";
    let file = configuration(folder.path(), lines);
    let gateway = Gateway::start_with(folder.path(), &["--config", &file]);
    let change =
        json!({ "object": "http://rare.example/1", "items": [{ "uri": "http://rare.example/1/i", "change": "ADD" }] });
    assert_eq!(gateway.post("rare", "application/json", change.to_string()).await.0, 201);
    segments(&gateway, 4).await;
    for filter in ["source=rare", "object=http://rare.example/", "type=urn:none&source=rare"] {
        let (mut after, mut pages, mut found) = (0, 0, 0);
        while after < 41_001 {
            let page = gateway.json(&format!("/changes?after={after}&limit=1000&{filter}")).await;
            found += page["changes"].as_array().unwrap().len();
            let next = page["next"].as_u64().unwrap();
            assert!(next > after, "{filter}: the page ends at {next}");
            (after, pages) = (next, pages + 1);
        }
        assert_eq!((found, pages), (usize::from(!filter.contains("none")), 1), "{filter}");
    }
    // A filter that segments know nothing about examines all changes.
    let page = gateway.json("/changes?after=0&limit=1000&state=DELETED").await;
    assert_eq!(page["next"], 5000);
    // The end of a page is before the number that the reader has named.
    let page = gateway.json("/changes?after=0&before=12345&source=rare").await;
    assert_eq!((&page["next"], &page["changes"]), (&json!(12_344), &json!([])));
}
