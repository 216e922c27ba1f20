//! The table `incomplete_changes`: changes whose lookup must be repeated.

use std::collections::BTreeMap;

use futures_util::future::join;
use tokio_postgres::Row;

use super::{connection::Session, row};
use crate::{
    journal::store::{IncompleteChange, StoreError, WriteBatch, rows},
    model::{MissingFacts, Seq, SourceName},
};

pub(super) const DELETE: &str = "DELETE FROM incomplete_changes WHERE seq = ANY($1::bigint[])";

pub(super) const INSERT: &str = "INSERT INTO incomplete_changes (seq, source, missing, json)
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[])";

/// Inserts rows for the incomplete changes of a batch, and deletes the rows of the changes that the batch completes.
pub(super) async fn write(session: &Session, batch: &WriteBatch) -> Result<(), StoreError> {
    let (mut seqs, mut sources, mut missing, mut jsons) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for new in &batch.changes {
        let Some(facts) = new.incomplete else { continue };
        seqs.push(rows::number(new.change.seq.0));
        sources.push(new.change.modification.origin.source.as_str());
        missing.push(facts.name());
        jsons.push(std::str::from_utf8(&new.json).map_err(rows::damaged)?);
    }
    let completed: Vec<i64> = batch.completed.iter().map(|seq| rows::number(seq.0)).collect();
    let delete = async { if completed.is_empty() { Ok(0) } else { session.execute(DELETE, &[&completed]).await } };
    let insert = async {
        if seqs.is_empty() { Ok(0) } else { session.execute(INSERT, &[&seqs, &sources, &missing, &jsons]).await }
    };
    // Sent in this order.
    let (deleted, inserted) = join(delete, insert).await;
    deleted.and(inserted).map(drop)
}

/// Reads up to `limit` incomplete changes of a source after `after`, oldest first.
pub(super) async fn after(
    session: &Session,
    source: &SourceName,
    after: Seq,
    limit: usize,
) -> Result<Vec<IncompleteChange>, StoreError> {
    let sql = "SELECT seq, missing, json FROM incomplete_changes WHERE source = $1 AND seq > $2 ORDER BY seq LIMIT $3";
    let values: (&str, i64, i64) = (source.as_str(), rows::number(after.0), rows::number(limit as u64));
    let found = session.query(sql, &[&values.0, &values.1, &values.2]).await?;
    found.iter().map(read).collect()
}

fn read(found: &Row) -> Result<IncompleteChange, StoreError> {
    let name: &str = row::get(found, 1)?;
    let missing = MissingFacts::ALL.into_iter().find(|missing| missing.name() == name);
    Ok(IncompleteChange {
        seq: row::seq(found, 0)?,
        missing: missing.ok_or_else(|| rows::damaged(format!("unknown kind of missing facts: {name}")))?,
        json: row::get::<String>(found, 2)?.into(),
    })
}

/// Returns the number of incomplete changes of each source that has any.
pub(super) async fn counts(session: &Session) -> Result<BTreeMap<SourceName, u64>, StoreError> {
    let counts = session.query("SELECT source, count(*) FROM incomplete_changes GROUP BY source", &[]).await?;
    let read =
        |count: &Row| Ok((SourceName::parse(row::get(count, 0)?).map_err(rows::damaged)?, row::unsigned(count, 1)?));
    counts.iter().map(read).collect()
}
