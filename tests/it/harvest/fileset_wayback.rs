//! Captures of datasets in a web archive: existing ones are used, others are made.

use std::time::Duration;

use serde_json::{Value, json};
use tidings::{
    filesets::{ArchiveKeys, IngestSettings, Ingested, RetryRule, WaybackSettings},
    web::Secret,
};
use url::Url;

use crate::support::{
    ingest_fixture::{IngestFixture, md5, sha1, table},
    scripted_platform::Answer,
};

const TIME: &str = "20260102030405";

/// Sends small datasets to the web archive that a server plays.
pub(super) fn capture_at(server: &str, settings: &mut IngestSettings) {
    let at = |path: &str| Url::parse(&format!("{server}{path}")).unwrap();
    settings.wayback = Some(WaybackSettings {
        cdx: at("/cdx/"),
        replay: at("/web/"),
        save: at("/save/"),
        keys: ArchiveKeys::new("access", &Secret::new("secret")),
        max_captures: 2,
        poll: Duration::from_millis(2),
        longest_wait: Duration::from_millis(20),
    });
}

/// A capture of the index: time, URL, media type, status and SHA-1.
pub(super) type Row<'a> = (&'a str, &'a str, &'a str, &'a str, String);

/// Returns the answer of the index with these captures.
pub(super) fn index(rows: &[Row<'_>]) -> Answer {
    let names = json!(["urlkey", "timestamp", "original", "mimetype", "statuscode", "digest", "length"]);
    let row = |(time, url, kind, status, sha1): &Row<'_>| {
        let digest = data_encoding::BASE32.encode(&hex::decode(sha1).unwrap());
        json!(["key)/", time, url, kind, status, digest, "500"])
    };
    let rows: Vec<Value> = std::iter::once(names).chain(rows.iter().map(row)).collect();
    Answer::json(&json!(rows))
}

/// Returns the place of the replay of a capture.
pub(super) fn replay(time: &str, url: &str) -> String {
    format!("/web/{time}id_/{url}")
}

async fn fixture() -> IngestFixture {
    IngestFixture::start(|settings, server| capture_at(server, settings)).await
}

fn posts(fixture: &IngestFixture) -> Vec<String> {
    let requests = fixture.server.requests().into_iter();
    requests.filter(|request| request.method == "POST").map(|request| request.body).collect()
}

#[tokio::test]
async fn fileset_captures_that_exist_are_used() {
    let fixture = fixture().await;
    let url = format!("{}/f/0", fixture.server.url);
    let one = sha1(b"one");
    let table_row = |time, kind, status, sha1: &str| (time, url.as_str(), kind, status, sha1.to_owned());
    let facts = |content: &str| json!({ "size": 3, "checksum": format!("md5:{}", md5(content.as_bytes())) });
    for (rows, time, has_revisit) in [
        (vec![table_row(TIME, "text/csv", "200", &one)], TIME, false),
        // A page, an error and a redirection are no captures of the file.
        (
            vec![
                table_row(TIME, "text/csv", "200", &one),
                table_row("20260203000000", "text/html", "200", &sha1(b"robot")),
                table_row("20260204000000", "text/csv", "404", &sha1(b"no")),
                table_row("20260205000000", "text/csv", "302", &sha1(b"")),
            ],
            TIME,
            false,
        ),
        (
            vec![table_row("20250102030405", "text/csv", "200", &one), table_row(TIME, "warc/revisit", "-", &one)],
            TIME,
            true,
        ),
    ] {
        fixture.server.put("/cdx", index(&rows));
        fixture.server.put(&replay(time, &url), table("one"));
        let Ingested { result, .. } = fixture.ingest(&[("a.csv", Answer::new(500, "direct"), facts("one"))]).await;
        assert_eq!(result.status.as_str(), "success-file", "{:?}", result.error_message);
        let (entry, file) = (&result.manifest.unwrap()[0], result.fileset_file.unwrap());
        assert_eq!((entry.terminal_url.as_deref(), entry.terminal_dt.as_deref()), (Some(&*url), Some(time)));
        assert_eq!((entry.platform_url.as_deref(), entry.sha1.as_ref()), (Some(&*url), Some(&one)));
        let (cdx, terminal) = (file.cdx.unwrap(), file.terminal.unwrap());
        assert_eq!((cdx.sha1hex, cdx.mimetype.as_deref()), (Some(one.clone()), Some("text/csv")));
        assert_eq!(file.revisit_cdx.map(|line| line.datetime), has_revisit.then(|| time.to_owned()));
        assert_eq!((terminal.terminal_url, terminal.terminal_dt.as_deref()), (url.clone(), Some(time)));
        assert!(result.warc_sha256.is_some(), "the landing page is kept");
    }
    let requests = fixture.server.requests();
    assert!(requests.iter().all(|request| !request.place.starts_with("/f/") && request.token.is_none()));
    let asked = requests.iter().find(|request| request.place.starts_with("/cdx")).unwrap();
    assert!(asked.place.starts_with("/cdx?url=") && asked.place.ends_with("matchType=exact&limit=-25&output=json"));
}

#[tokio::test]
async fn fileset_captures_are_followed_and_chosen_by_digest() {
    let fixture = fixture().await;
    let (url, target) = (format!("{}/f/0", fixture.server.url), "https://s3.example/x?sig=1".to_owned());
    let moved = index(&[(TIME, &url, "text/html", "302", sha1(b""))]);
    let found = index(&[(TIME, &target, "text/csv", "200", sha1(b"one"))]);
    for location in [replay(TIME, &target), target.clone(), format!("{}{}", fixture.server.url, replay(TIME, &target))]
    {
        fixture.server.put_series("/cdx", vec![moved.clone(), found.clone()]);
        fixture.server.put(&replay(TIME, &url), Answer::redirect(location));
        fixture.server.put(&replay(TIME, &target), table("one"));
        let Ingested { result, .. } = fixture.ingest(&[("a.csv", table("x"), json!({}))]).await;
        assert_eq!(result.status.as_str(), "success-file", "{:?}", result.error_message);
        assert_eq!(result.manifest.unwrap()[0].terminal_url, Some(target.clone()));
    }
    // The newest capture is another version than the one of the manifest.
    let rows = [
        ("20250101000000", url.as_str(), "text/csv", "200", sha1(b"one")),
        (TIME, url.as_str(), "text/csv", "200", sha1(b"two")),
    ];
    fixture.server.put("/cdx", index(&rows));
    fixture.server.put(&replay("20250101000000", &url), table("one"));
    let checksum = json!({ "checksum": format!("sha1:{}", sha1(b"one")) });
    let Ingested { result, .. } = fixture.ingest(&[("a.csv", table("x"), checksum)]).await;
    assert_eq!(result.manifest.unwrap()[0].terminal_dt.as_deref(), Some("20250101000000"));
    // The index has other digests than the list, so the captures are tried one after the other.
    fixture.server.put(&replay(TIME, &url), table("two"));
    let checksum = json!({ "checksum": format!("md5:{}", md5(b"one")) });
    let Ingested { result, .. } = fixture.ingest(&[("a.csv", table("x"), checksum)]).await;
    assert_eq!(result.status.as_str(), "success-file", "{:?}", result.error_message);
    assert_eq!(result.manifest.unwrap()[0].terminal_dt.as_deref(), Some("20250101000000"));
}

#[tokio::test]
async fn fileset_captures_are_made_politely() {
    let fixture = fixture().await;
    let urls: Vec<_> = (0..3).map(|n| format!("{}/f/{n}", fixture.server.url)).collect();
    let row = |n: usize, content: &[u8]| (TIME, &*urls[n], "text/csv", "200", sha1(content));
    // The index has the first file, and learns of the others later.
    let encoded = |n: usize| url::form_urlencoded::byte_serialize(urls[n].as_bytes()).collect::<String>();
    let looked_up = |n: usize| format!("/cdx?url={}&matchType=exact&limit=-25&output=json", encoded(n));
    let at_time = |n: usize| format!("/cdx?url={}&matchType=exact&from={TIME}&to={TIME}&output=json", encoded(n));
    fixture.server.put(&looked_up(0), index(&[row(0, b"one")]));
    fixture.server.put(&looked_up(1), Answer::new(200, ""));
    fixture.server.put(&looked_up(2), Answer::json(&json!([])));
    for (n, content) in [b"one", b"two", b"six"].iter().enumerate() {
        fixture.server.put_series(&at_time(n), vec![Answer::json(&json!([])), index(&[row(n, *content)])]);
        fixture.server.put(&replay(TIME, &urls[n]), table(std::str::from_utf8(*content).unwrap()));
    }
    let user = |available: i64| Answer::json(&json!({ "available": available, "processing": 1 }));
    fixture
        .server
        .put_series("/save/status/user", vec![user(0), Answer::new(429, "").with("retry-after", "0"), user(3)]);
    let busy = json!({ "message": "You have already reached the limit of active sessions.", "url": "x" });
    fixture.server.put_series(
        "/save",
        vec![
            Answer::new(429, "").with("ratelimit-reset", "0"),
            Answer::json(&busy),
            Answer::json(&json!({ "status": "error", "status_ext": "error:user-session-limit", "message": "wait" })),
            Answer::json(&json!({ "url": urls[1], "job_id": "spn2-1" })),
            Answer::json(&json!({ "url": urls[2], "job_id": "spn2-2" })),
        ],
    );
    let pending = Answer::json(&json!({ "status": "pending", "job_id": "x", "resources": [] }));
    let ended = |url: &str| json!({ "status": "success", "original_url": url, "timestamp": TIME, "job_id": "x" });
    let mut repeated = ended(&urls[2]);
    repeated["original_job_id"] = json!("spn2-0");
    repeated["timestamp"] = json!("20990101000000");
    // The files may be captured in any order.
    let both = |url: &str| Answer::json(&ended(url));
    fixture.server.put_series("/save/status/spn2-1", vec![pending.clone(), pending, both(&urls[1])]);
    fixture.server.put("/save/status/spn2-2", Answer::json(&repeated));
    fixture.server.put("/save/status/spn2-0", both(&urls[2]));
    let files = ["a", "b", "c"].map(|name| (name, Answer::new(500, "direct"), json!({ "size": 3 })));
    let Ingested { result, .. } = fixture.ingest(&files).await;
    assert_eq!(result.status.as_str(), "success", "{:?}", result.error_message);
    assert_eq!(result.ingest_strategy.unwrap().name(), "web-fileset");
    let digests: Vec<_> = result.manifest.unwrap().into_iter().map(|file| file.sha1.unwrap()).collect();
    assert_eq!(digests, [sha1(b"one"), sha1(b"two"), sha1(b"six")]);
    let posts = posts(&fixture);
    assert_eq!(posts.len(), 5, "{posts:?}");
    let expected =
        format!("url={}&capture_all=1&if_not_archived_within=1d&skip_first_archive=1&force_get=1", encoded(1));
    assert!(posts.contains(&expected), "{posts:?}");
    for request in fixture.server.requests() {
        let expected = request.place.starts_with("/save").then_some("LOW access:secret");
        assert_eq!(request.token.as_deref(), expected, "{}", request.place);
    }
    // Three files without a capture are more than the limit.
    fixture.server.put(&looked_up(0), Answer::new(200, ""));
    let Ingested { result, retry, .. } = fixture.ingest(&files).await;
    assert_eq!((result.status.as_str(), retry), ("too-much-spn", Some(RetryRule::Never)));
    assert!(result.error_message.unwrap().contains("3 of 3 files have no capture; max_captures is 2"));
}

/// The captures of the index are older content, and one is a page that was captured instead.
#[tokio::test]
async fn fileset_captures_of_other_content_are_followed_by_a_new_one() {
    let fixture = fixture().await;
    let url = format!("{}/f/0", fixture.server.url);
    let old = ["20240101000000", "20240201000000", "20240301000000", "20240401000000"];
    let rows: Vec<_> = old.iter().map(|time| (*time, &*url, "text/csv", "200", sha1(time.as_bytes()))).collect();
    let new = index(&[(TIME, &*url, "text/csv", "200", sha1(b"one"))]);
    fixture.server.put("/cdx", index(&rows));
    let encoded = url::form_urlencoded::byte_serialize(url.as_bytes()).collect::<String>();
    fixture.server.put(&format!("/cdx?url={encoded}&matchType=exact&from={TIME}&to={TIME}&output=json"), new);
    for time in old {
        fixture.server.put(&replay(time, &url), table(time));
    }
    fixture.server.put(&replay(TIME, &url), table("one"));
    fixture.server.put("/save/status/user", Answer::json(&json!({ "available": 1, "processing": 0 })));
    fixture.server.put("/save", Answer::json(&json!({ "url": url, "job_id": "spn2-1" })));
    let ended = json!({ "status": "success", "original_url": url, "timestamp": TIME, "job_id": "x" });
    fixture.server.put("/save/status/spn2-1", Answer::json(&ended));
    let facts = || json!({ "size": 3, "checksum": format!("md5:{}", md5(b"one")) });
    let Ingested { result, .. } = fixture.ingest(&[("a.csv", Answer::new(500, ""), facts())]).await;
    assert_eq!(result.status.as_str(), "success-file", "{:?}", result.error_message);
    assert_eq!(result.manifest.unwrap()[0].terminal_dt.as_deref(), Some(TIME));
    let replays = fixture.server.requests().into_iter().filter(|request| request.place.starts_with("/web/2024"));
    assert_eq!(replays.count(), 3, "the newest three are tried");
    // The captures are the reason if the service can make no other one now.
    for answer in
        [Answer::new(401, "{}"), Answer::json(&json!({ "status": "error", "status_ext": "error:no-captures" }))]
    {
        fixture.server.put("/save", answer.clone());
        let Ingested { result, retry, .. } = fixture.ingest(&[("a.csv", Answer::new(500, ""), facts())]).await;
        let outcome = (result.status.as_str(), retry);
        assert_eq!(
            outcome,
            ("mismatch-size", Some(RetryRule::Backoff(None))),
            "{answer:?}: {:?}",
            result.error_message
        );
    }
}

/// Statements of the service about the file, and troubles of the service that pass.
#[tokio::test]
async fn fileset_captures_fail_for_good_only_by_a_statement_about_the_file() {
    let fixture = fixture().await;
    let file = || [("a.csv", Answer::new(500, ""), json!({ "size": 3 }))];
    let word = |word: &str| Answer::json(&json!({ "status": "error", "status_ext": word, "message": "m" }));
    fixture.server.put("/cdx", Answer::new(200, ""));
    fixture.server.put("/save/status/user", Answer::json(&json!({ "available": 1, "processing": 0 })));
    let passing = Some(RetryRule::Backoff(None));
    for (answer, status, retry) in [
        (Answer::new(401, "{\"message\":\"You need to be logged in\"}"), "spn2-error", passing),
        (word("error:no-captures"), "spn2-error:no-captures", passing),
        (word("error:not-found"), "not-found", Some(RetryRule::Never)),
    ] {
        fixture.server.put("/save", answer.clone());
        let ingested = fixture.ingest(&file()).await;
        assert_eq!((ingested.result.status.as_str(), ingested.retry), (status, retry), "{answer:?}");
    }
    let blocked = "org.archive.util.io.RuntimeIOException: org.archive.wayback.exception.AdministrativeAccessControlException: Blocked Site Error";
    for (answer, retry) in
        [(Answer::new(403, blocked), Some(RetryRule::Never)), (Answer::new(403, "<html>robot?"), passing)]
    {
        fixture.server.put("/cdx", answer.clone());
        let ingested = fixture.ingest(&file()).await;
        assert_eq!((ingested.result.status.as_str(), ingested.retry), ("cdx-error", retry), "{answer:?}");
    }
}

#[tokio::test]
async fn fileset_bundle_is_captured_as_one_file() {
    let fixture = IngestFixture::start(|settings, server| {
        capture_at(server, settings);
        settings.thresholds.bundle_above_files = Some(1);
    })
    .await;
    let url = format!("{}/api/records/17/files-archive", fixture.server.url);
    let mut tar = tar::Builder::new(Vec::new());
    for path in ["a", "b"] {
        let mut header = tar::Header::new_gnu();
        header.set_size(3);
        tar.append_data(&mut header, path, &b"one"[..]).unwrap();
    }
    let bundle = tar.into_inner().unwrap();
    fixture.server.put("/cdx", index(&[(TIME, &url, "application/zip", "200", sha1(&bundle))]));
    fixture.server.put(&replay(TIME, &url), Answer::new(200, bundle));
    let files = ["a", "b"].map(|name| (name, Answer::new(500, "direct"), json!({ "size": 3 })));
    let Ingested { result, .. } = fixture.ingest(&files).await;
    assert_eq!(result.status.as_str(), "success", "{:?}", result.error_message);
    let of_bundle = result.fileset_bundle.unwrap();
    assert_eq!(of_bundle.capture.terminal.unwrap().terminal_dt.as_deref(), Some(TIME));
    assert!(of_bundle.capture.cdx.is_some() && result.warc_sha256.is_some());
    assert_eq!(result.manifest.unwrap()[1].sha1, Some(sha1(b"one")));
}
