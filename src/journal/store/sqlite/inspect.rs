//! Inspection of a journal's folder without side effects: it creates and writes no file, and takes no lock.
//!
//! The module reads the header of the file itself, because SQLite would create files beside a journal that is not open.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Read},
    path::Path,
};

use super::{
    super::StoreContent,
    FILE_NAME,
    lock::read_trace,
    loss::check_files,
    open::{check_is_complete, check_version},
    open_error::OpenError,
    schema,
};

/// Size of the header of an SQLite file (sqlite.org/fileformat2.html, 1.3), in bytes.
const HEADER: usize = 100;

/// First bytes of an SQLite file.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Checks whether a journal can be opened or created in `folder`.
///
/// # Errors
/// Fails if opening would fail because of the file system or the header of the file. Does not detect damage in the
/// rest of the file.
pub fn inspect(folder: &Path) -> Result<StoreContent, OpenError> {
    let unusable = |error| OpenError::Folder { path: folder.to_owned(), error };
    let Some(existing) = folder.ancestors().find(|path| path.exists()) else {
        return Err(unusable(io::ErrorKind::NotFound.into()));
    };
    let metadata = existing.metadata().map_err(unusable)?;
    if !metadata.is_dir() {
        return Err(unusable(io::Error::new(
            io::ErrorKind::NotADirectory,
            format!("{} is not a folder", existing.display()),
        )));
    }
    if !may_write(&metadata) {
        return Err(unusable(io::ErrorKind::PermissionDenied.into()));
    }
    check_is_complete(folder)?;
    check_files(folder, read_trace(folder).map_err(unusable)?)?;
    let path = folder.join(FILE_NAME);
    if !path.exists() {
        return Ok(StoreContent::Empty);
    }
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(unusable)?;
    let header = header(&file).map_err(unusable)?;
    check_header(&path, &header)?;
    Ok(StoreContent::Journal)
}

fn header(file: &File) -> io::Result<Vec<u8>> {
    let mut header = Vec::new();
    file.take(HEADER as u64).read_to_end(&mut header)?;
    Ok(header)
}

/// Checks the header of a journal. If the first changes are only in the write-ahead log, the file is empty, or its
/// header has no application id.
fn check_header(path: &Path, header: &[u8]) -> Result<(), OpenError> {
    let foreign = |what| OpenError::Foreign { path: path.to_owned(), what };
    if header.is_empty() {
        return Ok(());
    }
    if !header.starts_with(MAGIC) || header.len() < HEADER {
        return Err(foreign("it is not an SQLite file, or its header is damaged"));
    }
    let number = |at: usize| i32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let (version, application) = (i64::from(number(60)), number(68));
    if application != 0 && application != schema::APPLICATION_ID {
        return Err(foreign("it is an SQLite file of another program"));
    }
    // The header of an empty file has no version.
    if version == 0 { Ok(()) } else { check_version(path, version) }
}

/// Returns whether this process may write to a folder according to the folder's permissions: `false` is certain,
/// `true` is not.
#[cfg(unix)]
fn may_write(folder: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    const OF_OWNER: u32 = 0o200;
    const OF_OTHERS: u32 = 0o022;
    // The owner of /proc/self is the user of this process. Systems without /proc give no information.
    match fs::metadata("/proc/self").map(|own| own.uid()) {
        Ok(0) | Err(_) => true,
        Ok(user) if user == folder.uid() => folder.mode() & OF_OWNER != 0,
        Ok(_) => folder.mode() & OF_OTHERS != 0,
    }
}

#[cfg(not(unix))]
fn may_write(folder: &Metadata) -> bool {
    !folder.permissions().readonly()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rusqlite::Connection;

    use super::{StoreContent, inspect};
    use crate::journal::store::sqlite::{FILE_NAME, SqliteOptions, SqliteStore};

    fn names(folder: &std::path::Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn inspection_has_no_side_effects() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("a/b");
        assert_eq!(inspect(&data).unwrap(), StoreContent::Empty);
        assert!(names(folder.path()).is_empty());
        let open = SqliteStore::open(&data, SqliteOptions::default()).unwrap();
        assert_eq!(inspect(&data).unwrap(), StoreContent::Journal, "while it is in use");
        drop(open);
        let before = names(&data);
        assert_eq!(inspect(&data).unwrap(), StoreContent::Journal);
        assert_eq!(names(&data), before);
    }

    #[test]
    fn inspection_and_opening_fail_for_the_same_reason() {
        let folder = tempfile::tempdir().unwrap();
        let errors = |data: &std::path::Path| {
            let [inspected, opened] = [
                inspect(data).map(|_| ()).unwrap_err().to_string(),
                SqliteStore::open(data, SqliteOptions::default()).map(|_| ()).unwrap_err().to_string(),
            ];
            (inspected, opened)
        };
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(errors(&file.join("data")).0.contains("cannot be used"));
        let path = folder.path().join(FILE_NAME);
        fs::write(&path, "not a database, but long enough to be one, as far as its length goes".repeat(9)).unwrap();
        let (inspected, opened) = errors(folder.path());
        assert_eq!(inspected, opened);
        fs::remove_file(&path).unwrap();
        let other = Connection::open(&path).unwrap();
        other.pragma_update(None, "application_id", 7).unwrap();
        drop(other);
        let (inspected, opened) = errors(folder.path());
        assert_eq!(inspected, opened);
        fs::remove_file(&path).unwrap();
        drop(SqliteStore::open(folder.path(), SqliteOptions::default()).unwrap());
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 9999).unwrap();
        let (inspected, opened) = errors(folder.path());
        assert_eq!(inspected, opened);
    }
}
