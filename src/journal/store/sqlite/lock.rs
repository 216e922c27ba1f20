//! The lock file of a journal's folder, and the mark in it.
//!
//! The lock file has two lines: the process that uses the journal, and the [`Mark`] of the journal, which is the newest
//! number that the journal has given. The mark is outside of SQLite's files, so it shows when these files have lost
//! changes. It is written after each commit and before the reply to the senders. A killed process therefore leaves an
//! exact mark. After a loss of power the mark may lack the last second, but it never names a number that was not given.
//!
//! The lines always have the same length, so that they can be overwritten on a full disk. Spaces follow as a reserve:
//! SQLite needs some space to open a journal for reading, and the reserve is given up if the disk has none. It is taken back
//! when the journal is closed, which returns the space of SQLite, so that the next start on a full disk has it again.

use std::{
    fs::{File, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::open_error::{OpenError, is_full};
use crate::{journal::private_files, model::Seq};

/// Name of the lock file.
pub(super) const LOCK_NAME: &str = "journal.lock";

/// Maximum time to wait for another process to release the journal.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// Interval at which a modified mark is synced to the disk.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Second line of a lock file whose folder has no journal yet.
const NO_JOURNAL: &str = "no journal yet";

/// Width of the second line.
const MARK_WIDTH: usize = 90;

/// Maximum number of bytes of a lock file that are read, and minimum length of a file with a reserve.
const MAX_BYTES: u64 = 1024;

/// Length of a lock file with its reserve, in bytes. SQLite needs 32 KiB for the index of the write-ahead log.
const LENGTH_WITH_RESERVE: usize = 64 * 1024;

/// Newest number that a journal has given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Identity of the journal.
    pub(super) identity: Uuid,
    /// Number of the newest change.
    pub(super) head: Seq,
}

/// Record of the lock file about the journal in its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trace {
    /// The folder has had no journal: the lock file is absent, empty, or says so.
    None,
    /// The folder has had a journal, whose mark is unknown: the lock file is of an earlier version, or damaged.
    Unmarked,
    /// The journal with this mark was in the folder.
    Marked(Mark),
}

/// Lock file, locked while this value exists.
pub(super) struct LockFile {
    content: Mutex<Content>,
    /// Content of the file when it was locked.
    found: Trace,
}

struct Content {
    file: File,
    /// Time of the last sync.
    synced: Instant,
    /// Whether the mark was written since the last sync.
    is_modified: bool,
    /// Whether the last write failed.
    is_failing: bool,
}

impl LockFile {
    /// Locks the lock file of a folder, and writes the process id to it. The operating system releases the lock when
    /// the process ends. `journal` is the path for messages.
    ///
    /// # Errors
    /// Fails if another process holds the lock, or the file cannot be opened.
    pub(super) fn acquire(folder: &Path, journal: &Path) -> Result<Self, OpenError> {
        let unusable = |error| OpenError::folder(folder, error);
        let path = folder.join(LOCK_NAME);
        let mut options = private_files::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(unusable)?;
        match try_lock(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = read(&mut file).map(|text| pid_of(&text).to_owned()).unwrap_or_default();
                let pid = if pid.is_empty() { pid } else { format!(" (pid {pid})") };
                return Err(OpenError::InUse { path: journal.to_owned(), pid });
            }
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        let found = trace_of(&read(&mut file).map_err(unusable)?);
        let content = Content { file, synced: Instant::now(), is_modified: false, is_failing: false };
        let lock = Self { content: Mutex::new(content), found };
        match found {
            Trace::Marked(mark) => lock.record(mark),
            Trace::None => lock.content().write(NO_JOURNAL),
            // The lack of a mark stays recognizable until the journal is open.
            Trace::Unmarked => lock.content().write(""),
        }
        // The reserve is needed only on a full disk, where it cannot be made.
        let _ = lock.content().fill_reserve();
        Ok(lock)
    }

    /// Returns whether the disk has no room for the reserve, which was tried.
    pub(super) fn is_disk_full(&self) -> bool {
        self.content().fill_reserve().is_err_and(|error| is_full(&error))
    }

    /// Returns the space of the reserve to the disk; returns whether there was a reserve.
    pub(super) fn give_up_reserve(&self) -> bool {
        let file = &self.content().file;
        file.metadata().is_ok_and(|metadata| metadata.len() > MAX_BYTES) && file.set_len(MAX_BYTES).is_ok()
    }

    /// Returns what the file said when it was locked.
    pub(super) fn found(&self) -> Trace {
        self.found
    }

    /// Writes the mark of the journal. A failure is logged once, because the journal works without a mark.
    pub(super) fn record(&self, mark: Mark) {
        let text = format!("journal {} head {}", mark.identity, mark.head);
        self.content().write(&format!("{text} crc {:08x}", checksum(&text)));
    }

    /// Syncs the mark to the disk if it was modified and the last sync is [`SYNC_INTERVAL`] ago.
    pub(super) fn sync_if_due(&self) {
        let mut content = self.content();
        if content.is_modified && content.synced.elapsed() >= SYNC_INTERVAL {
            content.sync();
        }
    }

    /// Syncs the mark to the disk.
    pub(super) fn sync(&self) {
        self.content().sync();
    }

    /// Returns the metadata of the locked file.
    pub(super) fn metadata(&self) -> io::Result<std::fs::Metadata> {
        self.content().file.metadata()
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // The connections are closed by now, and a part of the reserve is better than none.
        let _ = self.content().fill_reserve();
    }
}

impl Content {
    /// Writes the process id and the second line.
    fn write(&mut self, line: &str) {
        let text = format!("{:<20}\n{line:<MARK_WIDTH$}\n", std::process::id());
        let written = self.file.seek(SeekFrom::Start(0)).and_then(|_| self.file.write_all(text.as_bytes()));
        self.is_modified = true;
        self.note(written);
    }

    /// Extends the file to its full length, or as far as the disk has room.
    fn fill_reserve(&mut self) -> io::Result<()> {
        let length = usize::try_from(self.file.metadata()?.len()).unwrap_or(usize::MAX);
        let missing = LENGTH_WITH_RESERVE.saturating_sub(length);
        self.file.seek(SeekFrom::End(0))?;
        self.file.write_all(&vec![b' '; missing])
    }

    fn sync(&mut self) {
        let synced = self.file.sync_data();
        (self.synced, self.is_modified) = (Instant::now(), false);
        self.note(synced);
    }

    fn note(&mut self, outcome: io::Result<()>) {
        match outcome {
            Ok(()) => self.is_failing = false,
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(%error, "cannot write the newest number of the journal to {LOCK_NAME}; retrying");
                }
            }
        }
    }
}

/// Reads what the lock file of a folder says, without the lock.
///
/// # Errors
/// Fails if the file exists and cannot be read.
pub(super) fn read_trace(folder: &Path) -> io::Result<Trace> {
    match File::open(folder.join(LOCK_NAME)) {
        Ok(mut file) => read(&mut file).map(|text| trace_of(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Trace::None),
        Err(error) => Err(error),
    }
}

fn read(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn pid_of(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim()
}

fn trace_of(text: &str) -> Trace {
    let mut lines = text.lines();
    let (pid, mark) = (lines.next().unwrap_or_default().trim(), lines.next().unwrap_or_default().trim());
    if mark == NO_JOURNAL || (pid.is_empty() && mark.is_empty()) {
        return Trace::None;
    }
    parse_mark(mark).map_or(Trace::Unmarked, Trace::Marked)
}

fn parse_mark(line: &str) -> Option<Mark> {
    let (text, crc) = line.rsplit_once(" crc ")?;
    let (identity, head) = text.strip_prefix("journal ")?.split_once(" head ")?;
    if u32::from_str_radix(crc, 16).ok()? != checksum(text) {
        return None;
    }
    Some(Mark { identity: Uuid::parse_str(identity).ok()?, head: Seq(head.parse().ok()?) })
}

fn checksum(text: &str) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(text.as_bytes());
    crc.sum()
}

/// Returns whether another process has the journal in a folder open. The call makes no file.
pub fn is_in_use(folder: &Path) -> bool {
    // A process that starts meanwhile tries for longer than the shared lock exists.
    let is_locked = |file: File| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    File::open(folder.join(LOCK_NAME)).is_ok_and(is_locked)
}

/// Tries for [`LOCK_PATIENCE`], because a gateway that is stopping, or a starting process that inherited the file
/// handle, may release the lock at any moment.
fn try_lock(file: &File) -> Result<(), TryLockError> {
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_PATIENCE => std::thread::sleep(LOCK_PATIENCE / 50),
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{LOCK_NAME, LockFile, Mark, Seq, Trace, Uuid, read_trace, trace_of};

    #[test]
    fn mark_survives_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LOCK_NAME);
        assert_eq!(read_trace(folder.path()).unwrap(), Trace::None);
        let acquire = || LockFile::acquire(folder.path(), &path).unwrap();
        let lock = acquire();
        assert_eq!((lock.found(), read_trace(folder.path()).unwrap()), (Trace::None, Trace::None));
        let length = path.metadata().unwrap().len();
        let mark = Mark { identity: Uuid::new_v4(), head: Seq(u64::MAX) };
        lock.record(Mark { head: Seq(7), ..mark });
        lock.record(mark);
        drop(lock);
        assert_eq!(acquire().found(), Trace::Marked(mark));
        assert_eq!(acquire().found(), Trace::Marked(mark), "an opening without a commit keeps the mark");
        assert_eq!(path.metadata().unwrap().len(), length, "the file can be overwritten on a full disk");
        let lock = acquire();
        assert!(lock.give_up_reserve() && !lock.give_up_reserve());
        assert_eq!(read_trace(folder.path()).unwrap(), Trace::Marked(mark));
    }

    #[test]
    fn damaged_or_older_lock_file_gives_no_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LOCK_NAME);
        let lock = LockFile::acquire(folder.path(), &path).unwrap();
        lock.record(Mark { identity: Uuid::new_v4(), head: Seq(12) });
        drop(lock);
        let text = fs::read_to_string(&path).unwrap();
        assert!(matches!(trace_of(&text), Trace::Marked(_)));
        for damaged in [text.replace("head 12", "head 13"), text.replace("journal", "jouurnal"), text[..60].to_owned()]
        {
            assert_eq!(trace_of(&damaged), Trace::Unmarked, "{damaged}");
        }
        fs::write(&path, "4711").unwrap();
        let lock = LockFile::acquire(folder.path(), &path).unwrap();
        drop(lock);
        assert_eq!(read_trace(folder.path()).unwrap(), Trace::Unmarked, "until the journal is open");
    }
}
