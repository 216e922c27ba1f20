//! Datasets at places that no platform is: bags, and DOIs whose files DataCite knows. Misbehaviour of platforms, in each step.

use serde_json::{Value, json};
use tidings::filesets::{Ingested, RetryRule};

use crate::support::{
    fatcat_judge::judge,
    ingest_fixture::{IngestFixture, md5, sha256, table},
    platforms_fixture::{Platforms, dataverse, figshare, figshare_file, files, page, zenodo},
    python,
    scripted_platform::Answer,
};

fn text(content: &str) -> Answer {
    Answer::new(200, content).with("content-type", "text/plain")
}

#[tokio::test]
async fn fileset_platforms_bags_are_read_from_their_manifests() {
    let platforms = Platforms::start().await;
    let one = sha256(b"one");
    let manifest = format!("{one}  data/a b.csv\n{one} *data/50%25/ü.csv\n\n{one}\t./data/far.bin\n");
    let info = "Bag-Software-Agent: x\nPayload-Oxum: 9.3\nExternal-Description: A bag\nSource-Organization: Org\n";
    platforms.server.put("/bag/manifest-sha256.txt", text(&manifest));
    platforms.server.put("/bag/manifest-md5.txt", text("not this one"));
    platforms.server.put("/bag/fetch.txt", text("https://h.example/far.bin 3 data/far.bin\n"));
    platforms.server.put("/bag/bag-info.txt", text(info));
    let folder = Answer::html(
        r#"<a href="../">up</a><A class=x HREF="manifest-md5.txt">m</a> <a href='/bag/manifest-sha256.txt'>
           <a href="tagmanifest-sha256.txt">"#,
    );
    let linked = Answer::html(r#"<link rel="item" href="/bag/manifest-sha256.txt">"#);
    for (path, page) in [("/bag/", Some(folder)), ("/page", Some(linked)), ("/bag/manifest-sha256.txt", None)] {
        page.into_iter().for_each(|page| platforms.server.put(path, page));
        let (dataset, _) = platforms.read(path, &[]).await.unwrap();
        assert_eq!(
            files(&dataset, &platforms.server),
            [
                format!("data/a b.csv ? {one} /bag/data/a%20b.csv"),
                format!("data/50%/ü.csv ? {one} /bag/data/50%25/%C3%BC.csv"),
                format!("data/far.bin 3 {one} https://h.example/far.bin")
            ],
            "{path}"
        );
        assert_eq!((dataset.platform_name, dataset.metadata.description.as_deref()), ("bagit", Some("A bag")));
        assert_eq!(dataset.platform_id, "/bag/");
    }
    for (manifest, info, status) in [
        (text(&manifest), text("Payload-Oxum: 9.4"), "platform-bad-answer"),
        (text("no digest\n"), text("x: y"), "platform-bad-answer"),
        (text(&format!("{one}  ../up\n")), text("x: y"), "unsafe-path"),
        (text(&format!("{one}  /etc/passwd\n")), text("x: y"), "unsafe-path"),
        (text(&format!("{one}  a%0Ab\n")), text("x: y"), "unsafe-path"),
        (text(""), text("x: y"), "empty-manifest"),
        (text("\n"), text("x: y"), "empty-manifest"),
        (Answer::new(200, vec![0xff; 10]), text("x: y"), "platform-bad-answer"),
        (text(&manifest), Answer::new(500, ""), "platform-http-error"),
    ] {
        let answers = [("/bag/manifest-sha256.txt", manifest.clone()), ("/bag/bag-info.txt", info.clone())];
        assert_eq!(platforms.refusal("/page", &answers).await.0, status, "{manifest:?} {info:?}");
    }
}

#[tokio::test]
async fn fileset_platforms_datacite_knows_the_files_of_some_dois() {
    let platforms = Platforms::start().await;
    let doi = |content: Value| {
        let attributes = json!({ "contentUrl": content, "titles": [{ "title": "T" }], "publicationYear": 2026,
            "creators": [{ "name": "A" }] });
        Answer::json(&json!({ "data": { "id": "10.5072/x.1", "attributes": attributes } }))
    };
    let media = json!({ "data": [{ "attributes": { "url": "https://h.example/c.csv", "mediaType": "text/csv" } }] });
    let none = json!({ "data": [] });
    let (place, media_place) = ("/datacite/dois/10.5072%2Fx.1", "/datacite/dois/10.5072%2Fx.1/media");
    for (landing, content, media, expected) in [
        (page(), json!("https://h.example/a.zip"), &none, vec!["a.zip ? - https://h.example/a.zip"]),
        (
            Answer::new(403, "robot?"),
            json!(["https://h.example/a", "https://h.example/b"]),
            &none,
            vec!["a ? - https://h.example/a", "b ? - https://h.example/b"],
        ),
        (page(), Value::Null, &media, vec!["c.csv ? - https://h.example/c.csv"]),
    ] {
        let answers = [
            ("/doi/10.5072/X.1", Answer::redirect("/landing")),
            ("/landing", landing),
            (place, doi(content)),
            (media_place, Answer::json(media)),
        ];
        let (dataset, _) = platforms.read("/doi/10.5072/X.1", &answers).await.unwrap();
        assert_eq!(files(&dataset, &platforms.server), expected);
        assert_eq!((dataset.platform_name, &*dataset.platform_id), ("datacite", "10.5072/x.1"));
    }
    for (landing, answer, status) in [
        (page(), doi(json!([])), "no-platform-match"),
        (page(), Answer::new(404, "{}"), "no-platform-match"),
        (Answer::new(403, "robot?"), doi(Value::Null), "terminal-bad-status"),
        (page(), Answer::new(500, "{}"), "platform-http-error"),
    ] {
        let answers = [("/landing", landing), (place, answer.clone()), (media_place, Answer::json(&none))];
        assert_eq!(platforms.refusal("/doi/10.5072/X.1", &answers).await.0, status, "{answer:?}");
    }
}

/// Facts of each platform that the code of 2021 did not know.
#[tokio::test]
async fn fileset_platforms_of_today_are_understood() {
    let platforms = Platforms::start().await;
    let mut article = figshare(&json!([figshare_file(1)]), 2);
    article["download_disabled"] = json!(true);
    let answers = [("/articles/A/8", page()), ("/figshare-api/v2/articles/8", Answer::json(&article))];
    assert_eq!(platforms.refusal("/articles/A/8", &answers).await.0, "platform-restricted");
    article["is_embargoed"] = json!(true);
    article["embargo_date"] = json!("2099-01-02");
    let answers = [("/figshare-api/v2/articles/8", Answer::json(&article))];
    let (_, failure) = platforms.refusal("/articles/A/8", &answers).await;
    assert!(matches!(failure.retry, RetryRule::At(_)), "{failure}");
    let answers = [("/figshare-api/v2/articles/8", Answer::new(202, "").with("x-amzn-waf-action", "challenge"))];
    assert_eq!(platforms.refusal("/articles/A/8", &answers).await.0, "platform-bad-answer");
    let answers = [("/figshare-api/v2/articles/8", Answer::json(&figshare(&json!([figshare_file(1)]), 2)))];
    let bundle = platforms.read("/articles/A/8", &answers).await.unwrap().0.bundle_url.unwrap();
    assert!(bundle.ends_with("/figshare-bundles/articles/8/versions/3"), "{bundle}");

    let pid = "/dataset.xhtml?persistentId=doi:10.5072/data/TKCFEF";
    let embargo = |date: &str| json!([{ "label": "a", "dataFile": { "id": 1, "embargo": { "dateAvailable": date } } }]);
    let of_dataverse =
        |answer: &Value| [("/dataset.xhtml", page()), ("/api/datasets/:persistentId/", Answer::json(answer))];
    assert!(platforms.read(pid, &of_dataverse(&dataverse(&embargo("2020-01-02")))).await.is_ok(), "it has ended");
    let mut deaccessioned = dataverse(&json!([]));
    deaccessioned["data"]["latestVersion"]["versionState"] = json!("DEACCESSIONED");
    assert_eq!(platforms.refusal(pid, &of_dataverse(&deaccessioned)).await.0, "platform-scope");

    let file = json!({ "name": "a", "source": "original", "size": "1", "md5": "0a", "private": "true" });
    for (kind, files, status) in [("data", json!([file]), "platform-restricted"), ("web", json!([]), "platform-scope")]
    {
        let item = json!({ "metadata": { "mediatype": kind }, "files": files });
        let answers = [("/ia/details/thing", page()), ("/ia/metadata/thing", Answer::json(&item))];
        assert_eq!(platforms.refusal("/ia/details/thing", &answers).await.0, status);
    }

    let listed = json!({ "count": 2, "entries": [{ "key": "a", "size": 1, "links": {} }] });
    let answers = [("/zenodo/records/17", page()), ("/zenodo/api/records/17", Answer::json(&zenodo(17, &listed)))];
    assert_eq!(platforms.refusal("/zenodo/records/17", &answers).await.0, "platform-bad-answer");

    let entry = json!({ "attributes": { "kind": "file", "name": "a", "materialized_path": "/a", "size": 3,
        "extra": { "hashes": {} } }, "links": { "download": "https://osf.example/a" } });
    let node = json!({ "data": { "attributes": { "title": "R" } } });
    let answers = [
        ("/osf/zz3de/", page()),
        ("/osf-api/v2/nodes/zz3de/", Answer::new(404, "{}")),
        ("/osf-api/v2/registrations/zz3de/", Answer::json(&node)),
        ("/osf-api/v2/registrations/zz3de/files/osfstorage/", Answer::json(&json!({ "data": [entry], "links": {} }))),
    ];
    assert_eq!(platforms.read("/osf/zz3de/", &answers).await.unwrap().0.files.len(), 1);

    let record = json!({ "identifier": "doi:10.5061/dryad.x", "visibility": "public",
        "_links": { "stash:version": { "href": "/api/v2/versions/9" } } });
    let file = json!({ "path": "f", "size": 1, "digest": "0a", "digestType": "adler-32",
        "_links": { "stash:download": { "href": "/api/v2/files/1/download" } } });
    let answers = [
        ("/dataset/doi:10.5061/dryad.x", page()),
        ("/api/v2/datasets/doi%3A10%2E5061%2Fdryad%2Ex", Answer::json(&record)),
        ("/api/v2/versions/9/files", Answer::json(&json!({ "total": 1, "_embedded": { "stash:files": [file] } }))),
    ];
    let (dataset, _) = platforms.read("/dataset/doi:10.5061/dryad.x", &answers).await.unwrap();
    assert_eq!(dataset.files[0].manifest.extra.as_ref().unwrap()["adler32"], "0a");
    assert!(dataset.bundle_url.unwrap().ends_with("/api/v2/versions/9/download"));
}

/// Garbage, cut bodies, challenges and busy servers, at the landing page, the interface and the file.
#[tokio::test]
async fn fileset_ingest_of_misbehaving_platforms_ends_with_a_status() {
    let fixture = IngestFixture::start(|settings, _| settings.client.answer_bytes = 10_000).await;
    let cut = || Answer::new(200, "{\"id\": 17").with("content-length", "100").with("content-type", "application/json");
    let record =
        |entry: Value| Answer::json(&json!({ "id": 17, "metadata": { "access_right": "open" }, "files": [entry] }));
    let url = format!("{}/f/0", fixture.server.url);
    let entry = || json!({ "key": "a.csv", "size": 3, "links": { "content": url } });
    let inside = json!({ "key": "a.csv", "size": 3, "links": { "content": "http://10.0.0.1/a" } });
    let page = || Answer::html("<html>");
    for (name, landing, interface, file, status, retry) in [
        (
            "cut page",
            cut().with("content-type", "text/html"),
            Answer::new(404, "{}"),
            table("one"),
            "platform-404",
            RetryRule::Never,
        ),
        ("cut answer", page(), cut(), table("one"), "platform-error", RetryRule::Backoff(None)),
        (
            "binary",
            page(),
            Answer::new(200, vec![0xff; 100]),
            table("one"),
            "platform-bad-answer",
            RetryRule::Backoff(None),
        ),
        (
            "deep",
            page(),
            Answer::new(200, "[".repeat(9000)),
            table("one"),
            "platform-bad-answer",
            RetryRule::Backoff(None),
        ),
        ("endless", page(), Answer::zeros(1 << 26), table("one"), "platform-bad-answer", RetryRule::AfterFix),
        ("list", page(), Answer::json(&json!([])), table("one"), "platform-bad-answer", RetryRule::AfterFix),
        (
            "negative",
            page(),
            record(json!({ "key": "a.csv", "size": -1, "links": { "content": url } })),
            Answer::new(500, ""),
            "error-platform-download",
            RetryRule::Backoff(None),
        ),
        ("inside", page(), record(inside), table("one"), "error-platform-download", RetryRule::Never),
        (
            "loopback by redirect",
            page(),
            record(entry()),
            Answer::redirect("http://[::1]/"),
            "error-platform-download",
            RetryRule::Never,
        ),
        (
            "cut file",
            page(),
            record(entry()),
            Answer::new(200, "o").with("content-length", "3"),
            "error-platform-download",
            RetryRule::Backoff(None),
        ),
        ("file grows", page(), record(entry()), Answer::zeros(2 << 20), "mismatch-size", RetryRule::Never),
        (
            "empty 202",
            page(),
            record(entry()),
            Answer::new(202, ""),
            "error-platform-download",
            RetryRule::Backoff(None),
        ),
        ("robot", page(), record(entry()), Answer::html("<html>"), "error-platform-download", RetryRule::Backoff(None)),
        ("part", page(), record(entry()), Answer::new(206, "one"), "error-platform-download", RetryRule::Backoff(None)),
    ] {
        fixture.server.put("/records/17", landing);
        fixture.server.put("/api/records/17", interface);
        fixture.server.put("/f/0", file);
        let Ingested { result, retry: found, .. } = fixture.ingest_at("/records/17").await;
        let message = result.error_message.unwrap_or_default();
        assert_eq!((result.status.as_str(), found), (status, Some(retry)), "{name}: {message}");
        assert!(message.len() < 400, "{name}: {message}");
    }
    fixture.server.put("/records/17", page());
    fixture.server.put("/f/0", table("one"));
    let now = chrono::Utc::now().timestamp().to_string();
    for (header, value) in [
        ("retry-after", "0"),
        ("retry-after", "Sat, 21 Nov 2020 08:00:05 GMT"),
        ("ratelimit", "\"default\";r=0;t=0"),
        ("ratelimit-reset", "0"),
        ("x-ratelimit-reset", "0"),
        ("x-ratelimit-reset", now.as_str()),
    ] {
        let busy = Answer::new(429, "").with(header, value);
        fixture.server.put_series("/api/records/17", vec![busy.clone(), busy, record(entry())]);
        let Ingested { result, .. } = fixture.ingest_at("/records/17").await;
        assert_eq!(result.status.as_str(), "success-file", "{header}: {value}");
    }
}

/// The rules of fatcat, the catalogue that imports the results, accept ours.
#[tokio::test]
async fn fileset_ingest_results_are_those_that_fatcat_imports() {
    let fixture = IngestFixture::start(|settings, _| settings.thresholds.web_file_bytes = 5).await;
    let facts =
        |content: &str| json!({ "size": content.len(), "checksum": format!("md5:{}", md5(content.as_bytes())) });
    let entry = |path: &'static str, content: &'static str| (path, Answer::new(200, content), facts(content));
    for (files, strategy) in [
        (vec![entry("a", "one")], "web-file"),
        (vec![entry("a", "one and more")], "archiveorg-file"),
        (vec![entry("a", "one"), entry("b.csv", "two")], "web-fileset"),
        (vec![entry("a", "one"), entry("b/c.csv", "two and more")], "archiveorg-fileset"),
    ] {
        let Ingested { result, .. } = fixture.ingest(&files).await;
        assert_eq!(result.ingest_strategy.unwrap().name(), strategy);
        let result = serde_json::to_value(&result).unwrap();
        assert_eq!(judge(&result), "accepted", "{result}");
        let mut other = result.clone();
        other["manifest"][0]["md5"] = other["manifest"][0]["sha1"].clone();
        let is_file = strategy.ends_with("-file");
        assert_eq!(judge(&other), if is_file { "skip-bad-hashes" } else { "accepted" });
        for (member, refusal) in [("mimetype", "skip-partial-file-info"), ("sha1", "skip-partial-file-info")] {
            let mut other = result.clone();
            other["manifest"][0].as_object_mut().unwrap().remove(member);
            assert_eq!(judge(&other), refusal);
        }
    }
    let Ingested { result, .. } = fixture.ingest(&[("a", Answer::new(404, ""), json!({}))]).await;
    assert_eq!(judge(&serde_json::to_value(&result).unwrap()), "skip-hit");
}

/// datahugger, another downloader, lists the same files with the same digests.
#[tokio::test(flavor = "multi_thread")]
async fn fileset_platforms_list_the_files_that_datahugger_lists() {
    let platforms = Platforms::start().await;
    let server = platforms.server.url.clone();
    let of_osf = |n: usize| {
        json!({ "id": n.to_string(), "attributes": { "kind": "file", "name": format!("f{n}"), "size": n,
            "materialized_path": format!("/{}f{n}", if n > 1 { "d/" } else { "" }),
            "extra": { "hashes": { "md5": "0a", "sha256": format!("{n:064x}") } } },
            "links": { "download": format!("https://osf.example/{n}") } })
    };
    let place = format!("{server}/osf-api/v2/nodes/ab3de/files/osfstorage/d/");
    let folder = json!({ "attributes": { "kind": "folder", "name": "d", "size": null },
        "relationships": { "files": { "links": { "related": { "href": place } } } } });
    let root = json!({ "data": [of_osf(1), folder], "links": { "next": null } });
    let first = json!({ "data": [of_osf(2)], "links": { "next": format!("{place}?page=2") } });
    let second = json!({ "data": [of_osf(3)], "links": { "next": null } });
    let providers = json!({ "data": [{ "attributes": { "provider": "osfstorage" } }] });
    let node = json!({ "data": { "attributes": { "title": "P" } } });
    let files_of_record: Value = (1..5)
        .map(|n| {
            json!({ "id": n.to_string(), "key": format!("f{n}"), "size": n, "checksum": format!("md5:{n:032x}"),
            "links": { "self": format!("https://h.example/{n}/content") } })
        })
        .collect();
    let answers = [
        ("/osf/ab3de/", page()),
        ("/osf-api/v2/nodes/ab3de/", Answer::json(&node)),
        ("/osf-api/v2/nodes//ab3de/files/", Answer::json(&providers)),
        ("/osf-api/v2/nodes/ab3de/files/osfstorage/", Answer::json(&root)),
        ("/osf-api/v2/nodes/ab3de/files/osfstorage/d/", Answer::json(&first)),
        ("/osf-api/v2/nodes/ab3de/files/osfstorage/d/?page=2", Answer::json(&second)),
        ("/osf-api/v2/nodes/ab3de/files/osfstorage/d/?page=2&sort=name&page%5Bsize%5D=100", Answer::json(&second)),
        ("/zenodo/records/17", page()),
        ("/zenodo/api/records/17", Answer::json(&zenodo(17, &files_of_record))),
    ];
    for (platform, path) in [("osf", "/osf/ab3de/"), ("zenodo", "/zenodo/records/17")] {
        let (dataset, _) = platforms.read(path, &answers).await.unwrap();
        let ours: Vec<_> = dataset
            .files
            .iter()
            .map(|file| {
                let of = &file.manifest;
                json!([of.path, of.size, of.sha256.as_ref().or(of.md5.as_ref()), of.platform_url])
            })
            .collect();
        let url = format!("{server}{path}");
        let theirs = tokio::task::spawn_blocking(move || python::datahugger_files(platform, &url)).await.unwrap();
        assert_eq!(json!(ours), theirs, "{platform}");
    }
}
