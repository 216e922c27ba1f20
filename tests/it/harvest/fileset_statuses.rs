//! Every status of the vocabulary, each produced by an ingest.

use std::{
    collections::BTreeSet,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tidings::{
    filesets::{IngestSettings, Ingested, RetryRule},
    format::{fileset::status::IngestStatus, format},
};

use crate::support::{
    command_line::{command, ended},
    fake_archive_org::FakeArchiveOrg,
    gateway::PATIENCE,
    ingest_fixture::{IngestFixture, sha1, table},
    scripted_platform::Answer,
};

use super::{
    fileset_items::upload_to,
    fileset_wayback::{capture_at, index, replay},
};

const TIME: &str = "20260102030405";

/// Statuses that the ingests of a table have given.
#[derive(Default)]
struct Produced(BTreeSet<String>);

impl Produced {
    /// Compares the outcome with a status, and remembers those of the dataset and of its files.
    fn expect(&mut self, ingested: &Ingested, status: &str, case: &str) {
        let Ingested { result, retry, .. } = ingested;
        let message = result.error_message.as_deref().unwrap_or_default();
        assert_eq!(result.status.as_str(), status, "{case}: {message}");
        assert_eq!((result.hit, retry.is_none()), (status.starts_with("success"), result.hit), "{case}");
        assert_eq!(result.hit, message.is_empty(), "{case}: a failure has a reason");
        assert_eq!(result.request.ingest_type, "dataset");
        let of_files = result.manifest.iter().flatten().filter_map(|file| file.status.as_ref());
        self.0.extend(of_files.chain([&result.status]).map(ToString::to_string));
    }
}

fn none(_: &mut IngestSettings, _: &str) {}

fn one_file() -> [(&'static str, Answer, Value); 1] {
    [("a.csv", table("one"), json!({ "size": 3 }))]
}

#[tokio::test(flavor = "multi_thread")]
async fn fileset_statuses_are_all_produced() {
    let mut produced = Produced::default();
    landing_pages(&mut produced).await;
    platforms(&mut produced).await;
    files(&mut produced).await;
    bundles(&mut produced).await;
    Box::pin(web_archives(&mut produced)).await;
    items(&mut produced).await;
    produced.0.insert(cancelled().await);
    produced.0.insert(of_another_change());
    let known: BTreeSet<_> = IngestStatus::KNOWN.iter().map(ToString::to_string).collect();
    let other: Vec<_> = produced.0.iter().filter(|status| !known.contains(*status)).collect();
    // The word of the capture service is a part of the status.
    assert_eq!(other, ["spn2-error:job-failed"]);
    let missing: Vec<_> = known.difference(&produced.0).collect();
    assert!(missing.is_empty(), "no ingest here gives {missing:?}");
}

/// Returns the status in the message for a change that no result has made.
fn of_another_change() -> String {
    let change = include_str!("../../../fixtures/change.json");
    let written = (format("fileset-result").unwrap().write)(&serde_json::from_str(change).unwrap());
    let message: Value = serde_json::from_slice(&written).unwrap();
    message["status"].as_str().unwrap().to_owned()
}

async fn landing_pages(produced: &mut Produced) {
    let fixture = IngestFixture::start(|settings, _| settings.client.page_bytes = 1000).await;
    for n in 0..30 {
        fixture.server.put(&format!("/far/{n}"), Answer::redirect(format!("/far/{}", n + 1)));
    }
    let broken = Answer::html("no gzip").with("content-encoding", "gzip");
    let bomb = {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut gzip, &vec![b' '; 1 << 20]).unwrap();
        Answer::new(200, gzip.finish().unwrap()).with("content-type", "text/html").with("content-encoding", "gzip")
    };
    for (path, answer, status) in [
        ("/inside", Answer::redirect("http://10.0.0.1/"), "skip-url-blocklist"),
        ("/metadata", Answer::redirect("http://169.254.169.254/latest"), "skip-url-blocklist"),
        ("/nowhere", Answer::new(301, ""), "bad-redirect"),
        ("/loop", Answer::redirect("/loop"), "redirect-loop"),
        ("/far/0", Answer::redirect("/far/1"), "redirects-exceeded"),
        ("/gone", Answer::new(410, "gone"), "terminal-bad-status"),
        ("/accepted", Answer::new(202, ""), "terminal-bad-status"),
        ("/empty", Answer::html(""), "empty-blob"),
        ("/large", Answer::html(&"x".repeat(1001)), "body-too-large"),
        ("/bomb", bomb, "body-too-large"),
        ("/broken", broken, "bad-gzip-encoding"),
        ("/blog", Answer::html("<html>"), "no-platform-match"),
    ] {
        fixture.server.put(path, answer);
        produced.expect(&fixture.ingest_at(path).await, status, path);
    }
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    fixture.server.put("/closed", Answer::redirect(format!("http://{closed}/")));
    produced.expect(&fixture.ingest_at("/closed").await, "platform-error", "closed port");
}

async fn platforms(produced: &mut Produced) {
    let limits = |settings: &mut IngestSettings, _: &str| {
        settings.limits.max_total_size = 1000;
        settings.limits.max_file_count = 3;
    };
    let fixture = IngestFixture::start(limits).await;
    let record =
        |files: Value| Answer::json(&json!({ "id": 17, "metadata": { "access_right": "open" }, "files": files }));
    let file = |key: &str, size: u64| json!({ "key": key, "size": size, "links": {} });
    for (answer, status) in [
        (Answer::new(404, "{}"), "platform-404"),
        (Answer::new(403, "{}"), "platform-restricted"),
        (Answer::new(500, "{}"), "platform-http-error"),
        (Answer::redirect("http://10.0.0.1/"), "platform-error"),
        (Answer::new(200, "garbage"), "platform-bad-answer"),
        (Answer::new(202, ""), "platform-bad-answer"),
        (Answer::html("<html>Are you a robot?"), "platform-bad-answer"),
        (Answer::json(&json!({ "id": 18, "metadata": {} })), "platform-scope"),
        (record(json!({ "enabled": false })), "empty-manifest"),
        (record(json!([file("a", 1001)])), "too-large-size"),
        (record(json!([file("a", 1), file("b", 1), file("c", 1), file("d", 1)])), "too-many-files"),
        (record(json!([file("../a", 1)])), "unsafe-path"),
        // The last one, because the host gets no request for this time.
        (Answer::new(429, "").with("retry-after", "100"), "platform-http-error"),
    ] {
        fixture.server.put("/api/records/17", answer.clone());
        fixture.server.put("/api/records/17/files", Answer::json(&json!({ "enabled": false })));
        produced.expect(&fixture.ingest_at("/records/17").await, status, &format!("{answer:?}"));
    }
}

async fn files(produced: &mut Produced) {
    let fixture = IngestFixture::start(none).await;
    let zeros = |digits: usize| "0".repeat(digits);
    for (facts, status) in [
        (json!({}), "success-file"),
        (json!({ "size": 4 }), "mismatch-size"),
        (json!({ "checksum": format!("md5:{}", zeros(32)) }), "mismatch-md5"),
        (json!({ "checksum": format!("sha1:{}", zeros(40)) }), "mismatch-sha1"),
        (json!({ "checksum": format!("sha256:{}", zeros(64)) }), "mismatch-sha256"),
        (json!({ "checksum": format!("sha512:{}", zeros(128)) }), "mismatch-sha512"),
    ] {
        produced.expect(&fixture.ingest(&[("a.csv", table("one"), facts)]).await, status, status);
    }
    let two = ["a", "b"].map(|path| (path, table("one"), json!({})));
    produced.expect(&fixture.ingest(&two).await, "success", "two files");
    let gone = [("a", Answer::new(404, ""), json!({}))];
    produced.expect(&fixture.ingest(&gone).await, "error-platform-download", "gone");
    let fixture = IngestFixture::start(|settings, _| settings.max_time = Duration::ZERO).await;
    produced.expect(&fixture.ingest(&two).await, "timeout", "no time");
}

async fn bundles(produced: &mut Produced) {
    let fixture = IngestFixture::start(|settings, _| settings.thresholds.bundle_above_files = Some(1)).await;
    let two = ["a", "b"].map(|path| (path, table("one"), json!({})));
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(3);
    tar.append_data(&mut header, "a", &b"one"[..]).unwrap();
    let gone = Answer::json(&json!({ "message": "File not found" }));
    let two = [two[0].clone(), ("b", gone.status(404), json!({}))];
    for (bundle, status) in [(tar.into_inner().unwrap(), "missing-in-bundle"), (b"text".to_vec(), "bad-bundle")] {
        fixture.server.put("/api/records/17/files-archive", Answer::new(200, bundle));
        produced.expect(&fixture.ingest(&two).await, status, status);
    }
}

/// Existing captures that cannot be used, and each failure of a new one.
async fn web_archives(produced: &mut Produced) {
    let fixture = IngestFixture::start(|settings, server| capture_at(server, settings)).await;
    let (server, url) = (&fixture.server, format!("{}/f/0", fixture.server.url));
    let capture = |status: &'static str| index(&[(TIME, &url, "text/csv", status, sha1(b"one"))]);
    let (place, nothing) = (replay(TIME, &url), || Answer::json(&json!([])));
    let circle = Answer::redirect(place.clone());
    let far = |n: u32| index(&[(TIME, &format!("https://h.example/{n}"), "text/csv", "301", sha1(b""))]);
    for n in 0..20 {
        let next = replay(TIME, &format!("https://h.example/{}", n + 1));
        server.put(&replay(TIME, &format!("https://h.example/{n}")), Answer::redirect(next));
    }
    for (answers, replayed, status) in [
        (vec![Answer::new(500, "x")], table("one"), "cdx-error"),
        (vec![Answer::html("<html>")], table("one"), "cdx-error"),
        (vec![capture("302")], Answer::new(200, ""), "bad-redirect"),
        (vec![capture("302")], circle, "redirect-loop"),
        ((0..20).map(far).collect(), table("one"), "redirects-exceeded"),
        (vec![capture("200")], Answer::new(404, "x"), "wayback-error"),
        (vec![capture("200")], Answer::new(503, "x").with("retry-after", "0"), "wayback-error"),
        (vec![capture("200")], table("two"), "wayback-content-error"),
        (vec![capture("200")], Answer::redirect("/elsewhere"), "wayback-content-error"),
        (vec![capture("200")], table(""), "empty-blob"),
    ] {
        server.put_series("/cdx", answers);
        server.put("/elsewhere", table("one"));
        server.put(&place, replayed.clone());
        let file = [("a.csv", table("direct"), json!({}))];
        produced.expect(&fixture.ingest(&file).await, status, &format!("{status} {replayed:?}"));
    }
    let without_keys = |settings: &mut IngestSettings, server: &str| {
        capture_at(server, settings);
        settings.wayback.as_mut().unwrap().keys = None;
    };
    let without_keys = IngestFixture::start(without_keys).await;
    without_keys.server.put("/cdx", nothing());
    produced.expect(&without_keys.ingest(&[("a.csv", table("direct"), json!({}))]).await, "no-capture", "no keys");
    server.put("/save/status/user", Answer::json(&json!({ "available": 4, "processing": 0 })));
    let job = Answer::json(&json!({ "url": url, "job_id": "spn2-1" }));
    let (error, ended) = (
        |word: &str| Answer::json(&json!({ "status": "error", "status_ext": word, "message": "m" })),
        |url: &str| Answer::json(&json!({ "status": "success", "original_url": url, "timestamp": TIME })),
    );
    let recent = json!({ "url": url, "job_id": null, "message": "The same snapshot had been made 4 minutes ago." });
    for (accepted, of_job, captures, replayed, status) in [
        (Answer::new(500, ""), error("x"), nothing(), table("one"), "spn2-error"),
        (Answer::new(429, ""), error("x"), nothing(), table("one"), "spn2-error"),
        (Answer::new(200, "garbage"), error("x"), nothing(), table("one"), "spn2-error"),
        (Answer::json(&json!({ "job_id": "../x" })), error("x"), nothing(), table("one"), "spn2-error"),
        (error("error:blocked-url"), error("x"), nothing(), table("one"), "spn2-error:blocked-url"),
        (Answer::json(&recent), error("x"), nothing(), table("one"), "spn2-recent-capture"),
        (job.clone(), error("error:invalid-url"), nothing(), table("one"), "invalid-url"),
        (job.clone(), error("error:not-found"), nothing(), table("one"), "not-found"),
        (job.clone(), error("error:no-access"), nothing(), table("one"), "forbidden"),
        (job.clone(), error("error:invalid-host-resolution"), nothing(), table("one"), "invalid-host-resolution"),
        (job.clone(), error("error:gateway-timeout"), nothing(), table("one"), "gateway-timeout"),
        (job.clone(), error("error:too-many-redirects"), nothing(), table("one"), "too-many-redirects"),
        (job.clone(), error("error:read-timeout"), nothing(), table("one"), "read-timeout"),
        (job.clone(), error("error:internal-server-error"), nothing(), table("one"), "remote-server-error"),
        (job.clone(), error("error:job-failed"), nothing(), table("one"), "spn2-error:job-failed"),
        (job.clone(), Answer::json(&json!({ "status": "pending" })), nothing(), table("one"), "error:pending"),
        (job.clone(), ended("/f/0"), nothing(), table("one"), "spn2-success-partial-url"),
        (job.clone(), ended("https://h.example/cookieAbsent"), nothing(), table("one"), "blocked-cookie"),
        (job.clone(), ended(&url), nothing(), table("one"), "spn2-cdx-lookup-failure"),
        (job.clone(), ended(&url), capture("404"), table("one"), "terminal-bad-status"),
        (job.clone(), ended(&url), capture("200"), Answer::new(404, ""), "spn2-wayback-error"),
    ] {
        server.put_series("/cdx", vec![nothing(), captures]);
        server.put("/save", accepted);
        server.put("/save/status/spn2-1", of_job);
        server.put(&place, replayed);
        let ingested = fixture.ingest(&one_file()).await;
        let is_final =
            matches!(status, "invalid-url" | "not-found" | "forbidden" | "blocked-cookie" | "terminal-bad-status");
        assert_eq!(ingested.retry == Some(RetryRule::Never), is_final, "{status}");
        if status == "spn2-error:blocked-url" {
            assert_eq!(ingested.result.status.as_str(), status);
        } else {
            produced.expect(&ingested, status, status);
        }
    }
    server.put("/cdx", nothing());
    let three = ["a", "b", "c"].map(|path| (path, table("one"), json!({})));
    produced.expect(&fixture.ingest(&three).await, "too-much-spn", "three files");
    let mut linked = json!({ "key": "a", "links": { "content": "ftp://h.example/a" } });
    linked["size"] = json!(3);
    let record = json!({ "id": 17, "metadata": { "access_right": "open" }, "files": [linked] });
    server.put("/api/records/17", Answer::json(&record));
    produced.expect(&fixture.ingest_at("/records/17").await, "spn2-no-ftp", "FTP");
}

async fn items(produced: &mut Produced) {
    let archive = FakeArchiveOrg::start().await;
    let fixture = IngestFixture::start(|settings, _| upload_to(&archive, settings)).await;
    let checksum = format!("md5:{}", crate::support::ingest_fixture::md5(b"one"));
    let file = [("a.csv", table("one"), json!({ "size": 3, "checksum": checksum }))];
    archive.items.lock().unwrap().refusals = vec![(400, "BadDigest")];
    produced.expect(&fixture.ingest(&file).await, "error-archiveorg-upload", "refused");
    produced.expect(&fixture.ingest(&file).await, "success-file", "uploaded");
    produced.expect(&fixture.ingest(&file).await, "success-existing", "uploaded before");
    archive.items.lock().unwrap().files.values_mut().for_each(|content| *content = b"other".to_vec());
    produced.expect(&fixture.ingest(&file).await, "mismatch-existing", "another file");
}

/// Presses Ctrl-C while the landing page does not answer.
async fn cancelled() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/records/17", listener.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("tidings.toml");
    std::fs::write(&config, "[delivery]\nallow = [\"127.0.0.1\"]\n").unwrap();
    let store = folder.path().join("store");
    let arguments =
        ["ingest", "--json", "--config", config.to_str().unwrap(), "--folder", store.to_str().unwrap(), &url];
    let child = command(&arguments).stdin(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    let (connection, _) = tokio::time::timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    // The program listens to Ctrl-C when it sends its request.
    tokio::time::timeout(PATIENCE, connection.readable()).await.unwrap().unwrap();
    let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let (code, output, errors) = tokio::task::spawn_blocking(move || ended(child)).await.unwrap();
    drop(connection);
    assert!(code == 1 && began.elapsed() < PATIENCE, "{errors}");
    let result: Value = serde_json::from_str(output.lines().next().unwrap()).unwrap();
    result["status"].as_str().unwrap().to_owned()
}
