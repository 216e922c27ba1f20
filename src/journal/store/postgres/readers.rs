//! The pool of reading sessions.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, Semaphore};

use super::connection::{Connector, Session};
use crate::journal::store::StoreError;

/// Time in which readers do not try again after the server has not answered one. Without it, requests that read one after
/// the other would each wait for the silence.
const SILENCE_PAUSE: Duration = Duration::from_secs(1);

/// Maximum number of reading sessions.
const READERS: usize = 4;

/// Sessions for reading, opened on demand. A caller waits while all are in use.
pub(super) struct Readers {
    permits: Semaphore,
    idle: Mutex<Vec<Session>>,
    silence: Silence,
}

/// Silence of the server, as the readers see it.
#[derive(Default)]
struct Silence {
    /// Notified when the server has not answered a read.
    noticed: Notify,
    /// Time until which no reader tries again.
    until: Mutex<Option<Instant>>,
}

impl Silence {
    /// Fails while no reader tries again.
    fn check(&self) -> Result<(), StoreError> {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        if until.is_some_and(|until| Instant::now() < until) { Err(Self::error()) } else { Ok(()) }
    }

    /// Waits until the server has not answered a reader.
    async fn noticed(&self) -> StoreError {
        self.noticed.notified().await;
        Self::error()
    }

    fn begin(&self) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + SILENCE_PAUSE);
        self.noticed.notify_waiters();
    }

    fn end(&self) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn error() -> StoreError {
        StoreError::Unavailable("the database does not answer".to_owned())
    }
}

impl Readers {
    pub(super) fn new() -> Self {
        Self { permits: Semaphore::new(READERS), idle: Mutex::default(), silence: Silence::default() }
    }

    /// Reads over an idle session. If that session was lost since its last use, reads again over a new one. While the
    /// server is silent, fails within a third of the lease, however many callers wait.
    pub(super) async fn read<T>(
        &self,
        connector: &Connector,
        read: impl AsyncFn(&Session) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.silence.check()?;
        let _permit = tokio::select! {
            permit = self.permits.acquire() => permit.map_err(|error| StoreError::Unavailable(error.to_string()))?,
            error = self.silence.noticed() => return Err(error),
        };
        let idle = self.idle().pop();
        if let Some(session) = idle.filter(|session| !session.is_closed()) {
            match session.attended(read(&session)).await {
                Err(StoreError::Unavailable(_)) if !session.was_silent() => {}
                result => return self.give_back(session, result),
            }
        }
        let began = Instant::now();
        let session = connector.connect().await.inspect_err(|_| {
            // A refusal comes at once, and needs no pause.
            if began.elapsed() >= SILENCE_PAUSE {
                self.silence.begin();
            }
        })?;
        let result = session.attended(read(&session)).await;
        self.give_back(session, result)
    }

    /// Keeps the session unless the read failed, because a failed read may have left a transaction open.
    fn give_back<T>(&self, session: Session, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if result.is_ok() {
            self.silence.end();
            self.idle().push(session);
        } else if session.was_silent() {
            self.silence.begin();
        }
        result
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads in a transaction, so that all queries have the same snapshot.
pub(super) async fn in_snapshot<T>(
    session: &Session,
    read: impl AsyncFn(&Session) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    session.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    let result = read(session).await?;
    session.run("COMMIT").await?;
    Ok(result)
}
