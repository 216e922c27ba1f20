//! `tidings seed-registry` crawls a repository, so that the first purge lists items from the time before the
//! gateway.

use serde_json::{Value, json};

use crate::support::{
    command_line::ended,
    crawl_fixture::{BASE_6, CrawlFixture, objects, post_part},
    crawled_repository::{CrawledRepository, Fedora3, Fedora6, Resource},
    fedora3_messages::{BASE, Call},
    gateway::{Gateway, command},
    journal_fixture::{journal_file, verify_ok},
};

/// Posts a message; returns its change.
async fn post_event(gateway: &Gateway, source: &str, kind: &str, message: String) -> Value {
    let (status, answer) = gateway.post(source, kind, message).await;
    assert_eq!(status, 201, "{answer}");
    gateway.changes().await.pop().unwrap()
}

async fn purge(gateway: &Gateway, number: u64, pid: &str) -> Value {
    let call = Call { number, method: "purgeObject", pid, parameters: &[], returned: None };
    post_event(gateway, "fedora3", "application/atom+xml", call.message()).await
}

/// Returns the items of a change in order, each with its change type and its state before.
fn items(change: &Value) -> Vec<[String; 3]> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let item = |item: &Value| [text(&item["uri"]), text(&item["change"]), text(&item["stateBefore"])];
    change["items"].as_array().unwrap().iter().map(item).collect()
}

/// Returns Fedora 6's event for a deleted resource, whose only type is `ldp:Resource`.
fn delete_event(number: u64, path: &str) -> String {
    json!({
        "@context": "https://www.w3.org/ns/activitystreams",
        "id": format!("urn:uuid:00000000-0000-4000-8000-{number:012x}"), "type": ["Delete"], "name": "delete resource",
        "published": "2026-03-01T10:00:00.000Z", "actor": [{ "type": "Person", "id": "info:fedora/fedoraAdmin" }],
        "object": { "id": format!("{BASE_6}{path}"), "type": ["http://www.w3.org/ns/prov#Entity"] },
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn seeded_fedora_3_purge_lists_earlier_items() {
    crate::support::needs_sqlite();
    let repository = CrawledRepository::start(Fedora3::with(321)).await;
    let fixture = CrawlFixture::of(&repository);
    let gateway = fixture.gateway();
    // An event about this object arrives before the crawl, and the object has changed since.
    let call = Call {
        number: 1,
        method: "setDatastreamState",
        pid: "demo:11",
        parameters: &[("dsID", "OBJ"), ("dsState", "D")],
        returned: None,
    };
    post_event(&gateway, "fedora3", "application/atom+xml", call.message()).await;

    assert_eq!(
        fixture.seed_successfully("fedora3", &[]).await,
        "walked 321 objects: 321 filled, 0 changes, 0 known, 0 left out\n"
    );
    assert_eq!(gateway.changes().await.len(), 1, "a silent crawl made a change");
    assert_eq!(objects(&gateway).await.len(), 321);
    let details = gateway.json(&format!("/objects?uri={BASE}/objects/demo:5")).await;
    assert_eq!(details["source"], "fedora3");
    assert_eq!(
        details["items"][1]["content"]["url"],
        format!("{BASE}/objects/demo:5/datastreams/DC/content?asOfDateTime=2021-01-01T00:00:00.005Z")
    );
    assert_eq!(
        (&details["items"][1]["content"]["mediaType"], &details["items"][1]["content"]["size"]),
        (&json!("text/xml"), &json!(17))
    );

    let change = purge(&gateway, 2, "demo:35").await;
    let object = format!("{BASE}/objects/demo:35");
    let item =
        |id: &str, state: &str| [format!("{object}/datastreams/{id}/content"), "DELETE".to_owned(), state.to_owned()];
    let itself = [object.clone(), "DELETE".to_owned(), "INACTIVE".to_owned()];
    let expected = [itself, item("DC", "ACTIVE"), item("OBJ", "INACTIVE"), item("RELS-EXT", "ACTIVE")];
    assert_eq!(items(&change), expected);
    assert_eq!(change["parent"], format!("{BASE}/objects/demo:36"));
    assert_eq!(change["types"], json!(["info:fedora/demo:Image"]));
    // The event takes precedence over the crawl because it is newer.
    assert_eq!(items(&purge(&gateway, 3, "demo:11").await)[2][2], "DELETED");

    // The crawl is complete; a second one finds only known facts.
    let (code, stdout, stderr) = fixture.seed("fedora3", &[]).await;
    assert_eq!((code, stdout.as_str()), (0, "walked 321 objects before\n"));
    assert!(stderr.contains("--restart to crawl again"), "{stderr}");
    let again = fixture.seed_successfully("fedora3", &["--restart"]).await;
    assert_eq!(again, "walked 321 objects: 0 filled, 0 changes, 321 known, 0 left out\n");

    // The registry survives a restart and agrees with the journal.
    let before = objects(&gateway).await;
    let mut gateway = gateway;
    gateway.kill();
    let report = verify_ok(&journal_file(fixture.data()));
    assert!(report.complete && report.objects == 321, "{report:?}");
    let gateway = fixture.gateway();
    assert_eq!(objects(&gateway).await, before);
    let walk = gateway.json("/sources/fedora3/registry").await;
    assert_eq!((&walk["walk"]["done"], &walk["walk"]["objects"]), (&json!(true), &json!(321)));
    assert!(gateway.stop().success());
    assert!(verify_ok(&journal_file(fixture.data())).complete);
}

#[tokio::test(flavor = "multi_thread")]
async fn seeded_fedora_6_delete_has_the_earlier_state() {
    crate::support::needs_sqlite();
    for sends_fedora_types in [true, false] {
        let mut holds = Fedora6::with(12);
        holds.sends_fedora_types = sends_fedora_types;
        holds.resources.insert("/collection-1/gone".to_owned(), Resource { is_gone: true, ..Resource::binary(1) });
        let repository = CrawledRepository::start(holds).await;
        let fixture = CrawlFixture::of(&repository);
        let gateway = fixture.gateway();
        // Ten containers with one container each, twelve binaries in the outer and one in the inner container,
        // and descriptions.
        let walked = 10 * (2 + 2 * 13);
        let told_of = format!("walked {walked} objects: {walked} filled, 0 changes, 0 known, 0 left out\n");
        assert_eq!(fixture.seed_successfully("fedora", &[]).await, told_of);
        assert!(gateway.changes().await.is_empty());
        assert_eq!(objects(&gateway).await.len(), walked);

        let path = "/collection-3/image%207.jpg";
        let details = gateway.json(&format!("/objects?uri={}", format!("{BASE_6}{path}").replace('%', "%25"))).await;
        let content = &details["items"][0]["content"];
        assert_eq!((&content["size"], &content["mediaType"]), (&json!(7), &json!("image/jpeg")), "{details}");
        assert_eq!(content["digest"], json!({ "algorithm": "sha-512", "value": "ab".repeat(64) }));
        let change = post_event(&gateway, "fedora", "application/ld+json", delete_event(1, path)).await;
        assert_eq!(items(&change), [[format!("{BASE_6}{path}"), "DELETE".to_owned(), String::new()]]);
        assert_eq!(change["parent"], format!("{BASE_6}/collection-3"));
        let types = change["types"].to_string();
        assert!(types.contains("repository#Binary") && types.contains("ldp#NonRDFSource"), "{types}");
        // Fedora deletes a container with all its contents and sends one event for each.
        for (number, path, parent) in [
            (2, "/collection-3/zz/ghost/deep/fcr:metadata", "/collection-3/zz/ghost/deep"),
            (3, "/collection-3/zz/ghost/deep", "/collection-3/zz"),
            (4, "/collection-3/zz", "/collection-3"),
            (5, "/collection-3", "/"),
        ] {
            let change = post_event(&gateway, "fedora", "application/ld+json", delete_event(number, path)).await;
            assert_eq!(items(&change)[0][..2], [format!("{BASE_6}{path}"), "DELETE".to_owned()]);
            assert_eq!(change["parent"], format!("{BASE_6}{parent}"), "{path}");
            assert!(!change["types"].as_array().unwrap().is_empty() || path.ends_with("metadata"), "{change}");
        }
        assert!(gateway.stop().success());
        assert!(verify_ok(&journal_file(fixture.data())).complete);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn seeding_with_changes_notifies_once() {
    crate::support::needs_sqlite();
    let repository = CrawledRepository::start(Fedora3::with(60)).await;
    let fixture = CrawlFixture::of(&repository);
    let gateway = fixture.gateway();
    let call = Call {
        number: 1,
        method: "addDatastream",
        pid: "demo:9",
        parameters: &[("dsID", "DC"), ("dsState", "A")],
        returned: Some("DC"),
    };
    post_event(&gateway, "fedora3", "application/atom+xml", call.message()).await;
    let summary = fixture.seed_successfully("fedora3", &["--emit"]).await;
    assert_eq!(summary, "walked 60 objects: 0 filled, 60 changes, 0 known, 0 left out\n");
    let changes = gateway.changes().await;
    assert_eq!(changes.len(), 61);
    let of =
        |pid: &str| changes.iter().rev().find(|change| change["object"] == format!("{BASE}/objects/{pid}")).unwrap();
    assert_eq!(of("demo:5")["items"][2]["stateAfter"], "INACTIVE");
    assert!(of("demo:5")["items"].as_array().unwrap().iter().all(|item| item["change"] == "ADD"));
    // The crawl omits facts older than those of the event, and reports the others.
    let reported = items(of("demo:9"));
    assert!(reported.len() == 2 && !reported.iter().any(|item| item[0].contains("/DC/")), "{reported:?}");
    for again in [&["--emit", "--restart"][..], &["--restart"]] {
        let summary = fixture.seed_successfully("fedora3", again).await;
        assert!(summary.contains(" 0 changes, "), "{summary}");
    }
    assert_eq!(gateway.changes().await.len(), 61);
    // Facts of a silent crawl are known too.
    repository.change(|holds| holds.objects.extend(Fedora3::with(70).objects));
    assert!(fixture.seed_successfully("fedora3", &["--restart"]).await.contains(" 10 filled, 0 changes, "));
    assert!(fixture.seed_successfully("fedora3", &["--restart", "--emit"]).await.contains(" 0 filled, 0 changes, "));
    // The choice between changes and silence is therefore required at the start of the crawl.
    let mut undecided = fixture.command("fedora3", &["--restart", "--emit"]);
    let (code, stdout, stderr) = ended(undecided.arg("--silent").spawn().unwrap());
    assert!(code == 2 && stdout.is_empty() && stderr.contains("'--emit' cannot be used with '--silent'"), "{stderr}");
    let mut undecided = command();
    undecided.args(["seed-registry", "--source", "fedora3", "--config"]).arg(&fixture.config);
    let undecided = undecided.output().unwrap();
    let stderr = String::from_utf8(undecided.stderr).unwrap();
    assert!(undecided.status.code() == Some(2) && stderr.contains("<--emit|--silent>"), "{stderr}");
    assert_eq!(purge(&gateway, 2, "demo:70").await["items"].as_array().unwrap().len(), 3);
    assert!(gateway.stop().success());
    assert!(verify_ok(&journal_file(fixture.data())).complete);
}

#[tokio::test(flavor = "multi_thread")]
async fn seeding_an_older_fedora_3_requests_each_datastream() {
    let mut holds = Fedora3::with(20);
    (holds.lists_profiles, holds.page) = (false, 7);
    let repository = CrawledRepository::start(holds).await;
    let fixture = CrawlFixture::of(&repository);
    let gateway = fixture.gateway();
    // A crawl that was interrupted within its first part.
    let begun = json!({ "walk": uuid::Uuid::new_v4(), "part": 1, "objects": [], "place": "" });
    assert_eq!(post_part(&gateway, "fedora3", &begun).await.0, 200);
    assert!(fixture.seed_successfully("fedora3", &[]).await.starts_with("walked 20 objects: 20 filled"));
    let requests = repository.take_requests();
    assert_eq!(requests.iter().filter(|requests| requests.contains("sessionToken")).count(), 2, "{requests:?}");
    assert_eq!(items(&purge(&gateway, 1, "demo:1").await).len(), 4);
}
