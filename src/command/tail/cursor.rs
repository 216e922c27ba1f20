//! The file of `tidings tail --cursor`: the number of the last change that was printed, and the journal of that number.

use std::{
    fs::File,
    io::{self, ErrorKind, Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use tokio::time::Instant;
use uuid::Uuid;

/// Maximum size of the file, in bytes: more than a cursor has.
const MAX_BYTES: u64 = 1024;

/// Minimum time between two writes. Each write waits for the disk, so a write for every change would delay a reader that
/// catches up.
const INTERVAL: Duration = Duration::from_secs(1);

/// Content of the file: one line of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cursor {
    /// Number of the last change that was printed or filtered out.
    pub(super) after: u64,
    /// Identity of the journal that has this number.
    pub(super) journal: Uuid,
}

/// Reason why a cursor cannot be read or stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum CursorError {
    /// The file cannot be read.
    #[error("cannot read the cursor {}: {error}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        error: io::Error,
    },
    /// The file contains something else.
    #[error(
        "{} is not a cursor of `tidings tail` ({reason}); give another file, or move this one away and give the number to \
         start after with --after", path.display()
    )]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Error in the content.
        reason: String,
    },
    /// The number belongs to another journal than that of the gateway.
    #[error(
        "the cursor {} belongs to the journal {stored}, and the gateway has the journal {present}: it is another gateway, or \
         its journal was restored from a backup or by a failover; read /snapshot, then move the file away, and start after \
         the head of the snapshot with --after", path.display()
    )]
    OtherJournal {
        /// Path of the file.
        path: PathBuf,
        /// Journal of the cursor.
        stored: Uuid,
        /// Journal of the gateway.
        present: Uuid,
    },
    /// The file cannot be written.
    #[error("cannot store the cursor {}: {error}", path.display())]
    Unwritable {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        error: io::Error,
    },
}

/// The file, and the number that it contains.
#[derive(Debug)]
pub(super) struct CursorFile {
    path: PathBuf,
    stored: Cursor,
    stored_at: Instant,
}

impl CursorFile {
    /// Reads the file. If there is none, the cursor is `first`. The cursor is stored at once, so that a folder which cannot
    /// be written is noticed before a change is printed.
    ///
    /// # Errors
    /// Fails if the file is no cursor, or belongs to another journal than `first`, or cannot be written.
    pub(super) fn open(path: &Path, first: Cursor) -> Result<Self, CursorError> {
        let path =
            std::path::absolute(path).map_err(|error| CursorError::Unreadable { path: path.to_owned(), error })?;
        let cursor = read(&path)?.unwrap_or(first);
        if cursor.journal != first.journal {
            return Err(CursorError::OtherJournal { path, stored: cursor.journal, present: first.journal });
        }
        let mut file = Self { path, stored: cursor, stored_at: Instant::now() };
        file.write(cursor)?;
        Ok(file)
    }

    /// Returns the path, which is absolute.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number in the file.
    pub(super) fn after(&self) -> u64 {
        self.stored.after
    }

    /// Returns the time at which the number of the last printed change is to be stored; `None` if the file has it.
    pub(super) fn due(&self, printed: u64) -> Option<Instant> {
        (printed != self.stored.after).then(|| self.stored_at + INTERVAL)
    }

    /// Stores the number of the last printed change, unless the file has it. The output must be flushed before.
    ///
    /// # Errors
    /// Fails if the file cannot be written. It then contains the number before.
    pub(super) fn store(&mut self, printed: u64) -> Result<(), CursorError> {
        if printed == self.stored.after { Ok(()) } else { self.write(Cursor { after: printed, ..self.stored }) }
    }

    /// Replaces the file by a new one: at each moment, there is a whole cursor at the path.
    fn write(&mut self, cursor: Cursor) -> Result<(), CursorError> {
        replace(&self.path, &cursor).map_err(|error| CursorError::Unwritable { path: self.path.clone(), error })?;
        (self.stored, self.stored_at) = (cursor, Instant::now());
        Ok(())
    }
}

/// Reads a cursor; `None` if there is no file.
fn read(path: &Path) -> Result<Option<Cursor>, CursorError> {
    let mut text = String::new();
    match File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text)) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            return Err(CursorError::Damaged { path: path.to_owned(), reason: "it is not text".to_owned() });
        }
        Err(error) => return Err(CursorError::Unreadable { path: path.to_owned(), error }),
    }
    let damaged = |reason: String| CursorError::Damaged { path: path.to_owned(), reason };
    if text.trim().is_empty() {
        return Err(damaged("it is empty".to_owned()));
    }
    serde_json::from_str(&text).map(Some).map_err(|error| damaged(error.to_string()))
}

fn replace(path: &Path, cursor: &Cursor) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut file = NamedTempFile::with_prefix_in(".tidings-cursor-", folder)?;
    file.write_all(format!("{}\n", serde_json::to_string(cursor)?).as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    // The new name is on disk only after this.
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Cursor, CursorFile, Uuid};

    const FIRST: Cursor = Cursor { after: 7, journal: Uuid::from_u128(1) };

    #[test]
    fn cursor_is_kept_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cursor");
        let mut file = CursorFile::open(&path, FIRST).unwrap();
        assert!(file.due(7).is_none() && file.due(8).is_some());
        file.store(9).unwrap();
        assert!(file.due(9).is_none());
        assert_eq!(CursorFile::open(&path, FIRST).unwrap().after(), 9);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is left");
    }

    #[test]
    fn wrong_files_are_refused_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cursor");
        for (content, expected) in [
            (&b""[..], "is not a cursor of `tidings tail` (it is empty)"),
            (b"\n", "(it is empty)"),
            (b"7", "is not a cursor"),
            (b"{\"after\":7", "is not a cursor"),
            (b"{\"after\":-1,\"journal\":\"00000000-0000-0000-0000-000000000001\"}", "is not a cursor"),
            (b"\xff\xfe", "(it is not text)"),
            (
                b"{\"after\":7,\"journal\":\"00000000-0000-0000-0000-000000000002\"}",
                "belongs to the journal 00000000-0000-0000-0000-000000000002",
            ),
        ] {
            fs::write(&path, content).unwrap();
            let error = CursorFile::open(&path, FIRST).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains(path.to_str().unwrap()), "{error}");
            assert_eq!(fs::read(&path).unwrap(), content);
        }
        let nowhere = folder.path().join("none/cursor");
        let error = CursorFile::open(&nowhere, FIRST).unwrap_err().to_string();
        assert!(error.starts_with("cannot store the cursor /"), "{error}");
    }
}
