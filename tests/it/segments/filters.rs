//! A filter that selects few changes skips the segments that have none of them.

use serde_json::json;

use super::{fill, segments};
use crate::support::{
    gateway::Gateway,
    journal_fixture::{configuration, run, stderr},
    views_fixture::token,
};

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
    for (filter, expected) in [("source=rare", 1), ("object=http://rare.example/", 1), ("type=urn:none&source=rare", 0)]
    {
        let (mut after, mut pages, mut found) = (0, 0, 0);
        while after < 41_001 {
            let page = gateway.json(&format!("/changes?after={after}&limit=1000&{filter}")).await;
            found += page["changes"].as_array().unwrap().len();
            let next = page["next"].as_u64().unwrap();
            assert!(next > after, "{filter}: the page ends at {next}");
            (after, pages) = (next, pages + 1);
        }
        assert_eq!((found, pages), (expected, 1), "{filter}");
    }
    // A filter that segments know nothing about examines all changes.
    let page = gateway.json("/changes?after=0&limit=1000&state=DELETED").await;
    assert_eq!(page["next"], 5000);
    // The end of a page is before the number that the reader has named.
    let page = gateway.json("/changes?after=0&before=12345&source=rare").await;
    assert_eq!((&page["next"], &page["changes"]), (&json!(12_344), &json!([])));
}

/// The end of a page would say whether a segment has hidden changes of a parent.
#[tokio::test]
async fn readers_of_a_part_learn_nothing_from_skipped_segments() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 21_000).await;
    let lines = format!("{}[access.public]\nsurfaces = [\"changes\"]\n", token("admin", "admin", ""));
    let gateway = Gateway::start_with(folder.path(), &["--config", &configuration(folder.path(), &lines)]);
    let page = async |query: &str, token: Option<&str>| {
        let mut request = gateway.http.get(format!("{}{query}", gateway.url));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let body = request.send().await.unwrap().bytes().await.unwrap();
        serde_json::from_slice::<serde_json::Value>(&body).unwrap()
    };
    super::until("the spans are sealed", async || {
        let list = page("/segments", Some("tdg_admin")).await;
        (list["segments"].as_array()?.len() == 2).then_some(())
    })
    .await;
    let rare = "/changes?after=0&limit=1000&parent=http://h/nowhere";
    assert_eq!(page(rare, Some("tdg_admin")).await["next"], 21_000);
    assert_eq!(page(rare, None).await["next"], 5000);
}

/// A cursor whose changes a restore has lost is gone for every filter, and lists and pages pass the gap.
#[tokio::test]
async fn restores_leave_no_reader_behind() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let (data, backup) = (folder.path().join("data"), folder.path().join("backup"));
    fill(&data, 15_000).await;
    let ended = run("backup", &[&backup, std::path::Path::new("--data"), &data]);
    assert!(ended.status.success(), "{}", stderr(&ended));
    let opened = crate::support::journal_fixture::OpenJournal::at(&data);
    opened.append(15_001..=15_200).await;
    opened.close();
    let ended = run("restore", &[&backup, std::path::Path::new("--data"), &data, std::path::Path::new("--force")]);
    assert!(ended.status.success(), "{}", stderr(&ended));
    let keep = "[journal]\nkeep_changes = 3\n[segments]\nkeep = \"all\"\n[sources.content-change]\ntransport = \"http\"\ndialect = \"content-change\"\n";
    let gateway = Gateway::start_with(&data, &["--config", &configuration(folder.path(), keep)]);
    for number in 0..10 {
        crate::support::journal_fixture::post(&gateway, 20_000 + number).await;
    }
    let sealed = segments(&gateway, 2).await;
    assert_eq!((&sealed[1]["lastChange"], &sealed[1]["changes"]), (&json!(15_000), &json!(5000)));
    // Retention looks again when a change arrives, and otherwise after a minute.
    crate::support::journal_fixture::post(&gateway, 20_010).await;
    let after = gateway.json("/segments?after=15000").await;
    assert_eq!((&after["segments"], &after["next"]), (&json!([]), &json!(15_000)));
    super::until("the lost journal's neighbours are removed", async || {
        let oldest = gateway.json("/changes?limit=1").await["changes"][0]["seq"].as_u64().unwrap();
        (oldest > 15_000).then_some(())
    })
    .await;
    for filter in ["", "&source=rare", "&object=http://localhost/"] {
        let lost = gateway.http.get(format!("{}/changes?after=15200{filter}", gateway.url)).send().await.unwrap();
        assert_eq!(lost.status(), 410, "{filter}");
    }
    let changes = gateway.changes().await;
    assert_eq!(changes.len(), 15_011, "the walk passes the gap");
    let since = gateway.json("/changes?after=0&limit=5&since=2020-01-01T00:00:00Z").await;
    assert_eq!(since["changes"][0]["seq"], 1);
}
