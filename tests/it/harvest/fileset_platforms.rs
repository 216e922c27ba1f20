//! Datasets at platforms: which page belongs to which platform, the files, and every way in which a platform refuses.

use serde_json::{Value, json};
use tidings::{
    format::fileset::message::IngestStrategy,
    harvest::{
        Hosts,
        fileset::{
            ClientLimits, IngestFailure, PlatformClient, PlatformToken, RetryRule,
            platform::{Dataset, DatasetLimits, PlatformSettings, dataset_of},
            strategy::Thresholds,
        },
    },
    http_client::{AllowList, OutboundPolicy},
    web::Secret,
};
use url::Url;

use crate::support::{
    python,
    scripted_platform::{Answer, PlatformServer},
};

/// A server that plays all platforms, and a client for it.
struct Platforms {
    server: PlatformServer,
    client: PlatformClient,
    settings: PlatformSettings,
}

impl Platforms {
    async fn start() -> Self {
        let server = PlatformServer::start().await;
        let policy = OutboundPolicy::public_files(AllowList::parse(&["127.0.0.1"]).unwrap());
        let limits = ClientLimits { answer_bytes: 100_000, page_bytes: 10_000 };
        let client = PlatformClient::new(policy, Hosts::default(), limits).await.unwrap();
        let at = |path: &str| Url::parse(&format!("{}{path}", server.url)).unwrap();
        let settings = PlatformSettings {
            invenio: vec![at("/zenodo/")],
            figshare_hosts: vec![server.url.replace("http://", "")],
            figshare_api: at("/figshare-api/v2/"),
            archiveorg: at("/ia/"),
            dryad: at(""),
            osf: at("/osf/"),
            osf_api: at("/osf-api/v2/"),
            tokens: vec![("dryad".to_owned(), PlatformToken::new(&Secret::new("dryad-token")).unwrap())],
        };
        Self { server, client, settings }
    }

    /// Sets the answers, and reads the dataset at a path.
    async fn read(&self, path: &str, answers: &[(&str, Answer)]) -> Result<(Dataset, IngestStrategy), IngestFailure> {
        for (place, answer) in answers {
            self.server.put(place, answer.clone());
        }
        let page = self.client.landing_page(&Url::parse(&format!("{}{path}", self.server.url)).unwrap()).await?;
        let (platform, dataset) = dataset_of(&page, &self.settings, &self.client).await?;
        dataset.check(&DatasetLimits { max_total_size: 1 << 36, max_file_count: 30 })?;
        let strategy = platform.strategy(&dataset, &Thresholds::default());
        Ok((dataset, strategy))
    }

    /// Reads a dataset that is not available; returns the status and the failure.
    async fn refusal(&self, path: &str, answers: &[(&str, Answer)]) -> (String, IngestFailure) {
        let failure = self.read(path, answers).await.unwrap_err();
        (failure.status.to_string(), failure)
    }
}

fn page() -> Answer {
    Answer::html("<html><title>A dataset</title></html>")
}

/// Returns the files as `path size digest url`, where the server is left out of the URL.
fn files(dataset: &Dataset, server: &PlatformServer) -> Vec<String> {
    let line = |file: &tidings::harvest::fileset::platform::PlatformFile| {
        let tidings::format::fileset::message::ManifestFile { path, size, md5, sha1, sha256, platform_url, .. } =
            &file.manifest;
        let size = size.map_or("?".to_owned(), |size| size.to_string());
        let digest = sha256.as_ref().or(sha1.as_ref()).or(md5.as_ref()).map_or("-", String::as_str);
        let url = platform_url.as_deref().unwrap_or("-").replace(&server.url, "");
        format!("{path} {size} {digest} {url}{}", if file.is_soft { " soft" } else { "" })
    };
    dataset.files.iter().map(line).collect()
}

fn zenodo(id: u64, files: &Value) -> Value {
    json!({ "id": id, "conceptrecid": "16", "doi": format!("10.5072/zenodo.{id}"), "files": files,
        "metadata": { "title": "A dataset", "access_right": "open", "creators": [{ "name": "Author, A." }],
            "license": { "id": "cc-by-4.0" }, "publication_date": "2026-01-02" } })
}

#[tokio::test]
async fn fileset_platforms_zenodo_has_four_forms_of_the_list() {
    let platforms = Platforms::start().await;
    let own = |key: &str| json!({ "self": format!("{}/zenodo/api/records/17/files/{key}", platforms.server.url) });
    let old = json!([{ "key": "a b/c.csv", "size": 5, "checksum": "md5:0A", "type": "csv",
        "links": { "self": "https://zenodo.example/api/files/bucket/a%20b/c.csv" } }]);
    let bare = json!([{ "filename": "a b/c.csv", "filesize": 5, "checksum": "0a", "links": own("a b/c.csv") }]);
    let content = json!({ "key": "a b/c.csv", "size": 5, "checksum": "md5:0a", "mimetype": "text/csv",
        "links": { "self": "x", "content": "https://zenodo.example/content" } });
    let mut native = zenodo(17, &json!({ "enabled": true, "count": 1, "entries": { "a b/c.csv": content } }));
    native["id"] = json!("17");
    native["parent"] = json!({ "id": "16" });
    native["access"] = json!({ "record": "public", "files": "public", "embargo": { "active": false, "until": null } });
    native["metadata"]["access_right"] = Value::Null;
    let url = "/zenodo/api/records/17/files/a%20b%2Fc.csv/content";
    for (record, url) in [
        (zenodo(17, &old), "https://zenodo.example/api/files/bucket/a%20b/c.csv"),
        (zenodo(17, &bare), url),
        (native, "https://zenodo.example/content"),
        (zenodo(17, &json!([])), "https://zenodo.example/content"),
    ] {
        let list = json!({ "enabled": true, "entries": [content] });
        let answers = [
            ("/doi/1", Answer::redirect("/zenodo/records/17")),
            ("/zenodo/records/17", page()),
            ("/zenodo/api/records/17", Answer::json(&record)),
            ("/zenodo/api/records/17/files", Answer::json(&list)),
        ];
        let (dataset, strategy) = platforms.read("/doi/1", &answers).await.unwrap();
        assert_eq!(files(&dataset, &platforms.server), [format!("a b/c.csv 5 0a {url}")]);
        assert_eq!(strategy, IngestStrategy::WebFile);
        assert_eq!((dataset.platform_name, &*dataset.platform_id), ("zenodo", "17"));
        assert_eq!(dataset.metadata.creators.len(), 1);
    }
    for path in ["/zenodo/record/17", "/zenodo/records/17?x=1#y", "/zenodo/doi/10.5072/zenodo.17"] {
        let record = Answer::json(&zenodo(17, &old));
        let answers = [("/zenodo/api/records/17", record), (path.split(['?', '#']).next().unwrap(), page())];
        assert_eq!(platforms.read(path, &answers).await.unwrap().0.platform_id, "17", "{path}");
    }
}

#[tokio::test]
async fn fileset_platforms_zenodo_refusals_have_a_status() {
    let platforms = Platforms::start().await;
    let file = json!([{ "key": "a", "size": 5, "links": {} }]);
    let with = |member: &str, value: Value| {
        let mut record = zenodo(17, &file);
        record["metadata"][member] = value;
        record
    };
    let mut embargo = with("access_right", json!("embargoed"));
    embargo["metadata"]["embargo_date"] = json!("2099-01-02");
    let many: Value = (0..31).map(|n| json!({ "key": n.to_string(), "size": 1, "links": {} })).collect();
    let large = json!([{ "key": "a", "size": (1_u64 << 36) + 1, "links": {} }]);
    for (answer, status) in [
        (Answer::new(404, r#"{"status":404,"message":"PID does not exist."}"#), "platform-404"),
        (Answer::new(410, r#"{"status":410,"message":"deleted"}"#), "platform-restricted"),
        (Answer::new(403, "{}"), "platform-restricted"),
        (Answer::new(418, "{}"), "platform-http-error"),
        (Answer::new(500, "{}"), "platform-http-error"),
        (Answer::new(202, ""), "platform-bad-answer"),
        (Answer::html("<html>Are you a robot?</html>"), "platform-bad-answer"),
        (Answer::json(&json!({ "id": 17 })), "platform-bad-answer"),
        (Answer::new(200, vec![b' '; 100_001]), "platform-bad-answer"),
        (Answer::redirect("http://10.0.0.1/"), "platform-error"),
        (Answer::json(&with("access_right", json!("restricted"))), "platform-restricted"),
        (Answer::json(&embargo), "platform-restricted"),
        (Answer::json(&zenodo(18, &file)), "platform-scope"),
        (Answer::json(&zenodo(17, &many)), "too-many-files"),
        (Answer::json(&zenodo(17, &json!([{ "key": "../a", "links": {} }]))), "unsafe-path"),
        (
            Answer::json(&zenodo(17, &json!([{ "key": "a", "links": {} }, { "key": "a", "links": {} }]))),
            "platform-bad-answer",
        ),
        (Answer::json(&zenodo(17, &large)), "too-large-size"),
        (Answer::json(&zenodo(17, &json!({ "enabled": false }))), "empty-manifest"),
    ] {
        let none = Answer::json(&json!({ "enabled": false }));
        let answers = [
            ("/zenodo/records/17", page()),
            ("/zenodo/api/records/17", answer.clone()),
            ("/zenodo/api/records/17/files", none),
        ];
        let (found, failure) = platforms.refusal("/zenodo/records/17", &answers).await;
        assert_eq!(found, status, "{answer:?}: {failure}");
        let is_fixable = ["platform-bad-answer", "platform-error"].contains(&status);
        assert_eq!(failure.retry == RetryRule::AfterFix, is_fixable, "{failure}");
    }
    let (status, failure) =
        platforms.refusal("/zenodo/records/17", &[("/zenodo/api/records/17", Answer::json(&embargo))]).await;
    assert_eq!(status, "platform-restricted");
    assert_eq!(
        failure.retry,
        RetryRule::At("2099-01-02T00:00:00Z".parse().map(tidings::model::Timestamp::from_datetime).unwrap())
    );
    let of_all_versions = zenodo(16, &file);
    let (status, failure) = platforms
        .refusal(
            "/zenodo/records/16",
            &[("/zenodo/records/16", page()), ("/zenodo/api/records/16", Answer::json(&of_all_versions))],
        )
        .await;
    assert!(status == "platform-scope" && failure.message.contains("stands for all versions"), "{failure}");
}

#[tokio::test]
async fn fileset_platforms_that_are_busy_are_asked_again() {
    let platforms = Platforms::start().await;
    let record = Answer::json(&zenodo(17, &json!([{ "key": "a", "size": 5, "links": {} }])));
    platforms.server.put("/zenodo/records/17", page());
    for header in ["retry-after", "ratelimit-reset", "x-ratelimit-reset"] {
        let busy = Answer::new(429, "").with(header, "0");
        platforms.server.put_series("/zenodo/api/records/17", vec![busy.clone(), busy, record.clone()]);
        assert!(platforms.read("/zenodo/records/17", &[]).await.is_ok(), "{header}");
    }
    let long = Answer::new(503, "").with("retry-after", "4000");
    let (status, failure) = platforms.refusal("/zenodo/records/17", &[("/zenodo/api/records/17", long)]).await;
    assert_eq!(status, "platform-http-error");
    assert_eq!(failure.retry, RetryRule::Backoff(Some(std::time::Duration::from_secs(4000))));
}

#[tokio::test]
async fn fileset_platforms_landing_page_failures_have_a_status() {
    let platforms = Platforms::start().await;
    for n in 0..30 {
        platforms.server.put(&format!("/far/{n}"), Answer::redirect(format!("/far/{}", n + 1)));
    }
    for (path, answer, status) in [
        ("/loop", Answer::redirect("/loop"), "redirect-loop"),
        ("/nowhere", Answer::new(301, ""), "bad-redirect"),
        ("/inside", Answer::redirect("http://10.0.0.1/"), "skip-url-blocklist"),
        ("/far/0", Answer::redirect("/far/1"), "redirects-exceeded"),
        ("/gone", Answer::new(410, "gone"), "terminal-bad-status"),
        ("/empty", Answer::html(""), "empty-blob"),
        ("/large", Answer::html(&"x".repeat(10_001)), "body-too-large"),
        ("/blog", page(), "no-platform-match"),
    ] {
        assert_eq!(platforms.refusal(path, &[(path, answer)]).await.0, status, "{path}");
    }
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let failure = platforms.client.landing_page(&Url::parse(&format!("http://{closed}/")).unwrap()).await.unwrap_err();
    assert_eq!((failure.status.as_str(), failure.retry), ("no-capture", RetryRule::Backoff(None)));
}

fn figshare(files: &Value, size: u64) -> Value {
    json!({ "id": 8, "version": 3, "is_public": true, "is_embargoed": false, "size": size, "files": files,
        "title": "A dataset", "authors": [{ "full_name": "A. Author" }], "doi": "10.5072/m9.figshare.8.v3" })
}

fn figshare_file(id: u64) -> Value {
    json!({ "id": id, "name": format!("f{id}"), "size": 2, "computed_md5": "0a", "is_link_only": false,
        "download_url": format!("https://figshare.com/ndownloader/files/{id}") })
}

#[tokio::test]
async fn fileset_platforms_figshare_lists_are_read_in_pages() {
    let platforms = Platforms::start().await;
    let all: Vec<_> = (1..=25).map(figshare_file).collect();
    let mut article = figshare(&json!(all[..10]), 50);
    article["folder_structure"] = json!({ "7": "deep/er" });
    let place = "/figshare-api/v2/articles/8/versions/3";
    platforms.server.put(&format!("{place}/files"), Answer::json(&json!([])));
    platforms.server.put(&format!("{place}/files?page=1&page_size=100"), Answer::json(&json!(all[..10])));
    platforms.server.put(&format!("{place}/files?page=2&page_size=100"), Answer::json(&json!(all[10..])));
    let answers = [
        ("/articles/dataset/A_dataset/8/3", page()),
        ("/articles/A_dataset/8", page()),
        (place, Answer::json(&article)),
        ("/figshare-api/v2/articles/8", Answer::json(&article)),
    ];
    for path in ["/articles/dataset/A_dataset/8/3", "/articles/A_dataset/8"] {
        let (dataset, strategy) = platforms.read(path, &answers).await.unwrap();
        assert_eq!((dataset.files.len(), dataset.total_size()), (25, 50), "{path}");
        assert_eq!(files(&dataset, &platforms.server)[6], "deep/er/f7 2 0a /figshare-api/v2/file/download/7");
        assert_eq!(strategy, IngestStrategy::ArchiveorgFileset, "more than 20 files");
        assert!(dataset.archiveorg_item_name.ends_with("-8-v3"), "{}", dataset.archiveorg_item_name);
    }
    let few = json!([figshare_file(1), figshare_file(2)]);
    let (dataset, strategy) = platforms
        .read("/articles/A_dataset/8", &[("/figshare-api/v2/articles/8", Answer::json(&figshare(&few, 4)))])
        .await
        .unwrap();
    assert_eq!((dataset.files.len(), strategy), (2, IngestStrategy::WebFileset));
}

#[tokio::test]
async fn fileset_platforms_figshare_refusals_have_a_status() {
    let platforms = Platforms::start().await;
    let with = |member: &str, value: Value| {
        let mut article = figshare(&json!([figshare_file(1)]), 2);
        article[member] = value;
        article
    };
    let mut linked = figshare_file(1);
    linked["is_link_only"] = json!(true);
    for (article, status) in [
        (with("is_public", json!(false)), "platform-restricted"),
        (with("is_embargoed", json!(true)), "platform-restricted"),
        (with("is_confidential", json!(true)), "platform-restricted"),
        (with("is_metadata_record", json!(true)), "platform-scope"),
        (with("files", json!([linked])), "platform-scope"),
        (with("size", json!(3)), "platform-bad-answer"),
    ] {
        let answers = [("/articles/A/8", page()), ("/figshare-api/v2/articles/8", Answer::json(&article))];
        assert_eq!(platforms.refusal("/articles/A/8", &answers).await.0, status, "{article}");
    }
}

fn dataverse(files: &Value) -> Value {
    json!({ "status": "OK", "data": { "id": 1, "latestVersion": {
        "datasetPersistentId": "doi:10.5072/DATA/TKCFEF", "versionNumber": 1, "versionMinorNumber": 2,
        "versionState": "RELEASED", "releaseTime": "2026-01-02T03:04:05Z", "license": { "uri": "https://cc.example" },
        "metadataBlocks": { "citation": { "fields": [
            { "typeName": "title", "value": "A dataset" },
            { "typeName": "author", "value": [{ "authorName": { "value": "Author, A." } }] }] } },
        "files": files } } })
}

#[tokio::test]
async fn fileset_platforms_dataverse_tables_are_downloaded_as_deposited() {
    let platforms = Platforms::start().await;
    let listed = json!([
        { "label": "a.pdf", "directoryLabel": "docs/x", "restricted": false, "version": 1, "dataFile": { "id": 1,
            "persistentId": "doi:10.5072/DATA/TKCFEF/AAAAAA", "filesize": 7, "contentType": "application/pdf", "md5": "0a" } },
        { "label": "t.tab", "dataFile": { "id": 2, "persistentId": "", "filename": "t.tab", "filesize": 9, "md5": "0b",
            "originalFileName": "t.xlsx", "originalFileSize": 100, "tabularData": true } },
        { "label": "u.tab", "dataFile": { "id": 3, "filename": "u.tab", "filesize": 9,
            "originalFileFormat": "application/x-stata-13", "originalFileSize": 50 } },
        { "label": "s.bin", "dataFile": { "id": 4, "filesize": 1, "checksum": { "type": "SHA-1", "value": "0C" } } },
        { "label": "l.bin", "dataFile": { "id": 5, "filesize": 1, "checksum": { "type": "SHA-512", "value": "0D" } } }
    ]);
    let answers = [("/dataset.xhtml", page()), ("/api/datasets/:persistentId/", Answer::json(&dataverse(&listed)))];
    let (dataset, _) = platforms.read("/dataset.xhtml?persistentId=doi:10.5072/data/TKCFEF", &answers).await.unwrap();
    assert_eq!(
        files(&dataset, &platforms.server),
        [
            "docs/x/a.pdf 7 0a /api/access/datafile/:persistentId/?persistentId=doi%3A10.5072%2FDATA%2FTKCFEF%2FAAAAAA",
            "t.xlsx 100 - /api/access/datafile/2?format=original soft",
            "u.dta 50 - /api/access/datafile/3?format=original soft",
            "s.bin 1 0c /api/access/datafile/4",
            "l.bin 1 - /api/access/datafile/5",
        ]
    );
    assert_eq!(dataset.files[4].manifest.extra.as_ref().unwrap()["sha512"], "0d");
    assert!(dataset.archiveorg_item_name.ends_with("-TKCFEF-v1.2"), "{}", dataset.archiveorg_item_name);
    assert_eq!(dataset.metadata.title.as_deref(), Some("A dataset"));
    let version = dataverse(&listed)["data"]["latestVersion"].clone();
    let answers = [("/api/datasets/:persistentId/versions/1.2", Answer::json(&json!({ "data": version })))];
    let (dataset, _) =
        platforms.read("/dataset.xhtml?persistentId=doi:10.5072/data/TKCFEF&version=1.2", &answers).await.unwrap();
    assert_eq!(dataset.files.len(), 5);
}

#[tokio::test]
async fn fileset_platforms_dataverse_refusals_have_a_status() {
    let platforms = Platforms::start().await;
    let restricted = json!([{ "label": "a", "restricted": true, "dataFile": { "id": 1 } }]);
    let embargo = json!([{ "label": "a", "dataFile": { "id": 1, "embargo": { "dateAvailable": "2099-01-02" } } }]);
    let mut draft = dataverse(&json!([]));
    draft["data"]["latestVersion"]["versionState"] = json!("DRAFT");
    let mut other = dataverse(&json!([]));
    other["data"]["latestVersion"]["datasetPersistentId"] = json!("doi:10.5072/DATA/OTHERX");
    let pid = "doi:10.5072/data/TKCFEF";
    for (pid, answer, status) in [
        (pid, dataverse(&restricted), "platform-restricted"),
        (pid, dataverse(&embargo), "platform-restricted"),
        (pid, dataverse(&json!([])), "empty-manifest"),
        (pid, draft, "platform-scope"),
        (pid, json!({ "data": { "id": 1 } }), "platform-scope"),
        (pid, other, "platform-bad-answer"),
        ("doi:10.5072/TKCFEF/AUYGU0", dataverse(&json!([])), "platform-scope"),
        ("doi:10.5072/DVN/TKCFEF/AUYGU0", dataverse(&json!([])), "platform-scope"),
    ] {
        let answers = [("/dataset.xhtml", page()), ("/api/datasets/:persistentId/", Answer::json(&answer))];
        let path = format!("/dataset.xhtml?persistentId={pid}");
        assert_eq!(platforms.refusal(&path, &answers).await.0, status, "{pid} {answer}");
    }
}

#[tokio::test]
async fn fileset_platforms_archive_org_lists_the_files_of_the_depositor() {
    let platforms = Platforms::start().await;
    let item = json!({ "metadata": { "mediatype": "data", "title": "An item", "creator": ["A", "B"] }, "files": [
        { "name": "a b/c.csv", "source": "original", "size": "12", "md5": "0a", "sha1": "0b", "format": "Text" },
        { "name": "a.mpg", "source": "original", "size": "3", "md5": "0a", "sha1": "0d", "format": "MPEG2" },
        { "name": "a.gif", "source": "derivative", "size": "3", "md5": "0a", "sha1": "0d" },
        { "name": "thing_meta.xml", "source": "original", "size": "3", "md5": "0a" },
        { "name": "_reviews.xml", "source": "original", "size": "3", "md5": "0a" } ] });
    let answers = [("/ia/details/thing", page()), ("/ia/metadata/thing", Answer::json(&item))];
    let (dataset, strategy) = platforms.read("/ia/details/thing", &answers).await.unwrap();
    assert_eq!(
        files(&dataset, &platforms.server),
        ["a b/c.csv 12 0b /ia/download/thing/a%20b/c.csv", "a.mpg 3 0d /ia/download/thing/a.mpg"]
    );
    assert_eq!((strategy, dataset.metadata.creators.len()), (IngestStrategy::ArchiveorgFileset, 2));
    for (path, answer, status) in [
        ("/ia/details/thing", json!({}), "platform-404"),
        ("/ia/details/thing", json!({ "is_dark": true }), "platform-restricted"),
        ("/ia/details/thing", json!({ "metadata": { "mediatype": "collection" }, "files": [] }), "platform-scope"),
        ("/ia/download/thing/a.csv", item, "platform-scope"),
    ] {
        let answers = [(path, page()), ("/ia/metadata/thing", Answer::json(&answer))];
        assert_eq!(platforms.refusal(path, &answers).await.0, status, "{path} {answer}");
    }
}

#[tokio::test]
async fn fileset_platforms_dryad_gets_its_token_and_nobody_else() {
    let platforms = Platforms::start().await;
    let record = json!({ "identifier": "doi:10.5061/dryad.x", "title": "T", "versionNumber": 2, "visibility": "public",
        "authors": [{ "firstName": "A", "lastName": "B" }],
        "_links": { "stash:version": { "href": "/api/v2/versions/9" } } });
    let file = |n: u64| {
        json!({ "path": format!("f{n}"), "size": n, "mimeType": "text/csv", "status": "copied",
        "digest": "0a", "digestType": "sha-256", "_links": { "stash:download": { "href": format!("/api/v2/files/{n}/download") } } })
    };
    let list = |files: Value| Answer::json(&json!({ "total": 3, "_embedded": { "stash:files": files } }));
    let answers = [
        ("/dataset/doi:10.5061/dryad.x", page()),
        ("/api/v2/datasets/doi%3A10%2E5061%2Fdryad%2Ex", Answer::json(&record)),
        ("/api/v2/versions/9/files?page=1&per_page=100", list(json!([file(1), file(2)]))),
        ("/api/v2/versions/9/files?page=2&per_page=100", list(json!([file(3)]))),
    ];
    let (dataset, _) = platforms.read("/dataset/doi:10.5061/dryad.x", &answers).await.unwrap();
    assert_eq!(
        files(&dataset, &platforms.server),
        ["f1 1 0a /api/v2/files/1/download", "f2 2 0a /api/v2/files/2/download", "f3 3 0a /api/v2/files/3/download"]
    );
    let requests = platforms.server.requests();
    for request in &requests {
        let expected = request.place.starts_with("/api/").then_some("Bearer dryad-token");
        assert_eq!(request.token.as_deref(), expected, "{}", request.place);
    }
    assert!(requests.len() == 4 && !format!("{:?}", platforms.settings).contains("dryad-token"));
    let other = PlatformServer::start().await;
    other.put("/", Answer::json(&record));
    let moved = Answer::redirect(format!("{}/", other.url));
    let (status, _) = platforms
        .refusal(
            "/dataset/doi:10.5061/dryad.y",
            &[("/dataset/doi:10.5061/dryad.y", page()), ("/api/v2/datasets/doi%3A10%2E5061%2Fdryad%2Ey", moved)],
        )
        .await;
    assert_eq!((status.as_str(), other.requests()[0].token.as_deref()), ("platform-bad-answer", None));
}

#[tokio::test]
async fn fileset_platforms_osf_folders_are_walked() {
    let platforms = Platforms::start().await;
    let api = format!("{}/osf-api/v2", platforms.server.url);
    let file = |path: &str| {
        json!({ "attributes": { "kind": "file", "name": "x", "materialized_path": path, "size": 3,
        "extra": { "hashes": { "md5": "0a", "sha256": "0b" } } }, "links": { "download": format!("https://osf.example{path}") } })
    };
    let folder = |href: String| {
        json!({ "attributes": { "kind": "folder", "name": "d", "size": null },
        "relationships": { "files": { "links": { "related": { "href": href, "meta": {} } } } } })
    };
    let root = json!({ "data": [file("/a.csv"), folder(format!("{api}/folder/1/"))], "links": { "next": format!("{api}/next/") } });
    let node =
        json!({ "data": { "attributes": { "title": "P", "description": "", "date_created": "2026-01-02T00:00:00" } } });
    let answers = [
        ("/osf/ab3de/", page()),
        ("/osf-api/v2/nodes/ab3de/", Answer::json(&node)),
        ("/osf-api/v2/nodes/ab3de/files/osfstorage/", Answer::json(&root)),
        ("/osf-api/v2/next/", Answer::json(&json!({ "data": [file("/b.csv")], "links": { "next": null } }))),
        ("/osf-api/v2/folder/1/", Answer::json(&json!({ "data": [file("/d/c.csv")], "links": {} }))),
    ];
    let (dataset, _) = platforms.read("/osf/ab3de/", &answers).await.unwrap();
    assert_eq!(
        files(&dataset, &platforms.server),
        [
            "a.csv 3 0b https://osf.example/a.csv",
            "b.csv 3 0b https://osf.example/b.csv",
            "d/c.csv 3 0b https://osf.example/d/c.csv"
        ]
    );
    let refused = |status, detail: &str| Answer::new(status, json!({ "errors": [{ "detail": detail }] }).to_string());
    let elsewhere = json!({ "data": [folder("https://elsewhere.example/".to_owned())], "links": {} });
    for (place, answer, status) in [
        ("/osf-api/v2/nodes/ab3de/files/osfstorage/", Answer::json(&elsewhere), "platform-bad-answer"),
        (
            "/osf-api/v2/nodes/ab3de/",
            refused(401, "Authentication credentials were not provided."),
            "platform-restricted",
        ),
        ("/osf-api/v2/nodes/ab3de/", refused(404, "Not found."), "platform-404"),
    ] {
        let (found, failure) = platforms.refusal("/osf/ab3de/", &[(place, answer)]).await;
        assert_eq!(found, status, "{failure}");
    }
}

#[tokio::test]
async fn fileset_platforms_pages_that_name_their_files_are_datasets() {
    let platforms = Platforms::start().await;
    let linked = Answer::html(
        r#"<link rel="item" href="/f/b.csv" type="text/csv"><link rel="cite-as" href="https://doi.org/10.5072/x">"#,
    )
    .with("link", "</f/a.csv>; rel=\"item\", </f/b.csv>; rel=item, <https://h.example/b.csv>; rel=\"item\"");
    let (dataset, _) = platforms.read("/set/1", &[("/set/1", linked)]).await.unwrap();
    assert_eq!(
        files(&dataset, &platforms.server),
        ["a.csv ? - /f/a.csv", "b.csv ? - /f/b.csv", "h.example/b.csv ? - https://h.example/b.csv"]
    );
    assert_eq!(dataset.platform_id, "10.5072/x");
    let described =
        Answer::html(r#"<link rel="describedby" href="/crate/ro-crate-metadata.json" type="application/ld+json">"#);
    let graph = json!({ "@context": "https://w3id.org/ro/crate/1.2/context", "@graph": [
        { "@id": "./", "@type": "Dataset", "name": "A crate", "license": { "@id": "https://cc.example" } },
        { "@id": "data/a%20b.csv", "@type": "File", "contentSize": "12", "encodingFormat": ["text/csv", {}], "sha256": "0A" },
        { "@id": "https://h.example/big.bin", "@type": ["File", "SoftwareSourceCode"], "contentSize": 5 },
        { "@id": "#author", "@type": "Person" } ] });
    let answers = [("/set/2", described), ("/crate/ro-crate-metadata.json", Answer::json(&graph))];
    let (dataset, _) = platforms.read("/set/2", &answers).await.unwrap();
    assert_eq!(
        files(&dataset, &platforms.server),
        ["data/a b.csv 12 0a /crate/data/a%20b.csv", "big.bin 5 - https://h.example/big.bin"]
    );
    assert_eq!(dataset.metadata.title.as_deref(), Some("A crate"));
    let file = Answer::new(200, "a,b\n1,2\n").with("content-type", "text/csv; charset=utf-8");
    let (dataset, strategy) = platforms.read("/f/table.csv", &[("/f/table.csv", file)]).await.unwrap();
    assert_eq!(
        (files(&dataset, &platforms.server), strategy),
        (vec!["table.csv 8 - /f/table.csv".to_owned()], IngestStrategy::WebFile)
    );
}

/// pooch, a downloader of datasets, lists the same files with the same digests.
#[tokio::test(flavor = "multi_thread")]
async fn fileset_platforms_list_the_files_that_pooch_lists() {
    let platforms = Platforms::start().await;
    let link = |key: &str| json!({ "self": format!("https://h.example/{key}/content") });
    let files: Value = (0..12)
        .map(|n| json!({ "key": format!("a {n}.csv"), "size": n, "checksum": format!("md5:{n:032x}"), "links": link("a") }))
        .collect();
    let article: Vec<_> = (1..=9).map(figshare_file).collect();
    let listed = json!([
        { "label": "a.pdf", "directoryLabel": "docs", "dataFile": { "id": 1, "filename": "a.pdf", "filesize": 7,
            "persistentId": "doi:10.5072/DATA/TKCFEF/AAAAAA", "md5": "0a" } },
        { "label": "b.pdf", "dataFile": { "id": 2, "filename": "b.pdf", "filesize": 7, "persistentId": "", "md5": "0b" } }
    ]);
    let answers = [
        ("/zenodo/records/17", page()),
        ("/zenodo/api/records/17", Answer::json(&zenodo(17, &files))),
        ("/articles/A/8", page()),
        ("/figshare-api/v2/articles", Answer::json(&json!([{ "id": 8 }]))),
        ("/figshare-api/v2/articles/8", Answer::json(&figshare(&json!(article), 18))),
        ("/figshare-api/v2/articles/8/files", Answer::json(&json!(article))),
        ("/dataset.xhtml", page()),
        ("/api/datasets/:persistentId", Answer::json(&dataverse(&listed))),
        ("/api/datasets/:persistentId/", Answer::json(&dataverse(&listed))),
    ];
    for (platform, path) in [
        ("zenodo", "/zenodo/records/17"),
        ("figshare", "/articles/A/8"),
        ("dataverse", "/dataset.xhtml?persistentId=doi:10.5072/DATA/TKCFEF"),
    ] {
        let (dataset, _) = platforms.read(path, &answers).await.unwrap();
        let ours = dataset.files.iter().map(|file| {
            let name = file.manifest.path.rsplit('/').next().unwrap().to_owned();
            (name, file.manifest.md5.clone().unwrap())
        });
        let url = format!("{}{path}", platforms.server.url);
        let theirs = tokio::task::spawn_blocking(move || python::pooch_registry(platform, &url)).await.unwrap();
        assert_eq!(ours.collect::<std::collections::BTreeMap<_, _>>(), theirs, "{platform}");
    }
}
