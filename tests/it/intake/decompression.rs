//! Compressed bodies: gzip and zstd are accepted, and a decompression bomb uses no more memory than the limit.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use serde_json::Value;

use crate::support::resource_watch::WatchedGateway;

const MEBIBYTE: u64 = 1 << 20;
const MESSAGE: &str = r#"{"sourceEventId":"1","object":"http://h/1","items":[{"uri":"http://h/1","change":"UPDATE"}]}"#;

fn gzip(pieces: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    pieces.for_each(|piece| encoder.write_all(&piece).unwrap());
    encoder.finish().unwrap()
}

fn zstd(pieces: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    pieces.for_each(|piece| encoder.write_all(&piece).unwrap());
    encoder.finish().unwrap()
}

async fn post(gateway: &WatchedGateway, codings: &[&str], body: Vec<u8>) -> (u16, String, Value) {
    let mut request = gateway.http.post(format!("{}/hooks/content-change", gateway.url));
    for coding in codings {
        request = request.header("content-encoding", *coding);
    }
    let answer = request.body(body).send().await.unwrap();
    let status = answer.status().as_u16();
    let accepted = answer.headers().get("accept-encoding").map(|value| value.to_str().unwrap().to_owned());
    (status, accepted.unwrap_or_default(), serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap())
}

#[tokio::test]
async fn gzip_and_zstd_bodies_are_accepted() {
    let gateway = WatchedGateway::start("");
    let once = || std::iter::once(MESSAGE.as_bytes().to_vec());
    assert_eq!(post(&gateway, &["gzip"], gzip(once())).await.0, 201);
    // The same message with another encoding is a duplicate.
    let (status, _, answer) = post(&gateway, &["zstd"], zstd(once())).await;
    assert_eq!((status, answer["outcome"].as_str()), (200, Some("duplicate")));
    assert_eq!(post(&gateway, &["identity"], MESSAGE.into()).await.0, 200);
}

#[tokio::test]
async fn unsupported_and_corrupt_encodings_are_refused() {
    let gateway = WatchedGateway::start("");
    let once = || std::iter::once(MESSAGE.as_bytes().to_vec());
    for codings in [&["br"][..], &["gzip, gzip"], &["gzip", "gzip"], &["deflate"], &["compress"]] {
        let (status, accepted, problem) = post(&gateway, codings, gzip(once())).await;
        assert_eq!((status, accepted.as_str()), (415, "gzip, zstd"), "{codings:?}: {problem}");
        assert_eq!(problem["type"], "urn:tidings:problem:unsupported-encoding");
    }
    let cut = |mut whole: Vec<u8>| {
        whole.truncate(whole.len() - 5);
        whole
    };
    for (coding, body) in
        [("gzip", cut(gzip(once()))), ("zstd", cut(zstd(once()))), ("gzip", zstd(once())), ("zstd", MESSAGE.into())]
    {
        let (status, _, problem) = post(&gateway, &[coding], body).await;
        assert_eq!((status, &problem["type"]), (400, &"urn:tidings:problem:bad-request".into()), "{coding}: {problem}");
    }
    gateway.still_serves("broken bodies");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decompression_bombs_use_bounded_memory() {
    let gateway = WatchedGateway::start("");
    // Bodies of one GiB each, four at a time.
    let zeros = || std::iter::repeat_n(vec![0; 1 << 20], 1 << 10);
    for (coding, bomb) in [("gzip", gzip(zeros())), ("zstd", zstd(zeros()))] {
        assert!(bomb.len() < 8 << 20, "it is no bomb: {} bytes", bomb.len());
        let before = gateway.most_memory();
        let codings = [coding];
        let all = tokio::join!(
            post(&gateway, &codings, bomb.clone()),
            post(&gateway, &codings, bomb.clone()),
            post(&gateway, &codings, bomb.clone()),
            post(&gateway, &codings, bomb.clone()),
        );
        for (status, _, problem) in [all.0, all.1, all.2, all.3] {
            assert_eq!((status, &problem["type"]), (413, &"urn:tidings:problem:body-too-large".into()));
        }
        // Four bodies of 4 MiB in buffers that double, four decompression windows, and the rest of the program.
        let cost = gateway.most_memory() - before;
        assert!(cost < 96 * MEBIBYTE, "{coding}: {cost} bytes");
        gateway.still_serves(coding);
    }
}
