//! An audit continues after Ctrl-C, and after a kill of the gateway.

use std::{
    process::{Child, Command},
    time::{Duration, Instant},
};

use serde_json::Value;
use wiremock::ResponseTemplate;

use super::{audit_command, audit_report, differences, until_ended};
use crate::support::{
    crawl_fixture::CrawlFixture,
    crawled_repository::{CrawledRepository, Fedora3},
    gateway::{Gateway, PATIENCE},
};

const OBJECTS: u64 = 400;

/// Waits until the audit has compared at least this number of objects, and not all.
async fn until_compared(gateway: &Gateway, number: u64) -> Value {
    let began = Instant::now();
    loop {
        let audit = gateway.json("/sources/fedora3/audit").await["audit"].take();
        assert_ne!(audit["state"], "complete", "the audit was too fast for this test");
        if audit["objects"].as_u64() >= Some(number) {
            return audit;
        }
        assert!(began.elapsed() < PATIENCE, "{audit}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

/// Makes the repository answer for no object after `demo:2…`, so that an audit waits there.
fn hold(repository: &CrawledRepository<Fedora3>) {
    repository.replace_responses(|request| {
        let is_later = request.contains("/objects/demo:3");
        is_later.then(|| ResponseTemplate::new(200).set_delay(Duration::from_secs(600)))
    });
}

/// A wrong audit must not go on behind the one that replaces it.
#[tokio::test(flavor = "multi_thread")]
async fn new_audit_ends_the_running_one() {
    let repository = CrawledRepository::start(Fedora3::with(usize::try_from(OBJECTS).unwrap())).await;
    let fixture = CrawlFixture::of(&repository);
    let gateway = fixture.gateway();
    fixture.seed_successfully("fedora3", &[]).await;
    hold(&repository);
    assert_eq!(gateway.ask("POST", "/sources/fedora3/audit", None).await.0, 202);
    let first = until_compared(&gateway, 100).await;
    assert_eq!(
        gateway.ask("POST", "/sources/fedora3/audit", Some(serde_json::json!({ "restart": true }))).await.0,
        202
    );
    let second = until_compared(&gateway, 100).await;
    assert_ne!(first["id"], second["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_continues_after_interruptions() {
    let repository = CrawledRepository::start(Fedora3::with(usize::try_from(OBJECTS).unwrap())).await;
    let fixture = CrawlFixture::of(&repository);
    let mut gateway = fixture.gateway();
    fixture.seed_successfully("fedora3", &[]).await;
    // Differences before and after the place of the interruptions.
    repository.change(|contents| {
        contents.objects.get_mut("demo:11").unwrap().state = 'D';
        contents.objects.remove("demo:99");
    });

    // Ctrl-C of the command stops the audit.
    hold(&repository);
    let child = audit_command(&fixture, "fedora3", &[]).spawn().unwrap();
    let before = until_compared(&gateway, 100).await;
    interrupt(&child);
    let (code, stdout, stderr) = until_ended(child).await;
    assert_eq!(code, 2, "{stdout}{stderr}");
    assert!(stderr.contains("the audit is stopped; give the same command again to continue"), "{stderr}");
    let began = Instant::now();
    while gateway.json("/sources/fedora3/audit").await["audit"]["state"] != "stopped" {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    // The same command continues it. Meanwhile the gateway is killed, and the command waits for it.
    let child = audit_command(&fixture, "fedora3", &["--format", "json"]).spawn().unwrap();
    let began = Instant::now();
    while gateway.json("/sources/fedora3/audit").await["audit"]["state"] != "running" {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    gateway.kill();
    repository.restore_responses();
    repository.take_requests();
    let gateway = fixture.gateway();
    let (code, stdout, stderr) = until_ended(child).await;
    assert_eq!(code, 1, "{stdout}{stderr}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let report = &report["audit"];
    assert_eq!(report["id"], before["id"], "it is the same audit");
    // The list continues after this object, which is looked at when the registry is read.
    let requests = repository.take_requests();
    assert!(requests.iter().any(|request| request.contains("/objects/demo:100?")), "the list begins anew");
    let found = differences(report);
    assert!(found.contains(&"different /objects/demo:11 state".to_owned()), "{found:?}");
    assert_eq!(found.iter().filter(|found| found.starts_with("extra /objects/demo:99")).count(), 3, "{found:?}");
    assert_eq!(found.len(), 4, "{found:?}");
    // The objects that were listed before the kill are requested again, and count once.
    assert_eq!(report["objects"], OBJECTS, "{report}");
    drop(gateway);
}

/// A command that is killed leaves an audit that another command shows.
#[tokio::test(flavor = "multi_thread")]
async fn another_command_shows_the_running_audit() {
    let repository = CrawledRepository::start(Fedora3::with(usize::try_from(OBJECTS).unwrap())).await;
    let fixture = CrawlFixture::of(&repository);
    let gateway = fixture.gateway();
    fixture.seed_successfully("fedora3", &[]).await;
    hold(&repository);
    let mut child = audit_command(&fixture, "fedora3", &[]).spawn().unwrap();
    let before = until_compared(&gateway, 100).await;
    child.kill().unwrap();
    child.wait().unwrap();
    // Other options are refused meanwhile.
    let (code, _, stderr) = super::audit(&fixture, "fedora3", &["--sample", "5"]).await;
    assert_eq!(code, 2);
    assert!(stderr.contains("nother audit of the source fedora3 has not ended"), "{stderr}");
    repository.restore_responses();
    let (code, report) = audit_report(&fixture, "fedora3", &[]).await;
    assert_eq!((code, &report["id"]), (0, &before["id"]));
}
