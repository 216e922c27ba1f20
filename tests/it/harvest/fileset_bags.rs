//! Bags of real servers: object stores that hide absent files, byte order marks, empty bags, and digests of all kinds.

use serde_json::json;
use sha2::{Digest, Sha512};
use tidings::filesets::{IngestSettings, RetryRule};

use crate::support::{
    ingest_fixture::{IngestFixture, sha256, table},
    platforms_fixture::{Platforms, files, page},
    scripted_platform::Answer,
};

fn none(_: &mut IngestSettings, _: &str) {}

fn text(content: impl Into<Vec<u8>>) -> Answer {
    Answer::new(200, content).with("content-type", "text/plain")
}

fn sha512(content: &[u8]) -> String {
    hex::encode(Sha512::digest(content))
}

#[tokio::test]
async fn fileset_bags_with_only_sha512_are_verified() {
    let fixture = IngestFixture::start(none).await;
    let server = &fixture.server;
    let manifest = format!("{}  data/a.csv\n{}  data/b.csv\n", sha512(b"one"), sha512(b"two").to_uppercase());
    server.put("/bag/", Answer::html("<a href=manifest-sha512.txt>"));
    server.put("/bag/manifest-sha512.txt", text(manifest));
    server.put("/bag/data/a.csv", table("one"));
    for (content, status) in [("two", "success"), ("twx", "mismatch-sha512")] {
        server.put("/bag/data/b.csv", table(content));
        let ingested = fixture.ingest_at("/bag/").await;
        assert_eq!(ingested.result.status.as_str(), status, "{:?}", ingested.result.error_message);
        let entry = &ingested.result.manifest.unwrap()[1];
        assert_eq!(entry.status.as_ref().unwrap().as_str(), status.split("-file").next().unwrap());
        if status == "success" {
            assert_eq!((&entry.sha512, &entry.sha256), (&Some(sha512(b"two")), &Some(sha256(b"two"))));
        } else {
            assert!(ingested.result.error_message.unwrap().contains("the SHA-512 of data/b.csv is"));
        }
    }
    // SHA-256 costs half as much, and a bag has the same files in each manifest.
    server.put("/both/", Answer::html("<a href=manifest-sha512.txt><a href=manifest-sha256.txt>"));
    server.put("/both/manifest-sha256.txt", text(format!("{}  data/a.csv\n", sha256(b"one"))));
    server.put("/both/data/a.csv", table("one"));
    let result = fixture.ingest_at("/both/").await.result;
    assert!(result.hit && result.manifest.unwrap()[0].sha512.is_none());
}

#[tokio::test]
async fn fileset_bags_of_real_servers_are_read() {
    let platforms = Platforms::start().await;
    let one = sha256(b"one");
    let mark = "\u{feff}";
    let bag = |manifest: &str| {
        let page = Answer::html(r#"<link rel="item" href="/bag/manifest-sha256.txt">"#);
        [("/page", page), ("/bag/manifest-sha256.txt", text(manifest))]
    };
    // An object store says 403 for what it does not have.
    for absent in [Answer::new(403, "<Error><Code>AccessDenied"), Answer::new(404, ""), Answer::new(410, "")] {
        platforms.server.put("/bag/fetch.txt", absent.clone());
        platforms.server.put("/bag/bag-info.txt", absent.clone());
        let (dataset, _) = platforms.read("/page", &bag(&format!("{mark}{one}  data/a.csv\r\n"))).await.unwrap();
        assert_eq!(files(&dataset, &platforms.server), [format!("data/a.csv ? {one} /bag/data/a.csv")], "{absent:?}");
    }
    // A traffic filter does not say that there are no numbers, and no files elsewhere.
    for file in ["/bag/fetch.txt", "/bag/bag-info.txt"] {
        platforms.server.put(file, Answer::html("<title>403 Forbidden</title>unusual traffic").status(403));
        let refusal = platforms.refusal("/page", &bag(&format!("{one}  data/a.csv\n"))).await;
        assert_eq!(refusal.0, "platform-http-error", "{file}: {refusal:?}");
        platforms.server.put(file, Answer::html("\u{feff}\n<!DOCTYPE html><title>Are you a robot?</title>"));
        let refusal = platforms.refusal("/page", &bag(&format!("{one}  data/a.csv\n"))).await;
        assert_eq!(refusal.0, "platform-bad-answer", "{file}: {refusal:?}");
        platforms.server.put(file, Answer::new(404, ""));
    }
    let far = format!("{mark}https://h.example/a 3 data/a.csv\n");
    platforms.server.put("/bag/fetch.txt", text(far));
    platforms.server.put("/bag/bag-info.txt", text(format!("{mark}Payload-Oxum: 3.1\n")));
    let (dataset, _) = platforms.read("/page", &bag(&format!("{one}  data/a.csv\n"))).await.unwrap();
    assert_eq!(files(&dataset, &platforms.server), [format!("data/a.csv 3 {one} https://h.example/a")]);
    for empty in ["", "\n", mark] {
        platforms.server.put("/bag/bag-info.txt", text("Payload-Oxum: 0.0\n"));
        assert_eq!(platforms.refusal("/page", &bag(empty)).await.0, "empty-manifest", "{empty:?}");
    }
    let described = Answer::html(r#"<link rel="describedby" href="/crate/ro-crate-metadata.json">"#);
    let graph = json!({ "@graph": [{ "@id": "a.csv", "@type": "File", "sha512": "0A" }] });
    let answers = [("/set", described), ("/crate/ro-crate-metadata.json", text(format!("{mark}{graph}")))];
    let (dataset, _) = platforms.read("/set", &answers).await.unwrap();
    assert_eq!(files(&dataset, &platforms.server), ["a.csv ? 0a /crate/a.csv"]);
}

/// The sizes of a bag are known when its files have arrived.
#[tokio::test]
async fn fileset_bags_have_the_bytes_of_their_payload_oxum() {
    let fixture = IngestFixture::start(none).await;
    let server = &fixture.server;
    server.put("/page", page().with("link", "</bag/manifest-md5.txt>; rel=item"));
    let md5 = crate::support::ingest_fixture::md5;
    server.put("/bag/manifest-md5.txt", text(format!("{}  a\n{}  b\n", md5(b"one"), md5(b"two"))));
    server.put("/bag/a", table("one"));
    server.put("/bag/b", table("two"));
    for (oxum, status, retry) in [("6.2", "success", None), ("7.2", "mismatch-size", Some(RetryRule::Never))] {
        server.put("/bag/bag-info.txt", text(format!("Payload-Oxum: {oxum}\n")));
        let ingested = fixture.ingest_at("/page").await;
        assert_eq!((ingested.result.status.as_str(), ingested.retry), (status, retry), "{oxum}");
    }
}
