//! A look at a journal's folder without any effect on it: nothing is made or written, and no lock is taken.
//!
//! The header of the file is read, and SQLite is not used: it would make files beside a journal that nobody has open.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Read},
    path::Path,
};

use super::{FILE_NAME, open::OpenError, restore::READY_NAME, schema};

/// The header of an SQLite file (sqlite.org/fileformat2.html, 1.3), in bytes.
const HEADER: usize = 100;

/// What a file of SQLite begins with.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Content of a folder that a journal could be opened in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderContent {
    /// A journal.
    Journal,
    /// No journal: opening makes a new one.
    Empty,
}

/// Looks whether a journal could be opened in `folder`, or made there.
///
/// # Errors
/// Fails if opening would fail, as far as the file system and the header of the file tell. Damage further in is not looked for.
pub fn inspect(folder: &Path) -> Result<FolderContent, OpenError> {
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
    if folder.join(READY_NAME).exists() {
        return Err(OpenError::HalfRestored { path: folder.to_owned() });
    }
    let path = folder.join(FILE_NAME);
    if !path.exists() {
        return Ok(FolderContent::Empty);
    }
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(unusable)?;
    let header = header(&file).map_err(unusable)?;
    check_header(&path, &header)?;
    Ok(FolderContent::Journal)
}

fn header(file: &File) -> io::Result<Vec<u8>> {
    let mut header = Vec::new();
    file.take(HEADER as u64).read_to_end(&mut header)?;
    Ok(header)
}

/// A journal whose first changes are in the write-ahead log alone has an empty file, or no application in its header.
fn check_header(path: &Path, header: &[u8]) -> Result<(), OpenError> {
    let foreign = |what| OpenError::Foreign { path: path.to_owned(), what };
    if header.is_empty() {
        return Ok(());
    }
    if !header.starts_with(MAGIC) || header.len() < HEADER {
        return Err(foreign("it is no SQLite file, or its beginning is destroyed"));
    }
    let number = |at: usize| i32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let (version, application) = (i64::from(number(60)), number(68));
    if application != 0 && application != schema::APPLICATION_ID {
        return Err(foreign("it is an SQLite file of another program"));
    }
    let known = schema::current_version();
    if version > known {
        return Err(OpenError::Newer { path: path.to_owned(), found: version, known });
    }
    Ok(())
}

/// Whether this process may write to a folder, as far as its permissions tell: `false` is certain, and `true` is not.
#[cfg(unix)]
fn may_write(folder: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    const OF_OWNER: u32 = 0o200;
    const OF_OTHERS: u32 = 0o022;
    // The owner of a process's own folder in /proc is its user; elsewhere nothing is known.
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

    use super::{FolderContent, inspect};
    use crate::journal::store::sqlite::{FILE_NAME, SqliteOptions, SqliteStore};

    fn names(folder: &std::path::Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_is_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("a/b");
        assert_eq!(inspect(&data).unwrap(), FolderContent::Empty);
        assert!(names(folder.path()).is_empty());
        let open = SqliteStore::open(&data, SqliteOptions::default()).unwrap();
        assert_eq!(inspect(&data).unwrap(), FolderContent::Journal, "while it is in use");
        drop(open);
        let before = names(&data);
        assert_eq!(inspect(&data).unwrap(), FolderContent::Journal);
        assert_eq!(names(&data), before);
    }

    #[test]
    fn what_cannot_be_opened_is_refused_for_the_same_reason() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |data: &std::path::Path| {
            let [inspected, opened] = [
                inspect(data).map(|_| ()).unwrap_err().to_string(),
                SqliteStore::open(data, SqliteOptions::default()).map(|_| ()).unwrap_err().to_string(),
            ];
            (inspected, opened)
        };
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(refused(&file.join("data")).0.contains("cannot be used"));
        let path = folder.path().join(FILE_NAME);
        fs::write(&path, "not a database, but long enough to be one, as far as its length goes".repeat(9)).unwrap();
        let (inspected, opened) = refused(folder.path());
        assert_eq!(inspected, opened);
        fs::remove_file(&path).unwrap();
        let other = Connection::open(&path).unwrap();
        other.pragma_update(None, "application_id", 7).unwrap();
        drop(other);
        let (inspected, opened) = refused(folder.path());
        assert_eq!(inspected, opened);
        fs::remove_file(&path).unwrap();
        drop(SqliteStore::open(folder.path(), SqliteOptions::default()).unwrap());
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 9999).unwrap();
        let (inspected, opened) = refused(folder.path());
        assert_eq!(inspected, opened);
    }
}
