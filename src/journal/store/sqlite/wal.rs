//! Moving what was written from the write-ahead log into the file, beside the appends.
//!
//! SQLite does this itself, within the commit that makes the log too long: that commit, and who waits
//! for it, then waits for the whole file to be synced. Here another thread does it over another
//! connection, while appends go on. A checkpoint within a commit remains, further out, so that the log is bounded
//! if this does not keep up.
//!
//! A long reader, as a backup is, keeps the log from being moved, and so from starting again at its beginning: its file
//! grows. After the reader has ended, the next checkpoint moves the whole log, and the commit after that cuts the file.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rusqlite::{Connection, hooks::Wal};

use crate::journal::store::StoreError;

/// Number of new pages after which a checkpoint is due: 32 MiB of pages of 8 KiB.
const DUE: u64 = 4096;

/// Number of new pages after which a checkpoint is due where a reader held the last one back: 2 MiB.
const DUE_BEHIND_READER: u64 = 256;

/// Time after which a checkpoint that failed is due again.
const RETRY: Duration = Duration::from_secs(1);

/// Number of pages in the log from which on every commit tries a checkpoint: 128 MiB.
pub(super) const LIMIT: i32 = 16_384;

/// Size in bytes to which SQLite cuts the file of the log when the log starts again at its beginning.
const LONGEST_FILE: i64 = 64 * 1024 * 1024;

/// The write-ahead log.
pub(super) struct Log {
    connection: Mutex<Connection>,
    growth: Arc<Mutex<Growth>>,
}

/// How far the log has grown since the last checkpoint.
struct Growth {
    /// Pages in the log after the newest commit.
    pages: u64,
    /// Pages in the log at the last checkpoint.
    at_checkpoint: u64,
    /// Number of new pages after which the next checkpoint is due.
    due: u64,
    /// Time of the last checkpoint, if it failed.
    failed: Option<Instant>,
}

impl Log {
    /// Moves the log over `connection`, and counts what `writer` adds to it.
    pub(super) fn new(connection: Connection, writer: &mut Connection) -> rusqlite::Result<Self> {
        let growth = Arc::new(Mutex::new(Growth { pages: 0, at_checkpoint: 0, due: DUE, failed: None }));
        let counted = Arc::clone(&growth);
        writer.pragma_update(None, "journal_size_limit", LONGEST_FILE)?;
        writer.wal_hook(Some(move |log: &mut Wal, pages| {
            lock(&counted).committed(u64::try_from(pages).unwrap_or_default());
            if pages >= LIMIT {
                // The commit stands whatever becomes of this, and the next commit tries again.
                let _ = log.checkpoint();
            }
            Ok(())
        }))?;
        Ok(Self { connection: Mutex::new(connection), growth })
    }

    /// Number of pages that were added since the last checkpoint.
    pub(super) fn grown(&self) -> u64 {
        lock(&self.growth).grown()
    }

    pub(super) fn is_due(&self) -> bool {
        let growth = lock(&self.growth);
        growth.grown() >= growth.due && growth.failed.is_none_or(|failed| failed.elapsed() >= RETRY)
    }

    /// Moves as much as no reader still needs where it is.
    pub(super) fn checkpoint(&self) -> Result<(), StoreError> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let moved = connection
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)));
        let mut growth = lock(&self.growth);
        match moved {
            Ok((pages, moved)) => {
                growth.moved(pages, moved);
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
    fn committed(&mut self, pages: u64) {
        if pages < self.pages {
            // The log has started again at its beginning.
            self.at_checkpoint = 0;
            self.due = DUE;
        }
        self.pages = pages;
    }

    /// A checkpoint has moved `moved` of the `pages` in the log.
    fn moved(&mut self, pages: i64, moved: i64) {
        // The log may have started again since.
        self.at_checkpoint = u64::try_from(pages).unwrap_or(self.pages).min(self.pages);
        self.due = if moved < pages { DUE_BEHIND_READER } else { DUE };
        self.failed = None;
    }

    fn grown(&self) -> u64 {
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

    use super::{super::FILE_NAME, Connection, DUE, DUE_BEHIND_READER, Duration, Instant, LONGEST_FILE, Log};

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
    fn checkpoint_is_due_by_the_pages_that_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        let log = Log::new(connection(folder.path(), OpenFlags::default()), &mut writer).unwrap();
        write(&writer, DUE / 2);
        assert!(!log.is_due() && log.grown() > DUE / 2, "{}", log.grown());
        write(&writer, DUE / 2);
        assert!(log.is_due());
        log.checkpoint().unwrap();
        assert!(!log.is_due() && log.grown() == 0);
        write(&writer, 10);
        assert!((10..30).contains(&log.grown()), "{}: the log starts again at its beginning", log.grown());
    }

    #[test]
    fn file_of_the_log_is_cut_after_a_long_reader() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        let log = Log::new(connection(folder.path(), OpenFlags::default()), &mut writer).unwrap();
        let size = || folder.path().join(format!("{FILE_NAME}-wal")).metadata().unwrap().len();
        let longest = LONGEST_FILE.unsigned_abs();
        let reader = connection(folder.path(), OpenFlags::SQLITE_OPEN_READ_ONLY);
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        while size() <= longest {
            write(&writer, DUE);
            log.checkpoint().unwrap();
        }
        reader.execute_batch("COMMIT").unwrap();
        // Far less is due than without a reader, so that the file is cut soon.
        write(&writer, DUE_BEHIND_READER);
        assert!(log.is_due());
        log.checkpoint().unwrap();
        write(&writer, 1);
        assert!(size() <= longest, "the file of the log has {} bytes", size());
        assert!(log.grown() < 10);
    }

    #[test]
    fn checkpoint_that_failed_is_due_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        let read_only = connection(folder.path(), OpenFlags::SQLITE_OPEN_READ_ONLY);
        let log = Log::new(read_only, &mut writer).unwrap();
        write(&writer, DUE);
        log.checkpoint().unwrap_err();
        let grown = log.grown();
        assert!(grown >= DUE, "{grown}");
        let began = Instant::now();
        while !log.is_due() {
            assert!(began.elapsed() < Duration::from_secs(10), "it is not due again");
            std::thread::yield_now();
        }
        *log.connection.lock().unwrap() = connection(folder.path(), OpenFlags::default());
        log.checkpoint().unwrap();
        assert_eq!(log.grown(), 0);
    }
}
