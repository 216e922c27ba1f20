//! A broker redelivers an unacknowledged message with a flag. With that flag, a message that is already stored
//! is a duplicate; without it, the same bytes are a state that recurs.

use serde_json::json;
use tidings::{
    format::{self, Headers, Limits},
    intake::{Incoming, Intake, Outcome, Source, SourceName},
    journal::{Journal, JournalSettings, store::sqlite},
};

#[tokio::test]
async fn redelivered_status_is_a_duplicate_and_a_recurring_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let store = sqlite::SqliteStore::open(folder.path(), sqlite::SqliteOptions::default()).unwrap();
    let (journal, writer) = Journal::start(store, JournalSettings::default()).unwrap();
    let intake = Intake::new(journal);
    let settings = json!({"base_url": "https://sfm.example.org"});
    let kind = format::dialect("sfm").unwrap();
    let source = Source::new(SourceName::parse("sfm").unwrap(), kind, settings, false, Limits::default()).unwrap();
    let mut outcomes = Vec::new();
    for (status, warcs, redelivered) in [
        ("running", 1, false),
        ("running", 2, false),
        ("paused", 2, false),
        ("running", 1, true),
        ("running", 2, true),
        ("paused", 2, true),
        ("running", 1, false),
        ("paused", 3, true),
        ("running", 2, false),
    ] {
        let incoming = Incoming {
            content_type: Some("application/json".to_owned()),
            headers: Headers::from_iter([("routing-key", "harvest.status.twitter.twitter_filter")]),
            body: json!({"id": "1", "status": status, "warcs": {"count": warcs}}).to_string().into(),
            transport_id: None,
            redelivered,
            set: None,
        };
        outcomes.push(intake.accept(&source, incoming).await.unwrap().outcome());
    }
    assert_eq!(
        outcomes,
        [
            Outcome::Accepted,
            Outcome::Unchanged,
            Outcome::Accepted,
            Outcome::Duplicate,
            Outcome::Unchanged,
            Outcome::Duplicate,
            Outcome::Accepted,
            Outcome::Accepted,
            Outcome::Accepted
        ]
    );
    drop(intake);
    writer.join();
}

#[tokio::test]
async fn redelivered_message_without_identifier_is_dropped_only_if_it_says_nothing_new() {
    let folder = tempfile::tempdir().unwrap();
    let store = sqlite::SqliteStore::open(folder.path(), sqlite::SqliteOptions::default()).unwrap();
    let (journal, writer) = Journal::start(store, JournalSettings::default()).unwrap();
    let intake = Intake::new(journal);
    let kind = format::dialect("content-change").unwrap();
    let name = SourceName::parse("plug-in").unwrap();
    let source = Source::new(name, kind, json!({}), false, Limits::default()).unwrap();
    for (size, redelivered, outcome) in [
        (1, false, Outcome::Accepted),
        (1, true, Outcome::Duplicate),
        (1, false, Outcome::Accepted),
        (2, false, Outcome::Accepted),
        // It may be the first delivery of an event that looks like an earlier one.
        (1, true, Outcome::Accepted),
        (1, true, Outcome::Duplicate),
        (3, true, Outcome::Accepted),
    ] {
        let content = json!({"url": "http://h/1", "size": size});
        let body =
            json!({"object": "http://h/1", "items": [{"uri": "http://h/1", "change": "UPDATE", "content": content}]});
        let incoming = Incoming {
            content_type: None,
            headers: Headers::default(),
            body: body.to_string().into(),
            transport_id: None,
            redelivered,
            set: None,
        };
        assert_eq!(intake.accept(&source, incoming).await.unwrap().outcome(), outcome, "{size} {redelivered}");
    }
    drop(intake);
    writer.join();
}
