//! Closed spans are sealed once, with bytes that depend on the changes alone, also when the gateway is killed meanwhile.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::json;
use tidings::{
    files::FileStoreLocation,
    segments::{KeptSegments, Segments, seal_spans},
};
use tokio_util::sync::CancellationToken;

use super::{content, fill, segments, until};
use crate::support::{
    gateway::{Gateway, PATIENCE, command},
    journal_fixture::{OpenJournal, journal_file, stderr, verify_ok},
};

#[tokio::test]
async fn sealed_spans_have_the_changes_of_the_pages() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 25_000).await;
    let gateway = Gateway::start(folder.path());
    let sealed = segments(&gateway, 2).await;
    let numbers: Vec<_> =
        sealed.iter().map(|segment| (&segment["first"], &segment["last"], &segment["changes"])).collect();
    assert_eq!(json!(numbers), json!([[1, 10_000, 10_000], [10_001, 20_000, 10_000]]));
    let changes = gateway.changes().await;
    assert_eq!(changes.len(), 25_000);
    assert_eq!(content(&gateway, &sealed[0]).await, changes[..10_000]);
    assert_eq!(content(&gateway, &sealed[1]).await, changes[10_000..20_000]);
    let facts = &sealed[0];
    assert_eq!(
        (&facts["sources"], &facts["hosts"], &facts["parents"]),
        (&json!(["s"]), &json!(["http://localhost"]), &json!([]))
    );
    assert_eq!(facts["frames"].as_array().unwrap().len(), 10);
    assert_eq!(facts["journal"], gateway.json("/segments").await["journal"]);

    // The file: fixed, in parts, and not compressed once more.
    let url = format!("{}{}", gateway.url, facts["url"].as_str().unwrap());
    let head = gateway.http.head(&url).header("accept-encoding", "gzip").send().await.unwrap();
    let header = |name: &str| head.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("cache-control"), "public, max-age=31536000, immutable");
    assert_eq!(
        (header("content-type"), header("content-length")),
        ("application/zstd".into(), facts["size"].to_string())
    );
    assert!(!head.headers().contains_key("content-encoding"));
    let known = gateway.http.get(&url).header("if-none-match", header("etag")).send().await.unwrap();
    assert_eq!(known.status(), 304);
    let frame = &facts["frames"][3];
    let (offset, size) = (frame["offset"].as_u64().unwrap(), frame["size"].as_u64().unwrap());
    let part =
        gateway.http.get(&url).header("range", format!("bytes={offset}-{}", offset + size - 1)).send().await.unwrap();
    assert_eq!(part.status(), 206);
    let lines = zstd::decode_all(&part.bytes().await.unwrap()[..]).unwrap();
    assert!(lines.starts_with(b"{\"seq\":3001,"), "a frame can be read alone");
    for absent in ["/segments/1.ndjson.zst", "/segments/x", &facts["url"].as_str().unwrap().replace("0001-", "0002-")] {
        let answer = gateway.http.get(format!("{}{absent}", gateway.url)).send().await.unwrap();
        assert_eq!(answer.status(), 404, "{absent}");
    }
}

#[tokio::test]
async fn bytes_depend_on_the_changes_alone() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 12_000).await;
    let mut files = Vec::new();
    for _ in 0..2 {
        let place = tempfile::tempdir().unwrap();
        let opened = OpenJournal::at(folder.path());
        // What the attempt before has noted.
        let sealed = opened.journal.clone();
        let location = FileStoreLocation::Folder(place.path().to_owned());
        let segments = Segments::new(sealed.clone(), location, KeptSegments::Changes);
        let stop = CancellationToken::new();
        let worker = tokio::spawn(seal_spans(sealed.clone(), Some(segments.clone()), stop.clone()));
        let manifest = until("sealed", async || segments.after(tidings::model::Seq(0), 1).await.unwrap().pop()).await;
        stop.cancel();
        worker.await.unwrap();
        files.push((manifest.file, manifest.digest, manifest.changes));
        sealed
            .write_span(tidings::journal::segments::SpanWrite::RemoveSegments { before: tidings::model::Seq(20_000) })
            .await
            .unwrap();
        drop((sealed, segments));
        opened.close();
    }
    assert_eq!(files[0], files[1]);
    assert_eq!(files[0].2, 10_000);
}

#[tokio::test]
async fn a_kill_at_any_step_loses_and_repeats_nothing() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 41_000).await;
    let noted = || -> u32 {
        // Without the right to write, because the last connection would otherwise remove the log that the kill has left.
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let journal = rusqlite::Connection::open_with_flags(journal_file(folder.path()), flags).unwrap();
        journal.query_row("SELECT count(*) FROM segments", [], |row| row.get(0)).unwrap()
    };
    let mut cut_off = 0;
    for _ in 0..6 {
        let before = files(folder.path());
        let mut gateway = Gateway::start_as(command(), folder.path(), &["--listen", "127.0.0.1:0"]);
        // A file is written and about to be noted, or a later one is being written.
        let began = Instant::now();
        while files(folder.path()) == before && noted() < 4 {
            assert!(began.elapsed() < PATIENCE, "nothing is sealed");
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..20_000)));
        gateway.kill();
        cut_off += u32::from(noted() < 4);
    }
    assert!(cut_off > 1, "the kills came after all spans were sealed");
    let gateway = Gateway::start(folder.path());
    let sealed = segments(&gateway, 4).await;
    let changes = gateway.changes().await;
    let mut read = Vec::new();
    for segment in &sealed {
        read.extend(content(&gateway, segment).await);
    }
    assert_eq!(read, changes[..40_000]);
    drop(gateway);
    verify_ok(&journal_file(folder.path()));
}

/// Returns the number of files, and of those that are not finished.
fn files(data: &std::path::Path) -> usize {
    let count = |folder: std::path::PathBuf| fs::read_dir(folder).map_or(0, Iterator::count);
    let stored = fs::read_dir(data.join("segments/sha256"));
    let stored = stored.map_or(0, |folders| folders.map(|folder| count(folder.unwrap().path())).sum());
    stored + count(data.join("segments/incoming"))
}

#[tokio::test]
async fn lines_of_a_segment_need_no_zstandard() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 11_000).await;
    let gateway = Gateway::start(folder.path());
    let segment = segments(&gateway, 1).await.remove(0);
    let file = format!("{}{}", gateway.url, segment["url"].as_str().unwrap());
    let url = file.strip_suffix(".zst").unwrap();
    let expected = zstd::decode_all(&gateway.http.get(&file).send().await.unwrap().bytes().await.unwrap()[..]).unwrap();
    let get = async |encoding: &str| gateway.http.get(url).header("accept-encoding", encoding).send().await.unwrap();
    let plain = get("identity").await;
    let header = |response: &reqwest::Response, name: &str| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header(&plain, "cache-control"), "public, max-age=31536000, immutable");
    assert_eq!(header(&plain, "content-type"), "application/x-ndjson");
    let tag = header(&plain, "etag");
    assert!(plain.bytes().await.unwrap() == expected);
    let compressed = get("gzip").await;
    assert_eq!(
        (header(&compressed, "content-encoding"), header(&compressed, "etag")),
        ("gzip".to_owned(), tag.clone())
    );
    let compressed = compressed.bytes().await.unwrap();
    assert!(compressed.len() < expected.len() / 4);
    let mut lines = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&compressed[..]), &mut lines).unwrap();
    assert!(lines == expected);
    let head = gateway.http.head(url).send().await.unwrap();
    assert_eq!((head.status().as_u16(), header(&head, "etag")), (200, tag.clone()));
    assert!(!head.headers().contains_key("content-length"), "{:?}", head.headers());
    assert_eq!(gateway.http.get(url).header("if-none-match", tag).send().await.unwrap().status(), 304);
    let other = url.replace("00000000000000000001-", "00000000000000000002-");
    assert_eq!(gateway.http.get(other).send().await.unwrap().status(), 404);

    // Nobody gets lines of a damaged file.
    let name = segment["file"].as_str().unwrap();
    let path = folder.path().join("segments/sha256").join(&name[..2]).join(name);
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_eq!(get("identity").await.status(), 503);
    // It decompresses nothing.
    assert_eq!(gateway.http.head(url).send().await.unwrap().status(), 200);
    fs::remove_file(&path).unwrap();
    assert_eq!(get("gzip").await.status(), 503);
}

#[tokio::test]
async fn a_missing_or_damaged_file_is_said_and_sealed_again() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 11_000).await;
    let gateway = Gateway::start(folder.path());
    let sealed = segments(&gateway, 1).await;
    let place = folder.path().join("segments");
    let verify = |gateway: &Gateway| {
        let mut verify = command();
        verify.args(["files", "verify", "--segments", "--gateway", &gateway.url, "--folder"]).arg(&place);
        let verified = verify.output().unwrap();
        (verified.status.code(), String::from_utf8(verified.stdout.clone()).unwrap(), stderr(&verified))
    };
    let name = sealed[0]["file"].as_str().unwrap();
    let path = folder.path().join("segments/sha256").join(&name[..2]).join(name);
    let (code, output, errors) = verify(&gateway);
    assert_eq!((code, output.starts_with("1 files (")), (Some(0), true), "{output}{errors}");
    let mut bytes = fs::read(&path).unwrap();
    bytes[7000] ^= 4;
    fs::write(&path, bytes).unwrap();
    let (code, _, errors) = verify(&gateway);
    assert!(code == Some(1) && errors.contains(&format!("the segment {name} is damaged; copy it")), "{errors}");
    fs::remove_file(&path).unwrap();
    let (code, _, errors) = verify(&gateway);
    assert!(code == Some(1) && errors.contains(&format!("the segment {name} is missing")), "{errors}");
    let absent =
        gateway.http.get(format!("{}{}", gateway.url, sealed[0]["url"].as_str().unwrap())).send().await.unwrap();
    assert_eq!(absent.status(), 503);
    drop(gateway);
    let gateway = Gateway::start(folder.path());
    until("the file is sealed again", async || path.exists().then_some(())).await;
    assert_eq!(segments(&gateway, 1).await, sealed);
    assert_eq!(content(&gateway, &sealed[0]).await, gateway.changes().await[..10_000]);
}
