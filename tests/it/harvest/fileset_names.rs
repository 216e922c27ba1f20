//! Names: of items, of files, and the URLs that are published and indexed.

use std::path::Path;

use serde_json::json;
use tidings::filesets::{IngestSettings, Ingested};

use crate::support::{
    ingest_fixture::{IngestFixture, table},
    platforms_fixture::page,
    python,
    scripted_platform::Answer,
};

fn none(_: &mut IngestSettings, _: &str) {}

fn items(settings: &mut IngestSettings, _: &str) {
    settings.thresholds.web_files = 0;
}

fn linking(links: &[&str]) -> Answer {
    links.iter().fold(page(), |page, link| page.with("link", format!("<{link}>; rel=item")))
}

/// Pages whose names agree in the characters that an item can have, and in their first hundred.
#[tokio::test]
async fn fileset_names_of_items_are_unique() {
    let fixture = IngestFixture::start(items).await;
    fixture.server.put("/f/data.csv", table("one"));
    fixture.server.put("/g/data.csv", table("two"));
    let long = ["a", "b"].map(|end| format!("/d/{}{end}", "x".repeat(150)));
    let mut names = Vec::new();
    for (path, file) in [
        ("/d/%C3%A4%C3%B6%C3%BC", "/f/data.csv"),
        ("/d/%C3%9F%C3%A9%C3%A8", "/g/data.csv"),
        (&long[0], "/f/data.csv"),
        (&long[1], "/g/data.csv"),
    ] {
        fixture.server.put(path, linking(&[file]));
        let Ingested { result, .. } = fixture.ingest_at(path).await;
        assert_eq!(result.status.as_str(), "success-file", "{path}: {:?}", result.error_message);
        names.push(result.archiveorg_item_name.unwrap());
    }
    let item = |name: &str| std::fs::read(fixture.folder.path().join("items").join(name).join("data.csv")).unwrap();
    let contents: Vec<_> = names.iter().map(|name| item(name)).collect();
    assert_eq!(contents, [b"one", b"two", b"one", b"two"], "{names:?}");
    assert_eq!(names.iter().collect::<std::collections::HashSet<_>>().len(), 4);
}

/// A file that the dataset has lost, a folder that was a file, and names that no item can have.
#[tokio::test]
async fn fileset_names_of_lost_files_leave_the_item() {
    let fixture = IngestFixture::start(items).await;
    let file = |path: &'static str, content: &str| (path, table(content), json!({}));
    let in_item = |fixture: &IngestFixture| {
        let paths = fixture.stored().into_iter().filter_map(|path| path.strip_prefix("items/").map(str::to_owned));
        paths.filter_map(|path| path.split_once('/').map(|(_, path)| path.to_owned())).collect::<Vec<_>>()
    };
    for (files, expected) in [
        (vec![file("a", "1"), file("b", "2")], vec!["a", "b"]),
        (vec![file("a/x", "1"), file("c", "3")], vec!["a/x", "c"]),
        (vec![file("a", "1"), file("x:y\\z.csv", "2")], vec!["a", "x:y%5Cz.csv"]),
    ] {
        let Ingested { result, .. } = fixture.ingest(&files).await;
        assert!(result.hit, "{:?}", result.error_message);
        assert_eq!(in_item(&fixture), expected);
    }
    let long: &'static str = Box::leak("n".repeat(256).into_boxed_str());
    for files in [vec![file("a", "1"), file("a/b", "2")], vec![file(long, "1")]] {
        let before = fixture.server.requests().len();
        let Ingested { result, retry, .. } = fixture.ingest(&files).await;
        let is_final = retry == Some(tidings::filesets::RetryRule::Never);
        assert!(result.status.as_str() == "unsafe-path" && is_final, "{:?}", result.error_message);
        let downloads = fixture.server.requests().split_off(before);
        assert!(downloads.iter().all(|request| !request.place.starts_with("/f/")), "before the download");
    }
}

/// Names in the response, the title of a link, and files that are called alike.
#[tokio::test]
async fn fileset_names_of_files_come_from_the_response() {
    let fixture = IngestFixture::start(none).await;
    let server = &fixture.server;
    let named = |content: &str, value: &str| table(content).with("content-disposition", value.to_owned());
    server.put("/b/1/download", named("one", "attachment; filename=\"data.csv\""));
    server.put("/b/2/download", named("two", "attachment; filename*=UTF-8''Codeb%C3%BCch.pdf"));
    server.put("/b/3/download", named("three", "attachment; filename=\"data.csv\""));
    server.put("/get?file=1", table("four"));
    server.put("/get?file=2", table("five"));
    server.put("/get?file=3", table("six"));
    let links = ["/b/1/download", "/b/2/download", "/b/3/download", "/get?file=1", "/get?file=2", "/get?file=3"];
    server.put("/d/1", linking(&links));
    let Ingested { result, .. } = fixture.ingest_at("/d/1").await;
    assert_eq!(result.status.as_str(), "success", "{:?}", result.error_message);
    let host = server.url.replace("http://", "");
    let paths: Vec<_> = result.manifest.iter().flatten().map(|file| file.path.replace(&host, "HOST")).collect();
    assert_eq!(paths, ["data.csv", "Codebüch.pdf", "2-data.csv", "get", "HOST/get", "HOST/2-get"]);
}

/// A signed URL, a token of the request, and the index of what was archived.
#[tokio::test(flavor = "multi_thread")]
async fn fileset_names_of_urls_have_no_credentials_and_replay() {
    let fixture = IngestFixture::start(none).await;
    let server = &fixture.server;
    let signed = format!("/s3/f%2F1%3Ba.csv?temp_url_sig=SECRET&temp_url_expires=1900000000&long={}", "x".repeat(3000));
    server.put("/s3/f%2F1%3Ba.csv", table("one"));
    server.put("/start", Answer::redirect("/records/17?token=SECRET"));
    let redirect = Answer::redirect(signed);
    let Ingested { result, .. } = {
        fixture.publish(&[("a.csv", redirect.clone(), json!({})), ("b.csv", table("two"), json!({}))]);
        fixture.ingest_at("/start").await
    };
    assert_eq!(result.status.as_str(), "success", "{:?}", result.error_message);
    let published = serde_json::to_string(&result.publishable()).unwrap();
    assert!(!published.contains("SECRET"), "{published}");
    let warc = result.warc_sha256.unwrap();
    let index = String::from_utf8(fixture.content(&result.cdx_sha256.unwrap())).unwrap();
    let named = fixture.folder.path().join(format!("{warc}.warc.gz"));
    std::fs::copy(fixture.folder.path().join(format!("sha256/{}/{warc}", &warc[..2])), &named).unwrap();
    let judged = tokio::task::spawn_blocking(move || python::read_warc(Path::new(&named))).await.unwrap();
    assert_eq!(judged["digests"], true);
    assert!(!judged.to_string().contains("SECRET"));
    let keys = |text: &str| {
        let mut keys: Vec<_> = text.lines().map(|line| line.split_once(" {").unwrap().0.to_owned()).collect();
        keys.sort();
        keys
    };
    let ours = keys(&index);
    assert_eq!(ours, keys(judged["cdxj"].as_str().unwrap()));
    // Page and files, and the redirections to them.
    assert_eq!(ours.len(), 5, "{index}");
}
