//! A server that plays all data platforms, and a client that reads their datasets.

use serde_json::{Value, json};
use tidings::{
    filesets::{
        ClientLimits, IngestFailure, JobPlace, PlatformClient, PlatformToken,
        platform::{Dataset, DatasetLimits, PlatformFile, PlatformSettings, Thresholds, TokenPlace, dataset_of},
    },
    format::fileset::message::{IngestStrategy, ManifestFile},
    http_client::{AllowList, OutboundPolicy},
    transfer::{HarvestBudget, Hosts},
    web::Secret,
};
use url::Url;

use super::scripted_platform::{Answer, PlatformServer};

/// A server that plays all platforms, and a client for it.
pub(crate) struct Platforms {
    pub(crate) server: PlatformServer,
    pub(crate) client: PlatformClient,
    pub(crate) settings: PlatformSettings,
}

impl Platforms {
    pub(crate) async fn start() -> Self {
        let server = PlatformServer::start().await;
        let policy = OutboundPolicy::public_files(AllowList::parse(&["127.0.0.1"]).unwrap());
        let limits = ClientLimits {
            answer_bytes: 100_000,
            page_bytes: 10_000,
            description_bytes: 100_000,
            ..ClientLimits::default()
        };
        let budget = HarvestBudget::new(64 << 20, &std::env::temp_dir());
        let client = PlatformClient::new(policy, Hosts::default(), limits, budget, None).await.unwrap();
        let at = |path: &str| Url::parse(&format!("{}{path}", server.url)).unwrap();
        let settings = PlatformSettings {
            invenio: vec![at("/zenodo/")],
            figshare_hosts: vec![server.url.replace("http://", "")],
            figshare_api: at("/figshare-api/v2/"),
            figshare_bundles: at("/figshare-bundles/"),
            archiveorg: at("/ia/"),
            dryad: at(""),
            osf: at("/osf/"),
            osf_api: at("/osf-api/v2/"),
            datacite: at("/datacite/"),
            tokens: vec![(TokenPlace::Platform("dryad"), PlatformToken::new(&Secret::new("dryad-token")).unwrap())],
        };
        Self { server, client, settings }
    }

    /// Sets the answers, and reads the dataset at a path.
    pub(crate) async fn read(
        &self,
        path: &str,
        answers: &[(&str, Answer)],
    ) -> Result<(Dataset, IngestStrategy), IngestFailure> {
        for (place, answer) in answers {
            self.server.put(place, answer.clone());
        }
        let page = self
            .client
            .landing_page(&Url::parse(&format!("{}{path}", self.server.url)).unwrap(), &JobPlace::default())
            .await?;
        let (platform, dataset) = dataset_of(&page, &self.settings, &self.client).await?;
        dataset.check(&DatasetLimits { max_total_size: 1 << 36, max_file_count: 30 })?;
        let strategy = platform.strategy(&dataset, &Thresholds::default());
        Ok((dataset, strategy))
    }

    /// Reads a dataset that is not available; returns the status and the failure.
    pub(crate) async fn refusal(&self, path: &str, answers: &[(&str, Answer)]) -> (String, IngestFailure) {
        let failure = self.read(path, answers).await.unwrap_err();
        (failure.status.to_string(), failure)
    }
}

pub(crate) fn page() -> Answer {
    Answer::html("<html><title>A dataset</title></html>")
}

/// Returns the files as `path size digest url`, where the server is left out of the URL.
pub(crate) fn files(dataset: &Dataset, server: &PlatformServer) -> Vec<String> {
    let line = |file: &PlatformFile| {
        let ManifestFile { path, size, md5, sha1, sha256, sha512, platform_url, .. } = &file.manifest;
        let size = size.map_or("?".to_owned(), |size| size.to_string());
        let digest = sha256.as_ref().or(sha1.as_ref()).or(md5.as_ref()).or(sha512.as_ref()).map_or("-", String::as_str);
        let url = platform_url.as_deref().unwrap_or("-").replace(&server.url, "");
        format!("{path} {size} {digest} {url}{}", if file.is_soft { " soft" } else { "" })
    };
    dataset.files.iter().map(line).collect()
}

pub(crate) fn zenodo(id: u64, files: &Value) -> Value {
    json!({ "id": id, "conceptrecid": "16", "doi": format!("10.5072/zenodo.{id}"), "files": files,
        "metadata": { "title": "A dataset", "access_right": "open", "creators": [{ "name": "Author, A." }],
            "license": { "id": "cc-by-4.0" }, "publication_date": "2026-01-02" } })
}

pub(crate) fn figshare(files: &Value, size: u64) -> Value {
    json!({ "id": 8, "version": 3, "is_public": true, "is_embargoed": false, "size": size, "files": files,
        "title": "A dataset", "authors": [{ "full_name": "A. Author" }], "doi": "10.5072/m9.figshare.8.v3" })
}

pub(crate) fn figshare_file(id: u64) -> Value {
    json!({ "id": id, "name": format!("f{id}"), "size": 2, "computed_md5": "0a", "is_link_only": false,
        "download_url": format!("https://figshare.com/ndownloader/files/{id}") })
}

pub(crate) fn dataverse(files: &Value) -> Value {
    json!({ "status": "OK", "data": { "id": 1, "latestVersion": {
        "datasetPersistentId": "doi:10.5072/DATA/TKCFEF", "versionNumber": 1, "versionMinorNumber": 2,
        "versionState": "RELEASED", "releaseTime": "2026-01-02T03:04:05Z", "license": { "uri": "https://cc.example" },
        "metadataBlocks": { "citation": { "fields": [
            { "typeName": "title", "value": "A dataset" },
            { "typeName": "author", "value": [{ "authorName": { "value": "Author, A." } }] }] } },
        "files": files } } })
}
