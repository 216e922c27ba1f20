//! The folder of an export: the files of complete spans, the last file, and the note about them.
//!
//! A file is written under a temporary name, noted, synced and renamed; then the note says how far the files go. A run that
//! is killed meanwhile writes the same file again. A file that the note does not name is never replaced.

use std::{
    fs::{self, File, TryLockError},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tempfile::NamedTempFile;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{
    ChangePage, Numbered, NumberedChange, Skipped,
    partition::{Format, PartitionWriter},
};

/// Name of the note.
const NOTE: &str = "tidings-export.json";

/// Beginning of the names of the files.
const FILES: &str = "changes-";

/// Beginning of the names of unfinished files.
const UNFINISHED: &str = ".tidings-export-";

/// What the files of a folder contain. All runs into the folder have the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Contents {
    /// Identity of the journal.
    pub(super) journal: Uuid,
    /// Format of the files.
    pub(super) format: Format,
    /// Number of change numbers of a file.
    pub(super) rows: u64,
    /// Conditions of the filter.
    pub(super) filter: Vec<(String, String)>,
}

/// The note: what the folder contains, and how far it goes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Note {
    #[serde(flatten)]
    contents: Contents,
    /// Number of the last change that was examined; `None` before the first file.
    through: Option<u64>,
    /// The last file, if its span is not complete.
    last_file: Option<LastFile>,
}

/// A file whose span is not complete, which the next run writes anew.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct LastFile {
    /// Number in its name.
    first: u64,
    /// Number after which its changes begin.
    after: u64,
}

/// Reason why a folder cannot be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    /// The disk is full.
    #[error(
        "cannot write {}: {error}; the files that are there are complete: make room, and give the command again to \
         continue", path.display()
    )]
    Full {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        error: io::Error,
    },
    /// A file or the folder cannot be read or written.
    #[error("cannot write {}: {error}", path.display())]
    Io {
        /// Path of the file or the folder.
        path: PathBuf,
        /// Cause.
        error: io::Error,
    },
    /// The note is not readable.
    #[error("{} is not the note of an export ({error}); give another folder", path.display())]
    Damaged {
        /// Path of the note.
        path: PathBuf,
        /// Error in the content.
        error: serde_json::Error,
    },
    /// There are files of an export, and no note.
    #[error("{} has files of an export without their note {NOTE}; give another folder", .0.display())]
    WithoutNote(PathBuf),
    /// Another run writes into the folder.
    #[error("another run exports into {} at this moment", .0.display())]
    Locked(PathBuf),
    /// The folder belongs to another journal.
    #[error(
        "{} has changes of the journal {stored}, and the gateway has the journal {present}: it is another gateway, or its \
         journal was restored from a backup or by a failover, and some of the changes in the folder may be lost there; give \
         another folder", path.display()
    )]
    OtherJournal {
        /// Path of the folder.
        path: PathBuf,
        /// Journal of the folder.
        stored: Uuid,
        /// Journal of the gateway.
        present: Uuid,
    },
    /// The folder was written with other options.
    #[error("{} was exported with the options {stored}; give the same, or another folder", path.display())]
    OtherOptions {
        /// Path of the folder.
        path: PathBuf,
        /// The options of the earlier runs.
        stored: String,
    },
    /// There is a file that the note does not name.
    #[error("{} is there already, and {NOTE} does not name it; move it away, or give another folder", .0.display())]
    Unknown(PathBuf),
}

impl ExportError {
    fn io(path: &Path, error: io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full { path, error },
            _ => Self::Io { path, error },
        }
    }
}

/// Result of a run.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Number of changes in the files that the run has written.
    pub(super) changes: u64,
    /// Number of these files.
    pub(super) files: u64,
    /// Number of the other files in the folder.
    pub(super) kept: u64,
    /// Number of the last change that was examined.
    pub(super) through: u64,
    /// Number of changes that cannot be read.
    pub(super) skipped: u64,
}

/// The folder. It is locked until the value is dropped.
pub(super) struct ExportFolder {
    path: PathBuf,
    /// The folder itself, with its lock.
    handle: File,
    note: Note,
    /// Minimum of the number in the name of the next file.
    least_first: u64,
    written: Written,
}

/// The file that is being written.
struct Partition {
    first: u64,
    /// Number of the last change that belongs into the file.
    last: u64,
    /// Number after which its changes begin.
    after: u64,
    file: NamedTempFile,
    writer: Box<dyn PartitionWriter>,
}

impl ExportFolder {
    /// Opens a folder, or makes it, and removes what a killed run has left.
    ///
    /// # Errors
    /// Fails if the folder has something else, another run writes to it, or it cannot be written.
    pub(super) fn open(path: &Path, contents: &Contents) -> Result<Self, ExportError> {
        let io = |error| ExportError::io(path, error);
        fs::create_dir_all(path).map_err(io)?;
        let handle = File::open(path).map_err(io)?;
        match handle.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(ExportError::Locked(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        let mut kept = 0;
        for entry in fs::read_dir(path).map_err(io)? {
            let entry = entry.map_err(io)?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            kept += u64::from(name.starts_with(FILES));
            if name.starts_with(UNFINISHED) {
                fs::remove_file(entry.path()).map_err(|error| ExportError::io(&entry.path(), error))?;
            }
        }
        let (note, is_new) = match read_note(path)? {
            Some(note) => (note, false),
            None if kept > 0 => return Err(ExportError::WithoutNote(path.to_owned())),
            None => (Note { contents: contents.clone(), through: None, last_file: None }, true),
        };
        let Contents { journal, ref format, rows, ref filter } = note.contents;
        if journal != contents.journal {
            return Err(ExportError::OtherJournal {
                path: path.to_owned(),
                stored: journal,
                present: contents.journal,
            });
        }
        if note.contents != *contents {
            let filter = filter.iter().map(|(name, value)| format!(" --filter {name}={value}"));
            let stored = format!("{} --rows {rows}{}", format.options(), filter.collect::<String>());
            return Err(ExportError::OtherOptions { path: path.to_owned(), stored });
        }
        let least_first = note.last_file.map_or_else(|| note.through.unwrap_or(0) + 1, |last| last.first);
        let written = Written { kept, through: note.through.unwrap_or(0), ..Written::default() };
        let folder = Self { path: path.to_owned(), handle, note, least_first, written };
        if is_new {
            folder.write_note()?;
        }
        Ok(folder)
    }

    /// Returns the number after which the run continues; `None` if it is the first one.
    pub(super) fn cursor(&self) -> Option<u64> {
        self.note.last_file.map(|last| last.after).or(self.note.through)
    }

    /// Returns whether the folder already has this change, which is the newest one.
    pub(super) fn has(&self, newest: Option<u64>) -> bool {
        newest.is_some() && self.note.through >= newest
    }

    /// Leaves the last file as it is, so that the run continues after it. Returns `false` if there is none.
    pub(super) fn keep_last_file(&mut self) -> bool {
        let is_kept = self.note.last_file.take().is_some();
        if is_kept {
            self.least_first = self.note.through.unwrap_or(0) + 1;
        }
        is_kept
    }

    /// Returns what the folder has, for a run without new changes.
    pub(super) fn into_written(self) -> Written {
        self.written
    }

    /// Writes pages into files until there are no more. The last file is completed then, too.
    ///
    /// # Errors
    /// Fails if a file cannot be written. The files that have their names are complete.
    pub(super) fn write(mut self, mut pages: mpsc::Receiver<ChangePage>) -> Result<Written, ExportError> {
        let mut current: Option<Partition> = None;
        let mut skipped = Skipped::default();
        while let Some(ChangePage { changes, next, .. }) = pages.blocking_recv() {
            let changes = numbered(changes, &mut skipped);
            let mut rest = &changes[..];
            while let Some(NumberedChange { seq: first, .. }) = rest.first() {
                if let Some(done) = current.take_if(|current| *first > current.last) {
                    let through = done.last;
                    self.complete(done, through)?;
                }
                let partition = match &mut current {
                    Some(partition) => partition,
                    None => current.insert(self.begin(*first)?),
                };
                let (own, others) = rest.split_at(rest.partition_point(|change| change.seq <= partition.last));
                let written = partition.writer.add(own, &mut skipped);
                self.written.changes += written.map_err(|error| ExportError::io(partition.file.path(), error))?;
                rest = others;
            }
            self.written.through = self.written.through.max(next.unwrap_or(0));
        }
        if let Some(last) = current {
            let through = self.written.through;
            self.complete(last, through)?;
        } else if self.note.through < Some(self.written.through) {
            // No change was selected after the last file.
            self.note.through = Some(self.written.through);
            self.write_note()?;
        }
        self.written.skipped = skipped.count();
        Ok(self.written)
    }

    /// Starts the file of a change.
    fn begin(&self, seq: u64) -> Result<Partition, ExportError> {
        let rows = self.note.contents.rows;
        let start = seq.saturating_sub(1) / rows * rows;
        let file = temporary_file(&self.path).map_err(|error| ExportError::io(&self.path, error))?;
        let journal = self.note.contents.journal;
        let writer = file.as_file().try_clone();
        let writer = writer.and_then(|file| self.note.contents.format.writer(file, journal));
        let writer = writer.map_err(|error| ExportError::io(file.path(), error))?;
        let first = (start + 1).max(self.least_first);
        Ok(Partition { first, last: start + rows, after: seq.saturating_sub(1), file, writer })
    }

    /// Completes a file, and notes that all changes up to `through` are there.
    fn complete(&mut self, partition: Partition, through: u64) -> Result<(), ExportError> {
        let Partition { first, last, after, file, writer } = partition;
        let path = self.path.join(format!("{FILES}{first:020}.{}", self.note.contents.format.extension()));
        writer.finish().map_err(|error| ExportError::io(&path, error))?;
        let is_known = self.note.last_file.is_some_and(|last| last.first == first);
        let is_new = !path.exists();
        if !is_new && !is_known {
            return Err(ExportError::Unknown(path));
        }
        if !is_known {
            // A run that is killed after the file has its name finds it here, and writes it again.
            self.note.last_file = Some(LastFile { first, after });
            self.write_note()?;
        }
        self.name(file, &path)?;
        self.written.files += 1;
        self.written.kept -= u64::from(!is_new);
        self.note.through = Some(through);
        self.note.last_file = (through < last).then_some(LastFile { first, after });
        self.write_note()
    }

    /// Gives a file its name. After that, its bytes and its name are on disk.
    fn name(&self, file: NamedTempFile, path: &Path) -> Result<(), ExportError> {
        let io = |error| ExportError::io(path, error);
        file.as_file().sync_all().map_err(io)?;
        file.persist(path).map_err(|error| io(error.error))?;
        self.handle.sync_all().map_err(io)
    }

    fn write_note(&self) -> Result<(), ExportError> {
        let path = self.path.join(NOTE);
        let io = |error| ExportError::io(&path, error);
        let text = serde_json::to_string_pretty(&self.note).map_err(|error| io(error.into()))?;
        let mut file = temporary_file(&self.path).map_err(io)?;
        file.write_all(format!("{text}\n").as_bytes()).map_err(io)?;
        self.name(file, &path)
    }
}

/// Makes a file without its name yet, which others may read as the umask says.
fn temporary_file(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(UNFINISHED);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

fn read_note(folder: &Path) -> Result<Option<Note>, ExportError> {
    let path = folder.join(NOTE);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| ExportError::Damaged { path, error }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ExportError::Io { path, error }),
    }
}

/// Returns the changes with their numbers. A change without a number is skipped.
fn numbered(changes: Vec<Box<RawValue>>, skipped: &mut Skipped) -> Vec<NumberedChange> {
    let with_number = |json: Box<RawValue>| match serde_json::from_str(json.get()) {
        Ok(Numbered { seq }) => Some(NumberedChange { seq, json }),
        Err(error) => {
            skipped.add("a change without a number", &error.to_string());
            None
        }
    };
    changes.into_iter().filter_map(with_number).collect()
}

#[cfg(test)]
mod tests;
