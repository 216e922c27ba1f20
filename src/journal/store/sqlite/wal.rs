//! Checkpoints of the write-ahead log, which move its pages into the journal's file.
//!
//! By default, SQLite checkpoints within the commit that makes the log too long, and this commit then waits for a
//! sync of the whole file. This module runs checkpoints on another thread and connection instead, beside the
//! appends. A checkpoint within a commit remains at a higher limit, which bounds the log if the thread cannot keep
//! up.
//!
//! The log shares its disk with the journal's file, which a checkpoint extends. A checkpoint is therefore due earlier on
//! a disk with little free space, so that the log never takes the space that its own pages need in the file.
//!
//! A long read transaction, such as a backup, prevents a complete checkpoint, so the log cannot restart at its
//! beginning and its file grows. After the reader has ended, the next checkpoint moves the whole log, and the
//! commit after that truncates the file.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rusqlite::{Connection, hooks::Wal};

use crate::journal::store::StoreError;

/// Number of new pages after which a checkpoint is due: 32 MiB of pages of 8 KiB.
const DUE: u64 = 4096;

/// Part of the free space that the log may fill before a checkpoint is due: an eighth.
const SHARE_OF_FREE_SPACE: u64 = 8;

/// Size of a page, in bytes.
const PAGE_BYTES: u64 = 8192;

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
    /// Folder of the log.
    folder: PathBuf,
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
    pub(super) fn new(folder: &Path, connection: Connection, writer: &mut Connection) -> rusqlite::Result<Self> {
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
        Ok(Self { connection: Mutex::new(connection), growth, folder: folder.to_owned() })
    }

    /// Leaves the log as it is when the connection is closed last.
    pub(super) fn keep_file(&self) -> rusqlite::Result<()> {
        super::open::keep_log(&self.connection.lock().unwrap_or_else(PoisonError::into_inner), true)
    }

    /// Returns the number of pages added since the last checkpoint.
    pub(super) fn pages_since_checkpoint(&self) -> u64 {
        lock(&self.growth).since_checkpoint()
    }

    /// Returns whether the log has so many new pages that a checkpoint is due, and the last one did not just fail.
    pub(super) fn is_checkpoint_due(&self) -> bool {
        let (pages, due, failed) = {
            let growth = lock(&self.growth);
            (growth.since_checkpoint(), growth.due, growth.failed)
        };
        let is_due = pages >= due || (pages > 0 && pages >= due_in(free_bytes(&self.folder)));
        is_due && failed.is_none_or(|failed| failed.elapsed() >= RETRY)
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

/// Returns the number of pages after which a checkpoint is due on a disk with that many free bytes, if they are known.
fn due_in(free: Option<u64>) -> u64 {
    free.map_or(DUE, |free| (free / SHARE_OF_FREE_SPACE / PAGE_BYTES).clamp(1, DUE))
}

/// Returns the number of bytes that this process can still write on the disk of a folder; `None` if it is unknown.
#[cfg(target_os = "linux")]
fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(not(target_os = "linux"))]
fn free_bytes(_: &Path) -> Option<u64> {
    None
}

fn lock(growth: &Mutex<Growth>) -> MutexGuard<'_, Growth> {
    growth.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use rusqlite::OpenFlags;

    use super::{
        super::FILE_NAME, Connection, DUE, DUE_BEHIND_READER, Duration, Instant, MAX_FILE_BYTES, Path, WriteAheadLog,
        due_in, free_bytes,
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
        let log =
            WriteAheadLog::new(folder.path(), connection(folder.path(), OpenFlags::default()), &mut writer).unwrap();
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
        let log =
            WriteAheadLog::new(folder.path(), connection(folder.path(), OpenFlags::default()), &mut writer).unwrap();
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
    fn checkpoint_is_due_earlier_on_a_full_disk() {
        let due = |mebibytes: u64| due_in(Some(mebibytes << 20));
        assert_eq!([due(1 << 20), due(256), due(24), due(1), due(0)], [DUE, DUE, 384, 16, 1]);
        assert_eq!(due_in(None), DUE);
        assert!(free_bytes(std::env::temp_dir().as_path()).is_some_and(|free| free > 0));
    }

    #[test]
    fn failed_checkpoint_is_due_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        let read_only = connection(folder.path(), OpenFlags::SQLITE_OPEN_READ_ONLY);
        let log = WriteAheadLog::new(folder.path(), read_only, &mut writer).unwrap();
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
