//! The tables of a journal, as every store has them: for verification and migration, which read whole journals.
//!
//! A [`Table`] has neutral names and types for its columns. A store maps them to its own tables ([`TableReader`]), and
//! knows nothing about other stores. Rows are read page by page in order of their keys, so memory is bounded.

mod pages;
mod row;

pub(in crate::journal::store) use pages::{PAGE_BYTES, PAGE_ROWS, TableReader, TableRows};
pub(in crate::journal::store) use row::{Cell, Row};

use ColumnType::{Boolean, Bytes, Integer, Text, Uuid};

/// Type of a column. Every column but those of the key may be null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::journal::store) enum ColumnType {
    /// Signed integer of 64 bits.
    Integer,
    /// `false` or `true`; 0 or 1 in a [`Cell`].
    Boolean,
    /// UTF-8.
    Text,
    /// UUID or event key; 16 octets in a [`Cell`].
    Uuid,
    /// Octets.
    Bytes,
}

/// Name and type of a column.
pub(in crate::journal::store) type Column = (&'static str, ColumnType);

/// A table with rows of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::journal::store) enum Table {
    /// Ranges of numbers that restores have skipped.
    Restores,
    /// The changes.
    Changes,
    /// Keys of the events of changes.
    EventKeys,
    /// Keys of events without effect.
    Unchanged,
    /// Objects of the registry.
    Objects,
    /// Items of the registry, each with the URI of its object.
    Items,
    /// Facts from crawls.
    Seeds,
    /// Progress of crawls.
    Crawls,
    /// Times of the events of sources.
    Sources,
    /// Order times at some numbers.
    OrderTimes,
    /// Spans of changes that are sealed in files.
    Segments,
    /// Positions of harvests.
    Harvests,
    /// Runs of harvests.
    HarvestRuns,
    /// Records that harvested repositories have listed.
    HarvestRecords,
    /// Jobs that archive datasets.
    IngestJobs,
    /// Newest results of objects.
    Results,
    /// Changes whose lookup must be repeated.
    IncompleteChanges,
    /// Messages of the quarantine.
    Quarantine,
    /// Subscriptions with their cursors.
    Subscriptions,
    /// Dead letters.
    DeadLetters,
}

impl Table {
    /// All tables. A table follows those that its rows refer to.
    pub(in crate::journal::store) const ALL: [Self; 20] = [
        Self::Restores,
        Self::Changes,
        Self::EventKeys,
        Self::Unchanged,
        Self::Objects,
        Self::Items,
        Self::Seeds,
        Self::Crawls,
        Self::Sources,
        Self::OrderTimes,
        Self::Segments,
        Self::Harvests,
        Self::HarvestRuns,
        Self::HarvestRecords,
        Self::IngestJobs,
        Self::Results,
        Self::IncompleteChanges,
        Self::Quarantine,
        Self::Subscriptions,
        Self::DeadLetters,
    ];

    /// Returns the neutral name.
    pub(in crate::journal::store) const fn name(self) -> &'static str {
        match self {
            Self::Restores => "restores",
            Self::Changes => "changes",
            Self::EventKeys => "event_keys",
            Self::Unchanged => "unchanged",
            Self::Objects => "objects",
            Self::Items => "items",
            Self::Seeds => "seeds",
            Self::Crawls => "crawls",
            Self::Sources => "sources",
            Self::OrderTimes => "order_times",
            Self::Segments => "segments",
            Self::Harvests => "harvests",
            Self::HarvestRuns => "harvest_runs",
            Self::HarvestRecords => "harvest_records",
            Self::IngestJobs => "ingest_jobs",
            Self::Results => "results",
            Self::IncompleteChanges => "incomplete_changes",
            Self::Quarantine => "quarantine",
            Self::Subscriptions => "subscriptions",
            Self::DeadLetters => "dead_letters",
        }
    }

    /// Returns the columns. Those of the key are first.
    pub(in crate::journal::store) const fn columns(self) -> &'static [Column] {
        match self {
            Self::Restores => &[("head", Integer), ("floor", Integer), ("identities", Text)],
            Self::Changes => &[
                ("seq", Integer),
                ("id", Uuid),
                ("received", Integer),
                ("checksum", Integer),
                ("json", Text),
                ("visibility", Text),
            ],
            Self::EventKeys => &[("seq", Integer), ("key", Uuid), ("received", Integer)],
            Self::Unchanged => &[("number", Integer), ("key", Uuid), ("received", Integer)],
            Self::Objects => &[
                ("uri", Text),
                ("parent", Text),
                ("parent_at", Integer),
                ("parent_confirmed", Integer),
                ("types", Text),
                ("types_at", Integer),
                ("types_confirmed", Integer),
                ("purged_at", Integer),
                ("purged_confirmed", Integer),
                ("source", Text),
                ("accepted", Integer),
                ("published", Integer),
            ],
            Self::Items => ITEM_COLUMNS,
            Self::Seeds => &[("number", Integer), ("seq", Integer), ("object", Text), ("delta", Text)],
            Self::Crawls => &[
                ("source", Text),
                ("id", Text),
                ("parts", Integer),
                ("position", Text),
                ("objects", Integer),
                ("started", Integer),
                ("updated", Integer),
                ("finished", Boolean),
            ],
            Self::Sources => &[
                ("source", Text),
                ("first_event", Integer),
                ("last_event", Integer),
                ("week", Integer),
                ("longest_pause", Integer),
                ("earlier_pause", Integer),
            ],
            Self::OrderTimes => &[("seq", Integer), ("order_time", Integer)],
            Self::Segments => &[("first", Integer), ("last", Integer), ("manifest", Text)],
            Self::Harvests => &[
                ("source", Text),
                ("position", Text),
                ("requested", Integer),
                ("definition", Text),
                ("paused", Boolean),
                ("lease", Integer),
            ],
            Self::HarvestRuns => &[
                ("id", Text),
                ("source", Text),
                ("started", Integer),
                ("updated", Integer),
                ("state", Text),
                ("reason", Text),
                ("pages", Integer),
                ("records", Integer),
                ("changes", Integer),
                ("quarantined", Integer),
                ("repaired", Integer),
            ],
            Self::HarvestRecords => &[("source", Text), ("identifier", Text), ("listed", Integer), ("validator", Text)],
            Self::IngestJobs => &[
                ("source", Text),
                ("dataset", Text),
                ("id", Text),
                ("host", Text),
                ("request", Text),
                ("state", Text),
                ("due", Integer),
                ("attempts", Integer),
                ("status", Text),
                ("message", Text),
                ("requested", Integer),
                ("updated", Integer),
            ],
            Self::Results => &[("object", Text), ("seq", Integer), ("received", Integer), ("result", Text)],
            Self::IncompleteChanges => &[("seq", Integer), ("source", Text), ("missing", Text), ("json", Text)],
            Self::Quarantine => &[
                ("id", Integer),
                ("received", Integer),
                ("source", Text),
                ("content_type", Text),
                ("headers", Text),
                ("location", Text),
                ("reason", Text),
                ("size", Integer),
                ("body", Bytes),
            ],
            Self::Subscriptions => &[
                ("name", Text),
                ("made_by", Text),
                ("definition", Text),
                ("cursor", Integer),
                ("paused", Boolean),
                ("ended", Text),
                ("paused_by", Text),
                ("delivered", Integer),
            ],
            Self::DeadLetters => &[
                ("id", Integer),
                ("subscription", Text),
                ("seq", Integer),
                ("refused", Integer),
                ("reason", Text),
                ("attempts", Integer),
                ("replay", Boolean),
                ("json", Text),
            ],
        }
    }

    /// Returns the number of columns of the key, by which the rows are ordered. Texts are ordered by their octets.
    pub(in crate::journal::store) const fn key_length(self) -> usize {
        match self {
            Self::Items | Self::HarvestRecords | Self::IngestJobs => 2,
            _ => 1,
        }
    }

    /// Returns the number of columns that must be equal in two copies of a journal. A store need not know exactly when
    /// the change of an event key was received, if retention has removed the change.
    pub(in crate::journal::store) fn exact_columns(self) -> usize {
        match self {
            Self::EventKeys => 2,
            _ => self.columns().len(),
        }
    }
}

const ITEM_COLUMNS: &[Column] = &[
    ("object", Text),
    ("uri", Text),
    ("existence", Boolean),
    ("existence_at", Integer),
    ("existence_confirmed", Integer),
    ("content", Text),
    ("content_at", Integer),
    ("content_confirmed", Integer),
    ("state", Text),
    ("state_at", Integer),
    ("state_confirmed", Integer),
    ("initial_state", Text),
    ("initial_state_at", Integer),
    ("initial_state_confirmed", Integer),
    ("unannounced", Boolean),
    ("visible_from", Integer),
    ("visible_until", Integer),
    ("came", Integer),
    ("denied", Integer),
];
