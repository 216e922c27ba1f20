//! Nodes that share one journal, and the duties that exactly one of them has at a time, as the store keeps them.
//!
//! A node has a row with a lease. The node renews the lease, and the lease covers all duties of the node. A duty has a
//! row while a node has it, with a [`Term`] that is new for each tenure. Every write for a duty carries its term, and
//! the store refuses the write if the row with that term is gone. A node that paused for longer than its lease can
//! therefore write nothing for its former duties, whatever its clock says.
//!
//! A store for one node has no such tables ([`Store::node_table`](super::store::Store::node_table) returns `None`).

use std::{fmt, sync::Arc, time::Duration};

use uuid::Uuid;

use super::store::StoreError;
use crate::model::{NodeName, Seq, SourceName, SubscriptionName, Timestamp};

/// Identifies the tenure of a duty. Each takeover has a new one, so an old one is never valid again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Term(pub Uuid);

/// Name of a duty: its kind, and the source or subscription that it belongs to, as in `source/sfm`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DutyName(Arc<str>);

impl DutyName {
    /// Returns the duty of reading a source from its broker, or of harvesting it.
    #[must_use]
    pub fn source(name: &SourceName) -> Self {
        Self::of("source", name.as_str())
    }

    /// Returns the duty of repeating the lookups of a source.
    #[must_use]
    pub fn follow_ups(name: &SourceName) -> Self {
        Self::of("follow-ups", name.as_str())
    }

    /// Returns the duty of delivering the changes of a subscription.
    #[must_use]
    pub fn subscription(name: &SubscriptionName) -> Self {
        Self::of("subscription", name.as_str())
    }

    /// Returns the duty of removing old changes.
    #[must_use]
    pub fn retention() -> Self {
        Self("retention".into())
    }

    /// Returns the duty of ending the expired subscriptions of the WebSub hub.
    #[must_use]
    pub fn hub() -> Self {
        Self("hub".into())
    }

    /// Returns the duty of comparing repositories with the registry.
    #[must_use]
    pub fn audits() -> Self {
        Self("audits".into())
    }

    /// Returns the duty of sealing segments.
    #[must_use]
    pub fn segments() -> Self {
        Self("segments".into())
    }

    /// Returns the duty of appending the changes that come due.
    #[must_use]
    pub fn due() -> Self {
        Self("due".into())
    }

    /// Returns the duty of writing the published copy.
    #[must_use]
    pub fn publication() -> Self {
        Self("publication".into())
    }

    /// Returns the duty of owning the name on D-Bus.
    #[must_use]
    pub fn dbus() -> Self {
        Self("dbus".into())
    }

    /// Returns the name as a store keeps it. A newer version may have duties that this version does not know.
    #[must_use]
    pub fn stored(name: &str) -> Self {
        Self(name.into())
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn of(kind: &str, name: &str) -> Self {
        Self(format!("{kind}/{name}").into())
    }
}

impl fmt::Display for DutyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A node as it registers.
#[derive(Clone, Debug)]
pub struct NewNode {
    /// Identifies this run of the node.
    pub instance: Uuid,
    /// Name of the node.
    pub name: NodeName,
    /// URL at which the node is reached, for people.
    pub address: Option<String>,
    /// Duties of the node's configuration. Only nodes that offer such a duty get it.
    pub offers: Vec<DutyName>,
    /// Number of the newest change that the node knows.
    pub head: Seq,
}

/// Outcome of a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registration {
    /// The node is registered until its lease ends.
    Registered,
    /// Another node has the name.
    NameTaken {
        /// Run of the other node.
        by: Uuid,
        /// Time of its last renewal, by the clock of the store.
        renewed: Timestamp,
    },
}

/// A node, as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRecord {
    /// Identifies this run of the node.
    pub instance: Uuid,
    /// Name of the node.
    pub name: NodeName,
    /// URL at which the node is reached, for people.
    pub address: Option<String>,
    /// Version of the program.
    pub version: String,
    /// Time of its registration, by the clock of the store.
    pub started: Timestamp,
    /// Time of its last renewal, by the clock of the store.
    pub renewed: Timestamp,
    /// Lease that it took with its last renewal.
    pub lease: Duration,
    /// Time since its last renewal, by the clock of the store; zero if that clock was set back.
    pub age: Duration,
    /// Number of the newest change that the node knew at its last renewal.
    pub head: Seq,
    /// Whether the node is stopping and hands its duties over.
    pub is_leaving: bool,
    /// Duties of the node's configuration.
    pub offers: Vec<DutyName>,
}

/// A duty that a node has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldDuty {
    /// Name of the duty.
    pub name: DutyName,
    /// Identifies the tenure.
    pub term: Term,
    /// Run of the node that has the duty.
    pub holder: Uuid,
    /// Time of the takeover, by the clock of the store.
    pub since: Timestamp,
}

/// A node whose lease has ended, as an observer saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpiredNode {
    /// Run of the node.
    pub instance: Uuid,
    /// Time of its last renewal. A node that has renewed its lease since has another one, and stays.
    pub renewed: Timestamp,
}

/// The nodes as of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Nodes, also those whose lease has ended, in order of their names.
    pub nodes: Vec<NodeRecord>,
    /// Number of the newest change in the journal.
    pub head: Seq,
    /// Numbers of modifications of definitions.
    pub revisions: DefinitionRevisions,
}

/// Numbers of modifications of definitions by people, at any node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefinitionRevisions {
    /// Modifications of subscriptions, apart from their cursors and dead letters.
    pub subscriptions: u64,
    /// Modifications of harvests, with pauses and requests of runs.
    pub harvests: u64,
}

/// Tables of the nodes and their duties. Each call has a time limit below the lease. The tables judge no lease: an
/// observer does, by its own clock, and removes the nodes that have expired.
pub trait NodeTable: Send {
    /// Registers a node, unless another node has its name.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn register(&mut self, node: &NewNode) -> Result<Registration, StoreError>;

    /// Renews the lease of a node and thereby all its duties. Returns `false` if the node was removed; it then has no
    /// duties any more.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn renew(&mut self, instance: Uuid, head: Seq, is_leaving: bool) -> Result<bool, StoreError>;

    /// Removes nodes whose lease has ended, together with their duties, and ends their sessions with the storage. Nodes
    /// that have renewed their lease since stay.
    ///
    /// # Errors
    /// Fails if the storage fails, or if a transaction of such a node is still open.
    fn remove(&mut self, expired: &[ExpiredNode]) -> Result<(), StoreError>;

    /// Returns all nodes.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn survey(&mut self) -> Result<Survey, StoreError>;

    /// Returns all duties that a node has, in order of their names.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn duties(&mut self) -> Result<Vec<HeldDuty>, StoreError>;

    /// Takes those of these duties that no node has. The names are in order and distinct.
    ///
    /// # Errors
    /// Fails if the storage fails, or if the node is not registered any more; the node may then have taken some.
    fn take(&mut self, instance: Uuid, names: &[DutyName]) -> Result<Vec<(DutyName, Term)>, StoreError>;

    /// Releases the duties with these terms, and notifies the other nodes.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn release(&mut self, terms: &[Term]) -> Result<(), StoreError>;

    /// Removes a node with its duties, and notifies the other nodes.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn leave(&mut self, instance: Uuid) -> Result<(), StoreError>;
}

/// Function that a [`NodeTable`] calls when another node has changed something.
pub type Wake = Arc<dyn Fn() + Send + Sync>;
