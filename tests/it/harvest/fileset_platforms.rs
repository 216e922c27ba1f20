//! Datasets at Zenodo, at pages that name their files, and landing pages: the files, and every way in which they are refused.

use serde_json::{Value, json};
use tidings::{
    filesets::{JobPlace, RetryRule},
    format::fileset::message::IngestStrategy,
};
use url::Url;

use crate::support::{
    platforms_fixture::{Platforms, dataverse, figshare, figshare_file, files, page, zenodo},
    python,
    scripted_platform::Answer,
};

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
        (Answer::json(&json!({ "id": 17 })), "platform-bad-answer"),
        (Answer::new(200, vec![b' '; 100_001]), "platform-bad-answer"),
        (Answer::redirect("http://10.0.0.1/"), "platform-error"),
        (Answer::json(&with("access_right", json!("restricted"))), "platform-restricted"),
        (Answer::json(&embargo), "platform-restricted"),
        (Answer::json(&zenodo(18, &file)), "platform-scope"),
        (Answer::json(&zenodo(17, &many)), "too-many-files"),
        (Answer::json(&zenodo(17, &json!([{ "key": "../a", "links": {} }]))), "unsafe-path"),
        (Answer::json(&zenodo(17, &json!([{ "size": 1, "links": {} }]))), "platform-bad-answer"),
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
    let failure = platforms
        .client
        .landing_page(&Url::parse(&format!("http://{closed}/")).unwrap(), &JobPlace::default())
        .await
        .unwrap_err();
    assert_eq!((failure.status.as_str(), failure.retry), ("platform-error", RetryRule::WhenListening));
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
