//! What the journal keeps of each subscription: how far it is, whether it is paused, and what its
//! receiver refused. Deliveries read it when they start and write it through the journal's writer.
//!
//! A cursor goes back only by a rewind ([`SubscriptionWrite::Rewind`]): what advances it takes the larger of two,
//! so that a word of progress that comes late undoes nothing.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Journal, JournalError, command::Command, store::Store};
use crate::model::{Seq, SubscriptionName, Timestamp};

/// Who made a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MadeBy {
    /// The configuration file, which alone changes it.
    Config,
    /// Somebody through the HTTP interface.
    Api,
    /// A WebSub subscriber, by the hub.
    Hub,
}

impl MadeBy {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Config, Self::Api, Self::Hub];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Api => "api",
            Self::Hub => "hub",
        }
    }
}

/// What is kept of what a subscription is. It may have a secret, and prints as `(definition)`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct DefinitionText(String);

impl DefinitionText {
    /// The text itself, for who keeps or reads it.
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

/// A subscription as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionRecord {
    /// Its name.
    pub name: SubscriptionName,
    /// Who made it.
    pub made_by: MadeBy,
    /// The JSON that was put, or what the hub keeps of a subscriber, its secret among it; empty for one of the
    /// configuration.
    pub definition: DefinitionText,
    /// All changes up to this one are done with.
    pub cursor: Seq,
    /// Whether somebody has paused it.
    pub paused: bool,
    /// Why it has stopped by itself, if it has: its receiver wants no more, or, where it is paused, has failed for
    /// too long.
    pub ended: Option<String>,
    /// How many dead letters it has.
    pub dead_letters: u64,
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
    /// Its identifier.
    pub id: DeadLetterId,
    /// When it was last refused.
    pub refused: Timestamp,
    /// How often it has been sent.
    pub attempts: u64,
    /// Whether it is to be sent again.
    pub replay: bool,
    /// What was refused.
    pub letter: NewDeadLetter,
}

/// What is to be kept of a change that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDeadLetter {
    /// Its number.
    pub seq: Seq,
    /// Why it was refused.
    pub reason: String,
    /// The JSON of the change as it was to be sent. It stays when the journal no longer has the change.
    pub json: Bytes,
}

/// Something to be written about a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriptionWrite {
    /// It is there; an older one of that name keeps its cursor and its dead letters.
    Put {
        /// Its name.
        name: SubscriptionName,
        /// Who made it.
        made_by: MadeBy,
        /// The JSON that was put.
        definition: DefinitionText,
        /// Where a new one begins.
        cursor: Seq,
    },
    /// It is gone, with its cursor and its dead letters.
    Delete(SubscriptionName),
    /// It goes on after this change, be that back or forward.
    Rewind(SubscriptionName, Seq),
    /// It is paused, or no longer.
    SetPaused(SubscriptionName, bool),
    /// It has stopped by itself, for this reason; or that is over.
    SetEnded(SubscriptionName, Option<String>),
    /// A change was refused; with it, everything up to it is done with.
    AddDeadLetter(SubscriptionName, NewDeadLetter),
    /// A dead letter, or every one, is to be sent again.
    ReplayDeadLetters(SubscriptionName, Option<DeadLetterId>),
    /// A dead letter was refused once more, for this reason.
    DeadLetterRefused(SubscriptionName, DeadLetterId, String),
    /// A dead letter, or every one, is dropped.
    DropDeadLetters(SubscriptionName, Option<DeadLetterId>),
}

impl Journal {
    /// Moves cursors of subscriptions forward. On return that is on disk.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn advance(&self, cursors: Vec<(SubscriptionName, Seq)>) -> Result<(), JournalError> {
        self.send(|answer| Command::Advance(cursors, answer)).await
    }

    /// Writes about subscriptions, all at once; says for each how many it concerned.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub async fn write_subscriptions(&self, writes: Vec<SubscriptionWrite>) -> Result<Vec<u64>, JournalError> {
        self.send(|answer| Command::WriteSubscriptions(writes, answer)).await
    }

    /// Every subscription, by name.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn subscriptions(&self) -> Result<Vec<SubscriptionRecord>, JournalError> {
        self.read(Store::subscriptions).await
    }

    /// Up to `limit` dead letters of a subscription before `before` (all, if `None`), newest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn dead_letters(
        &self,
        subscription: SubscriptionName,
        before: Option<DeadLetterId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, JournalError> {
        self.read(move |store| store.dead_letters(&subscription, before, limit)).await
    }

    /// One dead letter of a subscription.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn dead_letter(
        &self,
        subscription: SubscriptionName,
        id: DeadLetterId,
    ) -> Result<Option<DeadLetter>, JournalError> {
        self.read(move |store| store.dead_letter(&subscription, id)).await
    }

    /// Up to `limit` dead letters of a subscription after `after` that are to be sent again, oldest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn replays(
        &self,
        subscription: SubscriptionName,
        after: Option<DeadLetterId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, JournalError> {
        self.read(move |store| store.replays(&subscription, after, limit)).await
    }
}
