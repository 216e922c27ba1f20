//! Writing of the tables `quarantine` and `quarantine_size`.

use tokio_postgres::Row;

use super::{connection::Session, records::query_all, row};
use crate::journal::{
    quarantine::{NewQuarantinedMessage, QuarantineId, QuarantineSize},
    store::{
        QuarantineReceipt, StoreError, StoreLimits,
        records::{Statement, quarantine},
        rows,
        shares::{Eviction, QuarantineShares},
    },
};

/// Query for the size of the quarantine, which locks it, so that writers take turns and the order of the identifiers
/// is that of the commits.
const LOCK_SIZE: &str = "SELECT messages, bytes FROM quarantine_size FOR UPDATE";

const SIZE: &str = "SELECT messages, bytes FROM quarantine_size";

const SET_SIZE: &str = "UPDATE quarantine_size SET messages = $1, bytes = $2";

/// Inserts messages, and drops messages beyond the limits: the oldest of the source with the most first. The number of round
/// trips depends on the bytes of the new messages alone.
pub(super) async fn put(
    session: &Session,
    limits: StoreLimits,
    messages: &[NewQuarantinedMessage],
) -> Result<QuarantineReceipt, StoreError> {
    let mut size = read_size(&session.query_one(LOCK_SIZE, &[]).await?)?;
    let statements = messages.iter().map(quarantine::insert).collect::<Result<Vec<_>, _>>()?;
    let inserted = query_all(session, &statements).await?;
    let ids = inserted.iter().flatten().map(|row| quarantine::read_id(row)).collect::<Result<Vec<_>, _>>()?;
    size.messages += messages.len() as u64;
    size.bytes += messages.iter().map(|message| message.body.len() as u64).sum::<u64>();
    let mut dropped = 0;
    if let Some(newest) = ids.last().filter(|_| size.exceeds(limits)) {
        for bytes in make_room(session, limits, *newest).await? {
            size.remove(bytes);
            dropped += 1;
        }
    }
    write_size(session, size).await?;
    Ok(QuarantineReceipt { ids, dropped })
}

/// Removes messages until the size is within the limits; returns the sizes of the removed messages.
async fn make_room(session: &Session, limits: StoreLimits, newest: QuarantineId) -> Result<Vec<u64>, StoreError> {
    let mut shares = QuarantineShares::default();
    for found in rows_of(session, quarantine::shares()).await? {
        quarantine::read_share(&found, &mut shares)?;
    }
    let mut eviction = Eviction::new(limits, &shares, newest);
    while let Some(query) = eviction.choose() {
        let oldest = rows_of(session, quarantine::oldest(&query)).await?;
        eviction.add(&query.source, oldest.iter().map(|row| quarantine::read_oldest(row)).collect::<Result<_, _>>()?);
    }
    let statements: Vec<_> = eviction.chosen().into_iter().map(quarantine::delete).collect();
    let removed = query_all(session, &statements).await?;
    removed.iter().flatten().map(|row| Ok(quarantine::read_removed(row)?.1)).collect()
}

async fn rows_of(session: &Session, query: Statement<'_>) -> Result<Vec<Row>, StoreError> {
    Ok(query_all(session, &[query]).await?.into_iter().flatten().collect())
}

fn read_size(size: &Row) -> Result<QuarantineSize, StoreError> {
    Ok(QuarantineSize { messages: row::unsigned(size, 0)?, bytes: row::unsigned(size, 1)? })
}

async fn write_size(session: &Session, size: QuarantineSize) -> Result<(), StoreError> {
    session.execute(SET_SIZE, &[&rows::number(size.messages), &rows::number(size.bytes)]).await.map(drop)
}

/// Returns the size of the quarantine.
pub(super) async fn size(session: &Session) -> Result<QuarantineSize, StoreError> {
    read_size(&session.query_one(SIZE, &[]).await?)
}

/// Removes a message; returns whether there was one.
pub(super) async fn remove(session: &Session, id: QuarantineId) -> Result<bool, StoreError> {
    let mut size = read_size(&session.query_one(LOCK_SIZE, &[]).await?)?;
    let Some(removed) = rows_of(session, quarantine::delete(id)).await?.pop() else { return Ok(false) };
    size.remove(quarantine::read_removed(&removed)?.1);
    write_size(session, size).await?;
    Ok(true)
}
