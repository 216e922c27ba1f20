//! Detection of lost files and lost changes before a journal is used.
//!
//! SQLite opens an absent or empty file as a new journal, and ignores a write-ahead log that is absent or has an invalid
//! header. The numbers of the lost changes would then be given again. These checks refuse such a folder, and compare the
//! newest change with the [mark](super::lock::Mark) of the journal.

use std::{
    fs::File,
    io::{self, ErrorKind, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::Connection;

use super::{
    FILE_NAME, changes,
    lock::{LOCK_NAME, Mark, Trace},
    open::identity,
    open_error::{OpenError, explain_store},
};
use crate::model::Seq;

/// Size of the header of a write-ahead log (sqlite.org/fileformat2.html, 4.1), in bytes.
const LOG_HEADER: usize = 32;

/// First four bytes of a write-ahead log, without the last bit, which gives the byte order of the checksums.
const LOG_MAGIC: u32 = 0x377F_0682;

/// Number of attempts to read a header that another process may be writing.
const HEADER_ATTEMPTS: u32 = 3;

/// Folder of the rendered archive pages, which exists only where a gateway has served a journal.
const PAGES_FOLDER: &str = "pages";

/// Checks that the files in a folder belong together, before SQLite opens them. The folder may have no journal.
///
/// # Errors
/// Fails if a file of the journal is missing or empty, or the header of the write-ahead log is invalid.
pub(super) fn check_files(folder: &Path, trace: Trace) -> Result<(), OpenError> {
    let unusable = |error| OpenError::Folder { path: folder.to_owned(), error };
    let path = folder.join(FILE_NAME);
    let size = |path: &Path| size(path).map_err(unusable);
    let log = beside(&path, "-wal");
    let log_size = size(&log)?;
    if size(&path)?.unwrap_or_default() == 0 {
        let evidence = match trace {
            _ if log_size.is_some_and(|size| size > 0) => "its write-ahead log journal.sqlite-wal is there".to_owned(),
            Trace::Marked(mark) => format!("{LOCK_NAME} says that it has given the numbers up to {}", mark.head),
            Trace::Unmarked => format!("{LOCK_NAME} of an earlier start is there"),
            Trace::None if folder.join(PAGES_FOLDER).exists() => "its archive pages in pages/ are there".to_owned(),
            Trace::None => return Ok(()),
        };
        return Err(OpenError::Missing { path, evidence });
    }
    match log_size {
        // SQLite removes the index first, so the log was removed in another way.
        None if size(&beside(&path, "-shm"))?.is_some() => Err(OpenError::LogMissing { path }),
        // A shorter log has no commit.
        Some(size) if size > LOG_HEADER as u64 && !has_valid_header(&log).map_err(unusable)? => {
            Err(OpenError::LogDamaged { path })
        }
        _ => Ok(()),
    }
}

/// Checks that an open journal has all changes up to its mark. The mark must have been read before.
///
/// # Errors
/// Fails if the journal lacks changes, or cannot be read.
pub(super) fn check_head(path: &Path, connection: &Connection, trace: Trace) -> Result<(), OpenError> {
    let Trace::Marked(mark) = trace else { return Ok(()) };
    if super::open::version(connection).map_err(|error| super::open_error::explain(path, &error))? == 0 {
        let evidence = format!("{LOCK_NAME} says that it has given the numbers up to {}", mark.head);
        return Err(OpenError::Missing { path: path.to_owned(), evidence });
    }
    match lost(connection, mark).map_err(|error| explain_store(path, error))? {
        Some((head, given)) => Err(OpenError::ChangesLost { path: path.to_owned(), head, given }),
        None => Ok(()),
    }
}

/// Returns the newest change and the newest given number if changes between them are lost. The mark of another journal,
/// such as the one before a restore, says nothing.
pub(super) fn lost(
    connection: &Connection,
    mark: Mark,
) -> Result<Option<(Seq, Seq)>, crate::journal::store::StoreError> {
    let head = changes::head(connection)?;
    Ok((identity(connection)? == mark.identity && head < mark.head).then_some((head, mark.head)))
}

/// Returns the path of a file beside a journal.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn size(path: &Path) -> io::Result<Option<u64>> {
    match path.metadata() {
        Ok(metadata) => Ok(Some(metadata.len())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether the header of a write-ahead log is valid. SQLite ignores the whole log if it is not. Another process
/// may be writing the header, so an invalid one is read again.
fn has_valid_header(log: &Path) -> io::Result<bool> {
    for attempt in 1.. {
        let mut header = Vec::with_capacity(LOG_HEADER);
        File::open(log)?.take(LOG_HEADER as u64).read_to_end(&mut header)?;
        if is_valid_header(&header) {
            return Ok(true);
        }
        if attempt == HEADER_ATTEMPTS {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(false)
}

fn is_valid_header(header: &[u8]) -> bool {
    let words: Vec<[u8; 4]> = header.as_chunks().0.to_vec();
    let &[magic, _, _, _, _, _, sum_0, sum_1] = words.as_slice() else { return false };
    let magic = u32::from_be_bytes(magic);
    if magic & !1 != LOG_MAGIC {
        return false;
    }
    let word = |bytes: [u8; 4]| if magic & 1 == 1 { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
    let (mut first, mut second) = (0_u32, 0_u32);
    for pair in words[..6].as_chunks::<2>().0 {
        first = first.wrapping_add(word(pair[0])).wrapping_add(second);
        second = second.wrapping_add(word(pair[1])).wrapping_add(first);
    }
    (first, second) == (u32::from_be_bytes(sum_0), u32::from_be_bytes(sum_1))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rusqlite::Connection;

    use super::{FILE_NAME, LOG_HEADER, beside, is_valid_header};

    #[test]
    fn header_of_sqlite_is_valid_and_each_flipped_bit_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        connection.execute_batch("CREATE TABLE t (x)").unwrap();
        let header = fs::read(beside(&path, "-wal")).unwrap()[..LOG_HEADER].to_vec();
        assert!(is_valid_header(&header));
        for bit in 0..LOG_HEADER * 8 {
            let mut flipped = header.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_valid_header(&flipped), "bit {bit}");
        }
        assert!(!is_valid_header(&header[..LOG_HEADER - 1]));
    }
}
