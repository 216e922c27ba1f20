//! A sample compares random objects, and says how many may differ.

use serde_json::json;

use super::{audit, audit_report};
use crate::support::{
    crawl_fixture::CrawlFixture,
    crawled_repository::{CrawledRepository, Fedora3},
};

#[tokio::test(flavor = "multi_thread")]
async fn sample_has_a_confidence_bound() {
    let repository = CrawledRepository::start(Fedora3::with(300)).await;
    let fixture = CrawlFixture::of(&repository);
    let _gateway = fixture.gateway();
    fixture.seed_successfully("fedora3", &[]).await;
    repository.take_requests();
    let (code, stdout, stderr) = audit(&fixture, "fedora3", &["--sample", "60"]).await;
    let expected = "compared 60 objects: 0 missing, 0 different, 0 extra; with 95 % confidence, at most 4.87 % of 300 \
                    objects differ\n";
    assert_eq!((code, stdout.as_str()), (0, expected), "{stderr}");
    let requests = repository.take_requests();
    assert!(requests.iter().all(|request| !request.contains("terms=")), "a sample reads no list: {requests:?}");

    // All objects differ, so that each sample finds differences.
    repository.change(|contents| contents.objects.values_mut().for_each(|object| object.state = 'D'));
    let (code, report) = audit_report(&fixture, "fedora3", &["--sample", "20"]).await;
    assert_eq!((code, &report["objects"], &report["differingObjects"]), (1, &json!(20), &json!(20)));
    assert_eq!(report["atMostPercent"], json!(100.0));
}
