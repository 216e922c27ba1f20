//! Runtime of the database connections, and the wait of a blocking caller for them.
//!
//! [`Store`](super::super::Store) is blocking and its callers are threads, while `tokio-postgres` is asynchronous. The
//! sync crate `postgres` would hide this, but it polls a connection only during a call, so that it notices a lost
//! connection or a warning late, and it cannot send several statements in one round trip. This runtime has one thread,
//! which drives all connections; the callers poll their own queries, so a query costs no extra task.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use tokio::runtime::{Builder, Runtime};

use crate::journal::store::StoreError;

/// Runtime that drives the connections of one store.
pub(super) struct Driver {
    /// `None` only while the driver is dropped.
    runtime: Option<Runtime>,
}

impl Driver {
    pub(super) fn new() -> std::io::Result<Self> {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("journal-postgres").enable_all().build()?;
        Ok(Self { runtime: Some(runtime) })
    }

    /// Waits until the future is ready, at most for `limit`. The call works on any thread, even within another runtime.
    pub(super) fn run<T>(
        &self,
        limit: Duration,
        future: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let _context = self.runtime.as_ref().map(Runtime::enter);
        // Unconstrained, because a task of another runtime would never get a new budget while it waits here.
        let bounded = tokio::task::unconstrained(async { tokio::time::timeout(limit, future).await });
        block_on(bounded).unwrap_or_else(|_| {
            Err(StoreError::Unavailable(format!("the database did not answer within {} seconds", limit.as_secs())))
        })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Unlike the default, this works within another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Waker of a parked thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Driver, StoreError};

    #[test]
    fn a_wait_is_bounded_and_works_within_a_runtime() {
        let outer = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        outer.block_on(async {
            let driver = Driver::new().unwrap();
            let one = driver.run(Duration::from_secs(9), async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                Ok(1)
            });
            assert_eq!(one.unwrap(), 1);
            let never = driver.run(Duration::from_millis(1), std::future::pending::<Result<(), _>>());
            assert!(matches!(never, Err(StoreError::Unavailable(_))));
        });
    }
}
