//! Bibliographic data of landing pages, and URLs of interfaces, which are none.

use serde_json::{Value, json};
use tidings::filesets::{IngestSettings, RetryRule};
use url::Url;

use crate::support::{
    ingest_fixture::{IngestFixture, table},
    scripted_platform::Answer,
};

fn none(_: &mut IngestSettings, _: &str) {}

/// Page of a record, whose head describes the dataset, and whose body has the same elements about something else.
const PAGE: &str = r#"<html><head><title>T | Zenodo</title><!-- <meta name="citation_title" content="no"> -->
    <meta name="description" content="no"><meta property="og:title" content="no">
    <META NAME="citation_title" CONTENT="A dataset &amp; its files"><meta name=citation_author content="Author, Ä.">
    <meta name="citation_author" content="Author, B."><meta name="DC.Identifier" content="doi:10.5072/zenodo.17">
    <meta name="citation_publication_date" content="2026/01/02"></head>
    <body><meta itemprop="datePublished" content="1999-01-01"><meta name="dc.publisher" content="no"></body></html>"#;

#[tokio::test]
async fn fileset_descriptions_of_pages_are_in_the_result() {
    let fixture = IngestFixture::start(none).await;
    fixture.server.put("/records/17", Answer::html(PAGE));
    let ingested = fixture.ingest(&[("a.csv", table("one"), json!({}))]).await;
    let expected = json!({ "title": "A dataset & its files", "contrib_names": ["Author, Ä.", "Author, B."],
        "doi": "10.5072/zenodo.17", "release_date": "2026-01-02" });
    assert_eq!(ingested.result.html_biblio.map(Value::from), Some(expected));
    // Without a title, nothing describes the dataset; and a challenge does not.
    fixture.server.put("/challenge", Answer::html(PAGE).status(403));
    for answer in [Answer::html("<title>T</title><meta name=dc.date content=2026>"), Answer::redirect("/challenge")] {
        fixture.server.put("/records/17", answer);
        let result = fixture.ingest_at("/records/17").await.result;
        assert!(result.hit && result.html_biblio.is_none(), "{result:?}");
    }
}

/// A document of an interface was archived as the only file of a dataset.
#[tokio::test]
async fn fileset_descriptions_of_interfaces_are_no_files() {
    let fixture = IngestFixture::start(|settings, server| {
        let at = |path: &str| Url::parse(&format!("{server}{path}")).unwrap();
        let platforms = &mut settings.platforms;
        (platforms.figshare_api, platforms.osf_api) = (at("/figshare/v2/"), at("/osfapi/v2/"));
        (platforms.datacite, platforms.dryad, platforms.archiveorg) = (at("/datacite/"), at("/dryad/"), at("/ia/"));
    })
    .await;
    let server = &fixture.server;
    fixture.publish(&[("a.csv", table("one"), json!({}))]);
    let document = Answer::json(&json!({ "id": 17 }));
    for path in [
        "/api/records/17",
        "/api/records/17/files",
        "/figshare/v2/articles/8/versions/1",
        "/osfapi/v2/nodes/abcde/",
        "/osfapi/v2/registrations/abcde/",
        "/datacite/dois/",
        "/dryad/api/v2/versions/7",
        "/ia/metadata/thing",
    ] {
        server.put(path, document.clone());
        let ingested = fixture.ingest_at(path).await;
        let outcome = (ingested.result.status.as_str(), ingested.retry);
        assert_eq!(outcome, ("platform-scope", Some(RetryRule::Never)), "{path}: {:?}", ingested.result.error_message);
        assert!(ingested.result.error_message.unwrap().contains("request the landing page"));
    }
    // The way counts: the landing page was there before. And a file is a file, wherever it is.
    fixture.publish(&[("a.csv", table("one"), json!({}))]);
    server.put("/records/17", Answer::redirect("/api/records/17"));
    server.put("/api/records/17/files/a.csv/content", table("one"));
    server.put("/data/api/records/17", document);
    for path in ["/records/17", "/api/records/17/files/a.csv/content", "/data/api/records/17"] {
        let result = fixture.ingest_at(path).await.result;
        assert_eq!(result.status.as_str(), "success-file", "{path}: {:?}", result.error_message);
    }
}
