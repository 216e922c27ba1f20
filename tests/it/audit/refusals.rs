//! Audits that cannot run say why, and show no secrets.

use wiremock::ResponseTemplate;

use super::audit;
use crate::support::{
    crawl_fixture::CrawlFixture,
    crawled_repository::{CrawledRepository, Fedora3},
    fake_repository::{PASSWORD, USER},
};

#[tokio::test(flavor = "multi_thread")]
async fn unusable_options_are_refused() {
    let repository = CrawledRepository::start(Fedora3::with(3)).await;
    let fixture = CrawlFixture::of(&repository);
    let _gateway = fixture.gateway();
    for (source, more, expected) in [
        ("fedora3", &["--repair"][..], "there is no terminal; give --yes"),
        ("fedora3", &["--repair", "--sample", "3"], "cannot be used with"),
        ("fedora3", &["--sample", "0"], "invalid value"),
        ("nobody", &[], "the repository of the source nobody cannot be asked; only those of fedora, fedora3 can"),
        ("content-change", &[], "the repository of the source content-change cannot be asked"),
    ] {
        let (code, _, stderr) = audit(&fixture, source, more).await;
        let stderr = stderr.replace("The repository", "the repository");
        assert!(code == 2 && stderr.contains(expected), "{source} {more:?}: {code} {stderr}");
    }
    assert!(repository.take_requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_of_the_repository_ends_the_audit_without_secrets() {
    let repository = CrawledRepository::start(Fedora3::with(3)).await;
    let credentials = format!("username = \"{USER}\"\npassword = \"{PASSWORD}\"\n");
    let fixture = CrawlFixture::with(&repository.url(), &credentials);
    let gateway = fixture.gateway();
    repository.replace_responses(|_| Some(ResponseTemplate::new(401)));
    let (code, stdout, stderr) = audit(&fixture, "fedora3", &[]).await;
    assert_eq!(code, 2);
    assert!(stderr.contains("the audit has failed: the repository denies access with status 401"), "{stderr}");
    let shown = gateway.json("/sources/fedora3/audit").await.to_string();
    let all = format!("{stdout}{stderr}{shown}");
    assert!(!all.contains(PASSWORD) && !all.contains(USER), "{all}");
    // The same command continues.
    repository.restore_responses();
    let (code, stdout, stderr) = audit(&fixture, "fedora3", &[]).await;
    assert_eq!(code, 1, "{stderr}");
    assert!(stdout.ends_with("compared 3 objects: 10 missing, 0 different, 0 extra\n"), "{stdout}");
}

/// An object about which the repository fails is no difference, and the audit is not complete.
#[tokio::test(flavor = "multi_thread")]
async fn unanswered_objects_are_counted() {
    let repository = CrawledRepository::start(Fedora3::with(9)).await;
    let fixture = CrawlFixture::of(&repository);
    let _gateway = fixture.gateway();
    fixture.seed_successfully("fedora3", &[]).await;
    repository.replace_responses(|request| {
        request.contains("/objects/demo:4").then(|| ResponseTemplate::new(200).set_body_raw("<html>", "text/html"))
    });
    let (code, stdout, stderr) = audit(&fixture, "fedora3", &[]).await;
    assert_eq!((code, stdout.as_str()), (2, "compared 8 objects: 0 missing, 0 different, 0 extra\n"), "{stderr}");
    assert!(stderr.contains("no usable answer about"), "{stderr}");
}
