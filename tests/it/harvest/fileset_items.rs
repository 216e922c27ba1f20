//! Uploads of datasets to items of archive.org.

use serde_json::json;
use tidings::{
    filesets::{ArchiveKeys, IngestSettings, Ingested, ItemSettings, RetryRule},
    web::Secret,
};
use url::Url;

use crate::support::{
    fake_archive_org::FakeArchiveOrg,
    ingest_fixture::{IngestFixture, md5, sha1, sha256, table},
    python,
    scripted_platform::Answer,
};

/// Sends large datasets to a server that plays archive.org. A dataset of two files is large.
pub(super) fn upload_to(archive: &FakeArchiveOrg, settings: &mut IngestSettings) {
    let wait = std::time::Duration::from_millis(5);
    settings.thresholds.web_files = 0;
    settings.platforms.archiveorg = Url::parse(&format!("{}/", archive.url)).unwrap();
    settings.items = Some(ItemSettings {
        s3: Url::parse(&format!("{}/s3/", archive.url)).unwrap(),
        keys: ArchiveKeys::new("access", &Secret::new("secret")).unwrap(),
        collection: "datasets".to_owned(),
        busy: wait,
        verification: wait,
    });
}

fn files() -> [(&'static str, Answer, serde_json::Value); 3] {
    let facts =
        |content: &str| json!({ "size": content.len(), "checksum": format!("md5:{}", md5(content.as_bytes())) });
    [
        ("a b.csv", table("one"), facts("one")),
        ("deep/er/ü.csv", table("two two"), facts("two two")),
        ("c.csv", table("three"), facts("three")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn fileset_items_are_uploaded_verified_and_known_the_next_time() {
    let archive = FakeArchiveOrg::start().await;
    let fixture = IngestFixture::start(|settings, _| upload_to(&archive, settings)).await;
    {
        let mut items = archive.items.lock().unwrap();
        items.refusals = vec![(503, "SlowDown"), (500, "InternalError")];
        (items.over_limit, items.slow_metadata) = (2, 2);
    }
    let Ingested { result, retry, .. } = fixture.ingest(&files()).await;
    assert_eq!((result.status.as_str(), retry), ("success", None), "{:?}", result.error_message);
    let item = result.archiveorg_item_name.clone().unwrap();
    let expected = ["a b.csv", "c.csv", "deep/er/ü.csv"].map(|path| format!("{item}/{path}"));
    assert_eq!(archive.paths(), expected);
    let manifest = result.manifest.unwrap();
    assert_eq!(manifest[0].archive_url, Some(format!("{}/download/{item}/a%20b.csv", archive.url)));
    assert!(manifest.iter().all(|file| file.status.as_ref().unwrap().as_str() == "success" && file.sha1.is_some()));
    let uploads = archive.items.lock().unwrap().uploads.clone();
    assert!(uploads[1].headers.get("x-archive-meta00-title").is_none(), "the metadata is sent with the first file");
    let title = uploads[0].headers["x-archive-meta00-title"].to_str().unwrap().to_owned();
    assert_eq!(title, "uri(Ein%20Datensatz%20%C3%BCber%20X)");
    let (source, host) = (format!("{}/records/17", fixture.server.url), fixture.server.url.replace("http://", ""));
    let ours: Vec<_> =
        uploads[0].headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    let metadata = json!({ "collection": "datasets", "mediatype": "data", "title": "Ein Datensatz über X",
        "creator": ["Author, A.", "Author, B."], "date": "2026-01-02", "doi": "10.5072/zenodo.17",
        "license": "cc-by-4.0", "source": source, "external-identifier": format!("urn:tidings:zenodo:{host}:17") });
    let theirs = tokio::task::spawn_blocking(move || python::internetarchive_headers(&metadata)).await.unwrap();
    let decoded = |text: &str| {
        let inner = text.strip_prefix("uri(").and_then(|text| text.strip_suffix(')'));
        percent_encoding::percent_decode_str(inner.unwrap_or(text)).decode_utf8().unwrap().into_owned()
    };
    let of_archive = |headers: &[(String, String)]| -> std::collections::BTreeMap<String, String> {
        let headers = headers.iter().filter(|(name, _)| name.starts_with("x-archive-"));
        headers.map(|(name, value)| (name.clone(), decoded(value))).collect()
    };
    let (mut ours, theirs) = (of_archive(&ours), of_archive(&theirs));
    ours.remove("x-archive-size-hint");
    assert_eq!(ours, theirs, "internetarchive sends the same headers");

    // The next ingest requests no file, because the item has all of them.
    let downloads = || fixture.server.requests().iter().filter(|request| request.place.starts_with("/f/")).count();
    let before = downloads();
    let Ingested { result, .. } = fixture.ingest(&files()).await;
    assert_eq!((result.status.as_str(), downloads()), ("success-existing", before));
    let manifest = result.manifest.unwrap();
    assert!(manifest.iter().all(|file| file.status.as_ref().unwrap().as_str() == "exists"));
    assert_eq!(manifest[0].sha1, Some(sha1(b"one")), "the item has a digest that the platform lacks");
}

#[tokio::test]
async fn fileset_item_that_has_some_files_gets_the_others() {
    let archive = FakeArchiveOrg::start().await;
    let fixture = IngestFixture::start(|settings, _| upload_to(&archive, settings)).await;
    // The first attempt ends after one file.
    archive.items.lock().unwrap().refusals = vec![(403, "AccessDenied")];
    let Ingested { result, retry, .. } = fixture.ingest(&files()).await;
    assert_eq!((result.status.as_str(), retry), ("error-archiveorg-upload", Some(RetryRule::AfterFix)));
    let message = result.error_message.unwrap();
    assert!(message.contains("403 Forbidden (AccessDenied)") && !message.contains("secret"), "{message}");
    let item = result.archiveorg_item_name.unwrap();
    archive.items.lock().unwrap().files.insert(format!("{item}/a b.csv"), b"one".to_vec());
    let Ingested { result, .. } = fixture.ingest(&files()).await;
    assert_eq!(result.status.as_str(), "success", "{:?}", result.error_message);
    let statuses: Vec<_> = result.manifest.unwrap().into_iter().map(|file| file.status.unwrap().to_string()).collect();
    assert_eq!(statuses, ["exists", "success", "success"]);
    let uploaded: Vec<_> = archive.items.lock().unwrap().uploads.iter().map(|upload| upload.path.clone()).collect();
    assert_eq!(uploaded, [format!("{item}/deep/er/ü.csv"), format!("{item}/c.csv")]);
    // A file with other content is never replaced.
    archive.items.lock().unwrap().files.insert(format!("{item}/c.csv"), b"other".to_vec());
    let Ingested { result, .. } = fixture.ingest(&files()).await;
    assert_eq!(result.status.as_str(), "mismatch-existing");
    let of_file = result.manifest.unwrap().into_iter().find(|file| file.path == "c.csv").unwrap();
    assert_eq!(of_file.status.unwrap().as_str(), "mismatch-existing");
    assert_eq!(archive.items.lock().unwrap().files[&format!("{item}/c.csv")], b"other");
}

#[tokio::test]
async fn fileset_item_failures_are_repeated_later_or_never() {
    let archive = FakeArchiveOrg::start().await;
    let fixture = IngestFixture::start(|settings, _| upload_to(&archive, settings)).await;
    for (refusals, over_limit, slow_metadata, is_dark, named) in [
        (20, 0, 0, false, "SlowDown"),
        (0, 20, 0, false, "over its limit"),
        (0, 0, 20, false, "does not show 1 of 3"),
        (0, 0, 0, true, "not public"),
    ] {
        {
            let mut items = archive.items.lock().unwrap();
            *items = crate::support::fake_archive_org::Items::default();
            items.refusals = vec![(503, "SlowDown"); refusals];
            (items.over_limit, items.slow_metadata, items.is_dark) = (over_limit, slow_metadata, is_dark);
        }
        let Ingested { result, retry, .. } = fixture.ingest(&files()).await;
        let message = result.error_message.unwrap();
        assert_eq!(result.status.as_str(), "error-archiveorg-upload", "{message}");
        assert!(message.contains(named), "{message}");
        assert_eq!(retry == Some(RetryRule::Never), is_dark, "{message}");
    }
}

/// The bundle of a large dataset is one file of its item, also after an upload that has failed.
#[tokio::test]
async fn fileset_item_gets_the_bundle() {
    let archive = FakeArchiveOrg::start().await;
    let fixture = IngestFixture::start(|settings, _| {
        upload_to(&archive, settings);
        settings.thresholds.bundle_above_files = Some(1);
    })
    .await;
    let mut tar = tar::Builder::new(Vec::new());
    for (path, content) in [("a b.csv", "one"), ("deep/er/ü.csv", "two two"), ("c.csv", "three")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    let bundle = tar.into_inner().unwrap();
    fixture.server.put("/api/records/17/files-archive", Answer::new(200, bundle.clone()));
    archive.items.lock().unwrap().refusals = vec![(503, "SlowDown"); 20];
    let Ingested { result, .. } = fixture.ingest(&files()).await;
    assert_eq!(result.status.as_str(), "error-archiveorg-upload", "{:?}", result.error_message);
    archive.items.lock().unwrap().refusals.clear();
    for _ in 0..2 {
        let Ingested { result, .. } = fixture.ingest(&files()).await;
        assert_eq!(result.status.as_str(), "success", "{:?}", result.error_message);
        let (item, of_bundle) = (result.archiveorg_item_name.unwrap(), result.fileset_bundle.unwrap());
        let path = of_bundle.archiveorg_bundle_path.unwrap();
        assert_eq!(archive.paths(), [format!("{item}/{path}")]);
        assert_eq!(of_bundle.capture.file_meta.unwrap().sha256hex, sha256(&bundle));
    }
    assert_eq!(archive.items.lock().unwrap().uploads.len(), 1, "the second time, the item has it");
}
