//! The table `changes`.

use bytes::Bytes;
use foldhash::HashSet;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{connection::Session, readers::in_snapshot, row};
use crate::{
    journal::store::{NewChange, StoreError, StoredChange, page::ChangePage, rows},
    model::{ChangeId, Seq, Timestamp},
};

/// Maximum size of the JSON or the bodies in one statement, in bytes. PostgreSQL accepts less than 1 GiB.
pub(super) const STATEMENT_BYTES: usize = 64 << 20;

pub(super) const INSERT: &str = "INSERT INTO changes (seq, id, received, checksum, json, visibility)
    SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::bigint[], $4::bigint[], $5::text[], $6::text[])";

pub(super) const USED_IDS: &str = "SELECT id FROM changes WHERE id = ANY($1::uuid[])";

pub(super) const RESTORES: &str = "SELECT head, floor FROM restores ORDER BY head DESC";

const HEAD: &str = "SELECT head, seeds FROM journal_head";

const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

const NEWEST: &str = "SELECT seq, received FROM changes ORDER BY seq DESC LIMIT 1";

const FIRST: &str = "SELECT seq FROM changes ORDER BY seq LIMIT 1";

/// Query for a page after a cursor ($1, and the next number $2), with at most $3 changes and $4 bytes. The first column
/// says whether the cursor is valid: the change with this number or the next one is available, or the journal is empty,
/// or the change was the newest one before a restore and the first change after the restore is available. One
/// statement has one snapshot.
const AFTER: &str = "SELECT cursors.is_valid, page.seq, page.checksum, page.json, page.visibility
    FROM (SELECT EXISTS (SELECT FROM changes WHERE seq IN ($1::bigint, $2::bigint))
              OR ($1 = 0 AND NOT EXISTS (SELECT FROM changes))
              OR EXISTS (SELECT FROM restores JOIN changes ON changes.seq = restores.floor + 1 WHERE restores.head = $1)
              AS is_valid) AS cursors
    LEFT JOIN (
        SELECT seq, checksum, json, visibility FROM changes WHERE seq > $1 AND seq <= (
            SELECT max(seq) FROM (
                SELECT seq, sum(size) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) - size AS bytes_before FROM (
                    SELECT seq, octet_length(json)::bigint AS size FROM changes WHERE seq > $1 ORDER BY seq LIMIT $3
                ) AS sizes
            ) AS sums WHERE bytes_before < $4::bigint)
    ) AS page ON true
    ORDER BY page.seq";

/// Query for a page before the number $1, newest first, with at most $2 changes and $3 bytes.
const BEFORE: &str = "SELECT seq, checksum, json, visibility FROM changes WHERE seq < $1::bigint AND seq >= (
        SELECT min(seq) FROM (
            SELECT seq, sum(size) OVER (ORDER BY seq DESC ROWS UNBOUNDED PRECEDING) - size AS bytes_before FROM (
                SELECT seq, octet_length(json)::bigint AS size FROM changes WHERE seq < $1 ORDER BY seq DESC LIMIT $2
            ) AS sizes
        ) AS sums WHERE bytes_before < $3::bigint)
    ORDER BY seq DESC";

/// Returns the number of the newest change, and the number of the newest seed.
pub(super) async fn head(session: &Session) -> Result<(Seq, i64), StoreError> {
    let head = session.query_one(HEAD, &[]).await?;
    Ok((row::seq(&head, 0)?, row::get(&head, 1)?))
}

/// Returns the ranges of numbers that restores have skipped, the newest first.
pub(super) async fn restores(session: &Session) -> Result<Vec<(Seq, Seq)>, StoreError> {
    let restores = session.query(RESTORES, &[]).await?;
    restores.iter().map(|restore| Ok((row::seq(restore, 0)?, row::seq(restore, 1)?))).collect()
}

/// Checks that the changes are numbered after the head, and without a gap.
pub(super) fn check_numbers(head: Seq, changes: &[NewChange]) -> Result<(), StoreError> {
    if changes.first().is_some_and(|first| first.change.seq <= head) {
        return Err(StoreError::Refused(format!("the newest change has the number {head} already")));
    }
    let gap = changes.windows(2).find(|pair| pair[1].change.seq != pair[0].change.seq.next());
    gap.map_or(Ok(()), |pair| {
        let seq = pair[1].change.seq;
        Err(StoreError::Refused(format!("change {seq} does not follow the previous change")))
    })
}

/// Inserts numbered changes.
pub(super) async fn insert(session: &Session, changes: &[NewChange]) -> Result<(), StoreError> {
    let mut rest = changes;
    while !rest.is_empty() {
        let (mut count, mut bytes) = (0, 0);
        while count < rest.len() && (count == 0 || bytes + rest[count].json.len() <= STATEMENT_BYTES) {
            bytes += rest[count].json.len();
            count += 1;
        }
        let (part, others) = rest.split_at(count);
        insert_part(session, part).await?;
        rest = others;
    }
    Ok(())
}

async fn insert_part(session: &Session, changes: &[NewChange]) -> Result<(), StoreError> {
    let (mut seqs, mut ids, mut received) = (Vec::new(), Vec::new(), Vec::new());
    let (mut checksums, mut jsons, mut visibilities) = (Vec::new(), Vec::new(), Vec::new());
    for NewChange { change, json, visibility, .. } in changes {
        let seq = rows::number(change.seq.0);
        seqs.push(seq);
        ids.push(change.modification.id.uuid());
        received.push(change.received.millis());
        checksums.push(rows::checksum(seq, json, visibility.as_deref()));
        jsons.push(std::str::from_utf8(json).map_err(rows::damaged)?);
        visibilities.push(visibility.as_deref().map(std::str::from_utf8).transpose().map_err(rows::damaged)?);
    }
    session.execute(INSERT, &[&seqs, &ids, &received, &checksums, &jsons, &visibilities]).await?;
    Ok(())
}

/// Returns which of these identifiers changes have already.
pub(super) async fn used_ids(session: &Session, ids: &[ChangeId]) -> Result<HashSet<ChangeId>, StoreError> {
    if ids.is_empty() {
        return Ok(HashSet::default());
    }
    let ids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
    let used = session.query(USED_IDS, &[&ids]).await?;
    used.iter().map(|used| row::get::<Uuid>(used, 0).map(ChangeId::from)).collect()
}

/// Reads changes after a cursor; returns `None` if the cursor is not valid in this journal.
pub(super) async fn after(
    session: &Session,
    after: Seq,
    limit: usize,
    bytes: usize,
) -> Result<Option<Vec<StoredChange>>, StoreError> {
    let [after, next, limit, bytes] =
        [after.0, after.0.saturating_add(1), limit as u64, bytes.max(1) as u64].map(rows::number);
    let rows = session.query(AFTER, &[&after, &next, &limit, &bytes]).await?;
    let mut page = ChangePage::default();
    for change in &rows {
        if !row::get::<bool>(change, 0)? {
            return Ok(None);
        }
        // An empty page is one row without a change.
        if row::get::<Option<i64>>(change, 1)?.is_some() && !page.add(read_change(change, 1))? {
            break;
        }
    }
    Ok(Some(page.into_changes()))
}

/// Reads changes before a number, newest first.
pub(super) async fn before(
    session: &Session,
    before: Seq,
    limit: usize,
    bytes: usize,
) -> Result<Vec<StoredChange>, StoreError> {
    let [before, limit, bytes] = [before.0, limit as u64, bytes.max(1) as u64].map(rows::number);
    let rows = session.query(BEFORE, &[&before, &limit, &bytes]).await?;
    let mut page = ChangePage::default();
    for change in &rows {
        if !page.add(read_change(change, 0))? {
            break;
        }
    }
    Ok(page.into_changes())
}

/// Returns the newest number before `seq` if a restore skipped the numbers between the two.
pub(super) async fn before_restore(session: &Session, seq: Seq) -> Result<Option<Seq>, StoreError> {
    let sql = "SELECT head FROM restores WHERE head < $1 AND floor >= $1 - 1 ORDER BY head LIMIT 1";
    let head = session.query_opt(sql, &[&rows::number(seq.0)]).await?;
    head.map(|head| row::seq(&head, 0)).transpose()
}

/// Reads the change with this identifier.
pub(super) async fn by_id(session: &Session, id: ChangeId) -> Result<Option<StoredChange>, StoreError> {
    let sql = "SELECT seq, checksum, json, visibility FROM changes WHERE id = $1";
    let change = session.query_opt(sql, &[&id.uuid()]).await?;
    change.map(|change| read_change(&change, 0)).transpose()
}

/// Reads a change and verifies its checksum, so that no reader gets a damaged change. The first of the columns is at
/// `index`.
fn read_change(change: &Row, index: usize) -> Result<StoredChange, StoreError> {
    let (seq, json): (i64, &str) = (row::get(change, index)?, row::get(change, index + 2)?);
    let visibility: Option<&str> = row::get(change, index + 3)?;
    let visibility = visibility.map(|visibility| Bytes::copy_from_slice(visibility.as_bytes()));
    let json = Bytes::copy_from_slice(json.as_bytes());
    rows::check(StoredChange { seq: rows::seq(seq)?, json, visibility }, row::get(change, index + 1)?)
}

/// Returns the time of the server.
pub(super) async fn now(session: &Session) -> Result<Timestamp, StoreError> {
    rows::time(row::get(&session.query_one(NOW, &[]).await?, 0)?)
}

/// Returns the number of the oldest change.
pub(super) async fn first(session: &Session) -> Result<Option<Seq>, StoreError> {
    let first = session.query_opt(FIRST, &[]).await?;
    first.map(|first| row::seq(&first, 0)).transpose()
}

/// Returns the first change received at `time` or later. Numbers and times of receipt increase together, so a
/// binary search finds the change without an index of the times.
pub(super) async fn first_since(session: &Session, time: Timestamp) -> Result<Option<Seq>, StoreError> {
    in_snapshot(session, async |session| {
        let (Some(first), Some(newest)) = (first(session).await?, session.query_opt(NEWEST, &[]).await?) else {
            return Ok(None);
        };
        if row::time(&newest, 1)? < time {
            return Ok(None);
        }
        let sql = "SELECT received FROM changes WHERE seq >= $1 ORDER BY seq LIMIT 1";
        let (mut low, mut high) = (rows::number(first.0), row::get::<i64>(&newest, 0)?);
        while low < high {
            let middle = low + (high - low) / 2;
            let received: i64 = row::get(&session.query_one(sql, &[&middle]).await?, 0)?;
            if received < time.millis() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        rows::seq(low).map(Some)
    })
    .await
}

/// Returns the number of the first of the newest `count` changes.
pub(super) async fn first_of_newest(session: &Session, count: u64) -> Result<Option<Seq>, StoreError> {
    in_snapshot(session, async |session| {
        let Some(newest) = session.query_opt(NEWEST, &[]).await? else { return Ok(None) };
        Ok(Some(first_of(row::seq(&newest, 0)?, &restores(session).await?, count)))
    })
    .await
}

/// Computes the number of the first of the newest `count` changes. Only restores, which are in order from the newest,
/// leave gaps in the numbering.
pub(super) fn first_of(mut newest: Seq, restores: &[(Seq, Seq)], count: u64) -> Seq {
    let mut older = count.saturating_sub(1);
    for (head, floor) in restores {
        let since_restore = newest.0.saturating_sub(floor.0);
        if older < since_restore {
            break;
        }
        older -= since_restore;
        newest = newest.min(*head);
    }
    Seq(newest.0.saturating_sub(older))
}
