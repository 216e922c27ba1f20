//! Tests of the file store: content, ranges, files that are not finished, and maintenance.

use std::{collections::HashSet, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::{ObjectStoreExt, memory::InMemory};

use super::{FileDigest, FileStore, FileStoreLocation, S3Name, S3Settings, StoredFile, maintenance::FileFault};
use crate::web::Secret;

/// SHA-256 of `hello`.
const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

fn open(folder: &Path) -> FileStore {
    FileStore::open(&FileStoreLocation::Folder(folder.to_owned())).unwrap()
}

async fn store(store: &FileStore, pieces: &[&[u8]]) -> StoredFile {
    let mut file = store.create().await.unwrap();
    for piece in pieces {
        file.write(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    file.finish().await.unwrap()
}

async fn content(store: &FileStore, digest: FileDigest, range: Option<std::ops::Range<u64>>) -> Vec<u8> {
    let content = store.read(digest, range).await.unwrap().unwrap();
    let pieces: Vec<Bytes> = content.pieces.try_collect().await.unwrap();
    pieces.concat()
}

#[tokio::test]
async fn file_is_stored_once_under_its_digest() {
    let folder = tempfile::tempdir().unwrap();
    let files = open(&folder.path().join("a/b"));
    let hello = FileDigest::parse(HELLO).unwrap();
    assert_eq!(files.size(hello).await.unwrap(), None);
    assert!(files.read(hello, None).await.unwrap().is_none());
    let first = store(&files, &[b"hel", b"lo"]).await;
    assert_eq!(first, StoredFile { digest: hello, size: 5, media_type: None, is_new: true });
    assert_eq!(store(&files, &[b"hello"]).await, StoredFile { is_new: false, ..first });
    assert_eq!(files.size(hello).await.unwrap(), Some(5));
    assert_eq!(content(&files, hello, None).await, b"hello");
    assert_eq!(content(&files, hello, Some(1..3)).await, b"el");
    assert_eq!(content(&files, hello, Some(3..99)).await, b"lo");
    assert_eq!(store(&files, &[]).await.size, 0);
    assert_eq!(store(&files, &[b"%PDF-1.7\n"]).await.media_type, Some("application/pdf"));
    assert_eq!(store(&files, &[b"<!DOCTYPE html><html></html>"]).await.media_type, None);
}

#[tokio::test]
async fn file_of_several_pieces_is_read_whole_and_in_ranges() {
    let folder = tempfile::tempdir().unwrap();
    let files = open(folder.path());
    let bytes: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let stored = store(&files, &[&bytes]).await;
    assert!(content(&files, stored.digest, None).await == bytes);
    for range in [0..65_536, 65_535..65_537, 65_536..131_072, 70_000..500_000, 799_999..900_000] {
        let end = bytes.len().min(range.end);
        let expected = &bytes[range.start..end];
        assert!(
            content(&files, stored.digest, Some(range.start as u64..range.end as u64)).await == expected,
            "{range:?}"
        );
    }
}

#[test]
fn names_have_one_spelling() {
    assert!(FileDigest::parse(HELLO).is_some());
    for text in ["", "2cf2", &HELLO.to_uppercase(), &format!("{HELLO}00"), "../../etc/passwd"] {
        assert_eq!(FileDigest::parse(text), None, "{text}");
    }
}

#[tokio::test]
async fn damaged_missing_and_foreign_files_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let files = open(folder.path());
    let [good, damaged, missing] = [b"good", b"evil", b"gone"].map(|content| async { store(&files, &[content]).await });
    let (good, damaged, missing) = (good.await.digest, damaged.await.digest, missing.await.digest);
    let path =
        |digest: FileDigest| folder.path().join("sha256").join(&digest.to_string()[..2]).join(digest.to_string());
    std::fs::write(path(damaged), "EVIL").unwrap();
    std::fs::remove_file(path(missing)).unwrap();
    std::fs::write(folder.path().join("sha256/note.txt"), "?").unwrap();
    let mut bytes = 0;
    let report = files.verify(HashSet::from([good, missing]), &mut |read| bytes = read).await.unwrap();
    assert_eq!((report.files, report.bytes, bytes), (2, 8, 8));
    let faults: HashSet<_> = report.faults.iter().map(ToString::to_string).collect();
    let expected =
        [FileFault::Damaged(damaged), FileFault::Missing(missing), FileFault::Foreign("sha256/note.txt".to_owned())];
    assert_eq!(faults, expected.iter().map(ToString::to_string).collect());
}

#[tokio::test]
async fn garbage_is_old_and_unreferenced() {
    let folder = tempfile::tempdir().unwrap();
    let files = open(folder.path());
    let [used, unused] = [b"used", b"free"].map(|content| async { store(&files, &[content]).await });
    let (used, unused) = (used.await.digest, unused.await.digest);
    std::fs::write(folder.path().join("incoming/x#1"), "half").unwrap();
    let referenced = HashSet::from([used]);
    let removal = files.collect_garbage(&referenced, Duration::from_secs(3600)).await.unwrap();
    assert_eq!((removal.kept, removal.removed, removal.removed_bytes), (2, 0, 0));
    let removal = files.collect_garbage(&referenced, Duration::ZERO).await.unwrap();
    assert_eq!((removal.kept, removal.removed, removal.removed_bytes), (1, 1, 8));
    assert_eq!((files.size(used).await.unwrap(), files.size(unused).await.unwrap()), (Some(4), None));
    assert_eq!(std::fs::read_dir(folder.path().join("incoming")).unwrap().count(), 0);
}

#[tokio::test]
async fn unfinished_file_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let files = open(folder.path());
    let mut file = files.create().await.unwrap();
    file.write(Bytes::from(vec![7; 12 * 1024 * 1024])).await.unwrap();
    file.abort().await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path().join("incoming")).unwrap().count(), 0);
}

#[tokio::test]
async fn unfinished_and_unreferenced_files_of_a_bucket_are_removed() {
    let settings = S3Settings {
        endpoint: url::Url::parse("http://s3.example").unwrap(),
        region: S3Name::parse("r").unwrap(),
        bucket: S3Name::parse("b").unwrap(),
        prefix: vec![S3Name::parse("p").unwrap()],
        access_key: Secret::new("hush-id"),
        secret_key: Secret::new("hush-key"),
        ca: None,
    };
    let files = FileStore {
        objects: Arc::new(InMemory::new()),
        location: Arc::new(FileStoreLocation::S3(settings)),
        max_file_bytes: 100,
    };
    let [kept, removed] = [b"kept", b"left"].map(|content| async { store(&files, &[content]).await.digest });
    let (kept, removed) = (kept.await, removed.await);
    files.objects.put(&"incoming/unfinished".into(), "12345".into()).await.unwrap();
    let report = files.collect_garbage(&HashSet::from([kept]), Duration::ZERO).await.unwrap();
    assert_eq!((report.kept, report.removed, report.removed_bytes), (1, 1, 9));
    assert_eq!((files.size(kept).await.unwrap(), files.size(removed).await.unwrap()), (Some(4), None));
    assert_eq!(files.url(kept).unwrap(), format!("s3://b/p/{}", kept.path()));
    let shown = format!("{files:?}");
    assert!(shown.contains("s3.example") && !shown.contains("hush"), "{shown}");
    let mut large = files.create().await.unwrap();
    let error = large.write(Bytes::from(vec![0; 101])).await.unwrap_err();
    assert_eq!(error.to_string(), "it has more than 100 bytes, the maximum size of a file in S3");
}
