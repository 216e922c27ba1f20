//! Stored state of subscriptions: cursors, pauses and dead letters. Deliveries read the state when they start, and
//! write it through the journal's writer.
//!
//! Only a rewind ([`SubscriptionWrite::Rewind`]) moves a cursor back. An advance stores the larger of the old and
//! the new cursor, so that a progress report that arrives late undoes nothing.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Journal, JournalError, command::Command, nodes::Term, store::SubscriptionStore};
use crate::model::{Seq, SubscriptionName, Text, Timestamp};

/// Creator of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MadeBy {
    /// The configuration file. Only the file can change the subscription.
    Config,
    /// A client of the HTTP interface.
    Api,
    /// The WebSub hub, for a subscriber.
    Hub,
}

impl MadeBy {
    /// All creators.
    pub const ALL: [Self; 3] = [Self::Config, Self::Api, Self::Hub];

    /// Returns the name in JSON and in the journal.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Api => "api",
            Self::Hub => "hub",
        }
    }
}

/// Stored definition of a subscription. Its `Debug` output is `(definition)`, because the text may contain a secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct DefinitionText(String);

impl DefinitionText {
    /// Returns the text, which may contain a secret.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for DefinitionText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for DefinitionText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(definition)")
    }
}

/// Stored state of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionRecord {
    /// Name of the subscription.
    pub name: SubscriptionName,
    /// Creator of the subscription.
    pub made_by: MadeBy,
    /// JSON from the HTTP interface, or the hub's record of a subscriber including its secret; empty for a
    /// subscription of the configuration.
    pub definition: DefinitionText,
    /// Number of the last change that is delivered or skipped.
    pub cursor: Seq,
    /// Whether the subscription is paused.
    pub paused: bool,
    /// Reason why the subscription stopped by itself: its receiver unsubscribed or, if the subscription is paused,
    /// failed for too long.
    pub ended: Option<Text>,
    /// Who paused the subscription; `None` if it is not paused, or nobody is known.
    pub paused_by: Option<Arc<str>>,
    /// Time of the last confirmed message.
    pub delivered: Option<Timestamp>,
    /// Number of dead letters, without changes that are to be sent again and were not refused.
    pub dead_letters: u64,
    /// Number of changes that are to be sent again and were not refused.
    pub repeats: u64,
}

impl SubscriptionRecord {
    /// Creates the record of a new subscription.
    #[must_use]
    pub fn new(name: SubscriptionName, made_by: MadeBy, definition: DefinitionText, cursor: Seq) -> Self {
        let (paused, ended, paused_by, delivered, dead_letters, repeats) = (false, None, None, None, 0, 0);
        Self { name, made_by, definition, cursor, paused, ended, paused_by, delivered, dead_letters, repeats }
    }
}

/// Identifies a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeadLetterId(pub u64);

impl fmt::Display for DeadLetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A change that a receiver refused for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Identifier of the dead letter.
    pub id: DeadLetterId,
    /// Time of the last refusal.
    pub refused: Timestamp,
    /// Number of attempts to deliver the change; 0 for a change that is to be sent again and was not refused.
    pub attempts: u64,
    /// Whether another attempt is requested.
    pub replay: bool,
    /// The refused change.
    pub letter: NewDeadLetter,
}

/// Outline of a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterNote {
    /// Name of the subscription.
    pub subscription: SubscriptionName,
    /// Identifier of the dead letter.
    pub id: DeadLetterId,
    /// Time of the last refusal.
    pub refused: Timestamp,
    /// Reason of the last refusal.
    pub reason: Text,
}

/// A refused change to store as a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDeadLetter {
    /// Number of the change.
    pub seq: Seq,
    /// Reason of the refusal.
    pub reason: Text,
    /// JSON of the change as it was sent. The dead letter contains it, because retention may remove the change from the
    /// journal.
    pub json: Bytes,
}

/// New position of a subscription that moves forward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorAdvance {
    /// Name of the subscription.
    pub name: SubscriptionName,
    /// Number of the last change that is delivered or skipped.
    pub cursor: Seq,
    /// Time of the last confirmed message, if one was confirmed since the last move.
    pub delivered: Option<Timestamp>,
    /// Term of the duty of the subscription. If it has ended, the cursor stays where it is.
    pub term: Option<Term>,
}

/// A modification of a subscription or its dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriptionWrite {
    /// Creates or replaces a subscription. A replaced subscription keeps its cursor and its dead letters.
    Put {
        /// Name of the subscription.
        name: SubscriptionName,
        /// Creator of the subscription.
        made_by: MadeBy,
        /// Definition of the subscription.
        definition: DefinitionText,
        /// Initial cursor of a new subscription.
        cursor: Seq,
    },
    /// Deletes a subscription with its cursor and its dead letters.
    Delete(SubscriptionName),
    /// Sets the cursor, backward or forward.
    Rewind(SubscriptionName, Seq),
    /// Pauses a subscription, and records who does.
    Pause(SubscriptionName, Arc<str>),
    /// Resumes a subscription.
    Resume(SubscriptionName),
    /// Sets or clears the reason why a subscription stopped by itself.
    SetEnded(SubscriptionName, Option<Text>),
    /// Stores a refused change as a dead letter, and advances the cursor to it.
    AddDeadLetter(SubscriptionName, NewDeadLetter),
    /// Stores a change that an administrator skips as a dead letter, and advances the cursor to it.
    Skip(SubscriptionName, NewDeadLetter),
    /// Has a change sent again beside the others. It waits among the dead letters, with no attempt so far.
    Repeat(SubscriptionName, NewDeadLetter),
    /// Requests another attempt for one dead letter, or for all.
    ReplayDeadLetters(SubscriptionName, Option<DeadLetterId>),
    /// Records another refusal of a dead letter, with its reason.
    DeadLetterRefused(SubscriptionName, DeadLetterId, Text),
    /// Drops one dead letter, or all.
    DropDeadLetters(SubscriptionName, Option<DeadLetterId>),
}

impl Journal {
    /// Moves cursors of subscriptions forward. On return the cursors are on disk.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn advance(&self, cursors: Vec<(SubscriptionName, Seq)>) -> Result<(), JournalError> {
        let term = self.term;
        let advance = |(name, cursor)| CursorAdvance { name, cursor, delivered: None, term };
        self.advance_all(cursors.into_iter().map(advance).collect()).await
    }

    /// Moves cursors of subscriptions forward, each under the term of its own duty. On return the cursors are on
    /// disk, apart from those whose term has ended.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn advance_all(&self, cursors: Vec<CursorAdvance>) -> Result<(), JournalError> {
        self.send(|reply| Command::Advance(cursors, reply)).await
    }

    /// Modifies subscriptions and their dead letters in one transaction; returns the number of affected rows of each
    /// modification.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn write_subscriptions(&self, writes: Vec<SubscriptionWrite>) -> Result<Vec<u64>, JournalError> {
        self.send(|reply| Command::WriteSubscriptions(writes, self.term, reply)).await
    }

    /// Returns all subscriptions, in order of their names.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn subscriptions(&self) -> Result<Vec<SubscriptionRecord>, JournalError> {
        self.read(SubscriptionStore::subscriptions).await
    }

    /// Returns one subscription.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn subscription(&self, name: SubscriptionName) -> Result<Option<SubscriptionRecord>, JournalError> {
        self.read(move |store| store.subscription(&name)).await
    }

    /// Returns up to `limit` dead letters of a subscription before `before` (from the newest if `None`), newest first.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn dead_letters(
        &self,
        subscription: SubscriptionName,
        before: Option<DeadLetterId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, JournalError> {
        self.read(move |store| store.dead_letters(&subscription, before, limit)).await
    }

    /// Returns one dead letter of a subscription.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn dead_letter(
        &self,
        subscription: SubscriptionName,
        id: DeadLetterId,
    ) -> Result<Option<DeadLetter>, JournalError> {
        self.read(move |store| store.dead_letter(&subscription, id)).await
    }

    /// Returns the outlines of the dead letters of a change, without those that were not refused.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn dead_letters_of(&self, seq: Seq) -> Result<Vec<DeadLetterNote>, JournalError> {
        self.read(move |store| store.dead_letters_of(seq)).await
    }

    /// Returns up to `limit` dead letters of a subscription after `after` that wait for another attempt, oldest first.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn replays(
        &self,
        subscription: SubscriptionName,
        after: Option<DeadLetterId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, JournalError> {
        self.read(move |store| store.replays(&subscription, after, limit)).await
    }
}
