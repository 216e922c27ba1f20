//! Losses of the newest changes: the numbering after a standby was promoted, or a dump was restored.
//!
//! A promoted standby has a new timeline, and so has a server after point-in-time recovery. With asynchronous replication
//! it may lack the newest changes, which readers have seen. The tables of a restored dump have other identifiers than
//! those that were dumped. In both cases the journal continues as after a restore from a backup: it skips all numbers
//! that may be lost, under a new identity.

use uuid::Uuid;

use super::{PostgresStore, row};
use crate::{
    journal::store::{StoreError, numbering},
    model::Timestamp,
};

/// Query for whether another server, or another table, has written the head.
pub(super) const IS_FOREIGN: &str = "SELECT timeline <> substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
        OR origin <> (SELECT system_identifier FROM pg_control_system()) || '/' || tableoid
    FROM journal_head";

/// Statement that adopts the server and the table; it affects no row if another node was faster.
const ADOPT: &str =
    "UPDATE journal_head SET identity = $1, timeline = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8),
        origin = (SELECT system_identifier FROM pg_control_system()) || '/' || tableoid
    WHERE timeline <> substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
        OR origin <> (SELECT system_identifier FROM pg_control_system()) || '/' || tableoid
    RETURNING head, greatest(head, (SELECT max(floor) FROM restores))";

const SKIP: &str = "INSERT INTO restores (head, floor) VALUES ($1, $2)
    ON CONFLICT (head) DO UPDATE SET floor = excluded.floor";

const IDENTITY: &str = "SELECT identity FROM journal_head";

/// Skips the numbers that the former server may have given after the head. The transaction has no entry in `writers`,
/// because it has no effect if it is repeated.
pub(super) fn adopt(store: &PostgresStore) -> Result<(), StoreError> {
    let (identity, adopted) = store.read(async |session| {
        session.run("BEGIN").await?;
        let adopted = session.query_opt(ADOPT, &[&Uuid::new_v4()]).await?;
        let adopted = match &adopted {
            Some(adopted) => {
                let (head, given): (i64, i64) = (row::get(adopted, 0)?, row::get(adopted, 1)?);
                let floor = numbering::floor_after_loss(given, Timestamp::now());
                session.execute(SKIP, &[&head, &floor]).await?;
                Some((head, floor))
            }
            None => None,
        };
        let identity: Uuid = row::get(&session.query_one(IDENTITY, &[]).await?, 0)?;
        session.run("COMMIT").await?;
        Ok((identity, adopted))
    })?;
    store.set_identity(identity);
    if let Some((head, floor)) = adopted {
        tracing::warn!(
            seq = head,
            floor,
            "the journal's database is a promoted standby, or was restored from a backup; numbers are skipped and the \
             journal has a new identity, because changes after the newest one may be lost"
        );
    }
    Ok(())
}
