//! The pool of reading sessions.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

use super::connection::{Connector, Session};
use crate::journal::store::StoreError;

/// Maximum number of reading sessions.
const READERS: usize = 4;

/// Sessions for reading, opened on demand. A caller waits while all are in use.
pub(super) struct Readers {
    permits: Semaphore,
    idle: Mutex<Vec<Session>>,
}

impl Readers {
    pub(super) fn new() -> Self {
        Self { permits: Semaphore::new(READERS), idle: Mutex::default() }
    }

    /// Reads over an idle session. If that fails because the session was lost since its last use, reads again over a
    /// new one.
    pub(super) async fn read<T>(
        &self,
        connector: &Connector,
        read: impl AsyncFn(&Session) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let _permit = self.permits.acquire().await.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let idle = self.idle().pop();
        if let Some(session) = idle.filter(|session| !session.is_closed()) {
            match read(&session).await {
                Err(StoreError::Unavailable(_)) => {}
                result => return self.give_back(session, result),
            }
        }
        let session = connector.connect().await?;
        let result = read(&session).await;
        self.give_back(session, result)
    }

    /// Keeps the session unless the read failed, because a failed read may have left a transaction open.
    fn give_back<T>(&self, session: Session, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if result.is_ok() {
            self.idle().push(session);
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
