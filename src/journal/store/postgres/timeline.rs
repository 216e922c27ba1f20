//! Losses of the newest changes: the numbering after a standby was promoted, or a dump was restored.
//!
//! A promoted standby has a new timeline, and so has a server after point-in-time recovery. With asynchronous replication
//! it may lack the newest changes, which readers have seen. The tables of a restored dump have other identifiers than
//! those that were dumped. In both cases the journal continues as after a restore from a backup: it skips all numbers
//! that may be lost, under a new identity.

use uuid::Uuid;

use super::{PostgresStore, nodes, row};
use crate::{
    journal::store::{StoreError, numbering},
    model::Timestamp,
};

/// Condition for a row of `journal_head` that this server, and this table, has written.
macro_rules! is_same_journal {
    () => {
        "(timeline = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
            AND origin = (SELECT system_identifier FROM pg_control_system()) || '/' || tableoid)"
    };
}
pub(super) use is_same_journal;

/// Query for whether another server, or another table, has written the head.
pub(super) const IS_FOREIGN: &str = concat!("SELECT NOT ", is_same_journal!(), " FROM journal_head");

/// Statement that adopts the server and the table; it affects no row if another node was faster.
const ADOPT: &str = concat!(
    "WITH former AS (SELECT identity FROM journal_head)
    UPDATE journal_head SET identity = $1, timeline = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8),
        origin = (SELECT system_identifier FROM pg_control_system()) || '/' || journal_head.tableoid
    FROM former WHERE NOT ",
    is_same_journal!(),
    " RETURNING head, greatest(head, (SELECT max(floor) FROM restores)), former.identity"
);

/// Statement that skips numbers. Two losses can end at one number, if the second one has lost all changes since the first.
const SKIP: &str = "INSERT INTO restores (head, floor, identities) VALUES ($1, $2, $3) ON CONFLICT (head) DO UPDATE
    SET (floor, identities) = (excluded.floor,
        coalesce(restores.identities || ' ' || excluded.identities, restores.identities, excluded.identities))";

const IDENTITY: &str = "SELECT identity FROM journal_head";

/// Skips the numbers that the former server may have given after the head, and ends all duties. The
/// state of a duty in memory, such as the cursor of a subscription or the offsets of a source, may be from the lost part:
/// each holder takes its duty again, and reads again where to continue. The transaction has no entry in `writers`, because it
/// has no effect if it is repeated.
pub(super) fn adopt(store: &PostgresStore) -> Result<(), StoreError> {
    let (identity, adopted) = store.read(async |session| {
        session.run("BEGIN").await?;
        let adopted = session.query_opt(ADOPT, &[&Uuid::new_v4()]).await?;
        let adopted = match &adopted {
            Some(adopted) => {
                let (head, given): (i64, i64) = (row::get(adopted, 0)?, row::get(adopted, 1)?);
                let floor = numbering::floor_after_loss(given, Timestamp::now());
                let former: Uuid = row::get(adopted, 2)?;
                session.execute(SKIP, &[&head, &floor, &former.to_string()]).await?;
                session.run(nodes::FORGET).await?;
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
            "the journal's database is a promoted standby, or was restored from a backup; numbers are skipped, the \
             journal has a new identity, and all duties begin again, because changes after the newest one may be lost"
        );
    }
    Ok(())
}
