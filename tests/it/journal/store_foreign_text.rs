//! Contract tests of `Store` about text of partners, for every store: each text can be stored, and is the same in all
//! stores.

use bytes::Bytes;
use serde_json::json;
use tidings::{
    journal::{
        harvest::{HarvestProgress, HarvestRun, ListedRecord, ListedRecords, SourcePosition},
        ingest::{IngestJob, JobId, JobSelection, JobState},
        quarantine::NewQuarantinedMessage,
        seed::CrawlProgress,
        store::{StoreLimits, WriteBatch},
        subscriptions::{MadeBy, NewDeadLetter, SubscriptionWrite},
    },
    model::{JsonDocument, Seq, SourceName, SubscriptionName, Timestamp, Uri},
};
use uuid::Uuid;

use crate::support::tested_store::{empty_batch, every_store, new_harvest_run, write};

/// Text with a NUL, and with characters that people need for several languages.
const FOREIGN: &str = "no\0such\u{200d}\u{202e}é";

/// The same text in every store, as the type for text of partners cleans it.
const CLEANED: &str = "nosuch\u{200d}\u{202e}é";

/// Another text, whose NUL reaches the store, in every store.
const STORED: &str = "no\u{FFFD}such\u{200d}\u{202e}é";

#[test]
fn foreign_text_is_the_same_in_every_store() {
    let source = SourceName::parse("s").unwrap();
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        let job = IngestJob {
            id: JobId::mint(),
            source: source.clone(),
            dataset: Uri::parse("http://h/d").unwrap(),
            host: FOREIGN.to_owned(),
            request: JsonDocument::new(&json!({ "a": FOREIGN })).unwrap(),
            state: JobState::Failed,
            due: None,
            attempts: 1,
            status: Some(FOREIGN.into()),
            message: Some(FOREIGN.into()),
            requested: Timestamp::EPOCH,
            updated: Timestamp::EPOCH,
        };
        let run = HarvestRun { reason: Some(FOREIGN.into()), ..new_harvest_run(&source) };
        let present = vec![ListedRecord { validator: FOREIGN.to_owned(), ..ListedRecord::from(FOREIGN.to_owned()) }];
        let listed = ListedRecords { present, at: Some(Timestamp::EPOCH), ..ListedRecords::default() };
        let other = SourceName::parse("t").unwrap();
        let crawl = CrawlProgress {
            source: source.clone(),
            id: Uuid::nil(),
            parts: 1,
            position: FOREIGN.into(),
            objects: 1,
            started: Timestamp::EPOCH,
            updated: Timestamp::EPOCH,
            finished: false,
        };
        let batch = WriteBatch {
            harvests: vec![HarvestProgress { position: FOREIGN.into(), run, listed }],
            jobs: vec![job],
            positions: vec![SourcePosition { source: other.clone(), position: FOREIGN.into() }],
            crawls: vec![crawl],
            ..empty_batch()
        };
        write(&*store, &batch).unwrap();
        let job = store.ingest_jobs(&JobSelection::All { before: None, state: None }, 9).unwrap().remove(0);
        assert_eq!((job.host.as_str(), job.status.as_deref()), (STORED, Some(STORED)));
        assert_eq!(job.message.as_deref(), Some(CLEANED));
        let run = store.harvest_runs(&source, None, 9).unwrap().remove(0);
        assert_eq!(run.reason.as_deref(), Some(CLEANED));
        for source in [&source, &other] {
            assert_eq!(&*store.harvest(source).unwrap().unwrap().position, STORED);
        }
        let validators = store.validators(&source, &[FOREIGN.to_owned()]).unwrap();
        assert_eq!(validators.into_values().collect::<Vec<_>>(), [STORED]);
        assert_eq!(&*store.crawl_progress(&source).unwrap().unwrap().position, STORED);

        let message = NewQuarantinedMessage {
            source: source.clone(),
            received: Timestamp::EPOCH,
            content_type: Some(FOREIGN.into()),
            headers: vec![(FOREIGN.to_owned(), FOREIGN.to_owned())],
            body: Bytes::from_static(b"a\0b"),
            location: FOREIGN.into(),
            reason: FOREIGN.into(),
        };
        let id = store.quarantine(&[message], None).unwrap().ids[0];
        let stored = store.quarantined(id).unwrap().unwrap().message;
        assert_eq!(stored.content_type.as_deref(), Some(CLEANED));
        assert_eq!((&*stored.location, &*stored.reason), (CLEANED, CLEANED));
        assert_eq!(&stored.body[..], b"a\0b");

        let name = SubscriptionName::parse("sub").unwrap();
        let letter = NewDeadLetter { seq: Seq(1), reason: FOREIGN.into(), json: Bytes::from_static(b"{}") };
        let writes = [
            SubscriptionWrite::Put {
                name: name.clone(),
                made_by: MadeBy::Api,
                definition: FOREIGN.to_owned().into(),
                cursor: Seq(0),
            },
            SubscriptionWrite::SetEnded(name.clone(), Some(FOREIGN.into())),
            SubscriptionWrite::AddDeadLetter(name.clone(), letter),
        ];
        store.write_subscriptions(&writes, None).unwrap();
        let subscription = store.subscription(&name).unwrap().unwrap();
        assert_eq!(subscription.definition.expose(), STORED);
        assert_eq!(subscription.ended.as_deref(), Some(CLEANED));
        let letter = store.dead_letters(&name, None, 9).unwrap().remove(0).letter;
        assert_eq!(&*letter.reason, CLEANED);
    });
}
