//! A journal with one subscription, and an engine that runs it.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tempfile::TempDir;
use tokio::{sync::Notify, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{
    super::{Batching, Engine, EngineTimeouts, Exit},
    receiver::Receiver,
};
use crate::{
    cluster::Tenure,
    delivery::{
        change_notices::ChangeNotices,
        cursors::Cursors,
        memory::MemoryBudget,
        status::{SubscriptionState, SubscriptionStatus},
    },
    format::format,
    journal::{
        DuplicatePolicy, Journal, JournalSettings, JournalThreads, Submission, TailBounds,
        settle::SourcePolicy,
        store::sqlite::{SqliteOptions, SqliteStore},
        subscriptions::{DefinitionText, MadeBy, SubscriptionRecord, SubscriptionWrite},
    },
    model::{Draft, Filter, Seq, SourceName, SubscriptionName},
};

const SHORT: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct EngineFixture {
    pub(super) _folder: TempDir,
    pub(super) journal: Journal,
    pub(super) _writer: JournalThreads,
    pub(super) notices: Arc<ChangeNotices>,
    pub(super) name: SubscriptionName,
    pub(super) cursors: Cursors,
    pub(super) max_dead_letters: u64,
    pub(super) pause_after: Option<Duration>,
    pub(super) filter: Filter,
    pub(super) memory: Arc<MemoryBudget>,
    pub(super) stable_after: Duration,
}

impl EngineFixture {
    pub(super) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path(), SqliteOptions::default()).unwrap();
        let (journal, writer) = Journal::start(
            store,
            JournalSettings { tail: TailBounds { changes: 10, ..TailBounds::default() }, ..JournalSettings::default() },
        )
        .unwrap();
        let name = SubscriptionName::parse("index").unwrap();
        let put = SubscriptionWrite::Put {
            name: name.clone(),
            made_by: MadeBy::Api,
            definition: DefinitionText::default(),
            cursor: Seq::ZERO,
        };
        journal.write_subscriptions(vec![put]).await.unwrap();
        let cursors = Cursors::new(journal.clone());
        let notices = Arc::new(ChangeNotices::new(&journal));
        let (sending, of) = (Arc::clone(&notices), journal.clone());
        tokio::spawn(async move { sending.run(&of).await });
        Self {
            _folder: folder,
            journal,
            _writer: writer,
            notices,
            name,
            cursors,
            max_dead_letters: 10,
            pause_after: None,
            filter: Filter::default(),
            memory: Arc::default(),
            stable_after: PATIENCE,
        }
    }

    /// Appends changes of a source to the journal, of the items with these numbers.
    pub(super) async fn append(&self, source: &str, numbers: std::ops::RangeInclusive<u64>) {
        let draft = |number: u64| -> Draft {
            let item = format!("http://h/items/{number}");
            serde_json::from_value(json!({"object": "http://h/o", "items": [{"uri": item, "change": "ADD"}]})).unwrap()
        };
        let policy = Arc::new(SourcePolicy { name: SourceName::parse(source).unwrap(), metadata_changes: false });
        let drafts = numbers.map(|number| (None, draft(number))).collect();
        self.journal
            .append(Submission { policy, drafts, duplicate_policy: DuplicatePolicy::RememberChanges, completes: None })
            .await
            .unwrap();
    }

    pub(super) fn engine(
        &self,
        receiver: &Receiver,
        cursor: u64,
    ) -> (Arc<SubscriptionStatus>, Arc<Notify>, CancellationToken, Engine) {
        let name = SubscriptionName::parse("index").unwrap();
        let stored = SubscriptionRecord::new(name, MadeBy::Api, DefinitionText::default(), Seq(cursor));
        let (status, replays, stop) = (
            Arc::new(SubscriptionStatus::new(SubscriptionState::Connecting, &stored)),
            Arc::new(Notify::new()),
            CancellationToken::new(),
        );
        let timeouts = EngineTimeouts {
            initial_backoff: SHORT,
            max_backoff: SHORT,
            send: PATIENCE,
            drain: PATIENCE,
            stable_after: self.stable_after,
        };
        let engine = Engine {
            name: self.name.clone(),
            journal: self.journal.clone(),
            notices: Arc::clone(&self.notices),
            filter: Arc::new(self.filter.clone()),
            format: format("json").unwrap(),
            max_dead_letters: self.max_dead_letters,
            pause_after: self.pause_after,
            memory: Arc::clone(&self.memory),
            batching: Batching::default(),
            delivery: Box::new(receiver.clone()),
            cursor: Seq(cursor),
            cursors: self.cursors.clone(),
            status: Arc::clone(&status),
            replays: Arc::clone(&replays),
            tenure: Tenure::permanent(stop.clone()),
            timeouts,
        };
        (status, replays, stop, engine)
    }

    pub(super) fn run(&self, receiver: &Receiver, cursor: u64) -> RunningEngine {
        let (status, replays, stop, engine) = self.engine(receiver, cursor);
        RunningEngine { status, replays, stop, engine: tokio::spawn(engine.run()) }
    }

    pub(super) async fn stored_cursor(&self) -> u64 {
        self.cursors.flush().await.unwrap();
        self.journal.subscriptions().await.unwrap()[0].cursor.0
    }
}

pub(super) struct RunningEngine {
    pub(super) status: Arc<SubscriptionStatus>,
    pub(super) replays: Arc<Notify>,
    pub(super) stop: CancellationToken,
    pub(super) engine: JoinHandle<Exit>,
}

impl RunningEngine {
    pub(super) async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let waited = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, waited).await;
        assert!(waited.is_ok(), "waited in vain until {what}: {:?}", self.status.snapshot());
    }

    pub(super) async fn until_at(&self, cursor: u64) {
        self.until("the cursor is there", || self.status.snapshot().cursor.0 == cursor).await;
    }

    pub(super) async fn stop(self) -> Exit {
        self.stop.cancel();
        self.engine.await.unwrap()
    }
}
