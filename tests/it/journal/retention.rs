//! Retention removes changes older than `keep_days` or beyond `keep_changes` in the background. The registry,
//! the numbers, the newest change and the keys of duplicates remain, and a reader with an expired cursor learns
//! where to start.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use serde_json::Value;
use tidings::{
    journal::{DraftOutcome, JournalError, retention::Retention},
    model::{Seq, Timestamp},
};

use crate::support::{
    gateway::{Gateway, PATIENCE},
    journal_fixture::{OpenJournal, configuration, journal_file, post, verify_ok},
};

const DAY: i64 = 24 * 60 * 60 * 1000;

fn in_days(days: i64) -> Timestamp {
    Timestamp::from_millis(Timestamp::now().millis() + days * DAY).unwrap()
}

#[tokio::test]
async fn retention_by_count_or_age_whichever_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let opened = OpenJournal::at(folder.path());
    let journal = &opened.journal;
    opened.append(1..=1000).await;
    for (days, changes, now, first, removed) in [
        (None, None, in_days(9999), 1, 0),
        (Some(10), None, in_days(9), 1, 0),
        (None, Some(1000), in_days(0), 1, 0),
        (None, Some(700), in_days(0), 301, 300),
        (Some(10), Some(600), in_days(9), 401, 100),
        // The newest change remains, whatever its age.
        (Some(10), Some(600), in_days(11), 1000, 599),
        (Some(10), None, in_days(11), 1000, 0),
    ] {
        let removed_count = Retention { days, changes, only_sealed: false }.enforce(journal, now).await.unwrap();
        assert_eq!((journal.first(), removed_count), (Seq(first), removed), "{days:?} {changes:?}");
        let retained = journal.after(Seq(first - 1), 2000).await.unwrap();
        assert_eq!(
            retained.iter().map(|change| change.seq().0).collect::<Vec<_>>(),
            (first..=1000).collect::<Vec<_>>()
        );
        let report = verify_ok(&journal_file(folder.path()));
        assert_eq!((report.first, report.complete, report.objects), (Some(Seq(first)), first == 1, 100));
    }
    for after in [0, 1, 900, 998, 1001, u64::MAX] {
        let removed = journal.after(Seq(after), 10).await.unwrap_err();
        let expected = JournalError::Gone { after: Seq(after), first: Seq(1000) };
        assert_eq!(removed.to_string(), expected.to_string());
    }
    assert!(journal.after(Seq(1000), 10).await.unwrap().is_empty());
    // An event whose change was removed is still a duplicate, and the numbering continues.
    assert_eq!(opened.append([7]).await, [DraftOutcome::Duplicate { seq: Seq(7), id: None }]);
    assert!(matches!(opened.append([1001]).await[..], [DraftOutcome::Accepted { seq: Seq(1001), .. }]));
    opened.close();
    let opened = OpenJournal::at(folder.path());
    assert_eq!((opened.journal.first(), opened.journal.head()), (Seq(1000), Seq(1001)));
}

/// Each command removes a limited number of changes, so that appends do not wait for all of them.
#[tokio::test]
async fn retention_removes_in_small_steps() {
    let folder = tempfile::tempdir().unwrap();
    let opened = OpenJournal::at(folder.path());
    opened.append(1..=5000).await;
    for first in [201, 401, 601, 801, 1001] {
        assert_eq!(opened.journal.prune(Seq(1001), 200).await.unwrap(), 200);
        assert_eq!(opened.journal.first(), Seq(first));
    }
    assert_eq!(opened.journal.prune(Seq(1001), 200).await.unwrap(), 0);
    opened.close();
    verify_ok(&journal_file(folder.path()));
}

#[tokio::test]
async fn retention_returns_disk_space() {
    let folder = tempfile::tempdir().unwrap();
    let opened = OpenJournal::at(folder.path());
    opened.append(1..=8000).await;
    opened.close();
    let size = || journal_file(folder.path()).metadata().unwrap().len();
    let full = size();
    let opened = OpenJournal::at(folder.path());
    Retention { changes: Some(100), ..Retention::default() }.enforce(&opened.journal, in_days(0)).await.unwrap();
    opened.close();
    assert!(size() < full / 2, "{full} bytes, and {} with the changes gone", size());
    verify_ok(&journal_file(folder.path()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_runs_while_events_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), "[journal]\nkeep_changes = 60\ntail_changes = 5");
    let gateway = Arc::new(Gateway::start_with(folder.path(), &["--config", &config]));
    let next = Arc::new(AtomicU64::new(1));
    let posters: Vec<_> = (0..4)
        .map(|_| {
            let (gateway, next) = (Arc::clone(&gateway), Arc::clone(&next));
            tokio::spawn(async move {
                // Events arrive until much has been removed, so that both overlap.
                while first(&gateway).await < 400 {
                    post(&gateway, next.fetch_add(1, Ordering::Relaxed)).await;
                }
            })
        })
        .collect();
    for poster in posters {
        tokio::time::timeout(PATIENCE, poster).await.expect("retention removes nothing").unwrap();
    }
    let head = next.load(Ordering::Relaxed) - 1;
    let all_gone = async { while first(&gateway).await != head - 59 {} };
    tokio::time::timeout(PATIENCE, all_gone).await.expect("some changes were not removed");
    let page = gateway.json(&format!("/changes?after={}&limit=1000", head - 60)).await;
    let numbers: Vec<_> = page["changes"].as_array().unwrap().iter().map(|change| change["seq"].as_u64()).collect();
    assert_eq!(numbers, (head - 59..=head).map(Some).collect::<Vec<_>>());
    // The registry also has the items whose changes were removed.
    let snapshot = gateway.json("/snapshot?limit=1000").await;
    let items: usize =
        snapshot["objects"].as_array().unwrap().iter().map(|o| o["items"].as_array().unwrap().len()).sum();
    assert_eq!((items as u64, snapshot["head"].as_u64()), (head, Some(head)));
}

/// Returns the first retained number, from the response to a reader at the beginning.
async fn first(gateway: &Gateway) -> u64 {
    let answer = gateway.http.get(format!("{}/changes?after=0", gateway.url)).send().await.unwrap();
    if answer.status().is_success() {
        return 1;
    }
    assert_eq!(answer.status(), 410);
    let problem: Value = answer.json().await.unwrap();
    assert_eq!((&problem["type"], &problem["snapshot"]), (&"urn:tidings:problem:gone".into(), &"/snapshot".into()));
    problem["first"].as_u64().unwrap()
}
