//! Batches that are accepted by an open journal.

use super::{Batch, Incoming, Intake, ReceivedMessage, Source};
use crate::{
    format::{
        Dialect, DialectKind, DuplicateDetection, Headers, InvalidSettings, Limits, Message, ParsedMessage, Rejection,
    },
    journal::{
        ChangeBounds, DraftOutcome, Journal, JournalSettings,
        harvest::SourcePosition,
        store::sqlite::{SqliteOptions, SqliteStore},
    },
    model::SourceName,
};

static KIND: DialectKind = DialectKind {
    name: "frail",
    about: "",
    accepts: &[],
    headers: &["read"],
    duplicates: DuplicateDetection::ByBody,
    redact: None,
    repository: None,
    sample_settings: &["{}"],
    build: |_, _| -> Result<Box<dyn Dialect>, InvalidSettings> { Ok(Box::new(Frail)) },
};

/// Dialect that panics on invalid JSON.
struct Frail;

impl Dialect for Frail {
    fn read(&self, message: &Message<'_>) -> Result<ParsedMessage, Rejection> {
        Ok(ParsedMessage::one(serde_json::from_slice(message.body).unwrap()))
    }
}

#[tokio::test]
async fn message_that_panics_the_dialect_is_quarantined_and_the_others_are_appended() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path(), SqliteOptions::default()).unwrap();
    let (journal, _writer) = Journal::start(store, JournalSettings::default()).unwrap();
    let name = SourceName::parse("s").unwrap();
    let source = Source::new(name, &KIND, serde_json::Value::Null, false, Limits::default()).unwrap();
    let intake = Intake::new(journal.clone());
    let headers: Headers = [("read", "1"), ("routing-key", "a.b"), ("secret", "2")].into_iter().collect();
    let event = |item: &str| {
        let items = serde_json::json!([{ "uri": format!("http://h/{item}"), "change": "ADD" }]);
        let event = serde_json::json!({ "sourceEventId": item, "object": "http://h/1", "items": items });
        event.to_string().into_bytes()
    };
    let message = |body: Vec<u8>| Incoming {
        content_type: None,
        headers: headers.clone(),
        body: body.into(),
        transport_id: None,
        redelivered: false,
        set: None,
    };
    let messages =
        [event("a"), b"no JSON".to_vec(), event("b"), event("a")].map(|body| ReceivedMessage::Readable(message(body)));
    let (first, next) = messages.split_at(2);
    let mut batch = Batch::read(&source, first.to_vec());
    batch.extend(Batch::read(&source, next.to_vec()));
    intake.accept_batch(&source, &mut batch, None).await.unwrap();
    // The second call has nothing left to do.
    intake.accept_batch(&source, &mut batch, None).await.unwrap();
    assert_eq!(journal.head().0, 2);
    let stored = journal.quarantined_before(None, None, 10).await.unwrap();
    assert_eq!(stored.len(), 1);
    let stored = journal.quarantined(stored[0].id).await.unwrap().unwrap().message;
    assert!(stored.reason.contains("the dialect crashed on this message"), "{}", stored.reason);
    assert_eq!(stored.body, "no JSON");
    let expected = [("read", "1"), ("routing-key", "a.b")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(stored.headers, expected);
    let counts = [&source.counts().accepted, &source.counts().duplicate, &source.counts().quarantined];
    assert_eq!(counts.map(|count| count.load(std::sync::atomic::Ordering::Relaxed)), [2, 1, 1]);
}

#[tokio::test]
async fn position_is_written_after_the_refused_message_is_quarantined() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path(), SqliteOptions::default()).unwrap();
    let bounds = ChangeBounds { object_items: 1, ..ChangeBounds::default() };
    let settings = JournalSettings { bounds, ..JournalSettings::default() };
    let (journal, _writer) = Journal::start(store, settings).unwrap();
    let name = SourceName::parse("s").unwrap();
    let source = Source::new(name.clone(), &KIND, serde_json::Value::Null, false, Limits::default()).unwrap();
    let intake = Intake::new(journal.clone());
    let message = |item: &str| {
        let items = serde_json::json!([{ "uri": format!("http://h/{item}"), "change": "ADD" }]);
        let body = serde_json::json!({ "sourceEventId": item, "object": "http://h/1", "items": items });
        let body = body.to_string().into();
        let incoming = Incoming {
            content_type: None,
            headers: Headers::default(),
            body,
            transport_id: None,
            redelivered: false,
            set: None,
        };
        ReceivedMessage::Readable(incoming)
    };
    // The object already has its only item, so the journal refuses the second message.
    let mut batch = Batch::read(&source, vec![message("a"), message("b")]);
    let submissions = |batch: &mut Batch| {
        batch.read.take().unwrap().into_iter().map(|one| one.message.submission).collect::<Vec<_>>()
    };
    let position = SourcePosition { source: name, position: "1".into() };
    let outcomes = journal.append_positioned(submissions(&mut batch), position).await.unwrap();
    assert_eq!(outcomes[1], [DraftOutcome::TooManyItems]);
    assert_eq!(intake.position(&source).await.unwrap(), None, "a crash here repeats the messages");
    intake.accept_batch(&source, &mut batch, Some("1".into())).await.unwrap();
    assert_eq!(intake.position(&source).await.unwrap().as_deref(), Some("1"));
    assert_eq!((journal.head().0, journal.quarantined_before(None, None, 10).await.unwrap().len()), (1, 1));
    // A batch of unreadable messages moves the position too.
    let no_json = message("c");
    let ReceivedMessage::Readable(incoming) = no_json else { panic!() };
    let unreadable = ReceivedMessage::Readable(Incoming { body: "no JSON".into(), ..incoming });
    intake.accept_batch(&source, &mut Batch::read(&source, vec![unreadable]), Some("2".into())).await.unwrap();
    assert_eq!(intake.position(&source).await.unwrap().as_deref(), Some("2"));
    assert_eq!(journal.quarantined_before(None, None, 10).await.unwrap().len(), 2);
}
