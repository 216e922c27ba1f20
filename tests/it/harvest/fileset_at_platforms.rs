//! Datasets at Figshare, Dataverse, archive.org, Dryad and OSF: the files, and every way in which they are refused.

use serde_json::{Value, json};
use tidings::format::fileset::message::IngestStrategy;

use crate::support::{
    platforms_fixture::{Platforms, dataverse, figshare, figshare_file, files, page},
    scripted_platform::{Answer, PlatformServer},
};

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
            "l.bin 1 0d /api/access/datafile/5",
        ]
    );
    assert_eq!(dataset.files[4].manifest.sha512.as_deref(), Some("0d"));
    let name = &dataset.archiveorg_item_name;
    assert!(name.contains("-doi_10.5072_DATA_TKCFEF-v1.2-"), "{name}");
    assert!(dataset.former_item_name.as_ref().unwrap().ends_with("-TKCFEF-v1.2"));
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
        ("doi:10.5072/DVN/TKCFEF/AUYGU0", dataverse(&json!([])), "platform-scope"),
    ] {
        let answers = [("/dataset.xhtml", page()), ("/api/datasets/:persistentId/", Answer::json(&answer))];
        let path = format!("/dataset.xhtml?persistentId={pid}");
        assert_eq!(platforms.refusal(&path, &answers).await.0, status, "{pid} {answer}");
    }
    // The shoulder of a dataset may be as long as a dataset, so the interface decides.
    for (pid, answer, status) in [
        ("doi:10.5072/TKCFEF/AUYGU0", Answer::new(404, "{}"), "platform-scope"),
        ("doi:10.5072/DVN/AUYGU0", Answer::new(404, "{}"), "platform-404"),
        ("doi:10.5072/TKCFEF/AUYGU0", Answer::new(404, "<html>"), "platform-http-error"),
    ] {
        let answers = [("/dataset.xhtml", page()), ("/api/datasets/:persistentId/", answer)];
        assert_eq!(platforms.refusal(&format!("/dataset.xhtml?persistentId={pid}"), &answers).await.0, status, "{pid}");
    }
    for path in ["/file.xhtml?fileId=5", "/dataverse/name"] {
        let place = path.split('?').next().unwrap();
        assert_eq!(platforms.refusal(path, &[(place, page())]).await.0, "platform-scope", "{path}");
    }
    let listed = dataverse(&json!([{ "label": "a", "dataFile": { "id": 1 } }]));
    let answers = [("/dataset.xhtml", page()), ("/api/datasets/:persistentId/", Answer::json(&listed))];
    for query in
        ["persistentId=DOI:10.5072/data/TKCFEF", "persistentid=10.5072/data/TKCFEF", "globalId=doi:10.5072/data/TKCFEF"]
    {
        let (dataset, _) = platforms.read(&format!("/dataset.xhtml?{query}"), &answers).await.unwrap();
        assert_eq!(dataset.platform_id, "doi:10.5072/DATA/TKCFEF", "{query}");
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
        { "name": "thing_reviews.xml", "source": "original", "size": "3", "md5": "0a" },
        { "name": "__ia_thumb.jpg", "source": "original", "size": "3", "md5": "0a" },
        { "name": "history/files/a.mpg.~1~", "source": "original", "size": "3", "md5": "0a", "old_version": "true" },
        { "name": "_README.txt", "source": "original", "size": "3", "sha1": "0e" } ] });
    let answers = [("/ia/details/thing", page()), ("/ia/metadata/thing", Answer::json(&item))];
    let (dataset, strategy) = platforms.read("/ia/details/thing", &answers).await.unwrap();
    assert_eq!(
        files(&dataset, &platforms.server),
        [
            "a b/c.csv 12 0b /ia/download/thing/a%20b/c.csv",
            "a.mpg 3 0d /ia/download/thing/a.mpg",
            "_README.txt 3 0e /ia/download/thing/_README.txt"
        ]
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
    platforms.server.put("/osf-api/v2/registrations/ab3de/", refused(404, "Not found."));
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
