//! Promise 7 of the store: a node that has lost a duty writes nothing for it, and its neighbours in a batch do.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use tidings::{
    journal::{
        DuplicatePolicy, Journal, JournalError, JournalSettings, JournalThreads, Submission,
        harvest::{HarvestProgress, ListedRecords, SourcePosition},
        nodes::{DutyName, NodeTable, Term},
        quarantine::NewQuarantinedMessage,
        settle::SourcePolicy,
        store::StoreError,
        subscriptions::{CursorAdvance, DefinitionText, MadeBy, NewDeadLetter, SubscriptionWrite},
    },
    model::{Draft, Seq, SourceName, SubscriptionName, Timestamp},
};
use uuid::Uuid;

use super::node_table::Tables;
use crate::support::{
    postgres::{self, options, query},
    tested_store::new_harvest_run,
};

/// A journal in a database, and a node with duties.
struct Fixture {
    folder: tempfile::TempDir,
    journal: Journal,
    threads: JournalThreads,
    table: Box<dyn NodeTable>,
    node: Uuid,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut tables = Tables::open(folder.path());
        let node = tables.register("a");
        let store = postgres::open(folder.path(), options());
        let (journal, threads) = Journal::start(store, JournalSettings::default()).unwrap();
        Self { folder, journal, threads, table: tables.table, node }
    }

    /// Takes a duty.
    fn take(&mut self, name: &DutyName) -> Term {
        self.table.take(self.node, std::slice::from_ref(name)).unwrap()[0].1
    }

    fn release(&mut self, term: Term) {
        self.table.release(&[term]).unwrap();
    }

    fn end(self) {
        drop(self.journal);
        self.threads.join();
    }
}

fn submission(number: u64) -> Submission {
    let item = format!("http://h/items/{number}");
    let draft: Draft =
        serde_json::from_value(json!({"object": "http://h/o", "items": [{"uri": item, "change": "ADD"}]})).unwrap();
    let policy = Arc::new(SourcePolicy { name: SourceName::parse("s").unwrap(), metadata_changes: false });
    let duplicate_policy = DuplicatePolicy::RememberChanges;
    Submission { policy, drafts: vec![(None, draft)], duplicate_policy, completes: None }
}

fn message() -> NewQuarantinedMessage {
    NewQuarantinedMessage {
        source: SourceName::parse("s").unwrap(),
        received: Timestamp::EPOCH,
        content_type: None,
        headers: Vec::new(),
        body: Bytes::from_static(b"?"),
        location: "message".into(),
        reason: "unreadable".into(),
    }
}

fn is_lost<T: std::fmt::Debug>(result: &Result<T, JournalError>) {
    assert!(matches!(result, Err(JournalError::Store(StoreError::DutyLost))), "{result:?}");
}

#[tokio::test]
async fn a_stale_term_fails_only_the_commands_that_carry_it() {
    let mut fixture = Fixture::new();
    let [stale, held] = ["source/a", "source/b"].map(|name| fixture.take(&DutyName::stored(name)));
    fixture.journal.under(Some(stale)).append(submission(1)).await.unwrap();
    fixture.release(stale);
    let journal = &fixture.journal;
    let (none, lost, kept) = (journal.clone(), journal.under(Some(stale)), journal.under(Some(held)));
    // Many at once, so that they share batches.
    let appends = (0..30).map(|number| {
        let journal = [&none, &lost, &kept][number % 3].clone();
        async move { (number % 3, journal.append(submission(100 + number as u64)).await) }
    });
    for (which, result) in futures_util::future::join_all(appends).await {
        match which {
            1 => is_lost(&result),
            _ => assert_eq!(result.unwrap().len(), 1),
        }
    }
    assert_eq!(journal.head(), Seq(21));
    assert_eq!(query(fixture.folder.path(), "SELECT count(*), max(seq) FROM changes"), "21|21");
    drop((none, lost, kept));
    fixture.end();
}

#[tokio::test]
async fn a_former_holder_moves_no_position_of_a_harvest() {
    let mut fixture = Fixture::new();
    let source = SourceName::parse("s").unwrap();
    let progress = |position: &str| HarvestProgress {
        position: position.into(),
        run: new_harvest_run(&source),
        listed: ListedRecords::default(),
    };
    let former = fixture.take(&DutyName::source(&source));
    fixture.release(former);
    let successor = fixture.take(&DutyName::source(&source));
    let [lost, journal] = [former, successor].map(|term| fixture.journal.under(Some(term)));
    // At once, so that they share a batch.
    let (refused, written) = tokio::join!(
        lost.append_page(vec![submission(1)], progress("former")),
        journal.append_page(vec![submission(2), submission(3)], progress("successor")),
    );
    is_lost(&refused);
    assert_eq!(written.unwrap().len(), 2);
    assert_eq!(fixture.journal.head(), Seq(2));
    assert_eq!(&*fixture.journal.harvest(source.clone()).await.unwrap().unwrap().position, "successor");
    let runs = fixture.journal.harvest_runs(source, None, 10).await.unwrap();
    assert_eq!((runs.len(), runs[0].counts.changes), (1, 2));
    drop((lost, journal));
    fixture.end();
}

#[tokio::test]
async fn a_former_holder_moves_no_position_of_a_broker_source() {
    let mut fixture = Fixture::new();
    let source = SourceName::parse("s").unwrap();
    let at = |position: &str| SourcePosition { source: source.clone(), position: position.into() };
    let former = fixture.take(&DutyName::source(&source));
    fixture.release(former);
    let successor = fixture.take(&DutyName::source(&source));
    let [lost, journal] = [former, successor].map(|term| fixture.journal.under(Some(term)));
    // At once, so that they share a batch.
    let (refused, written) = tokio::join!(
        lost.append_positioned(vec![submission(1)], at("former")),
        journal.append_positioned(vec![submission(2)], at("successor")),
    );
    is_lost(&refused);
    assert_eq!(written.unwrap().len(), 1);
    is_lost(&lost.append_positioned(Vec::new(), at("former")).await);
    assert_eq!(fixture.journal.head(), Seq(1));
    assert_eq!(fixture.journal.source_position(source).await.unwrap().as_deref(), Some("successor"));
    drop((lost, journal));
    fixture.end();
}

#[tokio::test]
async fn a_former_holder_moves_no_cursor_and_stores_no_dead_letter() {
    let mut fixture = Fixture::new();
    let name = SubscriptionName::parse("index").unwrap();
    let put = SubscriptionWrite::Put {
        name: name.clone(),
        made_by: MadeBy::Api,
        definition: DefinitionText::default(),
        cursor: Seq(0),
    };
    fixture.journal.append_all((1..=60).map(submission).collect()).await.unwrap();
    fixture.journal.write_subscriptions(vec![put]).await.unwrap();
    let term = fixture.take(&DutyName::subscription(&name));
    let advance = |cursor, term| {
        vec![CursorAdvance { name: name.clone(), cursor: Seq(cursor), delivered: None, term: Some(term) }]
    };
    fixture.journal.advance_all(advance(5, term)).await.unwrap();
    fixture.release(term);
    let successor = fixture.take(&DutyName::subscription(&name));

    let both = [advance(50, term), advance(7, successor)].concat();
    fixture.journal.advance_all(both).await.unwrap();
    let letter = NewDeadLetter { seq: Seq(60), reason: "no".into(), json: Bytes::from_static(b"{}") };
    let lost = fixture.journal.under(Some(term));
    let add = SubscriptionWrite::AddDeadLetter(name.clone(), letter);
    is_lost(&lost.write_subscriptions(vec![add.clone()]).await);
    is_lost(&lost.write_subscriptions(vec![SubscriptionWrite::Pause(name.clone(), "a test".into())]).await);
    is_lost(&lost.prune(Seq(9), 9).await);
    is_lost(&lost.quarantine_all(vec![message()]).await);
    let stored = fixture.journal.subscription(name.clone()).await.unwrap().unwrap();
    assert_eq!((stored.cursor, stored.paused, stored.dead_letters), (Seq(7), false, 0));
    assert_eq!(query(fixture.folder.path(), "SELECT count(*) FROM quarantine"), "0");
    fixture.journal.under(Some(successor)).write_subscriptions(vec![add]).await.unwrap();
    assert_eq!(fixture.journal.subscription(name).await.unwrap().unwrap().cursor, Seq(60));
    drop(lost);
    fixture.end();
}

#[tokio::test]
async fn a_rewind_a_resumption_or_a_deletion_ends_the_duty_of_the_subscription() {
    let mut fixture = Fixture::new();
    let name = SubscriptionName::parse("index").unwrap();
    let revision = |fixture: &mut Fixture| fixture.table.survey().unwrap().revisions.subscriptions;
    let put = |cursor| SubscriptionWrite::Put {
        name: name.clone(),
        made_by: MadeBy::Api,
        definition: DefinitionText::default(),
        cursor: Seq(cursor),
    };
    fixture.journal.append_all((1..=50).map(submission).collect()).await.unwrap();
    fixture.journal.write_subscriptions(vec![put(9)]).await.unwrap();
    for write in [
        SubscriptionWrite::Rewind(name.clone(), Seq(2)),
        SubscriptionWrite::Resume(name.clone()),
        SubscriptionWrite::Delete(name.clone()),
    ] {
        let term = fixture.take(&DutyName::subscription(&name));
        let before = revision(&mut fixture);
        fixture.journal.write_subscriptions(vec![write]).await.unwrap();
        assert_eq!(revision(&mut fixture), before + 1);
        let late = CursorAdvance { name: name.clone(), cursor: Seq(50), delivered: None, term: Some(term) };
        fixture.journal.advance_all(vec![late]).await.unwrap();
        let stored = fixture.journal.subscription(name.clone()).await.unwrap();
        assert!(stored.is_none_or(|stored| stored.cursor == Seq(2)));
    }
    // The holder's own writes leave the duty with it.
    fixture.journal.write_subscriptions(vec![put(9)]).await.unwrap();
    let term = fixture.take(&DutyName::subscription(&name));
    let pause = SubscriptionWrite::Pause(name.clone(), "a test".into());
    fixture.journal.under(Some(term)).write_subscriptions(vec![pause]).await.unwrap();
    assert_eq!(fixture.table.duties().unwrap().len(), 1);
    fixture.end();
}
