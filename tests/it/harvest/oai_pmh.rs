//! Harvests over OAI-PMH of a repository that keeps to the protocol.

use serde_json::json;
use tidings::{
    journal::harvest::RunState,
    model::{Seq, Text},
};

use crate::support::{
    harvest_fixture::{HarvestFixture, source},
    scripted_repository::identifier,
};

#[tokio::test]
async fn first_run_reads_all_pages_and_second_run_changes_nothing() {
    let fixture = HarvestFixture::start(47).await;
    let run = fixture.complete().await;
    assert_eq!((run.counts.pages, run.counts.records, run.counts.changes), (5, 47, 47));
    fixture.assert_equal().await;
    let head = fixture.journal.journal.head();
    let again = fixture.complete().await;
    assert_eq!(again.counts.changes, 0);
    assert!(again.counts.records < 47, "{again:?}");
    assert_eq!(fixture.journal.journal.head(), head);
    // The same once more, over all records.
    fixture.repository.script().records.values_mut().for_each(|record| record.datestamp += 1_000_000_000);
    fixture.repository.misbehave(&[crate::support::scripted_repository::Misbehaviour::IgnoredDates]);
    let touched = fixture.complete().await;
    assert_eq!((touched.counts.records, touched.counts.changes), (47, 0));
    assert_eq!(fixture.journal.journal.head(), head);
}

#[tokio::test]
async fn later_runs_find_new_changed_deleted_and_restored_records() {
    let fixture = HarvestFixture::start(25).await;
    fixture.complete().await;
    let from = &fixture.position().await["from"];
    let repository = &fixture.repository;
    repository.put_now(&identifier(3), "Changed");
    repository.put_now(&identifier(100), "New");
    repository.delete_now(&identifier(4));
    let run = fixture.complete().await;
    assert_eq!((run.counts.changes, run.counts.quarantined), (3, 0));
    fixture.assert_equal().await;
    let first_pages = repository.first_pages();
    let asked = first_pages[1]["from"].clone();
    assert!(from.as_str().unwrap().starts_with(asked.trim_end_matches('Z')), "{from} {asked}");
    // A tombstone of a record that the journal never had is no change, and a deleted record comes back.
    repository.put_now(&identifier(200), "Unknown");
    repository.delete_now(&identifier(200));
    repository.put_now(&identifier(4), "Title 4");
    assert_eq!(fixture.complete().await.counts.changes, 1);
    fixture.assert_equal().await;
    let changes = fixture.journal.journal.after(Seq(25), 100).await.unwrap();
    let kinds: Vec<_> =
        changes.iter().map(|change| change.change().unwrap().modification.items[0].change.clone()).collect();
    let kinds = format!("{kinds:?}");
    let order = ["Update", "Add", "Delete", "Add"].map(|kind| kinds.matches(kind).count());
    assert_eq!(order, [1, 2, 1, 2], "{kinds}");
}

#[tokio::test]
async fn changed_metadata_counts_whatever_its_datestamp_is() {
    let fixture = HarvestFixture::start(12).await;
    fixture.complete().await;
    // The same datestamp, and an older one.
    fixture.repository.put(&identifier(11), "Changed", 11 * 60);
    fixture.repository.put(&identifier(10), "Changed too", -600_000);
    fixture.repository.misbehave(&[crate::support::scripted_repository::Misbehaviour::IgnoredDates]);
    assert_eq!(fixture.complete().await.counts.changes, 2);
    fixture.assert_equal().await;
    assert_eq!(fixture.complete().await.counts.changes, 0);
}

#[tokio::test]
async fn sets_are_harvested_one_after_the_other() {
    let mut fixture = HarvestFixture::start(45).await;
    for number in 0..30 {
        let sets = if number < 15 { vec!["a:b".to_owned()] } else { vec!["c".to_owned()] };
        fixture.repository.script().records.get_mut(&identifier(number)).unwrap().sets = sets;
    }
    fixture.settings.sets = vec!["a:b".to_owned(), "empty".to_owned(), "c".to_owned()];
    let run = fixture.complete().await;
    assert_eq!((run.counts.records, run.counts.changes), (30, 30));
    assert_eq!(run.reason.as_ref().map(Text::as_str), Some("the repository has no set empty; it has no sets"));
    let lists = fixture.repository.first_pages();
    let sets: Vec<_> = lists.iter().filter_map(|request| request.get("set")).collect();
    assert_eq!(sets, ["a:b", "empty", "c"]);
}

#[tokio::test]
async fn back_fill_in_windows_finds_everything() {
    let mut fixture = HarvestFixture::start(95).await;
    fixture.settings.window = Some(std::time::Duration::from_secs(30 * 60));
    fixture.complete().await;
    fixture.assert_equal().await;
    let windows = fixture.repository.first_pages();
    assert!(windows.len() > 3 && windows[0].contains_key("until") && !windows[0].contains_key("from"), "{windows:?}");
    assert!(!windows.last().unwrap().contains_key("until"), "{windows:?}");
}

#[tokio::test]
async fn changes_of_the_repository_are_remarked() {
    let fixture = HarvestFixture::start(3).await;
    fixture.complete().await;
    {
        let mut script = fixture.repository.script();
        script.base_url = "http://new.example/oai".to_owned();
        script.deleted_record = "no";
    }
    let run = fixture.complete().await;
    let reason = run.reason.unwrap();
    assert!(reason.contains("has changed its base URL from") && reason.contains("http://new.example/oai"), "{reason}");
    let support = "has changed its support of deleted records from \"persistent\" to \"no\"";
    assert!(reason.contains(support), "{reason}");
}

#[tokio::test]
async fn provenance_becomes_part_of_the_description() {
    let fixture = HarvestFixture::start(1).await;
    let about = "<about><provenance xmlns='http://www.openarchives.org/OAI/2.0/provenance'><originDescription \
        harvestDate='2002-02-02T14:10:02Z' altered='true'><baseURL>http://other.example/oai</baseURL>\
        <identifier>oai:other:1</identifier><datestamp>2002-01-01</datestamp></originDescription></provenance></about>";
    about.clone_into(&mut fixture.repository.script().records.get_mut(&identifier(0)).unwrap().about);
    fixture.complete().await;
    let change = fixture.journal.journal.after(Seq::ZERO, 1).await.unwrap().remove(0);
    let change = change.change().unwrap();
    assert_eq!(
        change.modification.description.as_str(),
        "record oai:repository.example:00000; from http://other.example/oai: oai:other:1, 2002-01-01"
    );
    assert_eq!(change.modification.time.to_string(), "2020-01-01T00:00:00.000Z");
}

#[tokio::test]
async fn large_records_go_to_the_quarantine() {
    let mut fixture = HarvestFixture::start(12).await;
    fixture.max_record_bytes = 1000;
    fixture.repository.put(&identifier(5), &"long ".repeat(1000), 300);
    let run = fixture.complete().await;
    assert_eq!((run.counts.records, run.counts.changes, run.counts.quarantined), (12, 11, 1));
    let quarantined = fixture.journal.journal.quarantined_before(None, None, 10).await.unwrap();
    assert!(quarantined[0].message.reason.contains("limits.body_bytes is 1000"), "{quarantined:?}");
}

#[tokio::test]
async fn failed_run_names_the_reason_and_keeps_the_position() {
    let mut fixture = HarvestFixture::start(12).await;
    fixture.complete().await;
    let from = fixture.position().await["from"].clone();
    fixture.settings.page_bytes = 100;
    let run = fixture.run().await;
    assert_eq!(run.state, RunState::Failed);
    assert_eq!(fixture.position().await["from"], from);
    assert_ne!(from, json!(null));
    let runs = fixture.journal.journal.harvest_runs(source(), None, 10).await.unwrap();
    assert_eq!(runs.iter().map(|run| run.state).collect::<Vec<_>>(), [RunState::Failed, RunState::Completed]);
}

#[tokio::test]
async fn requests_carry_the_address_of_the_operator() {
    let mut fixture = HarvestFixture::start(12).await;
    fixture.complete().await;
    assert_eq!(fixture.repository.senders().await, [None, None, None]);
    fixture.settings.contact = Some("library@example.org".parse().unwrap());
    fixture.complete().await;
    let senders = fixture.repository.senders().await.split_off(3);
    assert!(senders.len() >= 2 && senders.iter().all(|sender| sender.as_deref() == Some("library@example.org")));
}
