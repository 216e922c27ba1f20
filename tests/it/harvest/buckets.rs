//! Downloads into a bucket of an S3-compatible server.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use reqwest::{StatusCode, header};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{
    gateway::{Gateway, PATIENCE, command},
    journal_fixture::configuration,
    s3::{BUCKET, S3Server, SECRET_KEY},
    scripted_files::{FileResponse, FileServer},
};

const PDF: &[u8] = b"%PDF-1.7 a paper";

/// Writes the configuration of a source `repo` whose files are downloaded into a bucket.
fn config(folder: &Path, more: &str) -> String {
    let lines = format!(
        "[delivery]\nallow = [\"127.0.0.1\"]\n[sources.repo]\ntransport = \"http\"\ndialect = \"content-change\"\n\
         [sources.files]\ntransport = \"download\"\ndialect = \"download\"\nof = [\"repo\"]\nurls = 'http://.*'\n{more}\n"
    );
    configuration(folder, &lines)
}

fn start(folder: &Path, more: &str) -> Gateway {
    let config = config(folder, more);
    Gateway::start_logging(&folder.join("data"), &["--config", &config], &folder.join("log"))
}

/// Reports an object with one item, whose content is at this URL.
async fn report(gateway: &Gateway, name: &str, url: &str) {
    let item = json!({ "uri": format!("urn:item:{name}"), "change": "UPDATE", "content": { "url": url } });
    let event = json!({ "object": format!("urn:object:{name}"), "items": [item] });
    let (status, response) = gateway.post("repo", "application/json", event.to_string()).await;
    assert_eq!(status, 201, "{response}");
}

async fn copy_of(gateway: &Gateway, name: &str) -> Value {
    let began = Instant::now();
    loop {
        let object = gateway.json(&format!("/objects?uri=urn:object:{name}")).await;
        let content = object["items"][0]["content"].clone();
        if content["original"].is_object() {
            return content;
        }
        assert!(began.elapsed() < PATIENCE, "{object} {}", gateway.json("/harvests/files").await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn until_error(gateway: &Gateway, text: &str) {
    let began = Instant::now();
    loop {
        let harvest = gateway.json("/harvests/files").await;
        if harvest["lastError"]["reason"].as_str().unwrap_or_default().contains(text) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{text}: {harvest}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn sha256(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

/// Executes `tidings files ACTION`; returns the status, and both outputs.
fn files(gateway: &Gateway, folder: &Path, action: &[&str]) -> (Option<i32>, String) {
    let config = folder.join("tidings.toml");
    let arguments = ["--gateway", &gateway.url, "--config", config.to_str().unwrap()];
    let output = command().arg("files").args(action).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn file_is_stored_in_the_bucket_and_served() {
    let (folder, server, bucket) = (tempfile::tempdir().unwrap(), FileServer::start().await, S3Server::start().await);
    let [url, other, large] = [("/a.pdf", PDF), ("/b.pdf", PDF), ("/large", &[7; 12_000_000][..])]
        .map(|(path, content)| server.put(path, "application/pdf", content, FileResponse::Good));
    let empty = server.put("/empty", "text/plain", b"", FileResponse::Good);
    let gateway = start(folder.path(), &bucket.lines());
    for (name, url) in [("a", &url), ("b", &other), ("large", &large), ("empty", &empty)] {
        report(&gateway, name, url).await;
    }
    let digest = sha256(PDF);
    for name in ["a", "b"] {
        let content = copy_of(&gateway, name).await;
        assert_eq!(content["url"], format!("{}/files/{digest}", gateway.url));
        assert_eq!((&content["size"], &content["digest"]["value"]), (&json!(16), &json!(digest)));
    }
    for name in ["large", "empty"] {
        copy_of(&gateway, name).await;
    }
    let name = |content: &[u8]| {
        let digest = sha256(content);
        format!("a/b/sha256/{}/{digest}", &digest[..2])
    };
    let mut expected = [name(PDF), name(&[7; 12_000_000]), name(b"")];
    expected.sort();
    assert_eq!(bucket.objects().await, expected);
    let copy = format!("{}/files/{digest}", gateway.url);
    let whole = gateway.http.get(&copy).send().await.unwrap();
    assert_eq!(whole.headers()[header::ETAG], format!("\"{digest}\""));
    assert_eq!(whole.bytes().await.unwrap(), PDF);
    let part = gateway.http.get(&copy).header(header::RANGE, "bytes=5-7").send().await.unwrap();
    assert_eq!((part.status(), part.bytes().await.unwrap()), (StatusCode::PARTIAL_CONTENT, "1.7".into()));
    let absent = gateway.http.get(format!("{}/files/{}", gateway.url, sha256(b"absent"))).send().await.unwrap();
    assert_eq!(absent.status(), StatusCode::NOT_FOUND);

    assert_eq!(files(&gateway, folder.path(), &["verify"]).0, Some(0));
    bucket.put("a/b/incoming/left", "over");
    let (status, text) = files(&gateway, folder.path(), &["gc"]);
    // Nothing is older than a week.
    assert!(status == Some(0) && text.contains("0 files removed") && text.contains("3 kept"), "{text}");
    bucket.put(&name(PDF), "damaged");
    let (status, text) = files(&gateway, folder.path(), &["verify"]);
    assert!(status == Some(1) && text.contains(&format!("the file {digest} is damaged")), "{text}");
    assert!(!fs::read_to_string(folder.path().join("log")).unwrap().contains(SECRET_KEY));
}

#[tokio::test]
async fn copy_can_be_named_by_its_place_in_the_bucket() {
    let (folder, server, bucket) = (tempfile::tempdir().unwrap(), FileServer::start().await, S3Server::start().await);
    let url = server.put("/a.pdf", "application/pdf", PDF, FileResponse::Good);
    let gateway = start(folder.path(), &format!("[files]\nlinks = \"store\"\n{}", bucket.lines()));
    report(&gateway, "a", &url).await;
    let digest = sha256(PDF);
    let expected = format!("s3://{BUCKET}/a/b/sha256/{}/{digest}", &digest[..2]);
    assert_eq!(copy_of(&gateway, "a").await["url"], expected);
}

#[tokio::test]
async fn dead_server_and_missing_bucket_delay_downloads_only() {
    let (folder, server) = (tempfile::tempdir().unwrap(), FileServer::start().await);
    let mut bucket = S3Server::start().await;
    let url = server.put("/a.pdf", "application/pdf", PDF, FileResponse::Good);
    bucket.kill();
    let gateway = start(folder.path(), &bucket.lines());
    report(&gateway, "a", &url).await;
    until_error(&gateway, "check files.s3.endpoint, and whether the server runs").await;
    let served = gateway.http.get(format!("{}/files/{}", gateway.url, sha256(PDF))).send().await.unwrap();
    assert_eq!(served.status(), StatusCode::SERVICE_UNAVAILABLE);
    let checked = command().args(["check", "--config", folder.path().join("tidings.toml").to_str().unwrap()]).output();
    let checked = String::from_utf8(checked.unwrap().stdout).unwrap();
    assert!(checked.contains(&format!("files         s3://{BUCKET}/a/b at {}", bucket.url())), "{checked}");
    bucket.start_again();
    until_error(&gateway, "the bucket does not exist").await;
    bucket.make_bucket().await;
    copy_of(&gateway, "a").await;
    let everything =
        format!("{}{}", gateway.json("/harvests").await, fs::read_to_string(folder.path().join("log")).unwrap());
    assert!(!everything.contains(SECRET_KEY), "{everything}");
}
