//! Watch on the writes of other nodes: notifications, and a poll, because a notification is not stored and may be lost.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{PostgresStore, connection::Session, row, timeline, writing::CALL_LIMIT};
use crate::{
    journal::store::{JournalState, StateWatch, StoreError},
    model::Seq,
    retry::Backoff,
};

/// Maximum time between two reads of the state.
const POLL: Duration = Duration::from_millis(400);

/// Minimum time between two reads of the state. Without it, a node would read once for each batch of every other node.
const REST: Duration = Duration::from_millis(10);

/// Waits between attempts to connect.
const RECONNECT: Backoff = Backoff::new(POLL, Duration::from_secs(5));

/// Query for the state. One statement has one snapshot.
const STATE: &str = concat!(
    "SELECT identity, head, seeds, ",
    timeline::is_same_journal!(),
    ", (SELECT seq FROM changes ORDER BY seq LIMIT 1),
        ARRAY(SELECT head FROM restores ORDER BY head), ARRAY(SELECT floor FROM restores ORDER BY head)
    FROM journal_head"
);

/// A watch with a connection of its own, because a listening session must not wait in a transaction.
pub(super) struct PostgresWatch<'s> {
    store: &'s PostgresStore,
    stop: CancellationToken,
    session: Option<Session>,
    backoff: Backoff,
    /// Maximum time of the next wait.
    pause: Duration,
}

impl<'s> PostgresWatch<'s> {
    pub(super) fn new(store: &'s PostgresStore, stop: CancellationToken) -> Self {
        Self { store, stop, session: None, backoff: RECONNECT, pause: Duration::ZERO }
    }

    /// Waits for a notification, or until the time for the next poll or reconnection.
    fn wait(&self) -> Result<(), StoreError> {
        let Self { session, stop, pause, .. } = self;
        self.store.driver.run(*pause + CALL_LIMIT, async {
            let notified = async {
                match session {
                    Some(session) => {
                        tokio::time::sleep(REST).await;
                        session.notified().await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = notified => Ok(()),
                () = tokio::time::sleep(*pause) => Ok(()),
                () = stop.cancelled() => Err(StoreError::Unavailable("the gateway is stopping".to_owned())),
            }
        })
    }

    fn read(&mut self) -> Result<JournalState, StoreError> {
        let store = self.store;
        if self.session.is_none() {
            let session = store.driver.run(CALL_LIMIT, async {
                let session = store.connector.connect().await?;
                // First listen, then read: otherwise a change between the two would wait for the next poll.
                session.run("LISTEN tidings").await?;
                Ok(session)
            })?;
            self.session = Some(session);
        }
        let Some(session) = &self.session else { return Err(super::writing::not_open()) };
        let state = store.driver.run(CALL_LIMIT, session.attended(read(session)))?;
        let state = if state.is_same_journal {
            state
        } else {
            timeline::adopt(store)?;
            store.driver.run(CALL_LIMIT, session.attended(read(session)))?
        };
        store.set_identity(state.journal.identity);
        store.note_seeds(state.seeds);
        Ok(state.journal)
    }
}

impl StateWatch for PostgresWatch<'_> {
    fn next(&mut self) -> Result<JournalState, StoreError> {
        self.wait()?;
        let state = self.store.explain(self.read());
        if state.is_ok() {
            self.backoff.reset();
            self.pause = POLL;
        } else {
            self.session = None;
            self.pause = self.backoff.next_wait();
        }
        state
    }
}

struct StoredState {
    seeds: i64,
    is_same_journal: bool,
    journal: JournalState,
}

async fn read(session: &Session) -> Result<StoredState, StoreError> {
    let state = session.query_one(STATE, &[]).await?;
    let first: Option<i64> = row::get(&state, 4)?;
    let (heads, floors): (Vec<i64>, Vec<i64>) = (row::get(&state, 5)?, row::get(&state, 6)?);
    let number = crate::journal::store::rows::seq;
    let ranges = heads.into_iter().zip(floors).map(|(head, floor)| Ok((number(head)?, number(floor)?)));
    let journal = JournalState {
        identity: row::get(&state, 0)?,
        head: row::seq(&state, 1)?,
        first: first.map(number).transpose()?.filter(|first| *first != Seq::ZERO),
        skipped_ranges: ranges.collect::<Result<_, StoreError>>()?,
    };
    Ok(StoredState { seeds: row::get(&state, 2)?, is_same_journal: row::get(&state, 3)?, journal })
}
