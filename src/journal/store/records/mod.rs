//! The record tables, for every SQL store: subscriptions, dead letters, harvests, runs, listed records, jobs, results, crawls
//! and their facts, sources, incomplete changes, order times, segments, restores and the messages of the quarantine.
//!
//! Each table has one file with its SQL, one function that writes a row and one that reads it. A store executes the
//! statements ([`Records`]). The SQL is the part of SQLite's and PostgreSQL's language that means the same in both:
//! parameters are `$1`, `$2` and so on, and numbers are 64 bits long.

mod crawls;
mod dead_letters;
mod due;
mod harvests;
mod incomplete;
mod ingests;
mod listed;
mod order;
pub(super) mod quarantine;
mod restores;
mod seeds;
mod segments;
mod sources;
mod subscriptions;
mod value;

pub use crawls::CrawlStore;
pub use dead_letters::DeadLetterStore;
pub use due::DueStore;
pub use harvests::HarvestStore;
pub use incomplete::IncompleteStore;
pub use ingests::IngestStore;
pub use listed::ListedRecordStore;
pub use order::OrderStore;
pub use quarantine::QuarantineStore;
pub use restores::RestoreStore;
pub use seeds::SeedStore;
pub use segments::SegmentStore;
pub use sources::SourceStore;
pub use subscriptions::SubscriptionStore;
pub(super) use value::Value;
use value::{Cells, values};

use super::{StoreError, WriteBatch};
use crate::journal::nodes::{DutyName, Term};

/// Text of a statement. The macro `statements` makes all of them, so that [`TEXTS`] has each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sql {
    /// Text for single values.
    pub(super) text: &'static str,
    /// Text for lists of values, as arrays; `None` if the statement has no list. Only PostgreSQL has arrays.
    pub(super) of_arrays: Option<&'static str>,
}

/// Defines the statements of a table, and the list of them. A statement for lists of values has a second text.
macro_rules! statements {
    ($($(#[$attribute:meta])* $name:ident = $sql:expr $(, of arrays: $of_arrays:expr)?;)*) => {
        $(
            $(#[$attribute])*
            const $name: super::Sql = super::Sql { text: $sql, of_arrays: super::statements!(@arrays $($of_arrays)?) };
        )*

        /// All statements of the table.
        pub(super) const TEXTS: &[super::Sql] = &[$($name),*];
    };
    (@arrays) => { None };
    (@arrays $of_arrays:expr) => { Some($of_arrays) };
}
use statements;

/// All statements of the record tables.
pub(super) const TEXTS: [&[Sql]; 14] = [
    crawls::TEXTS,
    dead_letters::TEXTS,
    due::TEXTS,
    harvests::TEXTS,
    incomplete::TEXTS,
    ingests::TEXTS,
    listed::TEXTS,
    order::TEXTS,
    quarantine::TEXTS,
    restores::TEXTS,
    seeds::TEXTS,
    segments::TEXTS,
    sources::TEXTS,
    subscriptions::TEXTS,
];

/// A statement with its values. One with lists is executed for each of their elements, in one step where the database can.
#[derive(Clone, Debug)]
pub struct Statement<'v> {
    pub(super) sql: Sql,
    pub(super) values: Vec<Value<'v>>,
}

impl<'v> Statement<'v> {
    fn new<const N: usize>(sql: Sql, values: [Value<'v>; N]) -> Self {
        Self { sql, values: values.into() }
    }

    /// Returns the size of the values, in bytes.
    pub(super) fn size(&self) -> usize {
        self.values.iter().map(Value::size).sum()
    }
}

/// A row of a result. Columns are numbered from 0.
pub trait Row {
    /// Returns a number, or nothing for null.
    ///
    /// # Errors
    /// Fails if the column has another type.
    fn int(&self, column: usize) -> Result<Option<i64>, StoreError>;

    /// Returns a text, or nothing for null.
    ///
    /// # Errors
    /// As [`Row::int`].
    fn text(&self, column: usize) -> Result<Option<&str>, StoreError>;

    /// Returns octets, or nothing for null.
    ///
    /// # Errors
    /// As [`Row::int`].
    fn bytes(&self, column: usize) -> Result<Option<&[u8]>, StoreError>;

    /// Returns whether a condition is true.
    ///
    /// # Errors
    /// As [`Row::int`].
    fn flag(&self, column: usize) -> Result<bool, StoreError>;
}

/// Statements of one transaction, and what other nodes must learn of it.
#[derive(Debug, Default)]
pub struct RecordWrite<'v> {
    /// The statements, in order.
    pub(super) statements: Vec<Statement<'v>>,
    /// Term of the duty for which they are written, if there is one.
    pub(super) term: Option<Term>,
    /// Duties that end, whichever node has them.
    pub(super) ended_duties: Vec<DutyName>,
    /// Definitions that other nodes must read again.
    pub(super) changed_definitions: Option<DefinitionKind>,
}

/// Definitions that people modify at any node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DefinitionKind {
    /// Subscriptions.
    Subscriptions,
    /// Harvests and sources that read brokers, with pauses and requests of runs.
    Harvests,
}

impl DefinitionKind {
    /// Returns the name in the table of revisions.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Subscriptions => "subscriptions",
            Self::Harvests => "harvests",
        }
    }
}

/// Executor of the statements of the record tables. It replaces what a database cannot store in a text.
pub trait Records {
    /// Runs queries, and calls `each` for the rows of the first one, then for those of the next one.
    ///
    /// # Errors
    /// Fails if the storage fails, or with the first error of `each`.
    fn query(
        &self,
        queries: &[Statement<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<(), StoreError>,
    ) -> Result<(), StoreError>;

    /// Executes statements in one transaction; returns the number of affected rows of each.
    ///
    /// # Errors
    /// Fails if the storage fails; then nothing was written.
    fn execute(&self, write: &RecordWrite<'_>) -> Result<Vec<u64>, StoreError>;
}

/// Runs queries and reads all rows.
fn read_all<T>(
    records: &(impl Records + ?Sized),
    queries: &[Statement<'_>],
    read: impl Fn(Cells<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut all = Vec::new();
    records.query(queries, &mut |row| {
        all.push(read(Cells(row))?);
        Ok(())
    })?;
    Ok(all)
}

/// Runs a query and reads its row, if it has one.
fn read_one<T>(
    records: &(impl Records + ?Sized),
    query: Statement<'_>,
    read: impl Fn(Cells<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    Ok(read_all(records, &[query], read)?.pop())
}

/// Returns the statements of a batch, which follow the insertion of its changes.
pub(super) fn of_batch(batch: &WriteBatch) -> Result<Vec<Statement<'_>>, StoreError> {
    let mut statements = incomplete::write(batch)?;
    statements.extend(batch.cursors.iter().map(subscriptions::advance));
    statements.extend(sources::note_events(batch));
    statements.extend(batch.crawls.iter().map(crawls::write));
    statements.extend(batch.harvests.iter().flat_map(harvests::write_progress));
    statements.extend(ingests::write_results(&batch.changes));
    statements.extend(batch.positions.iter().map(harvests::write_position_of));
    statements.extend(batch.jobs.iter().map(ingests::write_job));
    Ok(statements)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::TEXTS;

    #[test]
    fn statements_are_different_and_use_the_common_language() {
        let texts: Vec<_> = TEXTS.iter().flat_map(|texts| texts.iter().map(|sql| sql.text)).collect();
        assert_eq!(texts.iter().collect::<HashSet<_>>().len(), texts.len());
        for text in texts {
            let forbidden = ["?", "::", "ANY (", "OR REPLACE", "iif(", "greatest(", "least("];
            let found = forbidden.iter().find(|word| text.contains(**word));
            assert!(found.is_none(), "{text} contains {found:?}");
        }
    }
}
