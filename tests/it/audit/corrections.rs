//! `tidings audit --repair` appends what the registry lacks, as changes of an audit.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU32, Ordering},
};

use serde_json::{Value, json};
use wiremock::ResponseTemplate;

use super::{audit, audit_report, differences};
use crate::support::{
    crawl_fixture::{CrawlFixture, objects},
    crawled_repository::{CrawledRepository, Fedora3, Fedora6, Resource},
    fedora3_messages::BASE,
    journal_fixture::{journal_file, verify_ok},
};

#[tokio::test(flavor = "multi_thread")]
async fn corrections_are_changes_that_name_the_audit() {
    crate::support::needs_sqlite();
    let repository = CrawledRepository::start(Fedora3::with(60)).await;
    let fixture = CrawlFixture::of(&repository);
    let gateway = fixture.gateway();
    fixture.seed_successfully("fedora3", &[]).await;
    repository.change(|contents| {
        let new = contents.objects["demo:4"].clone();
        contents.objects.insert("demo:999".to_owned(), new);
        contents.objects.remove("demo:5");
        contents.objects.get_mut("demo:8").unwrap().state = 'D';
    });
    let (code, report) = audit_report(&fixture, "fedora3", &["--repair", "--yes"]).await;
    assert_eq!((code, &report["corrections"], &report["repair"]), (0, &json!(3), &json!(true)), "{report}");
    assert_eq!(report["objects"], 61, "each object counts once: {report}");
    let changes = gateway.changes().await;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut seen: Vec<_> = changes
        .iter()
        .map(|change| {
            let items = change["items"].as_array().unwrap();
            let name = text(&change["object"]).rsplit('/').next().unwrap().to_owned();
            let kinds: Vec<_> = items.iter().map(|item| text(&item["change"]) + &text(&item["stateAfter"])).collect();
            format!("{name} {}", kinds.join(","))
        })
        .collect();
    seen.sort();
    assert_eq!(
        seen,
        ["demo:5 DELETE,DELETE,DELETE,DELETE", "demo:8 DELETED", "demo:999 ADDACTIVE,ADDACTIVE,ADDACTIVE"]
    );
    let audit_id = text(&report["id"]);
    for change in &changes {
        assert_eq!(change["description"], "corrected by an audit");
        assert!(text(&change["sourceEventId"]).starts_with(&format!("audit:{audit_id}:")), "{change}");
        for format in ["application/atom+xml", "application/xml", "application/cloudevents+json"] {
            let url = format!("{}/changes/{}", gateway.url, text(&change["id"]));
            let answer = gateway.http.get(url).header("accept", format).send().await.unwrap().text().await.unwrap();
            assert!(answer.contains("corrected by an audit"), "{format}: {answer}");
        }
    }
    let (code, report) = audit_report(&fixture, "fedora3", &[]).await;
    assert_eq!((code, differences(&report)), (0, Vec::<String>::new()));
    let gone = gateway.json(&format!("/objects?uri={BASE}/objects/demo:5")).await;
    assert!(gone["items"].as_array().unwrap().iter().all(|item| item["live"] == false), "{gone}");
    assert!(gateway.stop().success());
    verify_ok(&journal_file(fixture.data()));
}

#[tokio::test(flavor = "multi_thread")]
async fn fedora_6_is_corrected() {
    let repository = CrawledRepository::start(Fedora6::with(2)).await;
    let fixture = CrawlFixture::of(&repository);
    let gateway = fixture.gateway();
    fixture.seed_successfully("fedora", &[]).await;
    let before = objects(&gateway).await.len();
    repository.change(|contents| {
        let binary = contents.resources.iter().find(|(_, held)| held.size.is_some()).unwrap().0.clone();
        contents.resources.get_mut(&binary).unwrap().is_gone = true;
        contents.resources.insert("/new".to_owned(), Resource::default());
    });
    let (code, report) = audit_report(&fixture, "fedora", &["--repair", "--yes"]).await;
    assert_eq!((code, &report["corrections"]), (0, &json!(3)), "{report}");
    // A binary and its description are gone, and a container is new.
    assert_eq!(objects(&gateway).await.len(), before - 1);
    assert_eq!(audit(&fixture, "fedora", &[]).await.0, 0);
}

/// A repository that has lost its contents must not empty the registry.
#[tokio::test(flavor = "multi_thread")]
async fn implausible_deletions_need_an_option() {
    let repository = CrawledRepository::start(Fedora3::with(60)).await;
    let fixture = CrawlFixture::of(&repository);
    let gateway = fixture.gateway();
    fixture.seed_successfully("fedora3", &[]).await;
    repository.change(|contents| {
        contents.objects.clear();
    });
    let (code, _, stderr) = audit(&fixture, "fedora3", &["--repair", "--yes"]).await;
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("60 of 60 objects are no longer listed; nothing was deleted"), "{stderr}");
    assert!(gateway.changes().await.is_empty());
    let (code, _, stderr) = audit(&fixture, "fedora3", &["--repair", "--yes", "--max-deleted-percent", "100"]).await;
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(gateway.changes().await.len(), 60);
}

/// The repository loses everything after the audit has found little to delete, and before it deletes.
#[tokio::test(flavor = "multi_thread")]
async fn repository_that_is_lost_before_the_deletions_empties_nothing() {
    let repository = CrawledRepository::start(Fedora3::with(60)).await;
    let fixture = CrawlFixture::of(&repository);
    let gateway = fixture.gateway();
    fixture.seed_successfully("fedora3", &[]).await;
    // The list lacks twenty objects, of which two do not exist.
    repository.change(|contents| ["demo:1", "demo:2"].map(|pid| drop(contents.objects.remove(pid))));
    let mut list = "<result xmlns=\"http://www.fedora.info/definitions/1/0/types/\"><resultList>".to_owned();
    for number in 21..=60 {
        let date = format!("2020-01-01T00:00:00.{number:03}Z");
        let fields = format!("<pid>demo:{number}</pid><state>A</state><cDate>{date}</cDate>");
        let _ = write!(list, "<objectFields>{fields}</objectFields>");
    }
    list += "</resultList></result>";
    // The two objects that do not exist are requested twice in the comparison before the repair, and twice in its registry
    // phase. The repository loses the others after the last of these requests, and so before the phase of deletions begins.
    let requests = AtomicU32::new(0);
    repository.replace_responses(move |request| {
        if request.contains("/objects?") {
            return Some(ResponseTemplate::new(200).set_body_raw(list.clone(), "text/xml"));
        }
        let is_gone = ["/objects/demo:1?", "/objects/demo:2?"].iter().any(|path| request.contains(path));
        let before = requests.fetch_add(u32::from(is_gone), Ordering::Relaxed);
        (before >= 8).then(|| ResponseTemplate::new(404))
    });
    let (code, _, stderr) = audit(&fixture, "fedora3", &["--repair", "--yes"]).await;
    repository.restore_responses();
    assert_eq!(code, 1, "{stderr}");
    let report = gateway.json("/sources/fedora3/audit").await["audit"].take();
    assert!(report["reason"].as_str().is_some_and(|reason| reason.contains("nothing was deleted")), "{report}");
    assert_eq!((&report["phase"], gateway.changes().await.len()), (&json!("deletions"), 0), "{report}");
}

/// The limit counts the objects that are gone at the end, and not those of the first list.
#[tokio::test(flavor = "multi_thread")]
async fn objects_beyond_the_limit_are_not_deleted() {
    let repository = CrawledRepository::start(Fedora3::with(60)).await;
    let fixture = CrawlFixture::of(&repository);
    let gateway = fixture.gateway();
    fixture.seed_successfully("fedora3", &[]).await;
    // The list lacks twelve, and a fifth of sixty may be deleted.
    let lost: Vec<String> = (1..=12).map(|number| format!("demo:{number}")).collect();
    repository.change(|contents| lost.iter().for_each(|pid| drop(contents.objects.remove(pid))));
    let options = ["--repair", "--yes", "--max-deleted-percent", "19"];
    let (code, _, stderr) = audit(&fixture, "fedora3", &options).await;
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("12 of 60 objects are no longer listed; nothing was deleted"), "{stderr}");
    assert!(stderr.contains("give a greater one") && gateway.changes().await.is_empty(), "{stderr}");
}
