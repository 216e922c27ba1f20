//! Downloads of the files that other sources name.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use chrono::{SecondsFormat, TimeDelta, Utc};
use reqwest::{StatusCode, header};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{
    dripping_server::DrippingServer,
    gateway::{Gateway, PATIENCE, command},
    harvest_fixture::run_to_end,
    journal_fixture::configuration,
    scripted_files::{FileResponse, FileServer},
    scripted_repository::{ScriptedRepository, identifier},
};

const PDF: &[u8] = b"%PDF-1.7 a paper";

/// Writes the configuration of a source `repo` whose files are downloaded by the source `files`.
fn config(folder: &Path, more: &str) -> String {
    let lines = format!(
        "[delivery]\nallow = [\"127.0.0.1\", \"127.0.0.3\", \"127.0.0.4\"]\n[sources.repo]\ntransport = \"http\"\ndialect = \"content-change\"\n\
         [sources.files]\ntransport = \"download\"\ndialect = \"download\"\nof = [\"repo\"]\nurls = 'http://.*'\n{more}\n"
    );
    configuration(folder, &lines)
}

/// Reports an object with one item, whose content is at this URL.
async fn report(gateway: &Gateway, name: &str, url: &str) {
    let event = json!({
        "object": format!("urn:object:{name}"),
        "items": [{ "uri": format!("urn:item:{name}"), "change": "UPDATE", "content": { "url": url } }]
    });
    let (status, response) = gateway.post("repo", "application/json", event.to_string()).await;
    assert_eq!(status, 201, "{response}");
}

/// Waits until the registry has an item in this condition, and returns it.
async fn wait_for_item(gateway: &Gateway, name: &str, condition: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let object = gateway.json(&format!("/objects?uri=urn:object:{name}")).await;
        let item = object["items"][0].clone();
        if condition(&item) {
            return item;
        }
        assert!(began.elapsed() < PATIENCE, "{item}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn is_copied(item: &Value) -> bool {
    item["content"]["original"].is_object()
}

fn is_unavailable(item: &Value) -> bool {
    item["state"] == "UNAVAILABLE"
}

/// Waits until an item is unavailable, and returns the description of the change.
async fn wait_for_reason(gateway: &Gateway, name: &str) -> String {
    wait_for_item(gateway, name, is_unavailable).await;
    let changes = gateway.changes().await;
    let object = format!("urn:object:{name}");
    let change = changes.iter().rfind(|change| change["object"] == object.as_str()).unwrap();
    change["description"].as_str().unwrap().to_owned()
}

fn sha256(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

#[tokio::test]
async fn file_is_copied_served_and_not_downloaded_again() {
    let (folder, server) = (tempfile::tempdir().unwrap(), FileServer::start().await);
    let url = server.put("/a.pdf", "text/plain", PDF, FileResponse::Good);
    let gateway = Gateway::start_with(folder.path(), &["--config", &config(folder.path(), "")]);
    report(&gateway, "a", &url).await;
    let content = wait_for_item(&gateway, "a", is_copied).await["content"].clone();
    let digest = sha256(PDF);
    let copy = format!("{}/files/{digest}", gateway.url);
    let expected = json!({
        "url": copy, "mediaType": "application/pdf", "size": PDF.len(),
        "digest": { "algorithm": "sha-256", "value": digest }, "original": { "url": url }
    });
    assert_eq!(content, expected);
    let changes = gateway.changes().await;
    assert_eq!((changes.len(), &changes[1]["source"]), (2, &json!("files")));
    assert_eq!(changes[1]["description"], format!("copy of {url}"));
    assert_eq!(changes[1]["items"][0]["change"], "UPDATE");

    let get = |name: header::HeaderName, value: String| gateway.http.get(&copy).header(name, value).send();
    let whole = gateway.http.get(&copy).send().await.unwrap();
    let field = |name: header::HeaderName| whole.headers()[name].to_str().unwrap().to_owned();
    let tag = format!("\"{digest}\"");
    assert_eq!((field(header::CONTENT_TYPE), field(header::ETAG)), ("application/pdf".to_owned(), tag.clone()));
    assert!(field(header::CACHE_CONTROL).contains("immutable"));
    assert!(field(header::CONTENT_SECURITY_POLICY).contains("sandbox"));
    assert_eq!(whole.bytes().await.unwrap(), PDF);
    let part = get(header::RANGE, "bytes=5-7".to_owned()).await.unwrap();
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(part.headers()[header::CONTENT_RANGE], "bytes 5-7/16");
    assert_eq!(part.bytes().await.unwrap(), "1.7");
    let beyond = get(header::RANGE, "bytes=16-".to_owned()).await.unwrap();
    assert_eq!(beyond.status(), StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(get(header::IF_NONE_MATCH, tag).await.unwrap().status(), StatusCode::NOT_MODIFIED);
    for absent in [sha256(b""), digest.to_uppercase(), "..%2Fjournal.sqlite".to_owned()] {
        let response = gateway.http.get(format!("{}/files/{absent}", gateway.url)).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{absent}");
    }

    // The same content of another item is stored once, and text is an attachment.
    let second = server.put("/b.pdf", "application/pdf", PDF, FileResponse::Good);
    let page = server.put("/c.html", "text/html", b"<script>alert(1)</script>", FileResponse::Good);
    report(&gateway, "b", &second).await;
    report(&gateway, "c", &page).await;
    assert_eq!(wait_for_item(&gateway, "b", is_copied).await["content"]["url"], copy.as_str());
    let page = wait_for_item(&gateway, "c", is_copied).await["content"].clone();
    assert_eq!(page["mediaType"], "text/html");
    let page = gateway.http.get(page["url"].as_str().unwrap()).send().await.unwrap();
    assert_eq!(page.headers()[header::CONTENT_TYPE], "application/octet-stream");
    assert_eq!(page.headers()[header::CONTENT_DISPOSITION], "attachment");
    assert_eq!(server.requests("/a.pdf"), [None]);
    let metrics = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap().text().await.unwrap();
    for line in [
        "tidings_downloads_total{source=\"files\",outcome=\"stored\"} 2",
        "tidings_downloads_total{source=\"files\",outcome=\"known\"} 1",
        "tidings_downloads_total{source=\"files\",outcome=\"failed\"} 0",
        "tidings_downloaded_bytes_total{source=\"files\"} ",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

/// Before the end of an embargo, a server is not asked for the file; afterwards it is, although no change names the file again.
#[tokio::test]
async fn embargoed_file_is_downloaded_when_its_embargo_ends() {
    let (folder, server) = (tempfile::tempdir().unwrap(), FileServer::start().await);
    let gateway = Gateway::start_with(folder.path(), &["--config", &config(folder.path(), "")]);
    let send = async |name: &str, item: Value| {
        let mut item = item;
        item["uri"] = json!(format!("urn:item:{name}"));
        let event = json!({ "object": format!("urn:object:{name}"), "items": [item] });
        let (status, response) = gateway.post("repo", "application/json", event.to_string()).await;
        assert_eq!(status, 201, "{response}");
    };
    let soon = (Utc::now() + TimeDelta::milliseconds(2500)).to_rfc3339_opts(SecondsFormat::Millis, true);
    for (name, until) in
        [("dated", &*soon), ("lifted", "2999-01-01"), ("hidden", "2999-01-01"), ("withdrawn", "2999-01-01")]
    {
        let url = server.put(&format!("/{name}.pdf"), "application/pdf", name.as_bytes(), FileResponse::Good);
        send(name, json!({ "change": "ADD", "content": { "url": url }, "visibleFrom": until })).await;
    }
    let newer = server.put("/newer.pdf", "application/pdf", b"newer", FileResponse::Good);
    send("hidden", json!({ "change": "UPDATE", "content": { "url": newer } })).await;
    let open = server.put("/open.pdf", "application/pdf", b"open", FileResponse::Good);
    report(&gateway, "open", &open).await;
    wait_for_item(&gateway, "open", is_copied).await;
    for path in ["/dated.pdf", "/lifted.pdf", "/hidden.pdf", "/newer.pdf", "/withdrawn.pdf"] {
        assert!(server.requests(path).is_empty(), "{path} is under an embargo");
    }
    wait_for_item(&gateway, "dated", is_copied).await;
    send("lifted", json!({ "stateAfter": "ACTIVE" })).await;
    wait_for_item(&gateway, "lifted", is_copied).await;
    for state in ["INACTIVE", "ACTIVE"] {
        send("withdrawn", json!({ "stateAfter": state })).await;
    }
    wait_for_item(&gateway, "withdrawn", is_copied).await;
    send("hidden", json!({ "stateAfter": "ACTIVE" })).await;
    assert_eq!(wait_for_item(&gateway, "hidden", is_copied).await["content"]["original"]["url"], newer);
    assert!(server.requests("/hidden.pdf").is_empty());
}

#[tokio::test]
async fn unavailable_file_holds_nothing_up_and_is_copied_later() {
    let (folder, server) = (tempfile::tempdir().unwrap(), FileServer::start().await);
    let lost = server.put("/lost", "text/plain", PDF, FileResponse::Status(404, ""));
    let good = server.put("/good", "text/plain", PDF, FileResponse::Good);
    let gateway = Gateway::start_with(folder.path(), &["--config", &config(folder.path(), "")]);
    report(&gateway, "lost", &lost).await;
    report(&gateway, "good", &good).await;
    wait_for_item(&gateway, "good", is_copied).await;
    let reason = wait_for_reason(&gateway, "lost").await;
    assert_eq!(reason, format!("no copy of {lost}: the server answers 404 Not Found"));
    // The public still sees the item.
    let public = gateway.http.get(format!("{}/feed?visibility=true", gateway.url)).send().await.unwrap();
    let public = public.text().await.unwrap();
    assert!(public.contains("urn:item:lost") && !public.contains("DELETE"), "{public}");
    let position: Value =
        serde_json::from_str(gateway.json("/harvests/files").await["position"].as_str().unwrap()).unwrap();
    assert_eq!(position["repeats"][0]["attempts"], 1, "{position}");
    server.put("/lost", "text/plain", PDF, FileResponse::Good);
    let event = json!({
        "object": "urn:object:lost",
        "description": "the file is there again",
        "items": [{ "uri": "urn:item:lost", "change": "UPDATE", "content": { "url": lost } }]
    });
    let (status, response) = gateway.post("repo", "application/json", event.to_string()).await;
    assert_eq!(status, 201, "{response}");
    let item = wait_for_item(&gateway, "lost", is_copied).await;
    assert_eq!(item["state"], "ACTIVE");
}

#[tokio::test]
async fn interrupted_transfer_is_continued() {
    let (folder, server) = (tempfile::tempdir().unwrap(), FileServer::start().await);
    let content = [PDF, &vec![7; 300_000]].concat();
    let url = server.put("/a", "text/plain", &content, FileResponse::Broken { after: 100_000 });
    let gateway = Gateway::start_with(folder.path(), &["--config", &config(folder.path(), "")]);
    report(&gateway, "a", &url).await;
    let item = wait_for_item(&gateway, "a", is_copied).await;
    assert_eq!(item["content"]["digest"]["value"], sha256(&content));
    assert_eq!(server.requests("/a"), [None, Some(100_000)]);
}

#[tokio::test]
async fn refused_files_say_the_reason_and_leave_nothing() {
    let (folder, server) = (tempfile::tempdir().unwrap(), FileServer::start().await);
    server.put("/robots.txt", "text/plain", b"User-agent: *\nDisallow: /private", FileResponse::Good);
    let config = config(folder.path(), "max_bytes = 1000\ntotal_bytes = 1500\nmedia_types = [\"text/*\"]");
    let gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    let text = vec![b'a'; 900];
    let cases = [
        ("large", FileResponse::Length(5000), &[b'a'; 1100][..], "more than 1000 bytes (max_bytes)"),
        ("lie", FileResponse::Length(950), &text, "broke off after 900 bytes"),
        ("loop", FileResponse::Status(302, "location: /loop\r\n"), &text, "redirects more than 10 times"),
        ("inside", FileResponse::Status(302, "location: http://127.0.0.2/x\r\n"), &text, "the address is not allowed"),
        ("private", FileResponse::Good, &text, "robots.txt of the server forbids it"),
        ("pdf", FileResponse::Good, PDF, "it is application/pdf, which is not in media_types"),
        ("busy", FileResponse::Status(503, "retry-after: 0\r\n"), &text, "the server is busy (503"),
    ];
    for (name, response, content, reason) in cases {
        let url = server.put(&format!("/{name}"), "text/plain", content, response);
        report(&gateway, name, &url).await;
        let found = wait_for_reason(&gateway, name).await;
        assert!(found.contains(reason), "{name}: {found}");
        // Nobody learns where a name leads inside this network.
        assert!(!found.contains("127.0.0.2") && !found.contains("loopback"), "{name}: {found}");
    }
    let first = server.put("/first", "text/plain", &text, FileResponse::Good);
    report(&gateway, "first", &first).await;
    wait_for_item(&gateway, "first", is_copied).await;
    let second = server.put("/second", "text/plain", &[b'b'; 900], FileResponse::Good);
    report(&gateway, "second", &second).await;
    let found = wait_for_reason(&gateway, "second").await;
    assert!(found.contains("more than 1500 bytes (total_bytes)"), "{found}");
    let unfinished = std::fs::read_dir(folder.path().join("files/incoming")).unwrap().count();
    assert_eq!(unfinished, 0);
}

#[tokio::test]
async fn kill_9_loses_no_download_and_repeats_no_change() {
    const FILES: usize = 60;
    let (folder, server) = (tempfile::tempdir().unwrap(), FileServer::start().await);
    let config = config(folder.path(), "");
    let name = |number: usize| format!("f{number}");
    let content = |number: usize| vec![u8::try_from(number).unwrap(); 100_000];
    let mut gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    for number in 0..FILES {
        let path = format!("/{}", name(number));
        let url = server.put(&path, "application/x-test", &content(number), FileResponse::Good);
        report(&gateway, &name(number), &url).await;
    }
    for copied in [1, 20, 40] {
        let began = Instant::now();
        while gateway.head().await < (FILES + copied) as u64 {
            assert!(began.elapsed() < PATIENCE);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        gateway.kill();
        gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    }
    for number in 0..FILES {
        let item = wait_for_item(&gateway, &name(number), is_copied).await;
        assert_eq!(item["content"]["digest"]["value"], sha256(&content(number)));
    }
    // The registry shows a change just before the head does.
    let began = Instant::now();
    while gateway.json("/harvests/files").await["run"]["state"] != "completed" {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(gateway.head().await, 2 * FILES as u64);
    let requests: usize = (0..FILES).map(|number| server.requests(&format!("/{}", name(number))).len()).sum();
    assert!(requests <= FILES + 3 * 16, "{requests} requests: only the files of a page are repeated");
}

#[tokio::test]
async fn files_of_harvested_records_are_copied_and_leave_with_them() {
    let (folder, server) = (tempfile::tempdir().unwrap(), FileServer::start().await);
    let url = server.put("/17/1/eciencia_upm.pdf", "application/pdf", PDF, FileResponse::Good);
    let repository = ScriptedRepository::start(1).await;
    repository.put_now(&identifier(17), &url);
    let lines = format!(
        "[delivery]\nallow = [\"127.0.0.1\"]\n[sources.upm]\ntransport = \"oai-pmh\"\ndialect = \"oai-pmh\"\nurl = \"{}\"\n\
         settings.files = 'http://.*[.]pdf'\n[sources.upm-files]\ntransport = \"download\"\ndialect = \"download\"\n\
         of = [\"upm\"]\nurls = '.*[.]pdf'\n",
        repository.url()
    );
    let gateway = Gateway::start_with(folder.path(), &["--config", &configuration(folder.path(), &lines)]);
    let file = async |condition: &dyn Fn(&Value) -> bool| {
        let began = Instant::now();
        loop {
            let snapshot = gateway.json("/snapshot").await;
            let items =
                snapshot["objects"].as_array().unwrap().iter().flat_map(|object| object["items"].as_array().unwrap());
            let found = items.filter(|item| item["uri"] == url.as_str()).find(|item| condition(item));
            if let Some(item) = found {
                return item.clone();
            }
            assert!(began.elapsed() < PATIENCE, "{snapshot}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let item = file(&is_copied).await;
    assert_eq!(item["content"]["digest"]["value"], sha256(PDF));
    let run = async |changes: u64| {
        let harvest = run_to_end(&gateway, "upm").await;
        assert_eq!(harvest["run"]["changes"], changes, "{harvest}");
    };
    // The record still names the original, which is no change.
    run(0).await;
    assert!(is_copied(&file(&|_| true).await));
    repository.delete_now(&identifier(17));
    run(1).await;
    let last = gateway.changes().await.pop().unwrap();
    let deleted: Vec<_> =
        last["items"].as_array().unwrap().iter().map(|item| item["change"].as_str().unwrap()).collect();
    assert_eq!(deleted, ["DELETE", "DELETE"], "{last}");
}

#[tokio::test]
async fn commands_verify_the_store_and_remove_garbage() {
    let (folder, server) = (tempfile::tempdir().unwrap(), FileServer::start().await);
    let url = server.put("/a", "text/plain", PDF, FileResponse::Good);
    let gateway = Gateway::start_with(folder.path(), &["--config", &config(folder.path(), "")]);
    let store = folder.path().join("files");
    let run = |arguments: &[&str]| {
        let mut files = command();
        let output = files.arg("files").args(arguments).args(["--gateway", &gateway.url, "--folder"]).arg(&store);
        let output = output.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    report(&gateway, "a", &url).await;
    wait_for_item(&gateway, "a", is_copied).await;
    let (code, output, errors) = run(&["verify"]);
    assert_eq!((code, output.as_str()), (0, "1 files (16 bytes) are intact\n"), "{errors}");
    let digest = sha256(PDF);
    let path = store.join("sha256").join(&digest[..2]).join(&digest);
    std::fs::write(&path, "%PDF-1.7 a forged").unwrap();
    let (code, _, errors) = run(&["verify"]);
    assert_eq!(code, 1);
    assert!(errors.contains(&format!("the file {digest} is damaged")), "{errors}");
    std::fs::remove_file(&path).unwrap();
    let (_, _, errors) = run(&["verify"]);
    assert!(errors.contains(&format!("the file {digest} is missing")), "{errors}");

    let unused = sha256(b"unused");
    let unused = store.join("sha256").join(&unused[..2]).join(&unused);
    std::fs::create_dir_all(unused.parent().unwrap()).unwrap();
    std::fs::write(&unused, "unused").unwrap();
    assert_eq!(run(&["gc"]).1, "0 files removed (0 bytes), 1 kept\n");
    let old = std::time::SystemTime::now() - Duration::from_secs(8 * 24 * 60 * 60);
    std::fs::File::options().append(true).open(&unused).unwrap().set_modified(old).unwrap();
    assert_eq!(run(&["gc"]).1, "1 files removed (6 bytes), 0 kept\n");
    assert!(!unused.exists());
}

#[tokio::test]
async fn stalled_transfer_delays_no_shutdown_and_leaves_nothing() {
    let (folder, server) = (tempfile::tempdir().unwrap(), FileServer::start().await);
    let url = server.put("/a", "text/plain", PDF, FileResponse::Stalled { after: 5 });
    let gateway = Gateway::start_with(folder.path(), &["--config", &config(folder.path(), "")]);
    report(&gateway, "a", &url).await;
    let incoming = folder.path().join("files/incoming");
    let unfinished = || std::fs::read_dir(&incoming).map_or(0, Iterator::count);
    let began = Instant::now();
    while unfinished() == 0 {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(gateway.stop().success());
    assert_eq!(unfinished(), 0);
}

#[tokio::test]
async fn copy_can_be_named_by_its_place_in_the_store() {
    let (folder, server) = (tempfile::tempdir().unwrap(), FileServer::start().await);
    let url = server.put("/a.pdf", "application/pdf", PDF, FileResponse::Good);
    let store = folder.path().join("the files");
    let more = format!("[files]\nfolder = {store:?}\nlinks = \"store\"\n");
    let gateway = Gateway::start_with(folder.path(), &["--config", &config(folder.path(), &more)]);
    report(&gateway, "a", &url).await;
    let content = wait_for_item(&gateway, "a", is_copied).await["content"].clone();
    let place = url::Url::parse(content["url"].as_str().unwrap()).unwrap();
    assert_eq!((place.scheme(), std::fs::read(place.to_file_path().unwrap()).unwrap()), ("file", PDF.to_vec()));
    let served = gateway.http.get(format!("{}/files/{}", gateway.url, sha256(PDF))).send().await.unwrap();
    assert_eq!(served.bytes().await.unwrap(), PDF);
    let removed =
        command().args(["files", "gc", "--folder", store.to_str().unwrap(), "--gateway", &gateway.url]).output();
    assert!(String::from_utf8_lossy(&removed.unwrap().stdout).contains("0 files removed"));
}

#[tokio::test]
async fn slow_servers_hold_up_their_own_files_alone() {
    const FILES: usize = 39;
    let folder = tempfile::tempdir().unwrap();
    let (quick, slow) = (FileServer::start().await, FileServer::start_at("127.0.0.3").await);
    let silent = FileServer::start_at("127.0.0.4").await;
    silent.put("/robots.txt", "text/plain", b"User-agent: *", FileResponse::Stalled { after: 5 });
    let config = config(folder.path(), "");
    let mut gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    for number in 0..10 {
        let path = format!("/slow{number}");
        let stalled = FileResponse::Stalled { after: 5 };
        report(&gateway, &format!("slow{number}"), &slow.put(&path, "text/plain", PDF, stalled)).await;
        let url = silent.put(&path, "text/plain", PDF, FileResponse::Good);
        report(&gateway, &format!("silent{number}"), &url).await;
    }
    for number in 0..FILES {
        let url = quick.put(&format!("/{number}"), "text/plain", PDF, FileResponse::Good);
        report(&gateway, &format!("quick{number}"), &url).await;
    }
    for number in 0..FILES {
        wait_for_item(&gateway, &format!("quick{number}"), is_copied).await;
    }
    let later = quick.put("/later", "text/plain", PDF, FileResponse::Good);
    report(&gateway, "later", &later).await;
    wait_for_item(&gateway, "later", is_copied).await;
    assert_eq!(gateway.json("/harvests/files").await["run"]["state"], "running");
    // Downloads in flight are not lost.
    gateway.kill();
    for number in 0..10 {
        slow.put(&format!("/slow{number}"), "text/plain", PDF, FileResponse::Good);
    }
    silent.put("/robots.txt", "text/plain", b"User-agent: *", FileResponse::Good);
    gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    for number in 0..10 {
        wait_for_item(&gateway, &format!("slow{number}"), is_copied).await;
        wait_for_item(&gateway, &format!("silent{number}"), is_copied).await;
    }
    let began = Instant::now();
    while gateway.json("/harvests/files").await["run"]["state"] != "completed" {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(gateway.head().await, 2 * (FILES as u64 + 21));
}

#[tokio::test]
async fn slow_transfer_holds_up_other_sources_at_its_host_for_a_turn_alone() {
    let feed = "<feed xmlns='http://www.w3.org/2005/Atom'><id>f</id><entry><id>urn:x:1</id></entry></feed>";
    let answers = [("/robots.txt", 404, ""), ("/feed", 200, feed)];
    let server = DrippingServer::start_at("127.0.0.1", &answers).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start_with(folder.path(), &["--config", &config(folder.path(), "")]);
    report(&gateway, "slow", &format!("{}/slow", server.url)).await;
    let began = Instant::now();
    while server.dripping() == 0 {
        assert!(began.elapsed() < PATIENCE, "the file is not requested");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let definition = json!({ "name": "feed", "transport": "feed", "dialect": "feed",
        "url": format!("{}/feed", server.url), "every": "1h" });
    let (status, answer) = gateway.ask("POST", "/harvests", Some(definition)).await;
    assert_eq!(status, 201, "{answer}");
    let began = Instant::now();
    loop {
        let found = gateway.json("/harvests/feed").await;
        if found["runs"][0]["state"] == "completed" {
            assert_eq!(found["runs"][0]["records"], 1, "{found}");
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{found}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(server.dripping(), 1, "the transfer goes on");
    gateway.stop();
}
