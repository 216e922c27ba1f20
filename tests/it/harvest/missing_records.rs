//! Records that vanish without a tombstone, and lists of identifiers.

use std::time::Duration;

use tidings::{harvest::oai_pmh::ListVerb, journal::harvest::RunState};

use crate::support::{
    harvest_fixture::HarvestFixture,
    scripted_repository::{Misbehaviour, identifier},
};

/// Starts a repository that does not report deletions, and harvests it. Every run lists all records.
async fn harvested(records: usize) -> HarvestFixture {
    let mut fixture = HarvestFixture::start(records).await;
    fixture.repository.script().deleted_record = "no";
    fixture.settings.full_every = Some(Duration::ZERO);
    fixture.complete().await;
    fixture.assert_equal().await;
    fixture
}

#[tokio::test]
async fn missing_records_are_deleted_after_a_complete_list() {
    let fixture = harvested(200).await;
    for number in [0, 3, 57, 199] {
        fixture.repository.lose(&identifier(number));
    }
    fixture.repository.delete_now(&identifier(100));
    fixture.repository.put_now(&identifier(300), "New");
    let run = fixture.complete().await;
    assert_eq!((run.counts.changes, run.counts.quarantined, run.reason), (6, 0, None));
    fixture.assert_equal().await;
    // Only the missing ones are requested, and only once.
    assert_eq!(fixture.repository.requested_records(), [0, 3, 57, 199].map(identifier));
    assert_eq!(fixture.complete().await.counts.changes, 0);
    assert_eq!(fixture.repository.requested_records().len(), 4);
    // A record that comes back is a new one.
    fixture.repository.put_now(&identifier(3), "Title 3");
    assert_eq!(fixture.complete().await.counts.changes, 1);
    fixture.assert_equal().await;
}

#[tokio::test]
async fn complete_lists_are_rare_and_follow_the_reports_of_deletions() {
    let mut fixture = harvested(60).await;
    fixture.settings.full_every = None;
    fixture.repository.lose(&identifier(5));
    fixture.complete().await;
    let lists = fixture.repository.first_pages();
    assert!(lists[1].contains_key("from"), "a complete list is requested once a week: {lists:?}");
    assert_eq!(fixture.registered().await.len(), 60);
    // A repository that reports all deletions is listed completely once a month.
    let mut persistent = HarvestFixture::start(20).await;
    persistent.complete().await;
    persistent.repository.lose(&identifier(5));
    persistent.complete().await;
    assert_eq!(persistent.registered().await.len(), 20);
    // An administrator can request complete lists for it.
    persistent.settings.full_every = Some(Duration::ZERO);
    persistent.complete().await;
    persistent.repository.lose(&identifier(6));
    persistent.complete().await;
    assert!(!persistent.registered().await.keys().any(|uri| uri.ends_with("00006")));
}

#[tokio::test]
async fn a_repository_that_has_lost_much_is_not_believed_until_the_administrator_agrees() {
    for everything_is_lost in [true, false] {
        let mut fixture = harvested(200).await;
        for number in 0..if everything_is_lost { 200 } else { 21 } {
            fixture.repository.lose(&identifier(number));
        }
        let run = fixture.complete().await;
        let reason = run.reason.unwrap_or_default();
        assert!(reason.contains("no longer listed; nothing was deleted"), "{reason}");
        assert!(reason.contains("max_deleted_percent is 10"), "{reason}");
        assert_eq!(fixture.registered().await.len(), 200);
        assert!(fixture.repository.requested_records().is_empty());
        // The next run, which lists only new records, has the same doubt.
        fixture.settings.full_every = None;
        fixture.complete().await;
        assert_eq!(fixture.registered().await.len(), 200);
        fixture.settings.max_deleted_percent = 100;
        fixture.complete().await;
        fixture.assert_equal().await;
    }
}

#[tokio::test]
async fn records_that_the_repository_still_has_stay() {
    let mut fixture = harvested(100).await;
    // The list loses its last pages without saying so, and each record can still be requested.
    fixture.settings.max_deleted_percent = 100;
    fixture.repository.misbehave(&[Misbehaviour::EndsEarly, Misbehaviour::Announces(0)]);
    assert_eq!(fixture.complete().await.counts.changes, 0);
    assert_eq!(fixture.repository.requested_records().len(), 70);
    fixture.assert_equal().await;
}

#[tokio::test]
async fn incomplete_lists_delete_nothing() {
    let mut fixture = harvested(100).await;
    fixture.settings.max_deleted_percent = 100;
    // All of these records would be confirmed as deleted.
    for misbehaviour in [Misbehaviour::EndsEarly, Misbehaviour::Circle] {
        fixture.repository.misbehave(&[misbehaviour, Misbehaviour::RecordsUnknown]);
        assert_eq!(fixture.run().await.state, RunState::Failed, "{misbehaviour:?}");
        assert_eq!(fixture.registered().await.len(), 100, "{misbehaviour:?}");
    }
    // The announcement is wrong in two runs, so the run is complete, but the list may not be.
    fixture.repository.misbehave(&[Misbehaviour::Announces(1000), Misbehaviour::RecordsUnknown]);
    assert_eq!(fixture.run().await.state, RunState::Failed);
    fixture.repository.lose(&identifier(1));
    fixture.repository.put_now(&identifier(1000), "New");
    let run = fixture.complete().await;
    assert!(run.reason.unwrap().contains("missing records are not looked for"));
    assert_eq!(fixture.registered().await.len(), 101);
}

#[tokio::test]
async fn records_that_cannot_be_confirmed_stay_and_are_told() {
    let fixture = harvested(100).await;
    for number in 0..3 {
        fixture.repository.lose(&identifier(number));
    }
    fixture.repository.misbehave(&[Misbehaviour::RecordFails(1)]);
    let run = fixture.complete().await;
    assert_eq!(run.counts.changes, 2);
    assert!(run.reason.unwrap().contains("1 records are no longer listed, but the repository does not confirm"));
    assert_eq!(fixture.registered().await.len(), 98);
    fixture.repository.misbehave(&[]);
    fixture.complete().await;
    fixture.assert_equal().await;
    // A repository that fails for all of them ends the run, and the next one continues.
    fixture.repository.lose(&identifier(50));
    fixture.repository.misbehave(&[Misbehaviour::RecordsFail]);
    assert_eq!(fixture.run().await.state, RunState::Failed);
    assert_eq!(fixture.registered().await.len(), 97);
    fixture.repository.misbehave(&[]);
    fixture.complete().await;
    fixture.assert_equal().await;
}

#[tokio::test]
async fn records_that_leave_the_sets_are_deleted() {
    let mut fixture = HarvestFixture::start(30).await;
    fixture.settings.sets = vec!["theses".to_owned()];
    fixture.settings.full_every = Some(Duration::ZERO);
    let put = |number: usize, sets: &[&str]| {
        let sets = sets.iter().map(|set| (*set).to_owned()).collect();
        fixture.repository.script().records.get_mut(&identifier(number)).unwrap().sets = sets;
    };
    for number in 0..30 {
        put(number, &["theses"]);
    }
    fixture.complete().await;
    assert_eq!(fixture.registered().await.len(), 30);
    // Neither gets a new datestamp.
    put(4, &["articles"]);
    put(5, &["articles", "theses"]);
    assert_eq!(fixture.complete().await.counts.changes, 1);
    let registered = fixture.registered().await;
    assert_eq!(registered.len(), 29);
    assert!(!registered.keys().any(|uri| uri.ends_with("00004")));
}

#[tokio::test]
async fn lists_of_identifiers_are_completed_record_by_record() {
    let mut fixture = HarvestFixture::start(25).await;
    fixture.settings.list = ListVerb::Identifiers;
    fixture.repository.delete_now(&identifier(24));
    let run = fixture.complete().await;
    assert_eq!((run.counts.records, run.counts.changes), (25, 24));
    fixture.assert_equal().await;
    assert!(fixture.repository.first_pages().iter().all(|request| request["verb"] == "ListIdentifiers"));
    // A record that always fails goes to the quarantine, and the others are harvested.
    fixture.repository.put_now(&identifier(30), "New");
    fixture.repository.put_now(&identifier(31), "Broken");
    fixture.repository.delete_now(&identifier(2));
    fixture.repository.misbehave(&[Misbehaviour::RecordFails(31)]);
    let run = fixture.complete().await;
    assert_eq!((run.counts.changes, run.counts.quarantined), (2, 1));
    fixture.repository.misbehave(&[]);
    fixture.complete().await;
    fixture.assert_equal().await;
}
