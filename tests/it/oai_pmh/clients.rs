//! Harvests with clients of others, while records change all the time.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::{Value, json};

use crate::support::{
    oai_pmh_fixture::{Repository, added, object},
    python,
    run_length::lengthened,
};

const OBJECTS: u64 = 1_500;

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

/// Returns the relations of each object that exists, and null for the others, from `/snapshot`.
async fn registry(repository: &Repository) -> BTreeMap<String, Value> {
    let (mut all, mut path) = (BTreeMap::new(), "/snapshot?former=true".to_owned());
    loop {
        let page = repository.gateway.json(&path).await;
        for object in page["objects"].as_array().unwrap() {
            let items = object["items"].as_array().unwrap().iter().filter(|item| item["live"] == true);
            let items: Vec<_> = items.map(|item| item["uri"].as_str().unwrap()).collect();
            let mut relations: Vec<_> = items.iter().filter(|item| **item != object["uri"]).copied().collect();
            relations.sort_unstable();
            let relations = if items.is_empty() { Value::Null } else { json!(relations) };
            all.insert(object["uri"].as_str().unwrap().to_owned(), relations);
        }
        let Some(next) = page["next"].as_str() else { return all };
        let after = url::form_urlencoded::byte_serialize(next.as_bytes()).collect::<String>();
        path = format!("/snapshot?former=true&after={after}");
    }
}

async fn harvest_with(client: &str, environment: &str) {
    let repository = Arc::new(Repository::start("page = 20\n"));
    let objects = usize::try_from(lengthened(OBJECTS)).unwrap();
    let loaders = (0..8).map(|part| {
        let repository = Arc::clone(&repository);
        tokio::spawn(async move {
            for number in (part..objects).step_by(8) {
                repository.add(number).await;
            }
        })
    });
    for loader in loaders.collect::<Vec<_>>() {
        loader.await.unwrap();
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let changes = tokio::spawn({
        let (repository, is_over) = (Arc::clone(&repository), Arc::clone(&is_over));
        async move {
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
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/oai_pmh_harvest.py");
    let mut harvester = Command::new(python::environment(environment));
    harvester.arg(script).args([client, &repository.url()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut harvester = harvester.spawn().unwrap();
    let mut input = harvester.stdin.take().unwrap();
    let mut output = BufReader::new(harvester.stdout.take().unwrap());
    let read_line = async move || {
        tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            (line, output)
        })
        .await
        .unwrap()
    };
    let (line, mut output) = read_line().await;
    assert!(line.starts_with("harvested "), "{line}");
    is_over.store(true, Ordering::Relaxed);
    assert!(changes.await.unwrap() > 0, "nothing has changed meanwhile");
    let expected = registry(&repository).await;
    writeln!(input).unwrap();
    let harvested = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        line
    });
    let harvested: BTreeMap<String, Value> = serde_json::from_str(&harvested.await.unwrap()).unwrap();
    assert!(harvester.wait().unwrap().success());
    assert_eq!(harvested.len(), expected.len());
    for (identifier, relations) in &expected {
        assert_eq!(harvested.get(identifier), Some(relations), "{identifier}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sickle_has_the_registry_after_an_incremental_run() {
    harvest_with("sickle", "sickle").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scythe_has_the_registry_after_an_incremental_run() {
    harvest_with("scythe", "oaipmh-scythe").await;
}
