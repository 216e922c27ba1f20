//! Flow control: requests that are refused, because others are being served.

use futures_util::future::join_all;

use crate::support::{
    oai_pmh_fixture::{Repository, object},
    oai_pmh_harvester::{HarvestClient, HarvestedCopy, Harvester},
};

/// Number of records, each of which is a page, so that a harvest has as many requests.
const OBJECTS: usize = 200;

/// Number of requests at the same time.
const BURST: usize = 16;

/// Sends requests at the same time; returns how many were refused, of which each says when to come again.
async fn burst(repository: &Repository) -> u64 {
    let url = format!("{}?verb=ListRecords&metadataPrefix=oai_dc", repository.url());
    let responses = join_all((0..BURST).map(|_| repository.gateway.http.get(&url).send())).await;
    let mut refusals = 0;
    for response in responses {
        let response = response.unwrap();
        if response.status() == 503 {
            let seconds: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
            assert!(seconds > 0);
            refusals += 1;
        } else {
            assert_eq!(response.status(), 200);
        }
    }
    refusals
}

/// Returns the number of all requests that were refused.
async fn all_refusals(repository: &Repository) -> u64 {
    let url = format!("{}/metrics", repository.gateway.url);
    let metrics = repository.gateway.http.get(url).send().await.unwrap().text().await.unwrap();
    let series = "tidings_http_requests_total{method=\"GET\",route=\"/oai\",status=\"503\"} ";
    metrics.lines().find_map(|line| line.strip_prefix(series)).map_or(0, |count| count.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_over_the_limit_get_retry_after_and_sickle_waits() {
    let repository = Repository::start("requests = 1\npage = 1\n");
    for number in 0..OBJECTS {
        repository.add(number).await;
    }
    let harvester = Harvester::start(HarvestClient::Sickle);
    let harvest = tokio::spawn(HarvestedCopy::default().renew(harvester, repository.url()));
    // Until a request of Sickle was refused.
    let mut own_refusals = burst(&repository).await;
    while all_refusals(&repository).await <= own_refusals {
        assert!(!harvest.is_finished(), "no request of Sickle was refused");
        own_refusals += burst(&repository).await;
    }
    assert!(own_refusals > 0);
    let (copy, _) = harvest.await.unwrap();
    assert_eq!(copy.records.len(), OBJECTS);
    assert!((0..OBJECTS).all(|number| copy.records.contains_key(&object(number))));
}
