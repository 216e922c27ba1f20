//! The table `quarantine`: its statements, and the reading of its messages. Each store counts the messages, and makes room
//! for new ones, in its own way.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{
    Records, Row, Statement, StoreError, read_all, read_one, statements,
    value::{Cells, values},
};
use crate::{
    journal::{
        quarantine::{
            NewQuarantinedMessage, QuarantineId, QuarantineReason, QuarantineShare, QuarantineSize, QuarantinedMessage,
        },
        store::{
            rows,
            shares::{OldestOf, QuarantineShares},
        },
    },
    model::SourceName,
};

statements! {
    INSERT = "INSERT INTO quarantine (received, source, content_type, headers, location, reason, size, body)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id";
    DELETE = "DELETE FROM quarantine WHERE id = $1 RETURNING source, size";
    /// The oldest messages of a source after an identifier.
    OLDEST = "SELECT id, size FROM quarantine WHERE source = $1 AND id > $2 ORDER BY id LIMIT $3";
    SHARES = "SELECT source, count(*), CAST(sum(size) AS bigint), max(received) FROM quarantine GROUP BY source
        ORDER BY source";
    REASONS = "SELECT source, reason, count(*) FROM quarantine GROUP BY source, reason
        ORDER BY count(*) DESC, source, reason LIMIT $1";
    BEFORE = "SELECT id, received, source, content_type, headers, location, reason, size FROM quarantine
        WHERE id < $1 ORDER BY id DESC LIMIT $2";
    BEFORE_OF = "SELECT id, received, source, content_type, headers, location, reason, size FROM quarantine
        WHERE source = $3 AND id < $1 ORDER BY id DESC LIMIT $2";
    ONE = "SELECT id, received, source, content_type, headers, location, reason, size, body FROM quarantine
        WHERE id = $1";
}

/// Messages of the quarantine.
pub trait QuarantineStore: Records {
    /// Returns up to `limit` messages of the quarantine before `before` (from the newest if `None`), newest first,
    /// without their bodies: those of one source, or of all.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn quarantined_before(
        &self,
        before: Option<QuarantineId>,
        source: Option<&SourceName>,
        limit: usize,
    ) -> Result<Vec<QuarantinedMessage>, StoreError> {
        let bound = before.map_or(u64::MAX, |id| id.0);
        let query = match source {
            Some(source) => Statement::new(BEFORE_OF, values![bound, limit, source]),
            None => Statement::new(BEFORE, values![bound, limit]),
        };
        read_all(self, &[query], |row| read(row, Bytes::new()))
    }

    /// Returns the share of each source that has messages in the quarantine, by name. It reads the whole table.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn quarantine_shares(&self) -> Result<BTreeMap<String, QuarantineShare>, StoreError> {
        let shares = read_all(self, &[shares()], |row| {
            let size = QuarantineSize { messages: row.unsigned(1)?, bytes: row.unsigned(2)? };
            Ok((row.text(0)?.to_owned(), QuarantineShare { size, newest: row.time(3)? }))
        })?;
        Ok(shares.into_iter().collect())
    }

    /// Returns the most frequent reasons, with their sources. It reads the whole table.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn quarantine_reasons(&self, limit: usize) -> Result<Vec<QuarantineReason>, StoreError> {
        read_all(self, &[Statement::new(REASONS, values![limit])], |row| {
            Ok(QuarantineReason { source: row.source(0)?, reason: row.text(1)?.into(), messages: row.unsigned(2)? })
        })
    }

    /// Returns one message of the quarantine with its body.
    ///
    /// # Errors
    /// Fails if the storage fails.
    fn quarantined(&self, id: QuarantineId) -> Result<Option<QuarantinedMessage>, StoreError> {
        read_one(self, Statement::new(ONE, values![id.0]), |row| read(row, row.bytes(8)?))
    }
}

impl<S: Records + ?Sized> QuarantineStore for S {}

fn read(row: Cells<'_>, body: Bytes) -> Result<QuarantinedMessage, StoreError> {
    Ok(QuarantinedMessage {
        id: QuarantineId(row.unsigned(0)?),
        size: row.unsigned(7)?,
        message: NewQuarantinedMessage {
            received: row.time(1)?,
            source: row.source(2)?,
            content_type: row.partner_text(3)?,
            headers: row.json(4)?,
            location: row.text(5)?.into(),
            reason: row.text(6)?.into(),
            body,
        },
    })
}

/// Returns the statement that inserts a message. Its row has the identifier; see [`read_id`].
pub(in crate::journal::store) fn insert(message: &NewQuarantinedMessage) -> Result<Statement<'_>, StoreError> {
    let NewQuarantinedMessage { received, source, content_type, headers, body, location, reason } = message;
    let (content_type, headers) = (content_type.as_ref(), rows::to_json(headers)?);
    let values = values![*received, source, content_type, headers, location, reason, body.len(), body];
    Ok(Statement::new(INSERT, values))
}

/// Reads the row of [`insert`].
pub(in crate::journal::store) fn read_id(row: &dyn Row) -> Result<QuarantineId, StoreError> {
    Cells(row).unsigned(0).map(QuarantineId)
}

/// Returns the statement that removes a message. Its row, if there was one, has source and size; see [`read_removed`].
pub(in crate::journal::store) fn delete(id: QuarantineId) -> Statement<'static> {
    Statement::new(DELETE, values![id.0])
}

/// Reads the row of [`delete`]: source and size of the message.
pub(in crate::journal::store) fn read_removed(row: &dyn Row) -> Result<(String, u64), StoreError> {
    let row = Cells(row);
    Ok((row.text(0)?.to_owned(), row.unsigned(1)?))
}

/// Returns the query for the oldest messages of a source; see [`read_oldest`].
pub(in crate::journal::store) fn oldest(query: &OldestOf) -> Statement<'_> {
    let OldestOf { source, after, limit } = query;
    Statement::new(OLDEST, values![source, after.0, *limit])
}

/// Reads a row of [`oldest`]: identifier and size of a message.
pub(in crate::journal::store) fn read_oldest(row: &dyn Row) -> Result<(QuarantineId, u64), StoreError> {
    let row = Cells(row);
    Ok((QuarantineId(row.unsigned(0)?), row.unsigned(1)?))
}

/// Returns the query that counts the messages of each source and their bytes, which reads the whole table; see
/// [`read_share`].
pub(in crate::journal::store) fn shares() -> Statement<'static> {
    Statement::new(SHARES, [])
}

/// Reads a row of [`shares`], and adds it.
pub(in crate::journal::store) fn read_share(row: &dyn Row, shares: &mut QuarantineShares) -> Result<(), StoreError> {
    let row = Cells(row);
    shares.add(row.text(0)?, QuarantineSize { messages: row.unsigned(1)?, bytes: row.unsigned(2)? });
    Ok(())
}
