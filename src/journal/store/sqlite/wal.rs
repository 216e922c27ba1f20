//! Checkpoints of the write-ahead log, which move its pages into the journal's file.
//!
//! By default, SQLite checkpoints within the commit that makes the log too long, and this commit then waits for a
//! sync of the whole file. This module runs checkpoints on another thread and connection instead, beside the
//! appends. A checkpoint within a commit remains at a higher limit, which bounds the log if the thread cannot keep
//! up.
//!
//! A long read transaction, such as a backup, prevents a complete checkpoint, so the log cannot restart at its
//! beginning and its file grows. After the reader has ended, the next checkpoint moves the whole log, and the
//! commit after that truncates the file.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rusqlite::{Connection, hooks::Wal};

use crate::journal::store::StoreError;

/// Number of new pages after which a checkpoint is due: 32 MiB of pages of 8 KiB.
const DUE: u64 = 4096;

/// Number of new pages after which a checkpoint is due if a reader prevented the last one from completing: 2 MiB.
const DUE_BEHIND_READER: u64 = 256;

/// Time after which a checkpoint that failed is due again.
const RETRY: Duration = Duration::from_secs(1);

/// Number of pages in the log from which on every commit attempts a checkpoint: 128 MiB.
pub(super) const CHECKPOINT_IN_COMMIT: i32 = 16_384;

/// Size in bytes to which SQLite truncates the file of the log when the log restarts at its beginning.
const MAX_FILE_BYTES: i64 = 64 * 1024 * 1024;

/// The write-ahead log.
pub(super) struct WriteAheadLog {
    connection: Mutex<Connection>,
    growth: Arc<Mutex<Growth>>,
}

/// Growth of the log since the last checkpoint.
struct Growth {
    /// Number of pages in the log after the newest commit.
    pages: u64,
    /// Number of pages in the log at the last checkpoint.
    at_checkpoint: u64,
    /// Number of new pages after which the next checkpoint is due.
    due: u64,
    /// Time of the last checkpoint, if it failed.
    failed: Option<Instant>,
}

impl WriteAheadLog {
    /// Creates the checkpointer: `connection` runs the checkpoints, and a hook on `writer` counts the pages of its
    /// commits.
    pub(super) fn new(connection: Connection, writer: &mut Connection) -> rusqlite::Result<Self> {
        let growth = Arc::new(Mutex::new(Growth { pages: 0, at_checkpoint: 0, due: DUE, failed: None }));
        let hook_growth = Arc::clone(&growth);
        writer.pragma_update(None, "journal_size_limit", MAX_FILE_BYTES)?;
        writer.wal_hook(Some(move |wal: &mut Wal, pages| {
            lock(&hook_growth).record_commit(u64::try_from(pages).unwrap_or_default());
            if pages >= CHECKPOINT_IN_COMMIT {
                // A failure does not affect the commit, and the next commit retries.
                let _ = wal.checkpoint();
            }
            Ok(())
        }))?;
        Ok(Self { connection: Mutex::new(connection), growth })
    }

    /// Returns the number of pages added since the last checkpoint.
    pub(super) fn pages_since_checkpoint(&self) -> u64 {
        lock(&self.growth).since_checkpoint()
    }

    pub(super) fn is_checkpoint_due(&self) -> bool {
        let growth = lock(&self.growth);
        growth.since_checkpoint() >= growth.due && growth.failed.is_none_or(|failed| failed.elapsed() >= RETRY)
    }

    /// Moves all pages that no reader still needs in the log.
    pub(super) fn checkpoint(&self) -> Result<(), StoreError> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let moved = connection
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)));
        let mut growth = lock(&self.growth);
        match moved {
            Ok((pages, moved)) => {
                growth.record_checkpoint(pages, moved);
                Ok(())
            }
            Err(error) => {
                growth.failed = Some(Instant::now());
                Err(error.into())
            }
        }
    }
}

impl Growth {
    fn record_commit(&mut self, pages: u64) {
        if pages < self.pages {
            // The log has restarted at its beginning.
            self.at_checkpoint = 0;
            self.due = DUE;
        }
        self.pages = pages;
    }

    /// Records a checkpoint that moved `moved` of the `pages` in the log.
    fn record_checkpoint(&mut self, pages: i64, moved: i64) {
        // The log may have restarted since.
        self.at_checkpoint = u64::try_from(pages).unwrap_or(self.pages).min(self.pages);
        self.due = if moved < pages { DUE_BEHIND_READER } else { DUE };
        self.failed = None;
    }

    fn since_checkpoint(&self) -> u64 {
        self.pages.saturating_sub(self.at_checkpoint)
    }
}

fn lock(growth: &Mutex<Growth>) -> MutexGuard<'_, Growth> {
    growth.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rusqlite::OpenFlags;

    use super::{
        super::FILE_NAME, Connection, DUE, DUE_BEHIND_READER, Duration, Instant, MAX_FILE_BYTES, WriteAheadLog,
    };

    const PAGE: u32 = 8192;

    fn writer(folder: &Path) -> Connection {
        let writer = Connection::open(folder.join(FILE_NAME)).unwrap();
        writer.pragma_update(None, "page_size", PAGE).unwrap();
        writer.pragma_update(None, "journal_mode", "WAL").unwrap();
        writer.pragma_update(None, "synchronous", "OFF").unwrap();
        writer.execute_batch("CREATE TABLE t (x)").unwrap();
        writer
    }

    fn write(writer: &Connection, pages: u64) {
        writer
            .execute("INSERT INTO t VALUES (randomblob(?))", [pages * u64::from(PAGE)].map(u64::cast_signed))
            .unwrap();
    }

    fn connection(folder: &Path, flags: OpenFlags) -> Connection {
        Connection::open_with_flags(folder.join(FILE_NAME), flags).unwrap()
    }

    #[test]
    fn checkpoint_is_due_after_a_number_of_pages() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        let log = WriteAheadLog::new(connection(folder.path(), OpenFlags::default()), &mut writer).unwrap();
        write(&writer, DUE / 2);
        assert!(!log.is_checkpoint_due() && log.pages_since_checkpoint() > DUE / 2);
        write(&writer, DUE / 2);
        assert!(log.is_checkpoint_due());
        log.checkpoint().unwrap();
        assert!(!log.is_checkpoint_due() && log.pages_since_checkpoint() == 0);
        write(&writer, 10);
        let pages = log.pages_since_checkpoint();
        assert!((10..30).contains(&pages), "{pages}: the log restarts at its beginning");
    }

    #[test]
    fn file_of_the_log_is_truncated_after_a_long_reader() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        let log = WriteAheadLog::new(connection(folder.path(), OpenFlags::default()), &mut writer).unwrap();
        let size = || folder.path().join(format!("{FILE_NAME}-wal")).metadata().unwrap().len();
        let longest = MAX_FILE_BYTES.unsigned_abs();
        let reader = connection(folder.path(), OpenFlags::SQLITE_OPEN_READ_ONLY);
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        while size() <= longest {
            write(&writer, DUE);
            log.checkpoint().unwrap();
        }
        reader.execute_batch("COMMIT").unwrap();
        // Fewer pages are needed than without a reader, so that the file is truncated soon.
        write(&writer, DUE_BEHIND_READER);
        assert!(log.is_checkpoint_due());
        log.checkpoint().unwrap();
        write(&writer, 1);
        assert!(size() <= longest, "the file of the log has {} bytes", size());
        assert!(log.pages_since_checkpoint() < 10);
    }

    #[test]
    fn failed_checkpoint_is_due_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        let read_only = connection(folder.path(), OpenFlags::SQLITE_OPEN_READ_ONLY);
        let log = WriteAheadLog::new(read_only, &mut writer).unwrap();
        write(&writer, DUE);
        log.checkpoint().unwrap_err();
        let pages = log.pages_since_checkpoint();
        assert!(pages >= DUE, "{pages}");
        let began = Instant::now();
        while !log.is_checkpoint_due() {
            assert!(began.elapsed() < Duration::from_secs(10), "the checkpoint is not due again");
            std::thread::yield_now();
        }
        *log.connection.lock().unwrap() = connection(folder.path(), OpenFlags::default());
        log.checkpoint().unwrap();
        assert_eq!(log.pages_since_checkpoint(), 0);
    }
}
