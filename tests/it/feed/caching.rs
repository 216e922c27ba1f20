//! `/feed` and the archive pages support conditional requests, HEAD, gzip and cache lifetimes. `/feed` is
//! rendered once for any number of readers.

use std::io::Read;

use reqwest::{Method, StatusCode};

use crate::support::feed_reader::{Gateway, append, varied};

#[tokio::test]
async fn feed_documents_support_caching() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path()).await;
    append(&gateway.journal, "fedora3", (0..500).map(varied).collect()).await;
    let immutable = "public, max-age=31536000, immutable";
    for (link, cache) in [("/feed", "no-cache"), ("/feed/archive/1", immutable), ("/feed?change=ADD", "no-cache")] {
        let whole = gateway.ask(Method::GET, link, &[]).await;
        let headers = whole.headers().clone();
        let body = whole.bytes().await.unwrap();
        assert_eq!(headers["cache-control"], cache, "{link}");
        assert_eq!(headers["vary"], "Accept, Accept-Encoding", "{link}");
        let tag = headers["etag"].to_str().unwrap();
        assert!(tag.starts_with('"') && tag.len() > 30, "{link}: {tag}");

        let head = gateway.ask(Method::HEAD, link, &[]).await;
        let without_date = |mut headers: reqwest::header::HeaderMap| {
            headers.remove("date");
            headers
        };
        assert_eq!(without_date(head.headers().clone()), without_date(headers.clone()), "{link}");
        assert_eq!(head.headers()["content-length"], body.len().to_string());
        assert!(head.bytes().await.unwrap().is_empty());

        let gzip = gateway.ask(Method::GET, link, &[("accept-encoding", "gzip")]).await;
        assert_eq!(gzip.headers()["content-encoding"], "gzip");
        let gzip_tag = gzip.headers()["etag"].to_str().unwrap().to_owned();
        assert_ne!(gzip_tag, tag);
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&gzip.bytes().await.unwrap()[..]).read_to_end(&mut plain).unwrap();
        assert_eq!(plain, body, "{link}");

        for (tag, status) in [(tag, 304), (gzip_tag.as_str(), 304), ("\"another\"", 200)] {
            let answer = gateway.ask(Method::GET, link, &[("if-none-match", tag)]).await;
            assert_eq!(answer.status(), status, "{link} if none match {tag}");
        }
        match headers.get("last-modified") {
            Some(date) if link == "/feed/archive/1" => {
                let since = [("if-modified-since", date.to_str().unwrap())];
                assert_eq!(gateway.ask(Method::GET, link, &since).await.status(), StatusCode::NOT_MODIFIED);
            }
            // The newest change is from the current second, and another change may follow within it.
            date => assert_eq!(date, None, "{link}"),
        }
        assert_eq!(gateway.ask(Method::POST, link, &[]).await.status(), StatusCode::METHOD_NOT_ALLOWED);
    }

    let before = gateway.ask(Method::GET, "/feed", &[]).await.headers()["etag"].clone();
    let tag = before.to_str().unwrap();
    assert_eq!(gateway.ask(Method::GET, "/feed", &[("if-none-match", tag)]).await.status(), 304);
    append(&gateway.journal, "fedora3", vec![varied(1)]).await;
    assert_eq!(gateway.ask(Method::GET, "/feed", &[("if-none-match", tag)]).await.status(), 200);
}
