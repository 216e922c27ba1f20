//! Places at platforms: other spellings of those of datasets, and those that are none of a dataset.

use serde_json::{Value, json};

use crate::support::{
    platforms_fixture::{Platforms, dataverse, files, page},
    scripted_platform::Answer,
};

/// Pages of known platforms that are none of one version of a dataset were unknown pages, and waited for a new program.
#[tokio::test]
async fn fileset_places_of_known_platforms_are_out_of_scope() {
    let platforms = Platforms::start().await;
    let not_found = || Answer::json(&json!({ "errors": [{ "detail": "Not found." }] })).status(404);
    platforms.server.put("/osf-api/v2/nodes/ab3de/", not_found());
    platforms.server.put("/osf-api/v2/registrations/ab3de/", not_found());
    platforms.server.put("/osf-api/v2/guids/ab3de/", Answer::json(&json!({ "data": { "type": "files" } })));
    for (path, reason) in [
        ("/zenodo/communities/x", "no record"),
        ("/zenodo/search", "no record"),
        ("/zenodo/records/17/files/a.csv", "single file"),
        ("/dataverse/name", "collection"),
        ("/file.xhtml?fileId=5", "single file"),
        ("/collections/A/8", "no article"),
        ("/s/0123456789", "no article"),
        ("/osf/preprints/abcde", "no project"),
        ("/osf/ab3de/", "one of the files"),
    ] {
        let (status, failure) = platforms.refusal(path, &[(path.split('?').next().unwrap(), page())]).await;
        assert_eq!(status, "platform-scope", "{path}: {failure}");
        assert!(failure.message.contains(reason), "{path}: {failure}");
    }
}

#[tokio::test]
async fn fileset_places_have_several_spellings() {
    let platforms = Platforms::start().await;
    let pid = "perma:DANS.TKCFEF";
    let mut listed = dataverse(&json!([{ "label": "a", "dataFile": { "id": 1 } }]));
    listed["data"]["latestVersion"]["datasetPersistentId"] = json!(pid);
    let answers = [("/dataset.xhtml", page()), ("/api/datasets/:persistentId/", Answer::json(&listed))];
    let (dataset, _) = platforms.read(&format!("/dataset.xhtml?persistentId={pid}"), &answers).await.unwrap();
    assert_eq!((&*dataset.platform_id, dataset.platform_name), (pid, "dataverse"));
    let record = json!({ "identifier": "doi:10.5061/dryad.x", "visibility": "public",
        "_links": { "stash:version": { "href": "/api/v2/versions/9" } } });
    let list = json!({ "total": 1, "_embedded": { "stash:files": [{ "path": "a" }] } });
    for path in
        ["/dataset/doi:10.5061/dryad.x", "/stash/dataset/doi:10.5061/dryad.x", "/landing/show?id=doi:10.5061/dryad.x"]
    {
        let answers = [
            (path.split('?').next().unwrap(), page()),
            ("/api/v2/datasets/doi%3A10%2E5061%2Fdryad%2Ex", Answer::json(&record)),
            ("/api/v2/versions/9/files", Answer::json(&list)),
        ];
        assert_eq!(platforms.read(path, &answers).await.unwrap().0.platform_id, "doi:10.5061/dryad.x", "{path}");
    }
}

/// Two datasets whose identifiers agree after the last slash, and in the version, shared one item.
#[tokio::test]
async fn fileset_places_with_similar_identifiers_have_items_of_their_own() {
    let platforms = Platforms::start().await;
    let mut names = Vec::new();
    for pid in ["doi:10.5072/A/TKCFEF", "doi:10.5072/B/TKCFEF", "hdl:1902.1/TKCFEF"] {
        let mut listed = dataverse(&json!([{ "label": "a", "dataFile": { "id": 1 } }]));
        listed["data"]["latestVersion"]["datasetPersistentId"] = json!(pid);
        let answers = [("/dataset.xhtml", page()), ("/api/datasets/:persistentId/", Answer::json(&listed))];
        let (dataset, _) = platforms.read(&format!("/dataset.xhtml?persistentId={pid}"), &answers).await.unwrap();
        names.push(dataset.archiveorg_item_name);
    }
    for doi in ["doi:10.5061/dryad.x", "doi:10.5062/dryad.x"] {
        let record = json!({ "identifier": doi, "visibility": "public",
            "_links": { "stash:version": { "href": "/api/v2/versions/9" } } });
        let encoded = percent_encoding::utf8_percent_encode(doi, percent_encoding::NON_ALPHANUMERIC);
        let (place, api) = (format!("/dataset/{doi}"), format!("/api/v2/datasets/{encoded}"));
        let list = json!({ "total": 1, "_embedded": { "stash:files": [{ "path": "a" }] } });
        let answers =
            [(&*place, page()), (&*api, Answer::json(&record)), ("/api/v2/versions/9/files", Answer::json(&list))];
        names.push(platforms.read(&place, &answers).await.unwrap().0.archiveorg_item_name);
    }
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all, "{names:?}");
}

/// A project of OSF whose files are elsewhere, and a private one that a link opens.
#[tokio::test]
async fn fileset_places_of_osf_name_components_and_take_the_key_of_a_link() {
    let platforms = Platforms::start().await;
    let node = Answer::json(&json!({ "data": { "attributes": { "title": "P" } } }));
    let list = |entries: Vec<Value>| Answer::json(&json!({ "data": entries, "links": {} }));
    let answers = [
        ("/osf/ab3de/", page()),
        ("/osf-api/v2/nodes/ab3de/", node.clone()),
        ("/osf-api/v2/nodes/ab3de/files/osfstorage/", list(Vec::new())),
        ("/osf-api/v2/nodes/ab3de/children/", list(vec![json!({}), json!({})])),
        ("/osf-api/v2/nodes/ab3de/files/", list(vec![json!({}), json!({}), json!({}), json!({})])),
    ];
    let (status, failure) = platforms.refusal("/osf/ab3de/", &answers).await;
    assert_eq!(status, "empty-manifest");
    assert!(failure.message.contains("it has 2 components and 3 storages"), "{failure}");

    let platforms = Platforms::start().await;
    let own = format!("{}/osf/download/1/?direct=1", platforms.server.url);
    let file = |name: &str, url: &str| json!({ "attributes": { "kind": "file", "name": name, "size": 1 }, "links": { "download": url } });
    let answers = [
        ("/osf/ab3de/", page()),
        ("/osf-api/v2/nodes/ab3de/?view_only=KEY", node),
        (
            "/osf-api/v2/nodes/ab3de/files/osfstorage/?sort=name&page%5Bsize%5D=100&view_only=KEY",
            list(vec![file("a", &own), file("b", "https://elsewhere.example/b")]),
        ),
    ];
    let (dataset, _) = platforms.read("/osf/ab3de/?view_only=KEY", &answers).await.unwrap();
    assert_eq!(
        files(&dataset, &platforms.server),
        ["a 1 - /osf/download/1/?direct=1&view_only=KEY", "b 1 - https://elsewhere.example/b"],
        "the key goes to OSF alone"
    );
}
