//! A crawl resumes where it was after an interruption on either side, and an interrupted list is read again.

use std::{io::Read, process::Child, time::Duration};

use serde_json::{Value, json};
use wiremock::ResponseTemplate;

use crate::support::{
    command_line::ended,
    crawl_fixture::{CrawlFixture, objects},
    crawled_repository::{CrawledRepository, Fedora3, Fedora6, RestApi},
    gateway::{Gateway, PATIENCE},
    journal_fixture::{journal_file, verify_ok},
};

/// Waits until the gateway has `part` parts of a crawl other than `other`; returns the crawl's identifier.
async fn until_part(gateway: &Gateway, source: &str, part: u64, other: &Value) -> Value {
    let began = std::time::Instant::now();
    loop {
        let crawl = gateway.json(&format!("/sources/{source}/registry")).await["walk"].take();
        if crawl["id"] != *other {
            assert_ne!(crawl["done"], json!(true), "the crawl was too fast for this test");
            if crawl["part"].as_u64() >= Some(part) {
                return crawl["id"].clone();
            }
        }
        assert!(began.elapsed() < PATIENCE, "{crawl}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Reads the first line of the command's standard error and nothing after it.
fn first_line(child: &mut Child) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    let stderr = child.stderr.as_mut().unwrap();
    while line.last() != Some(&b'\n') && stderr.read(&mut byte).unwrap() > 0 {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

/// Interrupts a crawl on either side and resumes it. The crawl of `repository` finds `all` objects.
async fn resumes_after_interruptions<T: RestApi>(
    source: &str,
    repository: &CrawledRepository<T>,
    rate: &str,
    all: usize,
) {
    let whole = CrawlFixture::of(repository);
    let gateway = whole.gateway();
    whole.seed_successfully(source, &[]).await;
    let expected = objects(&gateway).await;
    assert_eq!(expected.len(), all);
    let requests = repository.take_requests().len();
    drop(gateway);

    // Kill the command.
    let fixture = CrawlFixture::of(repository);
    let mut gateway = fixture.gateway();
    let mut child = fixture.command(source, &["--rate", rate]).spawn().unwrap();
    let id = until_part(&gateway, source, 2, &Value::Null).await;
    child.kill().unwrap();
    child.wait().unwrap();
    let crawl = gateway.json(&format!("/sources/{source}/registry")).await;
    let found = crawl["walk"]["objects"].as_u64().unwrap();
    assert!(found > 0 && usize::try_from(found).unwrap() < all, "{crawl}");

    // Kill the gateway; the command gives up after its retries.
    let mut child = fixture.command(source, &["--rate", rate, "--retries", "1"]).spawn().unwrap();
    let going_on = first_line(&mut child);
    assert!(going_on.contains("resuming after"), "{going_on}");
    let parts = gateway.json(&format!("/sources/{source}/registry")).await["walk"]["part"].as_u64().unwrap();
    assert_eq!(until_part(&gateway, source, parts + 1, &Value::Null).await, id, "another crawl was started");
    gateway.kill();
    let (code, stdout, stderr) = tokio::task::spawn_blocking(move || ended(child)).await.unwrap();
    assert_eq!(code, 1, "{stdout}{stderr}");
    assert!(stderr.contains("no connection") && stderr.contains("run the command again to resume"), "{stderr}");
    verify_ok(&journal_file(fixture.data()));

    // The crawl resumes without the finished parts.
    let gateway = fixture.gateway();
    repository.take_requests();
    let stdout = fixture.seed_successfully(source, &[]).await;
    let rest = repository.take_requests().len();
    assert!(rest < requests, "{rest} requests for the rest, {requests} for all: {stdout}");
    assert_eq!(objects(&gateway).await, expected);
    assert!(gateway.changes().await.is_empty());

    // The crawl also resumes when the gateway returns before the command gives up.
    let mut gateway = gateway;
    let child = fixture.command(source, &["--rate", rate, "--restart", "--retries", "1000"]).spawn().unwrap();
    until_part(&gateway, source, 2, &id).await;
    gateway.kill();
    let gateway = fixture.gateway();
    let (code, stdout, stderr) = tokio::task::spawn_blocking(move || ended(child)).await.unwrap();
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert_eq!(objects(&gateway).await, expected);
    assert!(gateway.stop().success());
    verify_ok(&journal_file(fixture.data()));
}

#[tokio::test(flavor = "multi_thread")]
async fn fedora_3_crawl_resumes_after_interruptions() {
    crate::support::needs_sqlite();
    resumes_after_interruptions("fedora3", &CrawledRepository::start(Fedora3::with(400)).await, "150", 400).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fedora_6_crawl_resumes_after_interruptions() {
    crate::support::needs_sqlite();
    resumes_after_interruptions("fedora", &CrawledRepository::start(Fedora6::with(20)).await, "150", 440).await;
}

/// A list is interrupted when an object is purged while it is read, or when its token has expired.
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_list_is_read_again() {
    let mut holds = Fedora3::with(50);
    holds.page = 10;
    let repository = CrawledRepository::start(holds).await;
    let broken = std::sync::atomic::AtomicUsize::new(0);
    repository.replace_responses(move |asked| {
        let is_page = asked.contains("sessionToken");
        let number = if is_page { broken.fetch_add(1, std::sync::atomic::Ordering::SeqCst) } else { usize::MAX };
        // The second page of the first reading fails, and the third page of the second reading, which is not
        // repeated.
        match number {
            1 => Some(ResponseTemplate::new(404)),
            4 => Some(ResponseTemplate::new(500)),
            _ => None,
        }
    });
    let fixture = CrawlFixture::of(&repository);
    let gateway = fixture.gateway();
    assert!(
        fixture.seed_successfully("fedora3", &["--retries", "0"]).await.starts_with("walked 50 objects: 50 filled")
    );
    assert_eq!(objects(&gateway).await.len(), 50);
    let asked = repository.take_requests();
    assert_eq!(asked.iter().filter(|asked| asked.contains("terms=")).count(), 3, "{asked:?}");
}
