//! A crawl finds each object once, however few names it keeps in memory, and can resume at each of its
//! positions.

use std::collections::BTreeSet;

use tidings::{
    format::RepositoryApi,
    lookup::{
        BaseUrl, Repository, RepositorySettings,
        crawl::{CrawlOptions, Crawler},
    },
    model::{CrawledObject, SourceName},
};

use crate::support::crawled_repository::{Answers, Fake, Fedora3, Fedora6, Resource};

/// Results of each part of a crawl, and the position after it.
type Parts = Vec<(Vec<CrawledObject>, String)>;

async fn walked<T: Answers>(repository: &Fake<T>, api: RepositoryApi, names: usize, place: Option<&str>) -> Parts {
    let settings = RepositorySettings::new(api, BaseUrl::parse(&repository.url()).unwrap());
    let source = SourceName::parse("s").unwrap();
    let asked = Repository::new(&source, settings).await.unwrap();
    let mut walk = Crawler::new(asked, CrawlOptions { max_names: names, ..CrawlOptions::default() }, place).unwrap();
    let mut parts = Parts::new();
    loop {
        let part = walk.next().await.unwrap();
        assert!(part.skipped.is_empty(), "{part:?}");
        parts.push((part.objects, part.position));
        if part.done {
            return parts;
        }
        assert!(parts.len() < 1000, "the walk does not come to its end");
    }
}

fn found(parts: &[(Vec<CrawledObject>, String)]) -> Vec<String> {
    parts.iter().flat_map(|(found, _)| found).map(|found| serde_json::to_string(found).unwrap()).collect()
}

async fn taken_up_anywhere<T: Answers>(repository: &Fake<T>, api: RepositoryApi, objects: usize) {
    let whole = found(&walked(repository, api, 100_000, None).await);
    let all: BTreeSet<_> = whole.iter().cloned().collect();
    assert_eq!((whole.len(), all.len()), (objects, objects));
    for names in [1, 2, 7, 100_000] {
        let parts = walked(repository, api, names, None).await;
        assert_eq!(found(&parts).len(), objects, "something was found twice, with {names} names");
        assert_eq!(found(&parts).into_iter().collect::<BTreeSet<_>>(), all, "with {names} names");
        for (at, (_, place)) in parts.iter().enumerate().take(parts.len() - 1) {
            let rest = found(&walked(repository, api, names, Some(place)).await);
            let both: BTreeSet<_> = found(&parts[..=at]).into_iter().chain(rest.iter().cloned()).collect();
            assert_eq!(both, all, "taken up at {place}, with {names} names");
            assert!(at == 0 || rest.len() < objects, "taken up at {place} it begins anew");
        }
    }
}

#[tokio::test]
async fn fedora_3_crawl_resumes_at_every_position() {
    let mut holds = Fedora3::with(23);
    holds.page = 5;
    taken_up_anywhere(&Fake::start(holds).await, RepositoryApi::Fedora3, 23).await;
}

#[tokio::test]
async fn fedora_6_crawl_resumes_at_every_position() {
    let mut holds = Fedora6::with(2);
    holds.resources.retain(|path, _| !path.starts_with("/collection-") || path < &"/collection-3".to_owned());
    // A name that is a prefix of another one, and an empty container.
    holds.resources.insert("/collection-1/zz-2".to_owned(), Resource::default());
    let repository = Fake::start(holds).await;
    taken_up_anywhere(&repository, RepositoryApi::Ldp, 3 * (2 + 2 * 3) + 1).await;
}

/// A resource that was deleted before the crawl resumes there is skipped.
#[tokio::test]
async fn deleted_resources_are_skipped_on_resume() {
    let repository = Fake::start(Fedora6::with(2)).await;
    let parts = walked(&repository, RepositoryApi::Ldp, 3, None).await;
    let all = found(&parts).len();
    let (at, (_, place)) = parts.iter().enumerate().find(|(_, (_, place))| place.contains("collection-4")).unwrap();
    repository.change(|holds| holds.resources.retain(|path, _| !path.starts_with("/collection-4")));
    let rest = found(&walked(&repository, RepositoryApi::Ldp, 3, Some(place)).await);
    assert!(!rest.is_empty() && rest.len() < all && !rest.iter().any(|found| found.contains("collection-4/")), "{at}");
    assert!(rest.iter().any(|found| found.contains("collection-9/zz")), "{rest:?}");
}
