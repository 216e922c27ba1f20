//! The bucket as the target, and targets that fail.

use super::{post, publish};
use crate::support::{s3::S3Server, views_fixture::ViewedGateway};

fn lines(server: &S3Server, more: &str) -> String {
    let bucket = server.lines().replace("[files.s3]", "[publish.s3]");
    format!("[publish]\nurl = \"https://static.example.org\"\ninterval_seconds = 3600\n{more}\n{bucket}")
}

#[tokio::test]
async fn documents_in_a_bucket_have_their_headers() {
    let server = S3Server::start().await;
    let gateway = ViewedGateway::start(&lines(&server, ""));
    for number in 1..=210 {
        post(&gateway, number).await;
    }
    let (code, stdout, stderr) = publish(&gateway);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let keys = server.objects().await;
    let closed = keys.iter().find(|key| key.ends_with("/1.atom")).unwrap();
    assert!(keys.iter().all(|key| !key.ends_with(".gz")), "{keys:?}");
    for (key, cache, media_type) in [
        (closed.as_str(), "public, max-age=31536000, immutable", "application/atom+xml;type=feed;charset=utf-8"),
        ("a/b/feed.atom", "no-cache", "application/atom+xml;type=feed;charset=utf-8"),
        ("a/b/publication.json", "no-cache", "application/json"),
    ] {
        assert_eq!(server.headers(key), (cache.to_owned(), media_type.to_owned()), "{key}");
    }
}

#[tokio::test]
async fn failure_of_the_target_is_reported_and_the_next_run_continues() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    std::fs::write(&copy, "a file where a folder should be").unwrap();
    let place = copy.display();
    let table =
        format!("[publish]\nfolder = \"{place}\"\nurl = \"https://static.example.org\"\ninterval_seconds = 3600\n");
    let gateway = ViewedGateway::start(&table);
    post(&gateway, 1).await;
    let (code, _, stderr) = publish(&gateway);
    assert!(code == 1 && stderr.contains(&format!("cannot write the published copy {place}: ")), "{stderr}");
    std::fs::remove_file(&copy).unwrap();
    let (code, stdout, _) = publish(&gateway);
    assert!(code == 0 && stdout.contains("goes up to change 1: 2 documents written"), "{stdout}");
}
