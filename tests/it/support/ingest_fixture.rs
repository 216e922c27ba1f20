//! A server that plays Zenodo, and an ingester with a store in a folder.

use std::{fs, path::Path, sync::Arc};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tidings::{
    config::{Config, Flags},
    files::{FileStore, FileStoreLocation},
    filesets::{IngestContext, IngestProgress, IngestSettings, Ingested, Ingester},
    format::{
        DIALECTS,
        fileset::{FilesetRequest, dataset_url},
    },
    http_client::{AllowList, OutboundPolicy},
    transfer::HarvestBudget,
};
use url::Url;

use super::scripted_platform::{Answer, PlatformServer};

/// Returns the settings of the default configuration.
pub(crate) fn defaults() -> IngestSettings {
    Config::load_with(None, [], &Flags::default(), DIALECTS).unwrap().filesets
}

pub(crate) struct IngestFixture {
    pub(crate) server: PlatformServer,
    pub(crate) ingester: Ingester,
    pub(crate) folder: tempfile::TempDir,
}

impl IngestFixture {
    /// Starts both. `change` gets the settings and the URL of the server.
    pub(crate) async fn start(change: impl FnOnce(&mut IngestSettings, &str)) -> Self {
        let server = PlatformServer::start().await;
        let policy = OutboundPolicy::public_files(AllowList::parse(&["127.0.0.1"]).unwrap());
        let mut settings = defaults();
        settings.platforms.invenio = vec![Url::parse(&format!("{}/", server.url)).unwrap()];
        settings.files_url = Some("https://t.example/files".into());
        change(&mut settings, &server.url);
        let folder = tempfile::tempdir().unwrap();
        let files = FileStore::open(&FileStoreLocation::Folder(folder.path().to_owned())).unwrap();
        let budget = HarvestBudget::new(64 << 20, folder.path());
        let ingester = Ingester::new(settings, policy, files, budget).await.unwrap();
        server.put("/records/17", Answer::html("<html><title>A dataset</title></html>").with("set-cookie", "secret=1"));
        Self { server, ingester, folder }
    }

    /// Publishes files, each with its path, the answer with its bytes, and further facts of its entry.
    pub(crate) fn publish(&self, files: &[(&str, Answer, Value)]) {
        let mut entries = Vec::new();
        for (index, (path, answer, facts)) in files.iter().enumerate() {
            self.server.put(&format!("/f/{index}"), answer.clone());
            let mut entry = json!({ "key": path, "links": { "content": format!("{}/f/{index}", self.server.url) } });
            entry.as_object_mut().unwrap().extend(facts.as_object().unwrap().clone());
            entries.push(entry);
        }
        let record = json!({ "id": 17, "metadata": { "access_right": "open", "title": "Ein Datensatz über X",
            "creators": [{ "name": "Author, A." }, { "name": "Author, B." }], "license": { "id": "cc-by-4.0" },
            "publication_date": "2026-01-02" }, "doi": "10.5072/zenodo.17", "files": entries });
        self.server.put("/api/records/17", Answer::json(&record));
    }

    /// Archives the dataset with a landing page at a path.
    pub(crate) async fn ingest_at(&self, path: &str) -> Ingested {
        let url = dataset_url(&format!("{}{path}", self.server.url)).unwrap();
        let (request, context) = (FilesetRequest::new(url, "test"), IngestContext::default());
        self.ingester.ingest(&request, &context, &Arc::new(IngestProgress::default())).await
    }

    /// Publishes files, and archives the dataset.
    pub(crate) async fn ingest(&self, files: &[(&str, Answer, Value)]) -> Ingested {
        self.publish(files);
        self.ingest_at("/records/17").await
    }

    /// Returns the paths of the files in the store.
    pub(crate) fn stored(&self) -> Vec<String> {
        fn walk(folder: &Path, base: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    walk(&entry.path(), base, found);
                } else {
                    found.push(entry.path().strip_prefix(base).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        let mut found = Vec::new();
        walk(self.folder.path(), self.folder.path(), &mut found);
        found.sort();
        found
    }

    /// Returns the bytes of a stored file.
    pub(crate) fn content(&self, digest: &str) -> Vec<u8> {
        fs::read(self.folder.path().join(format!("sha256/{}/{digest}", &digest[..2]))).unwrap()
    }
}

/// Returns the answer with a table.
pub(crate) fn table(content: &str) -> Answer {
    Answer::new(200, content).with("content-type", "text/csv")
}

pub(crate) fn sha256(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

pub(crate) fn md5(content: &[u8]) -> String {
    hex::encode(md5::Md5::digest(content))
}

pub(crate) fn sha1(content: &[u8]) -> String {
    hex::encode(sha1::Sha1::digest(content))
}
