//! The table `incomplete_changes`: changes whose lookup must be repeated.

use std::collections::BTreeMap;

use super::{Records, Statement, StoreError, read_all, statements, values};
use crate::{
    journal::store::{IncompleteChange, WriteBatch, rows},
    model::{MissingFacts, Seq, SourceName},
};

statements! {
    INSERT = "INSERT INTO incomplete_changes (seq, source, missing, json) VALUES ($1, $2, $3, $4)";
    DELETE = "DELETE FROM incomplete_changes WHERE seq = $1";
    AFTER = "SELECT seq, missing, json FROM incomplete_changes WHERE source = $1 AND seq > $2 ORDER BY seq LIMIT $3";
    COUNT = "SELECT source, count(*) FROM incomplete_changes GROUP BY source";
}

/// Incomplete changes, which are written with the changes of a batch.
pub trait IncompleteStore: Records {
    /// Returns up to `limit` changes of a source after `after` whose lookup must be repeated, oldest first.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn incomplete(&self, source: &SourceName, after: Seq, limit: usize) -> Result<Vec<IncompleteChange>, StoreError> {
        read_all(self, &[Statement::new(AFTER, values![source, after, limit])], |row| {
            Ok(IncompleteChange {
                seq: row.seq(0)?,
                missing: row.named(1, "kind of missing facts", MissingFacts::ALL, MissingFacts::name)?,
                json: row.text(2)?.to_owned().into(),
            })
        })
    }

    /// Returns the number of changes whose lookup must be repeated, for each source that has any.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn incomplete_counts(&self) -> Result<BTreeMap<SourceName, u64>, StoreError> {
        let counts = read_all(self, &[Statement::new(COUNT, [])], |row| Ok((row.source(0)?, row.unsigned(1)?)))?;
        Ok(counts.into_iter().collect())
    }
}

impl<S: Records + ?Sized> IncompleteStore for S {}

/// Returns the statements that insert the incomplete changes of a batch, and delete those that the batch completes.
pub(super) fn write(batch: &WriteBatch) -> Result<Vec<Statement<'_>>, StoreError> {
    let mut statements: Vec<_> = batch.completed.iter().map(|seq| Statement::new(DELETE, values![*seq])).collect();
    for new in &batch.changes {
        let Some(missing) = new.incomplete else { continue };
        // The gateway has written the JSON, so it is UTF-8.
        let json = std::str::from_utf8(&new.json).map_err(rows::damaged)?;
        let source = &new.change.modification.origin.source;
        statements.push(Statement::new(INSERT, values![new.change.seq, source, missing.name(), json]));
    }
    Ok(statements)
}
