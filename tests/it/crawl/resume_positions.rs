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

use crate::support::crawled_repository::{CrawledRepository, Fedora3, Fedora6, Resource, RestApi};

/// Results of each part of a crawl, and the position after it.
type CrawlParts = Vec<(Vec<CrawledObject>, String)>;

async fn crawl_parts<T: RestApi>(
    repository: &CrawledRepository<T>,
    api: RepositoryApi,
    names: usize,
    place: Option<&str>,
) -> CrawlParts {
    let settings = RepositorySettings::new(api, BaseUrl::parse(&repository.url()).unwrap());
    let source = SourceName::parse("s").unwrap();
    let repository_api = Repository::new(&source, settings).await.unwrap();
    let mut walk =
        Crawler::new(repository_api, CrawlOptions { max_names: names, ..CrawlOptions::default() }, place).unwrap();
    let mut parts = CrawlParts::new();
    loop {
        let part = walk.next().await.unwrap();
        assert!(part.skipped.is_empty(), "{part:?}");
        parts.push((part.objects, part.position));
        if part.done {
            return parts;
        }
        assert!(parts.len() < 1000, "the crawl does not end");
    }
}

fn object_names(parts: &[(Vec<CrawledObject>, String)]) -> Vec<String> {
    parts.iter().flat_map(|(objects, _)| objects).map(|object| serde_json::to_string(object).unwrap()).collect()
}

async fn resumes_at_every_position<T: RestApi>(repository: &CrawledRepository<T>, api: RepositoryApi, objects: usize) {
    let whole = object_names(&crawl_parts(repository, api, 100_000, None).await);
    let all: BTreeSet<_> = whole.iter().cloned().collect();
    assert_eq!((whole.len(), all.len()), (objects, objects));
    for names in [1, 2, 7, 100_000] {
        let parts = crawl_parts(repository, api, names, None).await;
        assert_eq!(object_names(&parts).len(), objects, "something was found twice, with {names} names");
        assert_eq!(object_names(&parts).into_iter().collect::<BTreeSet<_>>(), all, "with {names} names");
        for (at, (_, place)) in parts.iter().enumerate().take(parts.len() - 1) {
            let rest = object_names(&crawl_parts(repository, api, names, Some(place)).await);
            let both: BTreeSet<_> = object_names(&parts[..=at]).into_iter().chain(rest.iter().cloned()).collect();
            assert_eq!(both, all, "resumed at {place}, with {names} names");
            assert!(at == 0 || rest.len() < objects, "resumed at {place} it starts again");
        }
    }
}

#[tokio::test]
async fn fedora_3_crawl_resumes_at_every_position() {
    let mut holds = Fedora3::with(23);
    holds.page = 5;
    resumes_at_every_position(&CrawledRepository::start(holds).await, RepositoryApi::Fedora3, 23).await;
}

#[tokio::test]
async fn fedora_6_crawl_resumes_at_every_position() {
    let mut holds = Fedora6::with(2);
    holds.resources.retain(|path, _| !path.starts_with("/collection-") || path < &"/collection-3".to_owned());
    // A name that is a prefix of another one, and an empty container.
    holds.resources.insert("/collection-1/zz-2".to_owned(), Resource::default());
    let repository = CrawledRepository::start(holds).await;
    resumes_at_every_position(&repository, RepositoryApi::Ldp, 3 * (2 + 2 * 3) + 1).await;
}

/// A resource that was deleted before the crawl resumes there is skipped.
#[tokio::test]
async fn deleted_resources_are_skipped_on_resume() {
    let repository = CrawledRepository::start(Fedora6::with(2)).await;
    let parts = crawl_parts(&repository, RepositoryApi::Ldp, 3, None).await;
    let all = object_names(&parts).len();
    let (at, (_, place)) = parts.iter().enumerate().find(|(_, (_, place))| place.contains("collection-4")).unwrap();
    repository.change(|holds| holds.resources.retain(|path, _| !path.starts_with("/collection-4")));
    let rest = object_names(&crawl_parts(&repository, RepositoryApi::Ldp, 3, Some(place)).await);
    assert!(!rest.is_empty() && rest.len() < all && !rest.iter().any(|name| name.contains("collection-4/")), "{at}");
    assert!(rest.iter().any(|name| name.contains("collection-9/zz")), "{rest:?}");
}
