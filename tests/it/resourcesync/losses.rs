//! Retention and restores: a destination that has missed changes is told so by the begin of the index, and by 410 for the
//! parts of its resource list.

use std::{collections::BTreeSet, path::Path, time::Instant};

use serde_json::Value;
use tidings::model::Timestamp;

use crate::support::{
    gateway::{Gateway, PATIENCE, command},
    journal_fixture::{configuration, post, run, stderr},
    resourcesync_reader::{Baseline, Destination, replay, time},
    shifted_clock::{seconds_to_noon, set_clock, shift_clock, shift_clock_by_file},
};

async fn registry(gateway: &Gateway) -> BTreeSet<String> {
    let snapshot: Value = gateway.json("/snapshot?limit=1000").await;
    let objects = snapshot["objects"].as_array().unwrap().iter();
    let items = objects.flat_map(|object| object["items"].as_array().unwrap());
    items.map(|item| item["uri"].as_str().unwrap().to_owned()).collect()
}

async fn is_exact(destination: &mut Destination, gateway: &Gateway, baseline: &Baseline) {
    let (from, changes) = destination.changes(gateway).await;
    assert!(from <= baseline.at, "{from} after {}", baseline.at);
    assert_eq!(replay(&baseline.resources, baseline.at, &changes), registry(gateway).await);
}

/// Reads everything after a restore that has lost the changes of the destination.
async fn begins_anew(destination: &mut Destination, gateway: &Gateway, newest: Timestamp, changes: usize) -> Baseline {
    let (from, read) = destination.changes(gateway).await;
    assert!(from > newest, "{from} after {newest}: whoever has a lost change begins anew");
    assert_eq!(read.len(), changes);
    let baseline = destination.baseline(gateway).await;
    assert_eq!(baseline.resources, registry(gateway).await);
    is_exact(destination, gateway, &baseline).await;
    baseline
}

/// The second restore of a day is another case, because the journal then skips the numbers of a day.
#[tokio::test]
async fn restore_makes_every_destination_begin_anew() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("backup"), folder.path().join("data"));
    let mut destination = Destination::default();
    let mut gateway = Gateway::start(&data);
    for number in 1..=20 {
        post(&gateway, number).await;
    }
    assert!(run("backup", &[&file, Path::new("--data"), &data]).status.success());
    for number in 21..=30 {
        post(&gateway, number).await;
    }
    let mut former = destination.baseline(&gateway).await;
    for round in 1..=2 {
        let (_, changes) = destination.changes(&gateway).await;
        let newest = time(&changes.last().unwrap().metadata["datetime"]);
        let list = destination.capability(&gateway, "changelist").await.entries().pop().unwrap().loc;
        assert!(gateway.stop().success());
        let ended = run("restore", &[&file, Path::new("--data"), &data, Path::new("--force")]);
        assert!(ended.status.success(), "{}", stderr(&ended));
        gateway = Gateway::start(&data);

        for url in former.parts.iter().chain([&list]) {
            let url = format!("{}/resourcesync/{}", gateway.url, url.rsplit('/').next().unwrap());
            assert_eq!(destination.request(&gateway, &url).await.status(), 410, "{url}");
        }
        let early = begins_anew(&mut destination, &gateway, newest, 0).await;
        post(&gateway, 60 + round).await;
        begins_anew(&mut destination, &gateway, newest, 1).await;
        post(&gateway, 70 + round).await;
        former = begins_anew(&mut destination, &gateway, newest, 2).await;
        // A list that was made before the first change after the restore stays exact.
        is_exact(&mut destination, &gateway, &early).await;
    }
}

#[tokio::test]
async fn retention_by_days_removes_whole_lists() {
    let folder = tempfile::tempdir().unwrap();
    let (data, clock) = (folder.path().join("data"), folder.path().join("clock"));
    let config = configuration(folder.path(), "[journal]\nkeep_days = 3\n");
    let mut serve = command();
    let noon = seconds_to_noon();
    shift_clock_by_file(&mut serve, &clock, noon);
    let gateway = Gateway::start_as(serve, &data, &["--listen", "127.0.0.1:0", "--config", &config]);
    let mut destination = Destination::default();
    let mut first = None;
    for day in 0..8 {
        set_clock(&clock, noon + day * 24 * 60 * 60);
        for number in 0..5 {
            post(&gateway, u64::try_from(day).unwrap() * 10 + number).await;
        }
        let baseline = destination.baseline(&gateway).await;
        first.get_or_insert(baseline.clone());
        // Closed lists do not change while others are removed; the destination has an eye on it.
        is_exact(&mut destination, &gateway, &baseline).await;
    }
    let first = first.unwrap();
    let began = Instant::now();
    // Retention removes a few changes at a time.
    let index = loop {
        let (from, _) = destination.changes(&gateway).await;
        let index = destination.capability(&gateway, "changelist").await;
        if from > first.at && index.entries().len() <= 4 {
            break index;
        }
        assert!(began.elapsed() < PATIENCE, "nothing is removed: {from}");
        // Retention looks again when there is a change.
        post(&gateway, 1000 + u64::try_from(began.elapsed().as_millis()).unwrap()).await;
    };
    assert!(index.entries().len() >= 2, "{}", index.bytes);
    let list = format!("{}/resourcesync/changelist-{:016}.xml", gateway.url, 1);
    assert_eq!(destination.request(&gateway, &list).await.status(), 410);
    assert_eq!(destination.parts(&gateway, &first.parts, first.at).await, None);
    let baseline = destination.baseline(&gateway).await;
    assert_eq!(baseline.resources, registry(&gateway).await);
    is_exact(&mut destination, &gateway, &baseline).await;
}

/// If fewer changes are kept than one list has, the rest is one list that is always open.
#[tokio::test]
async fn journal_with_few_changes_has_one_open_list() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), "[journal]\nkeep_changes = 60\ntail_changes = 5\n");
    // Another day would be another list.
    let mut serve = command();
    shift_clock(&mut serve, seconds_to_noon());
    let arguments = ["--listen", "127.0.0.1:0", "--config", &config];
    let gateway = Gateway::start_as(serve, &folder.path().join("data"), &arguments);
    let mut destination = Destination::default();
    for number in 0..100 {
        post(&gateway, number).await;
    }
    let overtaken = destination.baseline(&gateway).await;
    let began = Instant::now();
    let mut exact_rounds = 0;
    for round in 10.. {
        let baseline = destination.baseline(&gateway).await;
        for number in 0..10 {
            post(&gateway, round * 10 + number).await;
        }
        let (from, changes) = destination.changes(&gateway).await;
        // A list that took long to make is served again, and so few changes are kept that retention can overtake it.
        if from <= baseline.at {
            exact_rounds += 1;
            assert_eq!(replay(&baseline.resources, baseline.at, &changes), registry(&gateway).await);
        }
        if destination.parts(&gateway, &overtaken.parts, overtaken.at).await.is_none() {
            let (from, changes) = destination.changes(&gateway).await;
            assert!(from > overtaken.at && changes.len() >= 60, "{from}: {}", changes.len());
            break;
        }
        assert!(began.elapsed() < 4 * PATIENCE, "nothing is removed");
    }
    // All changes since the first list are kept in the first round.
    assert!(exact_rounds > 0 && destination.closed_lists() == 0);
}
