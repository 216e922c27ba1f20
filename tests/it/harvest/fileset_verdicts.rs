//! Statements of a platform about a dataset, and mere events on the way: traffic filters, busy servers, partial
//! lists, challenges, and identifiers of all versions.

use serde_json::{Value, json};
use tidings::filesets::{IngestSettings, Ingested, PlatformToken, RetryRule, platform::TokenPlace};

use crate::support::{
    ingest_fixture::{IngestFixture, md5, table},
    platforms_fixture::{Platforms, page},
    scripted_platform::{Answer, PlatformServer},
};

fn none(_: &mut IngestSettings, _: &str) {}

fn filter(status: u16, media_type: &str) -> Answer {
    Answer::new(status, "<html><title>403 Forbidden</title>unusual traffic").with("content-type", media_type)
}

fn record(more: &Value) -> Answer {
    let mut record = json!({ "id": 17, "metadata": { "access_right": "open" }, "files": [{ "key": "a", "size": 3 }] });
    record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Answer::json(&record)
}

/// The same status codes, from a filter with a page and from the platform in JSON; for the list and for a file.
#[tokio::test]
async fn fileset_verdicts_need_the_voice_of_the_platform() {
    let fixture = IngestFixture::start(none).await;
    let refusal = |status: u16| Answer::json(&json!({ "message": "not for you" })).status(status);
    for (answer, of_list, of_file, is_final) in [
        (filter(403, "text/html"), "platform-http-error", "error-platform-download", false),
        (filter(403, "application/octet-stream"), "platform-http-error", "error-platform-download", false),
        (filter(401, "text/html"), "platform-http-error", "error-platform-download", false),
        (filter(404, "text/html"), "platform-http-error", "error-platform-download", false),
        (filter(410, "text/html"), "platform-http-error", "error-platform-download", false),
        (Answer::new(403, ""), "platform-http-error", "error-platform-download", false),
        (filter(200, "text/html"), "platform-bad-answer", "error-platform-download", false),
        (filter(200, "Text/HTML; charset=utf-8"), "platform-bad-answer", "error-platform-download", false),
        (filter(200, "application/xhtml+xml"), "platform-bad-answer", "error-platform-download", false),
        (filter(200, "application/octet-stream"), "platform-bad-answer", "error-platform-download", false),
        (Answer::new(202, ""), "platform-bad-answer", "error-platform-download", false),
        (refusal(403), "platform-restricted", "platform-restricted", true),
        (refusal(401), "platform-restricted", "platform-restricted", true),
        (refusal(404), "platform-404", "error-platform-download", true),
    ] {
        let retry = if is_final { RetryRule::Never } else { RetryRule::Backoff(None) };
        let outcome = |ingested: &Ingested| (ingested.result.status.to_string(), ingested.retry);
        fixture.server.put("/api/records/17", answer.clone());
        let ingested = fixture.ingest_at("/records/17").await;
        assert_eq!(outcome(&ingested), (of_list.to_owned(), Some(retry)), "list: {answer:?}");
        let ingested = fixture.ingest(&[("a.csv", answer.clone(), json!({}))]).await;
        assert_eq!(outcome(&ingested), (of_file.to_owned(), Some(retry)), "file: {answer:?}");
        if is_final {
            assert!(ingested.result.error_message.unwrap().contains("not for you"));
        }
    }
    let guestbook = json!({ "message": "You may not download this file without the required Guestbook response." });
    let ingested = fixture.ingest(&[("a.csv", Answer::json(&guestbook).status(400), json!({}))]).await;
    assert_eq!(ingested.result.status.as_str(), "platform-restricted");
    assert!(ingested.result.error_message.unwrap().contains("Guestbook"));
}

/// Three files of ten are refused for a second each, and the list before.
#[tokio::test]
async fn fileset_verdicts_wait_for_a_busy_server_within_the_attempt() {
    let fixture = IngestFixture::start(none).await;
    let busy = |status: u16| Answer::new(status, "").with("retry-after", "1");
    let files: Vec<_> = (0..10).map(|n| (format!("{n}.csv"), table("one"), json!({}))).collect();
    let files: Vec<_> =
        files.iter().map(|(path, answer, facts)| (path.as_str(), answer.clone(), facts.clone())).collect();
    fixture.publish(&files);
    fixture.server.put_series("/f/3", vec![busy(429), busy(429), table("one")]);
    fixture.server.put_series("/f/5", vec![busy(503), table("one")]);
    fixture.server.put_series("/f/6", vec![Answer::new(502, "x"), table("one")]);
    let ingested = fixture.ingest_at("/records/17").await;
    assert_eq!((ingested.result.status.as_str(), ingested.gained_files), ("success", 10), "{:?}", ingested.result);
    // A wait of more than a minute gives the place to others.
    fixture.publish(&files);
    fixture.server.put("/f/3", Answer::new(429, "").with("x-ratelimit-reset", "3000"));
    let ingested = fixture.ingest_at("/records/17").await;
    assert!(matches!(ingested.retry, Some(RetryRule::Backoff(Some(wait))) if wait.as_secs() > 2000), "{ingested:?}");
}

/// The identifier of all versions, on each place of the way.
#[tokio::test]
async fn fileset_verdicts_refuse_the_identifier_of_all_versions_on_every_hop() {
    let fixture = IngestFixture::start(none).await;
    let server = &fixture.server;
    server.put("/f/0", table("one"));
    server.put("/record/17", Answer::redirect("/records/17"));
    server.put("/doi/10.5281/zenodo.17", Answer::redirect("/records/17"));
    server.put("/records/16", Answer::redirect("/records/17"));
    server.put("/doi/10.5281/zenodo.16", Answer::redirect("/records/17"));
    server.put("/records/17/latest", Answer::redirect("/records/17"));
    let content = json!([{ "key": "a", "size": 3, "links": { "content": format!("{}/f/0", server.url) } }]);
    for concept in [
        json!({ "conceptrecid": "16" }),
        json!({ "conceptdoi": "10.5281/zenodo.16", "conceptrecid": 16 }),
        json!({ "parent": { "id": "16", "pids": { "doi": { "identifier": "10.5281/ZENODO.16" } } } }),
    ] {
        let mut concept = concept;
        concept["files"] = content.clone();
        server.put("/api/records/17", record(&concept));
        for (path, status) in [
            ("/records/17", "success-file"),
            ("/record/17", "success-file"),
            ("/doi/10.5281/zenodo.17", "success-file"),
            ("/records/16", "platform-scope"),
            ("/doi/10.5281/zenodo.16", "platform-scope"),
            ("/records/17/latest", "platform-scope"),
        ] {
            let ingested = fixture.ingest_at(path).await;
            assert_eq!(
                ingested.result.status.as_str(),
                status,
                "{path} {concept}: {:?}",
                ingested.result.error_message
            );
            if status == "platform-scope" {
                assert!(ingested.result.error_message.unwrap().contains("/records/17"), "the version is named");
            }
        }
    }
}

/// Challenges for robots after the URL of a known platform, and a cookie that ends a loop.
#[tokio::test]
async fn fileset_verdicts_ignore_challenges_on_the_way() {
    let fixture = IngestFixture::start(none).await;
    fixture.publish(&[("a.csv", table("one"), json!({}))]);
    let server = &fixture.server;
    server.put("/challenge", filter(403, "text/html"));
    for way in [Answer::redirect("/records/17"), Answer::redirect("/challenge"), Answer::new(302, "")] {
        server.put("/records/17", way.clone());
        let ingested = fixture.ingest_at("/records/17").await;
        assert_eq!(ingested.result.status.as_str(), "success-file", "{way:?}: {:?}", ingested.result.error_message);
    }
    let cookie = Answer::redirect("/records/17").with("set-cookie", "seen=1; Path=/");
    server.put_series("/records/17", vec![cookie, Answer::html("<html>")]);
    let ingested = fixture.ingest_at("/records/17").await;
    assert_eq!(ingested.result.status.as_str(), "success-file");
    assert!(ingested.result.landing_page.file_meta.is_some(), "the page is read");
    let last = server.requests().into_iter().rfind(|request| request.place == "/records/17").unwrap();
    assert_eq!(last.cookie.as_deref(), Some("seen=1"));
    // Another kind of place at a platform is no unknown one.
    server.put("/communities/x", page());
    assert_eq!(fixture.ingest_at("/communities/x").await.result.status.as_str(), "platform-scope");
}

/// Lists whose totals differ from their entries.
#[tokio::test]
async fn fileset_verdicts_compare_lists_with_their_totals() {
    let platforms = Platforms::start().await;
    let osf_file = |n: usize| {
        json!({ "id": format!("f{n:03}"), "attributes": { "kind": "file", "name": format!("{n:03}.csv"),
        "size": 1 }, "links": { "download": "https://h.example/x" } })
    };
    let node = Answer::json(&json!({ "data": { "attributes": { "title": "T" } } }));
    let list = |entries: Vec<Value>, total: usize, next: Option<&str>| {
        let next =
            next.map(|next| format!("{}/osf-api/v2/nodes/abcde/files/osfstorage/?page={next}", platforms.server.url));
        Answer::json(&json!({ "data": entries, "links": { "next": next, "meta": { "total": total } } }))
    };
    let first = "/osf-api/v2/nodes/abcde/files/osfstorage/?sort=name&page%5Bsize%5D=100";
    let second = "/osf-api/v2/nodes/abcde/files/osfstorage/?page=2&sort=name&page%5Bsize%5D=100";
    let common = [("/osf/abcde/", page()), ("/osf-api/v2/nodes/abcde/", node)];
    for (pages, count) in [
        (
            vec![
                list((0..10).map(osf_file).collect(), 14, Some("2")),
                list((10..14).map(osf_file).collect(), 14, None),
            ],
            Some(14),
        ),
        // The last entry of a page comes back, and displaces another.
        (
            vec![list((0..10).map(osf_file).collect(), 14, Some("2")), list((9..13).map(osf_file).collect(), 14, None)],
            None,
        ),
        (vec![list((0..10).map(osf_file).collect(), 14, None)], None),
        // One that comes back and displaces none counts once.
        (
            vec![list((0..10).map(osf_file).collect(), 14, Some("2")), list((9..14).map(osf_file).collect(), 14, None)],
            Some(14),
        ),
    ] {
        let places = [first, second].into_iter().zip(pages.clone());
        let answers: Vec<_> = common.iter().cloned().chain(places).collect();
        match (platforms.read("/osf/abcde/", &answers).await, count) {
            (Ok((dataset, _)), Some(count)) => assert_eq!(dataset.files.len(), count),
            (Err(failure), None) => {
                let retry = RetryRule::Backoff(None);
                assert_eq!(
                    (failure.status.as_str(), failure.retry),
                    ("platform-bad-answer", retry),
                    "{}",
                    failure.message
                );
            }
            (other, _) => panic!("{other:?}"),
        }
    }
}

/// A page whose linkset has all files, and its header only some.
#[tokio::test]
async fn fileset_verdicts_read_the_linkset_of_a_page() {
    let platforms = Platforms::start().await;
    let header = |links: &str| page().with("link", links.to_owned());
    let linkset = "</ls.json>; rel=\"linkset\"; type=\"application/linkset+json\"";
    let items: Vec<_> = (0..7).map(|n| json!({ "href": format!("/f/{n}.csv"), "type": "text/csv" })).collect();
    let anchor = format!("{}/d/1", platforms.server.url);
    let document = json!({ "linkset": [{ "anchor": anchor, "item": items }, { "anchor": "https://h.example/", "item": [{ "href": "/x" }] }],
        "uniqueType": [] });
    platforms.server.put("/ls.json", Answer::json(&document));
    for links in
        [linkset.to_owned(), format!("</f/0.csv>; rel=item, </f/1.csv>; rel=item; title=\"a; rel=x\", {linkset}")]
    {
        let (dataset, _) = platforms.read("/d/1", &[("/d/1", header(&links))]).await.unwrap();
        let paths: Vec<_> = dataset.files.iter().map(|file| file.manifest.path.as_str()).collect();
        assert_eq!(paths, ["0.csv", "1.csv", "2.csv", "3.csv", "4.csv", "5.csv", "6.csv"], "{links}");
    }
    platforms.server.put("/ls.json", Answer::new(503, "").with("retry-after", "100"));
    assert_eq!(platforms.refusal("/d/1", &[]).await.0, "platform-http-error");
    // Without a linkset, the header counts.
    let answers = [("/gone", Answer::new(404, "")), ("/d/1", header("</gone>; rel=linkset, </f/1.csv>; rel=item"))];
    let elsewhere = Platforms::start().await;
    assert_eq!(elsewhere.read("/d/1", &answers).await.unwrap().0.files.len(), 1);
    let nothing = [("/d/1", header("</gone>; rel=linkset"))];
    assert_eq!(elsewhere.refusal("/d/1", &nothing).await.0, "no-platform-match");
}

/// Limits that hold for files of unknown size, and the strategy that is chosen after they have arrived.
#[tokio::test]
async fn fileset_verdicts_know_the_sizes_when_the_bytes_have_arrived() {
    let large = || table(&"x".repeat(700));
    let files = || [("a.csv", large(), json!({})), ("b.csv", large(), json!({}))];
    let fixture = IngestFixture::start(|settings, _| settings.limits.max_total_size = 1000).await;
    let ingested = fixture.ingest(&files()).await;
    assert_eq!((ingested.result.status.as_str(), ingested.retry), ("too-large-size", Some(RetryRule::Never)));
    let fixture = IngestFixture::start(|settings, _| settings.max_stored_bytes = 1000).await;
    let ingested = fixture.ingest(&files()).await;
    assert_eq!((ingested.result.status.as_str(), ingested.retry), ("too-large-size", Some(RetryRule::AfterFix)));
    let fixture = IngestFixture::start(|settings, _| settings.thresholds.web_file_bytes = 100).await;
    let Ingested { result, .. } = fixture.ingest(&files()).await;
    assert_eq!((result.status.as_str(), result.ingest_strategy.unwrap().name()), ("success", "archiveorg-fileset"));
}

/// A transfer that breaks off at a server without ETag, and one that goes on with other bytes.
#[tokio::test]
async fn fileset_verdicts_continue_a_transfer_that_the_list_can_verify() {
    let fixture = IngestFixture::start(none).await;
    let facts = |content: &[u8]| json!({ "size": content.len(), "checksum": format!("md5:{}", md5(content)) });
    let half =
        || Answer::new(200, "one").with("content-length", "6").with("last-modified", "Mon, 01 Jan 2024 00:00:00 GMT");
    let rest =
        |bytes: &str| Answer::new(206, bytes).with("content-range", "bytes 3-5/6").with("content-type", "text/csv");
    for (answers, requests) in [(vec![half(), rest("two")], 2), (vec![half(), rest("TWO"), table("onetwo")], 3)] {
        fixture.publish(&[("a.csv", half(), facts(b"onetwo"))]);
        fixture.server.put_series("/f/0", answers);
        let before = fixture.server.requests().len();
        let ingested = fixture.ingest_at("/records/17").await;
        assert_eq!(ingested.result.status.as_str(), "success-file", "{:?}", ingested.result.error_message);
        let of_file = fixture.server.requests().split_off(before).into_iter().filter(|request| request.place == "/f/0");
        let ranges: Vec<_> = of_file.map(|request| request.range).collect();
        assert_eq!((ranges.len(), ranges[1].as_deref()), (requests, Some("bytes=3-")));
    }
}

/// Gzip although nobody asked for it: the file of the list counts, and without a list the decoded one.
#[tokio::test]
async fn fileset_verdicts_decode_what_was_not_to_be_encoded() {
    let fixture = IngestFixture::start(none).await;
    let gzip = {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, b"one").unwrap();
        gzip.finish().unwrap()
    };
    let encoded = || table("").status(200).with("content-encoding", "gzip").body(gzip.clone());
    let facts = |content: &[u8], with_size: bool| {
        let mut facts = json!({ "checksum": format!("md5:{}", md5(content)) });
        if with_size {
            facts["size"] = json!(content.len());
        }
        facts
    };
    for (path, facts, content) in [
        ("a.csv", json!({}), b"one".to_vec()),
        ("a.csv", facts(b"one", true), b"one".to_vec()),
        ("a.csv", facts(b"one", false), b"one".to_vec()),
        ("a.csv.gz", json!({}), gzip.clone()),
        ("a.csv.gz", facts(&gzip, true), gzip.clone()),
        ("a.csv.gz", facts(&gzip, false), gzip.clone()),
    ] {
        let Ingested { result, .. } = fixture.ingest(&[(path, encoded(), facts.clone())]).await;
        assert_eq!(result.status.as_str(), "success-file", "{path} {facts}: {:?}", result.error_message);
        assert_eq!(fixture.content(result.manifest.unwrap()[0].sha256.as_ref().unwrap()), content, "{path} {facts}");
    }
}

/// A Dataverse reads its own header, also for files, and no other server gets it.
#[tokio::test]
async fn fileset_verdicts_tokens_follow_the_scheme_of_the_platform() {
    let other = PlatformServer::start().await;
    other.put("/s3/a.csv", table("one"));
    let fixture = IngestFixture::start(|settings, server| {
        let token = PlatformToken::new(&tidings::web::Secret::new("the-key")).unwrap();
        settings.platforms.tokens = vec![(TokenPlace::parse(server).unwrap(), token)];
    })
    .await;
    let server = &fixture.server;
    let pid = "doi:10.5072/FK2/ABCDEF";
    let file = json!({ "label": "a.csv", "restricted": true, "dataFile": { "id": 5, "filesize": 3 } });
    let version =
        json!({ "versionState": "RELEASED", "versionNumber": 1, "datasetPersistentId": pid, "files": [file] });
    server.put("/dataset.xhtml", page());
    server.put("/api/datasets/:persistentId/", Answer::json(&json!({ "data": { "latestVersion": version } })));
    server.put("/api/access/datafile/5", Answer::redirect(format!("{}/s3/a.csv", other.url)));
    let ingested = fixture.ingest_at(&format!("/dataset.xhtml?persistentId={pid}")).await;
    assert_eq!(ingested.result.status.as_str(), "success-file", "{:?}", ingested.result.error_message);
    let keys: Vec<_> = server.requests().into_iter().filter(|request| request.place.starts_with("/api/")).collect();
    assert!(
        keys.len() >= 2
            && keys.iter().all(|request| request.key.as_deref() == Some("the-key") && request.token.is_none())
    );
    assert!(other.requests().len() == 1 && other.requests()[0].key.is_none());
}
