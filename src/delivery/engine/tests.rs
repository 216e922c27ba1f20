//! The loop with a receiver that misbehaves on order.

mod batches;
mod ends;
mod failures;
mod memory;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::json;
use tempfile::TempDir;
use tokio::{sync::Notify, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{Batching, End, Engine, Tuning};
use crate::{
    delivery::{
        Delivery, DeliveryError, Doing, Outcome, Outgoing, Pending, Window,
        cursors::Cursors,
        memory::MemoryBudget,
        status::{State, Status},
    },
    format::format,
    journal::{
        DuplicatePolicy, Journal, JournalSettings, JournalThreads, Submission, TailBounds,
        settle::SourcePolicy,
        store::sqlite::{SqliteOptions, SqliteStore},
        subscriptions::{DefinitionText, MadeBy, SubscriptionWrite},
    },
    model::{Draft, Filter, Seq, SourceName, SubscriptionName},
};

const SHORT: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(20);

/// What the receiver does with a message.
#[derive(Clone, Debug)]
enum Deed {
    Take,
    Answer(Outcome),
    /// It never answers.
    Hang,
    /// The connection fails while it is sent.
    Break,
}

#[derive(Default)]
struct Script {
    /// What it does with the next messages; then it takes them.
    deeds: VecDeque<Deed>,
    /// The numbers of what it was sent and took.
    sent: Vec<u64>,
    taken: Vec<u64>,
    connected: usize,
    refuse_to_connect: usize,
    most_at_once: usize,
    at_once: usize,
    held: bool,
    /// The number of changes and of bytes of each message.
    sizes: Vec<(usize, usize)>,
    /// What it does with a message of more bytes than these.
    limit: Option<(usize, Outcome)>,
    /// Changes and bytes that a message may have.
    batch: Option<(usize, usize)>,
    /// Bytes of the bodies that have no outcome yet, and the most that there were.
    bytes: usize,
    most_bytes: usize,
}

/// A receiver that does as its script says. Clones are the same.
#[derive(Clone, Default)]
struct Receiver(Arc<Mutex<Script>>);

impl Receiver {
    fn with<T>(&self, act: impl FnOnce(&mut Script) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    fn will(self, deeds: impl IntoIterator<Item = Deed>) -> Self {
        self.with(|script| script.deeds.extend(deeds));
        self
    }

    fn taken(&self) -> Vec<u64> {
        self.with(|script| script.taken.clone())
    }
}

impl Delivery for Receiver {
    fn connect(&mut self) -> Doing<'_, Result<(), DeliveryError>> {
        let refused = self.with(|script| {
            script.connected += 1;
            script.at_once = 0;
            let refuses = script.refuse_to_connect > 0;
            script.refuse_to_connect = script.refuse_to_connect.saturating_sub(1);
            refuses
        });
        Box::pin(async move { if refused { Err(DeliveryError("nobody is there".to_owned())) } else { Ok(()) } })
    }

    fn send(&mut self, message: Outgoing) -> Doing<'_, Result<Pending, DeliveryError>> {
        if !message.is_batch {
            assert_eq!(message.body, message.change.json().as_ref(), "the format is JSON");
        }
        let seq = message.change.seq().0;
        let seqs: Vec<_> = [&message.change].into_iter().chain(&message.more).map(|change| change.seq().0).collect();
        let size = message.body.len();
        let deed = self.with(|script| {
            script.sent.push(seq);
            script.sizes.push((seqs.len(), size));
            script.bytes += size;
            script.most_bytes = script.most_bytes.max(script.bytes);
            script.at_once += 1;
            script.most_at_once = script.most_at_once.max(script.at_once);
            let deed = match &script.limit {
                _ if script.held => Deed::Hang,
                Some((limit, outcome)) if size > *limit => Deed::Answer(outcome.clone()),
                _ => script.deeds.pop_front().unwrap_or(Deed::Take),
            };
            if matches!(deed, Deed::Take) {
                script.taken.extend(seqs);
            }
            deed
        });
        let body = Body(self.clone(), size);
        let receiver = self.clone();
        Box::pin(async move {
            if matches!(deed, Deed::Break) {
                return Err(DeliveryError("the line is cut".to_owned()));
            }
            let pending: Pending = Box::pin(async move {
                let _body = body;
                tokio::task::yield_now().await;
                let outcome = match deed {
                    Deed::Take => Outcome::Delivered,
                    Deed::Answer(outcome) => outcome,
                    Deed::Hang | Deed::Break => std::future::pending().await,
                };
                receiver.with(|script| script.at_once = script.at_once.saturating_sub(1));
                outcome
            });
            Ok(pending)
        })
    }

    fn failed(&mut self) -> Doing<'_, DeliveryError> {
        Box::pin(std::future::pending())
    }

    fn close(&mut self) -> Doing<'_, ()> {
        Box::pin(async {})
    }

    fn window(&self) -> Window {
        // Batches go one by one, as those of an ordered webhook.
        let (messages, changes) = self.with(|script| script.batch.map_or((5, 1), |(changes, _)| (1, changes)));
        Window { messages, changes, bytes: 1 << 20, patience: Duration::from_millis(300) }
    }

    fn batch_bytes(&self) -> usize {
        self.with(|script| script.batch.map_or(usize::MAX, |(_, bytes)| bytes))
    }
}

/// A body in memory.
struct Body(Receiver, usize);

impl Drop for Body {
    fn drop(&mut self) {
        self.0.with(|script| script.bytes -= self.1);
    }
}

struct World {
    _folder: TempDir,
    journal: Journal,
    _writer: JournalThreads,
    name: SubscriptionName,
    cursors: Cursors,
    most_dead_letters: u64,
    pause_after: Option<Duration>,
    filter: Filter,
    memory: Arc<MemoryBudget>,
    stable: Duration,
}

impl World {
    async fn new() -> Self {
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
        Self {
            _folder: folder,
            journal,
            _writer: writer,
            name,
            cursors,
            most_dead_letters: 10,
            pause_after: None,
            filter: Filter::default(),
            memory: Arc::default(),
            stable: PATIENCE,
        }
    }

    /// Journals changes to items `from` to `to`.
    async fn append(&self, numbers: std::ops::RangeInclusive<u64>) {
        let draft = |number: u64| -> Draft {
            let item = format!("http://h/items/{number}");
            serde_json::from_value(json!({"object": "http://h/o", "items": [{"uri": item, "change": "ADD"}]})).unwrap()
        };
        let policy = Arc::new(SourcePolicy { name: SourceName::parse("s").unwrap(), metadata_changes: false });
        let drafts = numbers.map(|number| (None, draft(number))).collect();
        self.journal
            .append(Submission { policy, drafts, duplicate_policy: DuplicatePolicy::RememberChanges, completes: None })
            .await
            .unwrap();
    }

    fn engine(&self, receiver: &Receiver, cursor: u64) -> (Arc<Status>, Arc<Notify>, CancellationToken, Engine) {
        let (status, replays, stop) = (
            Arc::new(Status::new(State::Connecting, Seq(cursor), 0)),
            Arc::new(Notify::new()),
            CancellationToken::new(),
        );
        let tuning =
            Tuning { first_wait: SHORT, longest_wait: SHORT, patience: PATIENCE, drain: PATIENCE, stable: self.stable };
        let engine = Engine {
            name: self.name.clone(),
            journal: self.journal.clone(),
            filter: self.filter.clone(),
            format: format("json").unwrap(),
            most_dead_letters: self.most_dead_letters,
            pause_after: self.pause_after,
            memory: Arc::clone(&self.memory),
            batching: Batching::default(),
            delivery: Box::new(receiver.clone()),
            cursor: Seq(cursor),
            cursors: self.cursors.clone(),
            status: Arc::clone(&status),
            replays: Arc::clone(&replays),
            stop: stop.clone(),
            tuning,
        };
        (status, replays, stop, engine)
    }

    fn run(&self, receiver: &Receiver, cursor: u64) -> Running {
        let (status, replays, stop, engine) = self.engine(receiver, cursor);
        Running { status, replays, stop, engine: tokio::spawn(engine.run()) }
    }

    async fn stored_cursor(&self) -> u64 {
        self.cursors.flush().await.unwrap();
        self.journal.subscriptions().await.unwrap()[0].cursor.0
    }
}

struct Running {
    status: Arc<Status>,
    replays: Arc<Notify>,
    stop: CancellationToken,
    engine: JoinHandle<End>,
}

impl Running {
    async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let waited = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, waited).await;
        assert!(waited.is_ok(), "waited in vain until {what}: {:?}", self.status.snapshot());
    }

    async fn until_at(&self, cursor: u64) {
        self.until("the cursor is there", || self.status.snapshot().cursor.0 == cursor).await;
    }

    async fn stop(self) -> End {
        self.stop.cancel();
        self.engine.await.unwrap()
    }
}

fn retry() -> Deed {
    Deed::Answer(Outcome::Retry { reason: "busy".to_owned(), after: None })
}

fn refuse() -> Deed {
    Deed::Answer(Outcome::Refused { reason: "too large".to_owned() })
}

/// Whether each comes after what came before, repeats aside.
fn is_without_gap(taken: &[u64], last: u64) -> bool {
    let mut expected = 1;
    for seq in taken {
        if *seq > expected {
            return false;
        }
        expected = expected.max(seq + 1);
    }
    expected == last + 1
}

#[tokio::test]
async fn what_is_there_and_what_comes_is_delivered_in_order_within_the_window() {
    let world = World::new().await;
    world.append(1..=40).await;
    let receiver = Receiver::default();
    let running = world.run(&receiver, 0);
    running.until_at(40).await;
    world.append(41..=50).await;
    running.until_at(50).await;
    assert_eq!(receiver.taken(), (1..=50).collect::<Vec<_>>());
    receiver.with(|script| assert!(script.most_at_once <= 5 && script.most_at_once > 1, "{}", script.most_at_once));
    assert_eq!(world.stored_cursor().await, 50);
    let shown = running.status.snapshot();
    assert_eq!((shown.state, shown.delivered, shown.last_error), (State::Running, 50, None));
    assert!(matches!(running.stop().await, End::Stopped));
}

#[tokio::test]
async fn whatever_goes_wrong_it_goes_on_after_the_last_that_was_confirmed() {
    let world = World::new().await;
    world.append(1..=60).await;
    for trouble in [retry(), Deed::Hang, Deed::Break] {
        let receiver = Receiver::default().will([Deed::Take, Deed::Take, trouble.clone(), Deed::Take, trouble.clone()]);
        receiver.with(|script| script.refuse_to_connect = 2);
        let running = world.run(&receiver, 0);
        running.until_at(60).await;
        let sent = receiver.with(|script| script.sent.clone());
        assert!(is_without_gap(&sent, 60), "{trouble:?}: {sent:?}");
        let taken = receiver.taken();
        assert!((1..=60).all(|seq| taken.contains(&seq)), "{trouble:?}: {taken:?}");
        assert!(receiver.with(|script| script.connected) >= 4, "{trouble:?}");
        assert!(running.status.snapshot().last_error.is_some());
        running.stop().await;
    }
}

#[tokio::test]
async fn after_a_failure_one_message_goes_alone_until_it_is_taken() {
    let world = World::new().await;
    world.append(1..=20).await;
    let receiver = Receiver::default().will(std::iter::repeat_n(retry(), 7));
    let running = world.run(&receiver, 0);
    running.until_at(20).await;
    let sent = receiver.with(|script| script.sent.clone());
    let expected: Vec<u64> = (1..=5).chain([1, 1]).chain(1..=20).collect();
    assert_eq!(sent, expected, "a window, twice one alone, and all once that is taken");
    running.stop().await;
}

#[tokio::test]
async fn what_is_refused_becomes_a_dead_letter_and_is_sent_again_when_asked() {
    let world = World::new().await;
    world.append(1..=20).await;
    let receiver = Receiver::default().will([Deed::Take, refuse(), Deed::Take, refuse()]);
    let running = world.run(&receiver, 0);
    running.until_at(20).await;
    assert_eq!(running.status.snapshot().dead_letters, 2);
    let letters = world.journal.dead_letters(world.name.clone(), None, 10).await.unwrap();
    let seqs: Vec<_> = letters.iter().map(|letter| letter.letter.seq.0).collect();
    assert_eq!((seqs, letters[0].letter.reason.as_str()), (vec![4, 2], "too large"));
    let mut expected: Vec<_> = (1..=20).collect();
    expected.retain(|seq| *seq != 2 && *seq != 4);
    assert_eq!(receiver.taken(), expected);

    // One is refused once more, then both are taken.
    receiver.with(|script| script.deeds.push_back(refuse()));
    world
        .journal
        .write_subscriptions(vec![SubscriptionWrite::ReplayDeadLetters(world.name.clone(), None)])
        .await
        .unwrap();
    running.replays.notify_one();
    running.until("one is taken", || running.status.snapshot().dead_letters == 1).await;
    let left = world.journal.dead_letters(world.name.clone(), None, 10).await.unwrap();
    assert_eq!((left.len(), left[0].attempts, left[0].replay), (1, 2, false));
    world
        .journal
        .write_subscriptions(vec![SubscriptionWrite::ReplayDeadLetters(world.name.clone(), Some(left[0].id))])
        .await
        .unwrap();
    running.replays.notify_one();
    running.until("the other is taken", || running.status.snapshot().dead_letters == 0).await;
    assert_eq!(receiver.taken()[18..], [4, 2]);
    assert_eq!(world.stored_cursor().await, 20);
    running.stop().await;
}

#[tokio::test]
async fn when_there_is_no_room_for_a_dead_letter_it_waits() {
    let mut world = World::new().await;
    world.most_dead_letters = 1;
    world.append(1..=5).await;
    let receiver = Receiver::default().will([refuse(), refuse(), refuse(), refuse(), refuse()]);
    let running = world.run(&receiver, 0);
    running.until("it takes again what it refused", || receiver.taken().contains(&5)).await;
    running.until_at(5).await;
    let error = running.status.snapshot().last_error.unwrap().1;
    assert!(error.contains("it refused change 2 (too large)") && error.contains("replay or drop some"), "{error}");
    assert_eq!(running.status.snapshot().dead_letters, 1);
    running.stop().await;
}
