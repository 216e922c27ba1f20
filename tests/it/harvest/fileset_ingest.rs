//! Ingests of datasets: the files in the store, the web archive, and each way in which a file is not what its manifest says.

use std::{fs, path::Path, sync::Arc};

use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tidings::{
    config::{Config, Flags},
    files::{FileStore, FileStoreLocation},
    format::{
        DIALECTS,
        fileset::{FilesetRequest, dataset_url},
    },
    harvest::fileset::{
        IngestContext, IngestProgress, IngestSettings, Ingested, Ingester, RetryRule, platform::DatasetLimits,
        strategy::Thresholds,
    },
    http_client::{AllowList, OutboundPolicy},
};
use url::Url;

use crate::support::{
    command_line::{command, ended},
    python,
    scripted_platform::{Answer, PlatformServer},
};

/// Returns the settings of the default configuration.
fn defaults() -> IngestSettings {
    Config::load_with(None, [], &Flags::default(), DIALECTS).unwrap().filesets
}

/// A server that plays Zenodo, and an ingester with a store in a folder.
struct Ingest {
    server: PlatformServer,
    ingester: Ingester,
    folder: tempfile::TempDir,
}

impl Ingest {
    async fn start(change: impl FnOnce(&mut IngestSettings)) -> Self {
        let server = PlatformServer::start().await;
        let policy = OutboundPolicy::public_files(AllowList::parse(&["127.0.0.1"]).unwrap());
        let base = Url::parse(&format!("{}/", server.url)).unwrap();
        let mut settings = defaults();
        settings.platforms.invenio = vec![base];
        settings.files_url = Some("https://t.example/files".into());
        change(&mut settings);
        let folder = tempfile::tempdir().unwrap();
        let files = FileStore::open(&FileStoreLocation::Folder(folder.path().to_owned())).unwrap();
        let ingester = Ingester::new(settings, policy, files).await.unwrap();
        server.put("/records/17", Answer::html("<html><title>A dataset</title></html>").with("set-cookie", "secret=1"));
        Self { server, ingester, folder }
    }

    /// Publishes files, and archives the dataset.
    async fn ingest(&self, files: &[(&str, Answer, Value)]) -> Ingested {
        let mut entries = Vec::new();
        for (index, (path, answer, facts)) in files.iter().enumerate() {
            self.server.put(&format!("/f/{index}"), answer.clone());
            let mut entry = json!({ "key": path, "links": { "content": format!("{}/f/{index}", self.server.url) } });
            entry.as_object_mut().unwrap().extend(facts.as_object().unwrap().clone());
            entries.push(entry);
        }
        let record = json!({ "id": 17, "metadata": { "access_right": "open" }, "files": entries });
        self.server.put("/api/records/17", Answer::json(&record));
        self.server.put("/doi/17", Answer::redirect("/records/17"));
        let url = dataset_url(&format!("{}/doi/17", self.server.url)).unwrap();
        self.ingester
            .ingest(&FilesetRequest::new(url, "test"), &IngestContext::default(), &Arc::new(IngestProgress::default()))
            .await
    }

    /// Returns the paths of the files in the store, each with its size.
    fn stored(&self) -> Vec<(String, u64)> {
        fn walk(folder: &Path, base: &Path, found: &mut Vec<(String, u64)>) {
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    walk(&entry.path(), base, found);
                } else {
                    let path = entry.path().strip_prefix(base).unwrap().to_str().unwrap().to_owned();
                    found.push((path, entry.metadata().unwrap().len()));
                }
            }
        }
        let mut found = Vec::new();
        walk(self.folder.path(), self.folder.path(), &mut found);
        found.sort();
        found
    }
}

fn file(content: &str) -> Answer {
    Answer::new(200, content).with("content-type", "text/csv")
}

fn sha256(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

#[tokio::test(flavor = "multi_thread")]
async fn fileset_ingest_writes_a_web_archive_that_others_read() {
    let ingest = Ingest::start(|_| {}).await;
    let big = "0123456789".repeat(30_000);
    let Ingested { result, retry, .. } = ingest
        .ingest(&[
            ("a b.csv", file("one"), json!({ "size": 3, "checksum": "md5:f97c5d29941bfb1b2fdab0874906ab82" })),
            ("deep/er/big.txt", file(&big), json!({})),
        ])
        .await;
    assert_eq!((result.status.as_str(), result.hit, retry), ("success", true, None), "{:?}", result.error_message);
    let manifest = result.manifest.as_ref().unwrap();
    assert_eq!(manifest[0].sha1.as_deref(), Some("fe05bcdcdc4928012781a5f1a2a77cbb5398e106"));
    assert_eq!(manifest[0].archive_url, Some(format!("https://t.example/files/{}", sha256(b"one"))));
    assert_eq!((result.total_size, result.file_count), (Some(300_003), Some(2)));
    assert_eq!(result.ingest_strategy.unwrap().name(), "web-fileset");
    let stored = |digest: &str| ingest.folder.path().join(format!("sha256/{}/{digest}", &digest[..2]));
    let (warc, index) = (result.warc_sha256.clone().unwrap(), result.cdx_sha256.clone().unwrap());
    let (warc_file, index) = (stored(&warc), fs::read_to_string(stored(&index)).unwrap());
    let named = ingest.folder.path().join(format!("{warc}.warc.gz"));
    fs::copy(&warc_file, &named).unwrap();
    let judged = tokio::task::spawn_blocking(move || python::read_warc(&named)).await.unwrap();
    let records = judged["records"].as_array().unwrap();
    let kinds: Vec<_> = records.iter().map(|record| record["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["warcinfo", "response", "response", "response"]);
    assert_eq!(judged["digests"], json!(true), "warcio checks block and payload digests");
    let bodies: Vec<_> = records[1..].iter().map(|record| record["sha256"].as_str().unwrap().to_owned()).collect();
    let page = sha256(b"<html><title>A dataset</title></html>");
    assert_eq!(bodies, [page, sha256(b"one"), sha256(big.as_bytes())]);
    assert!(records.iter().all(|record| !record.to_string().contains("secret")));
    let lines = |text: &str| {
        let parse = |line: &str| {
            let (key, fields) = line.split_once(" {").unwrap();
            (key.to_owned(), serde_json::from_str::<Value>(&format!("{{{fields}")).unwrap())
        };
        let mut lines: Vec<_> = text.lines().map(parse).collect();
        lines.sort_by(|one, other| one.0.cmp(&other.0));
        lines
    };
    assert_eq!(lines(&index), lines(judged["cdxj"].as_str().unwrap()), "the index is the one that cdxj-indexer makes");
}

#[tokio::test]
async fn fileset_ingest_of_a_large_dataset_fills_an_item() {
    let ingest = Ingest::start(|settings| settings.thresholds.web_files = 1).await;
    let Ingested { result, .. } =
        ingest.ingest(&[("a.csv", file("one"), json!({})), ("deep/er/b.csv", file("two"), json!({}))]).await;
    assert_eq!((result.status.as_str(), result.ingest_strategy.unwrap().name()), ("success", "archiveorg-fileset"));
    let item = result.archiveorg_item_name.unwrap();
    let paths: Vec<_> = ingest.stored().into_iter().map(|(path, _)| path).collect();
    assert!(paths.contains(&format!("items/{item}/a.csv")) && paths.contains(&format!("items/{item}/deep/er/b.csv")));
    let others = paths.iter().filter(|path| path.starts_with("work/") && path.ends_with("/result"));
    assert_eq!((paths.len(), others.count()), (5, 1), "each file under its digest and in the item: {paths:?}");
    let Ingested { result, .. } = ingest.ingest(&[("a.csv", file("one"), json!({}))]).await;
    assert_eq!(result.status.as_str(), "success-file");
    let file = result.fileset_file.unwrap();
    assert_eq!((file.file_meta.unwrap().size_bytes, file.cdx.is_some()), (3, true));
}

#[tokio::test]
async fn fileset_ingest_tells_how_a_file_differs() {
    let ingest = Ingest::start(|settings| settings.max_file_bytes = 100).await;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    std::io::Write::write_all(&mut gzip, b"one").unwrap();
    let wrong = "0".repeat(32);
    for (answer, facts, status) in [
        (file("one"), json!({ "size": 4 }), "mismatch-size"),
        (file("one more"), json!({ "size": 4 }), "mismatch-size"),
        (file("one"), json!({ "checksum": format!("md5:{wrong}") }), "mismatch-md5"),
        (file("one"), json!({ "checksum": format!("sha1:{wrong}00000000") }), "mismatch-sha1"),
        (file("one"), json!({ "checksum": format!("sha256:{wrong}{wrong}") }), "mismatch-sha256"),
        (file(&"x".repeat(101)), json!({}), "too-large-size"),
        (Answer::new(202, ""), json!({}), "error-platform-download"),
        (
            Answer::new(200, "<html>Are you a robot?").with("content-type", "text/html"),
            json!({}),
            "error-platform-download",
        ),
        (Answer::new(404, "no"), json!({}), "error-platform-download"),
        (Answer::new(401, "no"), json!({}), "error-platform-download"),
        (Answer::redirect("http://10.0.0.1/"), json!({}), "error-platform-download"),
        (Answer::redirect("file:///etc/passwd"), json!({}), "error-platform-download"),
    ] {
        let Ingested { result, retry, .. } =
            ingest.ingest(&[("good.csv", file("good"), json!({})), ("x.csv", answer.clone(), facts)]).await;
        assert_eq!((result.status.as_str(), result.hit), (status, false), "{answer:?} {:?}", result.error_message);
        let manifest = result.manifest.unwrap();
        assert_eq!(manifest[1].status, Some(result.status), "{answer:?}");
        assert!(result.error_message.unwrap().contains("x.csv"), "the message names the file");
        assert_eq!(retry, Some(RetryRule::Never), "{answer:?}");
    }
    for answer in [Answer::new(500, "x"), Answer::new(429, "").with("retry-after", "0")] {
        let Ingested { result, retry, .. } = ingest.ingest(&[("x.csv", answer, json!({}))]).await;
        assert_eq!((result.status.as_str(), retry), ("error-platform-download", Some(RetryRule::Backoff(None))));
    }
    let good = sha256(b"good");
    assert!(
        ingest.stored().iter().all(|(path, _)| path.ends_with(&good)),
        "only the good file is left: {:?}",
        ingest.stored()
    );
}

/// The command archives datasets of which one does not exist, named as arguments and on standard input.
#[tokio::test(flavor = "multi_thread")]
async fn fileset_ingest_is_a_command() {
    let ingest = Ingest::start(|_| {}).await;
    ingest.ingest(&[("a b.csv", file("one"), json!({ "size": 3 }))]).await;
    let (url, folder) = (ingest.server.url.clone(), tempfile::tempdir().unwrap());
    let config = folder.path().join("tidings.toml");
    let text = format!("[delivery]\nallow = [\"127.0.0.1\"]\n[filesets.platforms]\nzenodo = [\"{url}\"]\n");
    fs::write(&config, text).unwrap();
    let store = folder.path().join("archive");
    let good = format!("{url}/records/17");
    let lines = format!(
        "{good}\n\n{}\n",
        json!({ "ingest_type": "dataset", "base_url": format!("{url}/records/18"), "ext_ids": {} })
    );
    let run = move |arguments: &[&str], input: Option<&str>| {
        let options = ["ingest", "--config", config.to_str().unwrap(), "--folder", store.to_str().unwrap()];
        let mut command = command(&[&options[..], arguments].concat());
        let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, input.unwrap_or_default().as_bytes()).unwrap();
        drop(stdin);
        ended(child)
    };
    let (code, output, errors) = run(&[&good], None);
    assert_eq!((code, errors.as_str()), (0, ""), "{output}");
    assert!(output.starts_with(&format!("success-file {good}\n")) && output.contains(&sha256(b"one")), "{output}");
    let (code, output, errors) = run(&["--json"], Some(&lines));
    assert_eq!((code, errors.contains("1 of 2 datasets are archived")), (1, true), "{errors}");
    let results: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&results[0]["status"], &results[1]["status"]), (&json!("success-file"), &json!("platform-404")));
    assert_eq!(results[1]["request"]["ext_ids"], json!({}), "the result repeats the whole request");
    let (code, _, errors) = run(&["my data"], None);
    assert!(code == 2 && errors.contains("write an http or https URL, or a DOI"), "{errors}");
    let (code, _, errors) = run(&[], Some("{\"ingest_type\": \"pdf\", \"base_url\": \"https://h.example/1\"}"));
    assert!(code == 2 && errors.contains("only \"dataset\" is archived"), "{errors}");
}

#[test]
fn fileset_ingest_defaults_are_those_of_the_configuration() {
    let IngestSettings { limits, thresholds, .. } = defaults();
    assert_eq!((limits, thresholds), (DatasetLimits::default(), Thresholds::default()));
}
