//! Refusals of platforms whose reason matters: other URLs, tokens, conditions, embargoes, and lists that lack entries.

use std::fs;

use serde_json::{Value, json};
use tidings::filesets::{IngestSettings, PlatformToken, RetryRule, platform::TokenPlace};
use url::Url;

use crate::support::{
    ingest_fixture::{IngestFixture, table},
    platforms_fixture::{Platforms, figshare, figshare_file, page, zenodo},
    scripted_platform::{Answer, PlatformServer},
};

/// Platforms of one server in the settings of an ingest.
fn at_server(settings: &mut IngestSettings, server: &str) {
    let at = |path: &str| Url::parse(&format!("{server}{path}")).unwrap();
    let platforms = &mut settings.platforms;
    platforms.invenio = vec![at("/zenodo/")];
    platforms.figshare_hosts = vec![server.replace("http://", "")];
    (platforms.figshare_api, platforms.dryad) = (at("/figshare-api/v2/"), at("/"));
}

/// Downloads at the hosts of institutions refuse programs, and the interface has the same file.
#[tokio::test]
async fn fileset_refusals_of_figshare_are_followed_by_its_interface() {
    let fixture = IngestFixture::start(at_server).await;
    let server = &fixture.server;
    let mut file = figshare_file(1);
    file["size"] = json!(3);
    file["computed_md5"] = Value::Null;
    file["download_url"] = json!(format!("{}/ndownloader/files/1", server.url));
    server.put("/articles/A/8", page());
    server.put("/figshare-api/v2/articles/8", Answer::json(&figshare(&json!([file]), 3)));
    let refusals = [Answer::new(403, "<html>robot?"), Answer::new(202, "").with("x-amzn-waf-action", "challenge")];
    for refusal in refusals {
        server.put("/ndownloader/files/1", refusal.clone());
        server.put("/figshare-api/v2/file/download/1", table("one"));
        let result = fixture.ingest_at("/articles/A/8").await.result;
        assert_eq!(result.status.as_str(), "success-file", "{refusal:?}: {:?}", result.error_message);
        server.put("/figshare-api/v2/file/download/1", refusal.clone());
        let ingested = fixture.ingest_at("/articles/A/8").await;
        let outcome = (ingested.result.status.as_str(), ingested.retry);
        assert_eq!(outcome, ("error-platform-download", Some(RetryRule::Backoff(None))), "{refusal:?}");
    }
}

/// A list that goes on without a total, and lists that lack entries.
#[tokio::test]
async fn fileset_refusals_of_partial_lists_pass() {
    let platforms = Platforms::start().await;
    let record = json!({ "identifier": "doi:10.5061/dryad.x", "visibility": "public",
        "_links": { "stash:version": { "href": "/api/v2/versions/9" } } });
    let list = |from: usize, to: usize, total: Option<usize>, next: bool| {
        let files: Vec<_> = (from..to).map(|n| json!({ "path": format!("f{n}") })).collect();
        let links = if next { json!({ "next": { "href": "/x" } }) } else { json!({}) };
        Answer::json(&json!({ "total": total, "_links": links, "_embedded": { "stash:files": files } }))
    };
    let empty = || list(0, 0, None, false);
    for (pages, expected) in [
        ([list(0, 2, None, true), list(2, 4, None, true), list(4, 5, None, false)], Ok(5)),
        ([list(0, 2, Some(5), false), list(2, 4, Some(5), false), list(4, 5, Some(5), false)], Ok(5)),
        ([list(0, 2, Some(5), true), list(2, 4, Some(5), true), empty()], Err("4")),
        ([list(0, 3, Some(2), false), empty(), empty()], Err("3")),
    ] {
        let places = (1..=3).map(|page| format!("/api/v2/versions/9/files?page={page}&per_page=100"));
        places.zip(&pages).for_each(|(place, answer)| platforms.server.put(&place, answer.clone()));
        platforms.server.put("/api/v2/versions/9/files", empty());
        let answers = [
            ("/dataset/doi:10.5061/dryad.x", page()),
            ("/api/v2/datasets/doi%3A10%2E5061%2Fdryad%2Ex", Answer::json(&record)),
        ];
        match (platforms.read("/dataset/doi:10.5061/dryad.x", &answers).await, expected) {
            (Ok((dataset, _)), Ok(count)) => assert_eq!(dataset.files.len(), count),
            (Err(failure), Err(listed)) => {
                let outcome = (failure.status.as_str(), failure.retry);
                assert_eq!(outcome, ("platform-bad-answer", RetryRule::Backoff(None)), "{failure}");
                assert!(failure.message.contains(&format!("lists {listed}")), "{failure}");
            }
            (other, expected) => panic!("{other:?} instead of {expected:?}"),
        }
    }
    // A record that exists is not unknown because its list of files is.
    let not_found = Answer::json(&json!({ "message": "not here" })).status(404);
    let answers = [
        ("/zenodo/records/17", page()),
        ("/zenodo/api/records/17", Answer::json(&zenodo(17, &json!([])))),
        ("/zenodo/api/records/17/files", not_found),
    ];
    assert_eq!(platforms.refusal("/zenodo/records/17", &answers).await.0, "empty-manifest");
    // A folder that was removed since the list says nothing about the project.
    let gone = || Answer::json(&json!({ "errors": [{ "detail": "Not found." }] })).status(404);
    let related = json!({ "links": { "related": { "href": "/osf-api/v2/folder/" } } });
    let folder = json!({ "attributes": { "kind": "folder", "name": "d" }, "relationships": { "files": related } });
    let answers = [
        ("/osf/ab3de/", page()),
        ("/osf-api/v2/nodes/ab3de/", Answer::json(&json!({ "data": { "attributes": {} } }))),
        ("/osf-api/v2/nodes/ab3de/files/osfstorage/", Answer::json(&json!({ "data": [folder] }))),
        ("/osf-api/v2/folder/", gone()),
    ];
    let (status, failure) = platforms.refusal("/osf/ab3de/", &answers).await;
    assert_eq!((&*status, failure.retry), ("platform-bad-answer", RetryRule::Backoff(None)), "{failure}");
    let article = figshare(&json!([figshare_file(1)]), 7);
    let answers = [("/articles/A/8", page()), ("/figshare-api/v2/articles/8", Answer::json(&article))];
    let (status, failure) = platforms.refusal("/articles/A/8", &answers).await;
    assert_eq!((&*status, failure.retry), ("platform-bad-answer", RetryRule::Backoff(None)), "{failure}");
}

/// Tokens, guestbooks, terms, retention periods and embargoes.
#[tokio::test]
async fn fileset_refusals_say_what_would_open_the_files() {
    let fixture = IngestFixture::start(at_server).await;
    let server = &fixture.server;
    let mut record = json!({ "identifier": "doi:10.5061/dryad.x", "visibility": "public",
        "_links": { "stash:version": { "href": "/api/v2/versions/9" } } });
    let list = json!({ "total": 1, "_embedded": { "stash:files": [
        { "path": "a", "_links": { "stash:download": { "href": "/api/v2/files/1/download" } } }] } });
    server.put("/dataset/doi:10.5061/dryad.x", page());
    server.put("/api/v2/versions/9/files", Answer::json(&list));
    let api = "/api/v2/datasets/doi%3A10%2E5061%2Fdryad%2Ex";
    server.put(api, Answer::json(&record));
    let refused = |status: u16, reason: &str| Answer::json(&json!({ "message": reason })).status(status);
    for (answer, status, reason) in [
        (
            refused(401, "must have current bearer token"),
            "platform-restricted",
            "a token in [filesets.tokens] may open it",
        ),
        (refused(403, "The retention period is over"), "platform-restricted", "retention"),
        (refused(400, "You must agree to the Terms of Use"), "platform-restricted", "Terms of Use"),
        (refused(400, "no such format"), "error-platform-download", "no such format"),
    ] {
        server.put("/api/v2/files/1/download", answer.clone());
        let ingested = fixture.ingest_at("/dataset/doi:10.5061/dryad.x").await;
        let outcome = (ingested.result.status.as_str(), ingested.retry);
        assert_eq!(outcome, (status, Some(RetryRule::Never)), "{answer:?}");
        assert!(
            ingested.result.error_message.as_ref().unwrap().contains(reason),
            "{:?}",
            ingested.result.error_message
        );
    }
    record["visibility"] = json!("restricted");
    for (date, is_planned) in [("2099-01-02", true), ("2020-01-02", false)] {
        record["publicationDate"] = json!(date);
        server.put(api, Answer::json(&record));
        let ingested = fixture.ingest_at("/dataset/doi:10.5061/dryad.x").await;
        assert_eq!(ingested.result.status.as_str(), "platform-restricted");
        assert_eq!(matches!(ingested.retry, Some(RetryRule::At(_))), is_planned, "{date}");
    }
}

/// A token of a platform goes to its origin with lists and files, and nowhere else: not to a storage, not to another port.
#[tokio::test]
async fn fileset_refusals_do_not_reveal_tokens() {
    let (storage, elsewhere) = (PlatformServer::start().await, PlatformServer::start().await);
    let fixture = IngestFixture::start(|settings, server| {
        at_server(settings, server);
        let token = |text: &str| PlatformToken::new(&tidings::web::Secret::new(text)).unwrap();
        settings.platforms.tokens = vec![
            (TokenPlace::Platform("zenodo"), token("zenodo-token")),
            (TokenPlace::Platform("figshare"), token("figshare-token")),
        ];
        settings.contact = Some("library@example.org".into());
    })
    .await;
    let server = &fixture.server;
    server.put("/zenodo/records/17", page());
    storage.put("/s3", table("one"));
    elsewhere.put("/b.csv", table("two"));
    server.put("/zenodo/f", Answer::redirect(format!("{}/s3", storage.url)));
    let entries = json!([
        { "key": "a.csv", "links": { "content": format!("{}/zenodo/f", server.url) } },
        { "key": "b.csv", "links": { "content": format!("{}/b.csv", elsewhere.url) } },
    ]);
    let record = json!({ "id": 17, "metadata": { "access_right": "open" }, "files": entries });
    server.put("/zenodo/api/records/17", Answer::json(&record));
    let result = fixture.ingest_at("/zenodo/records/17").await.result;
    assert!(result.hit, "{result:?}");
    let mut file = figshare_file(1);
    (file["size"], file["computed_md5"]) = (json!(3), Value::Null);
    server.put("/articles/A/8", page());
    server.put("/figshare-api/v2/articles/8", Answer::json(&figshare(&json!([file]), 3)));
    server.put("/figshare-api/v2/file/download/1", Answer::redirect(format!("{}/s3", storage.url)));
    let result = fixture.ingest_at("/articles/A/8").await.result;
    assert!(result.hit, "{result:?}");
    for request in server.requests() {
        let expected = if request.place.starts_with("/zenodo/api/") || request.place == "/zenodo/f" {
            Some("Bearer zenodo-token")
        } else {
            request.place.starts_with("/figshare-api/").then_some("token figshare-token")
        };
        assert_eq!(request.token.as_deref(), expected, "{}", request.place);
    }
    let others = [storage.requests(), elsewhere.requests()].concat();
    assert!(others.len() == 3 && others.iter().all(|request| request.token.is_none()), "{others:?}");
    // Operators of platforms write to the contact before they block a program.
    for request in others.into_iter().chain(server.requests()) {
        assert!(request.agent.unwrap().ends_with(" (library@example.org)"), "{}", request.place);
    }
}

/// An item belongs to one dataset, whatever its name is.
#[tokio::test]
async fn fileset_refusals_keep_the_items_of_others() {
    let fixture = IngestFixture::start(|settings, _| settings.thresholds.web_files = 0).await;
    let result = fixture.ingest(&[("a.csv", table("one"), json!({}))]).await.result;
    let item = result.archiveorg_item_name.unwrap();
    let folder = fixture.folder.path();
    let (note, stored) = (folder.join("owners").join(&item), folder.join("items").join(&item).join("a.csv"));
    assert!(fs::read_to_string(&note).unwrap().starts_with("zenodo:"));
    fs::write(&note, "zenodo:elsewhere.example:17").unwrap();
    let ingested = fixture.ingest(&[("a.csv", table("two"), json!({}))]).await;
    let outcome = (ingested.result.status.as_str(), ingested.retry);
    assert_eq!(outcome, ("mismatch-existing", Some(RetryRule::Never)), "{:?}", ingested.result.error_message);
    assert_eq!(fs::read(stored).unwrap(), b"one");
}
