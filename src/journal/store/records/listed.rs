//! The table `harvest_records`: records that repositories have listed.

use std::collections::HashMap;

use super::{
    Records, Statement, StoreError, read_all, read_one, statements,
    value::{Cells, values},
};
use crate::{
    journal::harvest::{Claim, FormerRecords, ListedAt, ListedCounts, ListedRecords, MAX_CLAIMS},
    model::{SourceName, Timestamp},
};

statements! {
    WRITE = "INSERT INTO harvest_records (source, identifier, listed, validator) VALUES ($1, $2, $3, $4)
        ON CONFLICT (source, identifier) DO UPDATE SET (listed, validator) = (excluded.listed, excluded.validator)",
        // A page may have an identifier twice, which one statement must not write twice.
        of arrays: "INSERT INTO harvest_records (source, identifier, listed, validator)
            SELECT DISTINCT ON (identifier) $1::text, identifier, listed, validator
            FROM unnest($2::text[], $3::bigint[], $4::text[]) WITH ORDINALITY
                AS present (identifier, listed, validator, position)
            ORDER BY identifier, position DESC
            ON CONFLICT (source, identifier) DO UPDATE
                SET (listed, validator) = (excluded.listed, excluded.validator)";
    REMOVE = "DELETE FROM harvest_records WHERE source = $1 AND identifier = $2",
        of arrays: "DELETE FROM harvest_records WHERE source = $1 AND identifier = ANY ($2::text[])";
    REMOVE_ALL = "DELETE FROM harvest_records WHERE source = $1";
    /// Copies the records of a source to another name. Those that the name has already stay.
    COPY = "INSERT INTO harvest_records (source, identifier, listed, validator)
        SELECT CAST($2 AS text), identifier, listed, validator FROM harvest_records WHERE source = $1
        ON CONFLICT (source, identifier) DO NOTHING";
    REMOVE_WITHOUT_VALIDATOR = "DELETE FROM harvest_records WHERE source = $1 AND validator = ''";
    REMOVE_ENDED = "DELETE FROM harvest_records
        WHERE source = $1 AND validator = '[]' AND listed < 0 AND listed > $2";
    UNLIST = "UPDATE harvest_records SET listed = -1 - listed WHERE source = $1 AND listed >= 0";
    COUNT = "SELECT count(*), count(*) FILTER (WHERE listed < $2) FROM harvest_records
        WHERE source = $1 AND listed >= 0";
    MISSING = "SELECT identifier FROM harvest_records
        WHERE source = $1 AND identifier > $2 AND listed < $3 AND listed >= 0 ORDER BY identifier LIMIT $4";
    VALIDATOR = "SELECT identifier, validator FROM harvest_records WHERE source = $1 AND identifier = $2",
        of arrays:
            "SELECT identifier, validator FROM harvest_records WHERE source = $1 AND identifier = ANY ($2::text[])";
    CLAIMS = "SELECT listed.identifier, listed.source, listed.validator, listed.listed
        FROM harvests JOIN harvest_records AS listed ON listed.source = harvests.source AND listed.identifier = $2
        WHERE harvests.source <> $1 ORDER BY listed.source LIMIT $3",
        of arrays: "SELECT claim.* FROM unnest($2::text[]) AS asked (identifier), LATERAL (
                SELECT listed.identifier, listed.source, listed.validator, listed.listed
                FROM harvests JOIN harvest_records AS listed
                    ON listed.source = harvests.source AND listed.identifier = asked.identifier
                WHERE harvests.source <> $1 ORDER BY listed.source LIMIT $3
            ) AS claim";
    /// The cross joins keep the order of the tables in SQLite: each record is looked up by its key.
    SHARED = "SELECT listed.identifier, listed.source, listed.validator, listed.listed
        FROM harvest_records AS own CROSS JOIN harvests CROSS JOIN harvest_records AS listed
        WHERE own.source = $1 AND own.listed >= 0 AND harvests.source <> $1
            AND listed.source = harvests.source AND listed.identifier = own.identifier
        ORDER BY listed.identifier, listed.source LIMIT $2";
}

/// Listed records, which are written with the progress of their harvest.
pub trait ListedRecordStore: Records {
    /// Returns the numbers of a source's listed records: of all, and of those that no run since `since` has listed.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    fn listed_counts(&self, source: &SourceName, since: Timestamp) -> Result<ListedCounts, StoreError> {
        let counts = read_one(self, Statement::new(COUNT, values![source, since]), |row| {
            Ok(ListedCounts { all: row.unsigned(0)?, missing: row.unsigned(1)? })
        });
        // An aggregate without groups always has a row.
        Ok(counts?.unwrap_or(ListedCounts { all: 0, missing: 0 }))
    }

    /// Returns up to `limit` identifiers after `after` that no run since `since` has listed, in order of their octets.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    fn missing_records(
        &self,
        source: &SourceName,
        since: Timestamp,
        after: &str,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        let query = Statement::new(MISSING, values![source, after, since, limit]);
        read_all(self, &[query], |row| Ok(row.text(0)?.to_owned()))
    }

    /// Returns the validators of those of a source's listed records that have these identifiers.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    fn validators(&self, source: &SourceName, identifiers: &[String]) -> Result<HashMap<String, String>, StoreError> {
        let query = Statement::new(VALIDATOR, values![source, identifiers]);
        let validators = read_all(self, &[query], |row| Ok((row.text(0)?.to_owned(), row.text(1)?.to_owned())))?;
        Ok(validators.into_iter().collect())
    }

    /// Returns the records of other sources with these identifiers, at most [`MAX_CLAIMS`] for each, those of the first
    /// sources.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    fn claims(&self, source: &SourceName, identifiers: &[String]) -> Result<Vec<Claim>, StoreError> {
        read_all(self, &[Statement::new(CLAIMS, values![source, identifiers, MAX_CLAIMS])], read_claim)
    }

    /// Returns up to `limit` records of other sources that this source lists too, in order of identifiers and sources.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    fn shared_records(&self, source: &SourceName, limit: usize) -> Result<Vec<Claim>, StoreError> {
        read_all(self, &[Statement::new(SHARED, values![source, limit])], read_claim)
    }
}

impl<S: Records + ?Sized> ListedRecordStore for S {}

fn read_claim(row: Cells<'_>) -> Result<Claim, StoreError> {
    let [identifier, source, validator] = [row.text(0)?, row.text(1)?, row.text(2)?].map(str::to_owned);
    let listed = row.int(3)?;
    Ok(Claim { identifier, source, validator, is_listed: listed >= 0, ended: listed.min(0) })
}

/// Returns the statements that write listed records.
pub(super) fn write<'v>(source: &'v SourceName, listed: &'v ListedRecords) -> Vec<Statement<'v>> {
    let ListedRecords { former, gone, present, at } = listed;
    let mut statements = match former {
        FormerRecords::Keep => Vec::new(),
        FormerRecords::Rename(name) => vec![Statement::new(COPY, values![source, name]), remove_all(source)],
        FormerRecords::Unlist => {
            [REMOVE_WITHOUT_VALIDATOR, UNLIST].map(|sql| Statement::new(sql, values![source])).into()
        }
    };
    // A write that ends records removes the old ones, so that they do not accumulate.
    let ends =
        *former == FormerRecords::Unlist || present.iter().any(|record| matches!(record.listed, ListedAt::Ended(_)));
    if let Some(at) = at.filter(|_| ends) {
        statements.push(Statement::new(REMOVE_ENDED, values![source, ListedAt::oldest_ended_millis(at)]));
    }
    if !gone.is_empty() {
        statements.push(Statement::new(REMOVE, values![source, gone.as_slice()]));
    }
    if let Some(at) = at.filter(|_| !present.is_empty()) {
        let identifiers: Vec<_> = present.iter().map(|record| &*record.identifier).collect();
        let listed: Vec<_> = present.iter().map(|record| record.listed.millis(at)).collect();
        let validators: Vec<_> = present.iter().map(|record| &*record.validator).collect();
        statements.push(Statement::new(WRITE, values![source, identifiers, listed, validators]));
    }
    statements
}

/// Returns the statement that removes all records of a source.
pub(super) fn remove_all(source: &SourceName) -> Statement<'_> {
    Statement::new(REMOVE_ALL, values![source])
}
