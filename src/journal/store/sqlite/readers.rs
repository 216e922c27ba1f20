//! The pool of reading connections.

use std::sync::{Condvar, Mutex, PoisonError};

use rusqlite::Connection;

use crate::journal::store::StoreError;

/// A fixed pool of reading connections. A caller waits until a connection is idle.
pub(super) struct Readers {
    connections: Vec<Mutex<Connection>>,
    /// Indexes of the idle connections.
    idle: Mutex<Vec<usize>>,
    freed: Condvar,
}

/// Use of a reading connection. Dropping it returns the connection to the pool, also after a panic.
struct Lease<'a> {
    readers: &'a Readers,
    index: usize,
}

impl Readers {
    pub(super) fn new(connections: Vec<Connection>) -> Self {
        let idle = Mutex::new((0..connections.len()).collect());
        Self { connections: connections.into_iter().map(Mutex::new).collect(), idle, freed: Condvar::new() }
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let lease = self.lease();
        // A connection is usable after a panic, because its transaction was rolled back when it was dropped.
        let connection = self.connections[lease.index].lock().unwrap_or_else(PoisonError::into_inner);
        read(&connection)
    }

    fn lease(&self) -> Lease<'_> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(index) = idle.pop() {
                return Lease { readers: self, index };
            }
            idle = self.freed.wait(idle).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.readers.idle.lock().unwrap_or_else(PoisonError::into_inner).push(self.index);
        self.readers.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::{Arc, mpsc::channel},
        time::Duration,
    };

    use super::{Connection, Readers, StoreError};

    #[test]
    fn a_reader_that_panics_returns_its_connection() {
        let readers = Arc::new(Readers::new(vec![Connection::open_in_memory().unwrap()]));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            readers.read(|connection| -> Result<(), StoreError> {
                let _transaction = connection.unchecked_transaction()?;
                panic!("a read that panics");
            })
        }));
        assert!(panicked.is_err());
        let (done, is_done) = channel();
        std::thread::spawn(move || {
            let read = readers.read(|connection| Ok(connection.is_autocommit()));
            done.send(read.unwrap())
        });
        let is_autocommit = is_done.recv_timeout(Duration::from_secs(10)).expect("no reading connection is left");
        assert!(is_autocommit, "the transaction of the read that panicked is still open");
    }
}
