//! Harvests with clients of others, while records change all the time.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use crate::support::{
    oai_pmh_fixture::{Repository, added, object},
    oai_pmh_harvester::{HarvestClient, HarvestedCopy, Harvester, Relations},
    run_length::lengthened,
};

/// Number of objects of most harvests.
const OBJECTS: usize = 1_500;

/// Number of objects of a long harvest.
const MANY: usize = 20_000;

/// Number of posts on their way at a time.
const POSTS: usize = 64;

/// Settings with many pages for few objects.
const SMALL_PAGES: &str = "page = 20\n";

/// Changes that an object lives through, with its files.
fn next_change(number: usize, step: usize) -> Value {
    let (object, file) = (object(number), format!("{}/more-{step}", object(number)));
    match step % 3 {
        0 => json!({ "object": object, "items": [{ "uri": file, "change": "ADD" }] }),
        1 => json!({ "object": object, "items": [{ "uri": object, "change": "DELETE" },
            { "uri": format!("{object}/file"), "change": "DELETE" }] }),
        _ => added(number),
    }
}

/// Returns the relations of each object that exists, and nothing for the others, from `/snapshot`.
async fn registry(repository: &Repository) -> BTreeMap<String, Relations> {
    let (mut all, mut path) = (BTreeMap::new(), "/snapshot?former=true&limit=1000".to_owned());
    loop {
        let page = repository.gateway.json(&path).await;
        for object in page["objects"].as_array().unwrap() {
            let items = object["items"].as_array().unwrap().iter().filter(|item| item["live"] == true);
            let items: Vec<_> = items.map(|item| item["uri"].as_str().unwrap().to_owned()).collect();
            let mut relations: Vec<_> = items.iter().filter(|item| **item != object["uri"]).cloned().collect();
            relations.sort_unstable();
            let relations = (!items.is_empty()).then_some(relations);
            all.insert(object["uri"].as_str().unwrap().to_owned(), relations);
        }
        let Some(next) = page["next"].as_str() else { return all };
        let after = url::form_urlencoded::byte_serialize(next.as_bytes()).collect::<String>();
        path = format!("/snapshot?former=true&limit=1000&after={after}");
    }
}

/// Posts changes of random objects until the harvest is over. Returns the number of objects that have changed.
async fn change_objects(repository: Arc<Repository>, objects: usize, is_over: Arc<AtomicBool>) -> usize {
    let mut rng = fastrand::Rng::new();
    let mut steps = BTreeMap::new();
    while !is_over.load(Ordering::Relaxed) {
        let number = rng.usize(..objects + 50);
        let step = steps.entry(number).and_modify(|step| *step += 1).or_insert(0_usize);
        let change = if number >= objects && *step == 0 { added(number) } else { next_change(number, *step) };
        repository.gateway.post("content-change", "application/json", change.to_string()).await;
    }
    steps.len()
}

/// Harvests objects with a client while they change, and then the changes alone.
async fn harvest_with(client: HarvestClient, objects: usize, settings: &str) {
    let repository = Arc::new(Repository::start(settings));
    let objects = lengthened(objects);
    let posts = stream::iter(0..objects).map(|number| repository.add(number)).buffer_unordered(POSTS);
    assert_eq!(posts.count().await, objects);
    let is_over = Arc::new(AtomicBool::new(false));
    let changes = tokio::spawn(change_objects(Arc::clone(&repository), objects, Arc::clone(&is_over)));
    let harvester = Harvester::start(client);
    let (copy, harvester) = HarvestedCopy::default().renew(harvester, repository.url()).await;
    is_over.store(true, Ordering::Relaxed);
    assert!(changes.await.unwrap() > 0, "nothing has changed meanwhile");
    let expected = registry(&repository).await;
    let (copy, _) = copy.renew(harvester, repository.url()).await;
    assert_eq!(copy.records.len(), expected.len());
    for (identifier, relations) in &expected {
        assert_eq!(copy.records.get(identifier), Some(relations), "{identifier}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sickle_has_the_registry_after_an_incremental_run() {
    harvest_with(HarvestClient::Sickle, MANY, "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scythe_has_the_registry_after_an_incremental_run() {
    harvest_with(HarvestClient::Scythe, OBJECTS, SMALL_PAGES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oaipmh_has_the_registry_after_an_incremental_run_with_post() {
    harvest_with(HarvestClient::Oaipmh, OBJECTS, SMALL_PAGES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oai_pmh_of_npm_has_the_registry_after_an_incremental_run() {
    harvest_with(HarvestClient::Node, OBJECTS, SMALL_PAGES).await;
}
