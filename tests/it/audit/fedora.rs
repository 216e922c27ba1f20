//! An audit finds exactly the differences between a Fedora and the registry.

use std::time::{Duration, Instant};

use chrono::Utc;
use serde_json::{Value, json};

use super::{audit, audit_command, audit_report, differences, until_ended};
use crate::support::{
    crawl_fixture::{BASE_6, CrawlFixture},
    crawled_repository::{CrawledRepository, Fedora3, Fedora6, Resource},
    fedora3_messages::{BASE, Call},
    gateway::PATIENCE,
};

#[tokio::test(flavor = "multi_thread")]
async fn fedora_3_differences_are_found_and_nothing_else() {
    let repository = CrawledRepository::start(Fedora3::with(120)).await;
    let fixture = CrawlFixture::of(&repository);
    let gateway = fixture.gateway();
    fixture.seed_successfully("fedora3", &[]).await;
    let (code, stdout, stderr) = audit(&fixture, "fedora3", &[]).await;
    assert_eq!((code, stdout.as_str()), (0, "compared 120 objects: 0 missing, 0 different, 0 extra\n"), "{stderr}");

    repository.change(|contents| {
        let new = contents.objects["demo:4"].clone();
        contents.objects.insert("demo:999".to_owned(), new);
        contents.objects.remove("demo:5");
        contents.objects.get_mut("demo:8").unwrap().state = 'D';
        let object = contents.objects.get_mut("demo:10").unwrap();
        object.datastreams.retain(|held| held.id != "OBJ");
        object.datastreams[0].created = "2022-02-02T00:00:00.000Z".to_owned();
        contents.objects.get_mut("demo:11").unwrap().datastreams[1].state = 'I';
    });
    let (code, report) = audit_report(&fixture, "fedora3", &[]).await;
    assert_eq!(code, 1);
    assert_eq!(
        differences(&report),
        [
            "different /objects/demo:10/datastreams/DC/content content.url",
            "different /objects/demo:11/datastreams/OBJ/content state",
            "different /objects/demo:8 state",
            "extra /objects/demo:10/datastreams/OBJ/content",
            "extra /objects/demo:5",
            "extra /objects/demo:5/datastreams/DC/content",
            "extra /objects/demo:5/datastreams/OBJ/content",
            "extra /objects/demo:5/datastreams/RELS-EXT/content",
            "missing /objects/demo:999",
            "missing /objects/demo:999/datastreams/DC/content",
            "missing /objects/demo:999/datastreams/OBJ/content",
        ]
    );
    assert_eq!((&report["missing"], &report["different"], &report["extra"]), (&json!(3), &json!(3), &json!(5)));
    assert_eq!(report["differingObjects"], 5);
    assert!(gateway.changes().await.is_empty(), "an audit changes nothing");
    let (code, stdout, _) = audit(&fixture, "fedora3", &[]).await;
    assert_eq!(code, 1);
    assert!(stdout.starts_with("KIND       ITEM"), "{stdout}");
    assert!(stdout.ends_with("\ncompared 121 objects: 3 missing, 3 different, 5 extra\n"), "{stdout}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fedora_6_differences_are_found_and_nothing_else() {
    let repository = CrawledRepository::start(Fedora6::with(3)).await;
    let fixture = CrawlFixture::of(&repository);
    let gateway = fixture.gateway();
    fixture.seed_successfully("fedora", &[]).await;
    let (code, report) = audit_report(&fixture, "fedora", &[]).await;
    assert_eq!((code, differences(&report)), (0, Vec::<String>::new()));

    let (deleted, resized) = repository.change(|contents| {
        let binaries: Vec<_> =
            contents.resources.iter().filter(|(_, held)| held.size.is_some()).map(|(path, _)| path.clone()).collect();
        contents.resources.get_mut(&binaries[0]).unwrap().is_gone = true;
        contents.resources.get_mut(&binaries[1]).unwrap().size = Some(777);
        contents.resources.insert("/new".to_owned(), Resource::default());
        (binaries[0].clone(), binaries[1].clone())
    });
    let (code, report) = audit_report(&fixture, "fedora", &[]).await;
    assert_eq!(code, 1);
    assert_eq!(
        differences(&report),
        [
            format!("different /rest{resized} content.size"),
            format!("extra /rest{deleted}"),
            format!("extra /rest{deleted}/fcr:metadata"),
            "missing /rest/new".to_owned(),
        ]
    );
    drop(gateway);
}

/// RDF has neither a size nor a digest, so that only its date says that it has changed.
#[tokio::test(flavor = "multi_thread")]
async fn newer_content_differs_unless_its_digest_is_the_same() {
    let repository = CrawledRepository::start(Fedora6::with(1)).await;
    let fixture = CrawlFixture::of(&repository);
    let _gateway = fixture.gateway();
    fixture.seed_successfully("fedora", &[]).await;
    repository.change(|contents| {
        for path in ["/collection-1", "/collection-1/image%200.jpg"] {
            contents.resources.get_mut(path).unwrap().modified = Some(Utc::now());
        }
    });
    let (code, report) = audit_report(&fixture, "fedora", &[]).await;
    assert_eq!((code, differences(&report)), (1, vec!["different /rest/collection-1 content".to_owned()]));
    let (code, report) = audit_report(&fixture, "fedora", &["--repair", "--yes"]).await;
    assert_eq!((code, &report["corrections"]), (0, &json!(1)), "{report}");
    assert_eq!(audit_report(&fixture, "fedora", &[]).await.0, 0);
}

/// A message of a change that happens during an audit arrives before the second look.
#[tokio::test(flavor = "multi_thread")]
async fn change_during_an_audit_is_no_difference() {
    let repository = CrawledRepository::start(Fedora3::with(20)).await;
    let fixture = CrawlFixture::of(&repository);
    let gateway = fixture.gateway();
    fixture.seed_successfully("fedora3", &[]).await;
    let began = Instant::now();
    for number in 1.. {
        let state = if number % 2 == 1 { "D" } else { "A" };
        repository.change(|contents| contents.objects.get_mut("demo:1").unwrap().state = state.chars().next().unwrap());
        repository.take_requests();
        let child = audit_command(&fixture, "fedora3", &["--format", "json"]).spawn().unwrap();
        // The message arrives when the audit has listed all objects.
        let mut listed = false;
        while !listed {
            assert!(began.elapsed() < PATIENCE);
            listed = repository.take_requests().iter().any(|request| request.contains("/demo:9/datastreams"));
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let parameters = &[("state", state)];
        let call = Call { number, method: "modifyObject", pid: "demo:1", parameters, returned: None };
        let (status, answer) = gateway.post("fedora3", "application/atom+xml", call.message()).await;
        assert_eq!(status, 201, "{answer}");
        let (code, stdout, stderr) = until_ended(child).await;
        assert_eq!(code, 0, "{stdout}{stderr}");
        let looked = repository.take_requests().iter().filter(|request| request.contains("/objects/demo:1?")).count();
        if looked == 1 {
            // The message came after the first look, and the object was looked at a second time.
            return;
        }
        assert_eq!(looked, 0, "the message came before the first look");
    }
}

/// Messages have fewer facts than the repository, which is no difference.
#[tokio::test(flavor = "multi_thread")]
async fn facts_that_messages_lack_are_no_differences() {
    let repository = CrawledRepository::start(Fedora3::with(1)).await;
    let fixture = CrawlFixture::of(&repository);
    let gateway = fixture.gateway();
    let mut number = 0;
    let mut call = async |method, parameters: &[(&str, &str)], returned| {
        number += 1;
        let call = Call { number, method, pid: "demo:1", parameters, returned };
        let (status, answer) = gateway.post("fedora3", "application/atom+xml", call.message()).await;
        assert_eq!(status, 201, "{answer}");
    };
    call("ingest", &[], Some("demo:1")).await;
    for name in ["DC", "OBJ", "RELS-EXT"] {
        call("addDatastream", &[("dsID", name), ("dsState", "A")], Some(name)).await;
    }
    let (code, report) = audit_report(&fixture, "fedora3", &[]).await;
    assert_eq!((code, differences(&report)), (0, Vec::<String>::new()));
    let uri = format!("{BASE}/objects/demo:1");
    assert_eq!(gateway.json(&format!("/objects?uri={uri}")).await["items"].as_array().map(Vec::len), Some(4));
}

/// Objects of other repositories cannot be asked for, and are counted.
#[tokio::test(flavor = "multi_thread")]
async fn foreign_objects_are_counted() {
    let repository = CrawledRepository::start(Fedora6::with(1)).await;
    let fixture = CrawlFixture::of(&repository);
    let gateway = fixture.gateway();
    fixture.seed_successfully("fedora", &[]).await;
    let event = |number: u64, id: &str| {
        json!({
            "@context": "https://www.w3.org/ns/activitystreams",
            "id": format!("urn:uuid:00000000-0000-4000-8000-{number:012x}"), "type": ["Create"],
            "published": "2026-03-01T10:00:00.000Z", "actor": [{ "type": "Person", "id": "info:fedora/fedoraAdmin" }],
            "object": { "id": id, "type": ["http://www.w3.org/ns/ldp#Container"] },
        })
        .to_string()
    };
    for (number, id) in ["http://other.example.org/rest/x", &format!("{BASE_6}/")].into_iter().enumerate() {
        let (status, answer) = gateway.post("fedora", "application/ld+json", event(number as u64, id)).await;
        assert_eq!(status, 201, "{answer}");
    }
    // The repository root is not listed, and exists.
    let (code, report): (i32, Value) = audit_report(&fixture, "fedora", &[]).await;
    assert_eq!((code, &report["outside"], differences(&report)), (0, &json!(1), Vec::new()));
}
