//! Transactions of the writing session, and the exactly known outcome of their commits.
//!
//! A store has one writing session. Each of its transactions writes a new identifier to the store's own row of
//! `writers`. If the connection is lost during a commit, a new session reads that row. It waits for the row lock of the
//! old session, and so sees its end: the row either has the identifier, or will never have it, because the server ends
//! an abandoned transaction. Only the thread that had the unknown outcome writes that row, so it asks before it begins
//! another transaction.

use std::{
    sync::MutexGuard,
    time::{Duration, Instant},
};

use futures_util::future::join3;
use uuid::Uuid;

use super::{
    PostgresStore,
    connection::{Connector, STABLE_PLANS, Session},
    nodes,
    records::prepare_all,
    transaction::STATEMENTS,
    value::Value,
};
use crate::{
    journal::{
        nodes::Term,
        store::{CommitError, CommitId, StoreError},
    },
    retry::Backoff,
};

/// Maximum time of one call, in addition to connecting: somewhat more than the server's own limits.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(20);

/// Maximum time to find out whether a transaction other than a batch was committed. Callers wait for 20 seconds by
/// default.
const OUTCOME_LIMIT: Duration = Duration::from_secs(30);

/// Waits between two attempts to find out.
const OUTCOME_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));

const MARK: &str = "INSERT INTO writers (node, transaction, written) VALUES ($1, $2, clock_timestamp())
    ON CONFLICT (node) DO UPDATE SET transaction = excluded.transaction, written = excluded.written";

/// Query for the last transaction of a store. It writes the row, so that it waits for a session that has locked the
/// row, and its commit waits until a synchronous standby has everything before it.
const LAST_TRANSACTION: &str = "INSERT INTO writers AS stored (node, transaction, written)
    VALUES ($1, '00000000-0000-0000-0000-000000000000', clock_timestamp())
    ON CONFLICT (node) DO UPDATE SET written = excluded.written RETURNING stored.transaction";

/// The writing session.
#[derive(Default)]
pub(super) struct WriteSide {
    session: Option<Session>,
}

/// An open transaction on the writing session, which it locks until it ends. Dropping it rolls it back.
pub(super) struct WriteTransaction<'s> {
    store: &'s PostgresStore,
    side: MutexGuard<'s, WriteSide>,
    id: CommitId,
    /// Whether a statement has failed, after which the server would execute a commit as a rollback, without an error.
    has_failed: bool,
    is_open: bool,
}

impl<'s> WriteTransaction<'s> {
    /// Begins a transaction, and runs its first statements together with `BEGIN` in one round trip. If the session
    /// was lost since its last use, begins again over a new one.
    #[expect(clippy::needless_pass_by_value, reason = "callers pass a closure")]
    pub(super) fn begin<T>(
        store: &'s PostgresStore,
        first: impl AsyncFn(&Session) -> Result<T, StoreError>,
    ) -> Result<(Self, T), StoreError> {
        store.explain(Self::try_begin(store, &first))
    }

    fn try_begin<T>(
        store: &'s PostgresStore,
        first: &impl AsyncFn(&Session) -> Result<T, StoreError>,
    ) -> Result<(Self, T), StoreError> {
        let mut side = store.write_side();
        let id = CommitId::mint();
        let is_new = side.session.as_ref().is_none_or(Session::is_closed);
        if is_new {
            side.session = Some(connect(store)?);
        }
        let mut begun = begin_on(store, &side, id, first);
        let was_silent = side.session.as_ref().is_some_and(Session::was_silent);
        if !is_new && !was_silent && matches!(begun, Err(StoreError::Unavailable(_))) {
            side.session = Some(connect(store)?);
            begun = begin_on(store, &side, id, first);
        }
        match begun {
            Ok(read) => Ok((Self { store, side, id, has_failed: false, is_open: true }, read)),
            Err(error) => {
                // The transaction may be open, so the session cannot be used again.
                side.session = None;
                Err(error)
            }
        }
    }

    /// Runs statements of the transaction.
    pub(super) fn run<T>(
        &mut self,
        work: impl AsyncFnOnce(&Session) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let session = self.side.session.as_ref().ok_or_else(not_open)?;
        let result = self.store.driver.run(CALL_LIMIT, session.attended(work(session)));
        let result = self.store.explain(result);
        self.has_failed |= result.is_err();
        if matches!(result, Err(StoreError::Unavailable(_))) {
            // A statement may still be running, so the session cannot be used again.
            self.side.session = None;
            self.is_open = false;
        }
        result
    }

    /// Commits.
    ///
    /// # Errors
    /// The outcome is unknown after a lost connection, and after a commit that did not reach the synchronous standby.
    pub(super) fn commit(mut self) -> Result<(), CommitError> {
        if self.has_failed {
            return Err(StoreError::Refused("a statement of the transaction has failed".to_owned()).into());
        }
        let session = self.side.session.as_ref().ok_or_else(not_open)?;
        self.is_open = false;
        let before = session.unreplicated_commits();
        let error = match self.store.driver.run(CALL_LIMIT, session.attended(session.run("COMMIT"))) {
            Ok(()) if session.unreplicated_commits() == before => return Ok(()),
            // Without the standby the commit is not durable yet, although the server reports success.
            Ok(()) => StoreError::Unavailable("a commit did not reach the synchronous standby".to_owned()),
            Err(error) => error,
        };
        self.side.session = None;
        match error {
            // The server rolls back. Asking would fail too, because it writes.
            StoreError::Full => Err(CommitError::Failed(error)),
            error => Err(CommitError::Unknown(self.id, error)),
        }
    }
}

impl Drop for WriteTransaction<'_> {
    fn drop(&mut self) {
        if !self.is_open {
            return;
        }
        let Some(session) = self.side.session.as_ref() else { return };
        if let Err(error) = self.store.driver.run(CALL_LIMIT, session.attended(session.run("ROLLBACK"))) {
            tracing::warn!(%error, "cannot roll back a transaction of the journal; its connection is closed instead");
            self.side.session = None;
        }
    }
}

impl PostgresStore {
    /// Executes a transaction other than that of a batch, for a duty if there is a term.
    pub(super) fn write_under<T>(
        &self,
        term: Option<Term>,
        work: impl AsyncFn(&Session) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.write(async move |session| {
            nodes::lock_term(session, term).await?;
            work(session).await
        })
    }

    /// Executes a transaction other than that of a batch. If the outcome is unknown, finds it out before it returns,
    /// and executes the transaction again if it was not committed.
    #[expect(clippy::needless_pass_by_value, reason = "callers pass a closure")]
    pub(super) fn write<T>(&self, work: impl AsyncFn(&Session) -> Result<T, StoreError>) -> Result<T, StoreError> {
        loop {
            let (mut transaction, ()) = WriteTransaction::begin(self, async |_| Ok(()))?;
            let result = transaction.run(&work)?;
            let (commit, error) = match transaction.commit() {
                Ok(()) => return Ok(result),
                Err(CommitError::Failed(error)) => return Err(error),
                Err(CommitError::Unknown(commit, error)) => (commit, error),
            };
            tracing::warn!(%error, "the outcome of a commit is unknown; asking the journal's database for it");
            if self.find_outcome(commit)? {
                return Ok(result);
            }
        }
    }

    fn find_outcome(&self, commit: CommitId) -> Result<bool, StoreError> {
        let (began, mut backoff) = (Instant::now(), OUTCOME_BACKOFF);
        loop {
            match self.last_commit_is(commit) {
                Err(error) if error.is_transient() && began.elapsed() < OUTCOME_LIMIT => {
                    std::thread::sleep(backoff.next_wait());
                }
                outcome => return outcome.map_err(|error| CommitError::Unknown(commit, error).into()),
            }
        }
    }

    /// Returns whether the last transaction of this store that was committed is this one.
    pub(super) fn last_commit_is(&self, commit: CommitId) -> Result<bool, StoreError> {
        let last: Uuid = self.driver.run(CALL_LIMIT, async {
            let session = open_session(&self.connector).await?;
            let before = session.unreplicated_commits();
            let row = session.query_one(LAST_TRANSACTION, &[&self.node]).await?;
            if session.unreplicated_commits() != before {
                return Err(StoreError::Unavailable("the synchronous standby does not respond".to_owned()));
            }
            super::row::get(&row, 0)
        })?;
        Ok(last == commit.uuid())
    }
}

pub(super) fn not_open() -> StoreError {
    StoreError::Unavailable("the connection is closed".to_owned())
}

fn connect(store: &PostgresStore) -> Result<Session, StoreError> {
    store.driver.run(CALL_LIMIT, async {
        let session = open_session(&store.connector).await?;
        session.prepare(&[MARK]).await?;
        session.prepare(STATEMENTS).await?;
        prepare_all(&session).await?;
        Ok(session)
    })
}

async fn open_session(connector: &Connector) -> Result<Session, StoreError> {
    let session = connector.connect().await?;
    session.run(STABLE_PLANS).await?;
    Ok(session)
}

fn begin_on<T>(
    store: &PostgresStore,
    side: &WriteSide,
    id: CommitId,
    first: &impl AsyncFn(&Session) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let session = side.session.as_ref().ok_or_else(not_open)?;
    store.driver.run(CALL_LIMIT, async {
        // Polled in this order, and therefore sent in this order. The rows that `first` locks are locked before the
        // row of `writers`.
        let id = id.uuid();
        let values: [Value<'_>; 2] = [&store.node, &id];
        let mark = session.execute(MARK, &values);
        let begin = join3(session.run("BEGIN"), first(session), mark);
        let begin = async {
            let (begun, read, marked) = begin.await;
            begun?;
            let read = read?;
            marked?;
            Ok(read)
        };
        session.attended(begin).await
    })
}
