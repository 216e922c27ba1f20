//! The subscriptions there are, and what can be done with them.
//!
//! Those of the configuration and those made over HTTP stand side by side under one set of names. What
//! of them must outlive the process is in the journal: cursors, pauses, dead letters, and the
//! definitions that came over HTTP. A subscription that the configuration no longer has keeps its
//! cursor and its dead letters, as an orphan, until somebody deletes it: a line that was commented out
//! for an afternoon must not cost an indexer its place.

mod entry;
mod of_hub;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::entry::{Entry, Running};
use super::{
    Attempt, Definition, InvalidDefinition, InvalidStart, Maker, Runner, Snapshot, Start, Tuning,
    cursors::Cursors,
    engine::{Batching, Engine},
    memory::MemoryBudget,
    runner::Launch,
    status::State,
    websub,
};
use crate::{
    http_client::OutboundPolicy,
    journal::{
        Journal, JournalError,
        subscriptions::{DeadLetterId, DefinitionText, MadeBy, SubscriptionRecord, SubscriptionWrite},
    },
    model::{Seq, SubscriptionName},
};

/// How many subscriptions there may be.
const MOST: usize = 1000;

/// The subscriptions. Clones are handles to the same ones.
#[derive(Clone)]
pub struct Subscriptions(Arc<Inner>);

pub(super) struct Inner {
    pub(super) journal: Journal,
    pub(super) cursors: Cursors,
    entries: Mutex<BTreeMap<SubscriptionName, Entry>>,
    launches: mpsc::Sender<Launch>,
    /// One thing at a time is done with subscriptions.
    doing: tokio::sync::Mutex<()>,
    stop: CancellationToken,
    /// Where those may point that come over HTTP.
    guard: OutboundPolicy,
    tuning: Tuning,
    memory: Arc<MemoryBudget>,
}

/// A subscription as it is shown.
#[derive(Clone)]
pub struct Listed {
    /// Its name.
    pub name: SubscriptionName,
    /// Who made it.
    pub made_by: MadeBy,
    /// Its definition with its defaults and without secrets; `None` where there is none that works.
    pub definition: Option<Map<String, Value>>,
    /// How it is doing.
    pub status: Snapshot,
}

/// Why something could not be done with a subscription.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// There is none of that name.
    #[error("there is no subscription {0}; GET /subscriptions lists what there is")]
    Unknown(SubscriptionName),
    /// The configuration defines it.
    #[error("the subscription {0} is defined in the configuration file; change it there, and restart the gateway")]
    OfConfig(SubscriptionName),
    /// A WebSub subscriber has it.
    #[error("the subscription {0} is a WebSub subscriber's, who alone says what it is; it can be deleted")]
    OfHub(SubscriptionName),
    /// There are too many.
    #[error("there are {MOST} subscriptions already; delete one")]
    TooMany,
    /// It has no definition that works.
    #[error("the subscription {0} has no definition that works; put one, or mend the configuration")]
    Undefined(SubscriptionName),
    /// The definition is wrong.
    #[error(transparent)]
    Definition(#[from] InvalidDefinition),
    /// It cannot begin there.
    #[error(transparent)]
    Start(#[from] InvalidStart),
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Subscriptions {
    /// Sets up the subscriptions that the journal has, and those that the configuration defines. They
    /// begin to deliver as soon as the [`Runner`] is run. Those of the journal, and those that come later, point
    /// where `guard` allows.
    ///
    /// # Errors
    /// When the journal cannot be read or written, or a new one of the configuration cannot begin where
    /// it is to.
    pub async fn open(
        journal: Journal,
        mut configured: BTreeMap<SubscriptionName, Arc<Definition>>,
        guard: OutboundPolicy,
        tuning: Tuning,
    ) -> Result<(Self, Runner), OperationError> {
        let mut stored: BTreeMap<_, _> =
            journal.subscriptions().await?.into_iter().map(|stored| (stored.name.clone(), stored)).collect();
        let mut writes = Vec::new();
        for (name, definition) in &configured {
            if stored.get(name).is_none_or(|stored| stored.made_by != MadeBy::Config) {
                let (name, definition, made_by) =
                    (name.clone(), definition.start.cursor(&journal).await?, MadeBy::Config);
                writes.push(SubscriptionWrite::Put {
                    name,
                    made_by,
                    definition: DefinitionText::default(),
                    cursor: definition,
                });
            }
        }
        if !writes.is_empty() {
            journal.write_subscriptions(writes).await?;
            stored = journal.subscriptions().await?.into_iter().map(|stored| (stored.name.clone(), stored)).collect();
        }
        // As many as can be waiting to be started at once.
        let (launches, waiting) = mpsc::channel(MOST + websub::MOST + configured.len());
        let inner = Arc::new(Inner {
            cursors: Cursors::new(journal.clone()),
            journal,
            entries: Mutex::default(),
            launches,
            doing: tokio::sync::Mutex::default(),
            stop: CancellationToken::new(),
            guard,
            tuning,
            memory: Arc::default(),
        });
        for stored in stored.into_values() {
            let name = stored.name.clone();
            let entry = Entry::of(stored, configured.remove(&name), &inner.guard);
            inner.entries().insert(name.clone(), entry);
            inner.start(&name);
        }
        let runner = Runner { launches: waiting, subscriptions: Arc::clone(&inner) };
        Ok((Self(inner), runner))
    }

    /// Every subscription, by name.
    #[must_use]
    pub fn list(&self) -> Vec<Listed> {
        self.0.entries().iter().map(|(name, entry)| entry.listed(name)).collect()
    }

    /// The subscriptions that do not deliver, with their states, by name. Paused ones are left out, and those of WebSub
    /// subscribers, for whom strangers answer.
    #[must_use]
    pub fn failing(&self) -> Vec<(SubscriptionName, State)> {
        let entries = self.0.entries();
        let of_others = entries.iter().filter(|(_, entry)| entry.made_by != MadeBy::Hub);
        let states = of_others.map(|(name, entry)| (name.clone(), entry.status.snapshot()));
        states.filter(|(_, status)| status.is_failing()).map(|(name, status)| (name, status.state)).collect()
    }

    /// One subscription.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn get(&self, name: &SubscriptionName) -> Result<Listed, OperationError> {
        self.0.with(name, |entry| entry.listed(name))
    }

    /// The last attempts of one to deliver, newest first.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn attempts(&self, name: &SubscriptionName) -> Result<Vec<Attempt>, OperationError> {
        self.0.with(name, |entry| entry.attempts.list())
    }

    /// The journal that they read.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.0.journal
    }

    /// Makes a subscription, or gives one another definition; says whether it is new. One that is not
    /// keeps its cursor, whatever the `start` of the definition.
    ///
    /// # Errors
    /// When the definition is wrong, the configuration has that name, there are too many, or the journal
    /// fails.
    pub async fn put(&self, name: &SubscriptionName, definition: Value) -> Result<bool, OperationError> {
        let _doing = self.0.doing.lock().await;
        let is_known = match self.0.with(name, |entry| (entry.made_by, entry.definition.is_some())) {
            Ok((MadeBy::Config, true)) => return Err(OperationError::OfConfig(name.clone())),
            Ok((MadeBy::Hub, _)) => return Err(OperationError::OfHub(name.clone())),
            known => known.is_ok(),
        };
        // The hub has a bound of its own.
        if !is_known && self.0.entries().values().filter(|entry| entry.made_by != MadeBy::Hub).count() >= MOST {
            return Err(OperationError::TooMany);
        }
        let read = Arc::new(Definition::read(definition.clone(), &Maker::api(&self.0.guard))?);
        let cursor = read.start.cursor(&self.0.journal).await;
        // Where it would begin does not matter to one that has begun.
        let cursor = if is_known { cursor.unwrap_or_default() } else { cursor? };
        self.0.place(name, MadeBy::Api, definition.to_string().into(), read, cursor).await
    }

    /// Deletes a subscription, with its cursor and its dead letters.
    ///
    /// # Errors
    /// When there is none, the configuration has it, or the journal fails.
    pub async fn delete(&self, name: &SubscriptionName) -> Result<(), OperationError> {
        let _doing = self.0.doing.lock().await;
        if self.0.with(name, |entry| entry.made_by == MadeBy::Config && entry.definition.is_some())? {
            return Err(OperationError::OfConfig(name.clone()));
        }
        self.0.halt(name).await;
        let deleted = self.0.journal.write_subscriptions(vec![SubscriptionWrite::Delete(name.clone())]).await;
        if deleted.is_err() {
            self.0.start(name);
        }
        deleted?;
        self.0.cursors.forget(name).await;
        self.0.entries().remove(name);
        Ok(())
    }

    /// Pauses a subscription: what is on its way is waited for, and nothing more is sent until it is
    /// resumed, also after a restart.
    ///
    /// # Errors
    /// When there is none, or the journal fails.
    pub async fn pause(&self, name: &SubscriptionName) -> Result<(), OperationError> {
        let _doing = self.0.doing.lock().await;
        self.0.with(name, |_| ())?;
        self.0.journal.write_subscriptions(vec![SubscriptionWrite::SetPaused(name.clone(), true)]).await?;
        self.0.with(name, |entry| entry.paused = true)?;
        self.0.halt(name).await;
        self.0.start(name);
        Ok(self.0.cursors.flush().await?)
    }

    /// Has a subscription go on: one that was paused, one whose receiver wanted no more, one that has
    /// failed, and at once one that waits for its next attempt.
    ///
    /// # Errors
    /// When there is none, it has no definition that works, or the journal fails.
    pub async fn resume(&self, name: &SubscriptionName) -> Result<(), OperationError> {
        let _doing = self.0.doing.lock().await;
        self.0.defined(name)?;
        // Before it is written, since an engine that comes to its end may write that it has paused.
        self.0.halt(name).await;
        let writes =
            vec![SubscriptionWrite::SetPaused(name.clone(), false), SubscriptionWrite::SetEnded(name.clone(), None)];
        let written = self.0.journal.write_subscriptions(writes).await;
        if written.is_ok() {
            self.0.with(name, |entry| (entry.paused, entry.ended) = (false, false))?;
        }
        self.0.start(name);
        Ok(written.map(|_| ())?)
    }

    /// Has a subscription go on from somewhere else, be that back or forward, also one whose receiver
    /// wanted no more. One that is paused stays paused.
    ///
    /// # Errors
    /// When there is none, it cannot go on there, or the journal fails.
    pub async fn rewind(&self, name: &SubscriptionName, to: Start) -> Result<(), OperationError> {
        let _doing = self.0.doing.lock().await;
        self.0.with(name, |_| ())?;
        let cursor = to.cursor(&self.0.journal).await?;
        self.0.halt(name).await;
        self.0.cursors.forget(name).await;
        let writes =
            vec![SubscriptionWrite::Rewind(name.clone(), cursor), SubscriptionWrite::SetEnded(name.clone(), None)];
        let written = self.0.journal.write_subscriptions(writes).await;
        if written.is_ok() {
            self.0.with(name, |entry| {
                entry.status.moved(cursor);
                entry.ended = false;
            })?;
        }
        self.0.start(name);
        written?;
        Ok(())
    }

    /// Has a dead letter, or every one, be sent again, each as a message of its own; says how many.
    ///
    /// # Errors
    /// When there is no such subscription, or the journal fails.
    pub async fn replay(&self, name: &SubscriptionName, id: Option<DeadLetterId>) -> Result<u64, OperationError> {
        self.0.with(name, |_| ())?;
        let concerned =
            self.0.journal.write_subscriptions(vec![SubscriptionWrite::ReplayDeadLetters(name.clone(), id)]).await?;
        self.0.with(name, |entry| entry.replays.notify_one())?;
        Ok(concerned.iter().sum())
    }

    /// Drops a dead letter, or every one; says how many.
    ///
    /// # Errors
    /// When there is no such subscription, or the journal fails.
    pub async fn drop_letters(&self, name: &SubscriptionName, id: Option<DeadLetterId>) -> Result<u64, OperationError> {
        self.0.with(name, |_| ())?;
        let concerned =
            self.0.journal.write_subscriptions(vec![SubscriptionWrite::DropDeadLetters(name.clone(), id)]).await?;
        let dropped: u64 = concerned.iter().sum();
        self.0.with(name, |entry| entry.status.dead_letters(|count| count.saturating_sub(dropped)))?;
        Ok(dropped)
    }
}

impl Inner {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<SubscriptionName, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, name: &SubscriptionName, act: impl FnOnce(&mut Entry) -> T) -> Result<T, OperationError> {
        self.entries().get_mut(name).map(act).ok_or_else(|| OperationError::Unknown(name.clone()))
    }

    fn defined(&self, name: &SubscriptionName) -> Result<(), OperationError> {
        match self.with(name, |entry| entry.definition.is_some())? {
            true => Ok(()),
            false => Err(OperationError::Undefined(name.clone())),
        }
    }

    pub(super) fn snapshots(&self) -> Vec<(SubscriptionName, Snapshot)> {
        self.entries().iter().map(|(name, entry)| (name.clone(), entry.status.snapshot())).collect()
    }

    pub(super) fn stop_all(&self) {
        self.stop.cancel();
    }

    /// Writes a subscription and its definition, and has it run; says whether it is new.
    async fn place(
        &self,
        name: &SubscriptionName,
        made_by: MadeBy,
        definition: DefinitionText,
        read: Arc<Definition>,
        cursor: Seq,
    ) -> Result<bool, OperationError> {
        let is_known = self.with(name, |_| ()).is_ok();
        self.halt(name).await;
        let put = SubscriptionWrite::Put { name: name.clone(), made_by, definition, cursor };
        self.journal.write_subscriptions(vec![put, SubscriptionWrite::SetEnded(name.clone(), None)]).await?;
        if is_known {
            self.with(name, |entry| {
                entry.made_by = made_by;
                entry.definition = Some(read);
                entry.ended = false;
            })?;
        } else {
            let (definition, paused, ended, dead_letters) = (DefinitionText::default(), false, None, 0);
            let stored =
                SubscriptionRecord { name: name.clone(), made_by, definition, cursor, paused, ended, dead_letters };
            self.entries().insert(name.clone(), Entry::of(stored, Some(read), &self.guard));
        }
        self.start(name);
        Ok(!is_known)
    }

    /// A subscription has paused itself.
    pub(super) fn has_paused(&self, name: &SubscriptionName, reason: &str) {
        let _ = self.with(name, |entry| {
            entry.paused = true;
            entry.status.stopped(State::Paused, reason);
        });
    }

    /// Starts an engine, if the subscription is one that runs.
    fn start(&self, name: &SubscriptionName) {
        let _ = self.with(name, |entry| {
            let Some(definition) = entry.definition.clone().filter(|_| !entry.paused && !entry.ended) else {
                if entry.paused {
                    entry.status.set(State::Paused);
                }
                return;
            };
            let (stop, ended) = (self.stop.child_token(), CancellationToken::new());
            let before = entry.running.replace(Running { stop: stop.clone(), ended: ended.clone() });
            let engine = Engine {
                name: name.clone(),
                journal: self.journal.clone(),
                filter: definition.filter.clone(),
                format: definition.format,
                most_dead_letters: definition.dead_letters,
                pause_after: definition.blueprint.pause_after(),
                memory: Arc::clone(&self.memory),
                batching: Batching::default(),
                delivery: definition.blueprint.build(name, &entry.attempts),
                cursor: entry.status.snapshot().cursor,
                cursors: self.cursors.clone(),
                status: Arc::clone(&entry.status),
                replays: Arc::clone(&entry.replays),
                stop,
                tuning: self.tuning,
            };
            let before = before.map(|before| before.ended);
            // Who resumed it is answered before the engine runs.
            entry.status.set(State::Connecting);
            let launch = Launch { engine, before, ended: ended.drop_guard() };
            if self.launches.try_send(launch).is_err() && !self.stop.is_cancelled() {
                entry.status.stopped(State::Failed, "too many subscriptions are being started; resume it");
            }
        });
    }

    /// Stops the engine of a subscription, and waits until it has stopped.
    async fn halt(&self, name: &SubscriptionName) {
        let running = self.with(name, |entry| entry.running.take()).ok().flatten();
        if let Some(Running { stop, ended }) = running {
            stop.cancel();
            ended.cancelled().await;
        }
    }
}
