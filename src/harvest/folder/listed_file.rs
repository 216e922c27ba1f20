//! Opens files as they were listed, although somebody else can replace them at any time.
//!
//! Each part of a path is opened below the folder before it, and no symbolic link is followed, so a path never leaves the
//! harvested folder. A file is opened without waiting, because a pipe has a reader that waits for a writer, and its
//! descriptor must be the regular file of the list: the same device, inode, size and time of modification.
//!
//! The path that the operator has configured is the only one that may be a link.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::unix::ffi::OsStrExt,
    path::{Component, Path},
};

use chrono::DateTime;
use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, stat, statat},
    io::Errno,
};

use crate::model::Timestamp;

/// Kind, identity, size and time of modification of a file. Two equal values are the same version of the same file.
///
/// The numbers are wide enough for the types of every system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileVersion {
    kind: FileType,
    device: i128,
    inode: i128,
    size: i128,
    seconds: i128,
    nanos: i128,
}

impl FileVersion {
    fn of(stat: &Stat) -> Self {
        Self {
            kind: FileType::from_raw_mode(stat.st_mode),
            device: i128::from(stat.st_dev),
            inode: i128::from(stat.st_ino),
            size: i128::from(stat.st_size),
            seconds: i128::from(stat.st_mtime),
            nanos: i128::from(stat.st_mtime_nsec),
        }
    }

    /// Returns the version of the place that the operator has configured, which may be a link.
    pub(super) fn of_configured(path: &Path) -> io::Result<Self> {
        Ok(Self::of(&stat(path)?))
    }

    /// Returns the version of an entry of a folder.
    pub(super) fn of_entry(folder: &File, name: &OsStr) -> io::Result<Self> {
        Ok(Self::of(&statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    pub(super) fn is_folder(&self) -> bool {
        self.kind == FileType::Directory
    }

    pub(super) fn is_file(&self) -> bool {
        self.kind == FileType::RegularFile
    }

    /// Returns size and time, by which later runs recognise an unchanged file.
    pub(super) fn validator(&self) -> String {
        format!("{}-{}.{:09}", self.size, self.seconds, self.nanos)
    }

    /// Returns the time of the last modification, but no time in the future, which a wrong clock has set.
    pub(super) fn time(&self) -> Timestamp {
        let now = Timestamp::now();
        let parts = i64::try_from(self.seconds).ok().zip(u32::try_from(self.nanos).ok());
        let modified = parts.and_then(|(seconds, nanos)| DateTime::from_timestamp(seconds, nanos));
        modified.map(Timestamp::from_datetime).filter(|modified| *modified < now).unwrap_or(now)
    }

    /// Returns whether an open file is this version.
    pub(super) fn is_open_in(&self, file: &File) -> io::Result<bool> {
        Ok(Self::of(&fstat(file)?) == *self)
    }

    /// Returns an open file if it is this version of a regular file.
    fn checked(self, file: File) -> io::Result<Option<File>> {
        Ok(if self.is_file() && self.is_open_in(&file)? { Some(file) } else { None })
    }
}

/// Opens the folder that the operator has configured, which may be a link.
pub(super) fn open_root(path: &Path) -> io::Result<File> {
    Ok(openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?.into())
}

/// Opens a folder in another one. Fails if it is a link.
pub(super) fn open_folder(parent: &File, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?.into())
}

/// Opens a file below a folder; returns `None` if another file or version of it has the path now.
pub(super) fn open_file(root: &File, path: &Path, listed: FileVersion) -> io::Result<Option<File>> {
    let Some((folder, name)) = open_parent(root, path)? else { return Ok(None) };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(&folder, name, flags, Mode::empty()) {
        Ok(file) => listed.checked(file.into()),
        // A link has the name now.
        Err(Errno::LOOP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Opens the file that the operator has configured, which may be a link; returns `None` if another file or version of it
/// has the path now.
pub(super) fn open_configured(path: &Path, listed: FileVersion) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    listed.checked(openat(CWD, path, flags, Mode::empty())?.into())
}

/// Returns the version of a file below a folder, without opening it; `None` if a link is on the way.
pub(super) fn version_of(root: &File, path: &Path) -> io::Result<Option<FileVersion>> {
    let Some((folder, name)) = open_parent(root, path)? else { return Ok(None) };
    FileVersion::of_entry(&folder, name).map(Some)
}

/// Opens the folder of a file below another folder; returns it with the name of the file. `None` if the path has a link, or
/// is none below the folder.
fn open_parent<'a>(root: &File, path: &'a Path) -> io::Result<Option<(File, &'a OsStr)>> {
    let mut parts = path.components().peekable();
    let mut folder = root.try_clone()?;
    while let Some(Component::Normal(name)) = parts.next() {
        if parts.peek().is_none() {
            return Ok(Some((folder, name)));
        }
        folder = match open_folder(&folder, name) {
            Ok(folder) => folder,
            Err(error) if is_replaced(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
    }
    Ok(None)
}

/// Returns whether a folder could not be opened because a link or a file has its name.
pub(super) fn is_replaced(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTDIR | Errno::LOOP))
}

/// Returns the folders and regular files in a folder, each with whether it is a folder.
pub(super) fn entries(folder: &File) -> io::Result<impl Iterator<Item = io::Result<(OsString, bool)>>> {
    let (entries, own) = (Dir::read_from(folder)?, folder.try_clone()?);
    Ok(entries.filter_map(move |entry| {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return Some(Err(error.into())),
        };
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if matches!(name.as_bytes(), b"." | b"..") {
            return None;
        }
        let kind = match entry.file_type() {
            // Some file systems do not store it with the name.
            FileType::Unknown => FileVersion::of_entry(&own, name).map(|version| version.kind),
            kind => Ok(kind),
        };
        match kind {
            Ok(FileType::Directory) => Some(Ok((name.to_owned(), true))),
            Ok(FileType::RegularFile) => Some(Ok((name.to_owned(), false))),
            Ok(_) => None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(Err(error)),
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File, FileTimes},
        io::Read,
        os::unix::fs::symlink,
        path::Path,
    };

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::{FileVersion, open_configured, open_file, open_root, version_of};

    fn listed(root: &File, path: &str) -> FileVersion {
        version_of(root, Path::new(path)).unwrap().unwrap()
    }

    fn opened(root: &File, path: &str, version: FileVersion) -> Option<String> {
        let mut text = String::new();
        open_file(root, Path::new(path), version).unwrap()?.read_to_string(&mut text).unwrap();
        Some(text)
    }

    /// Writes a file with the size and time of another one.
    fn disguise(path: &Path, content: &str, as_file: &Path) {
        fs::write(path, content).unwrap();
        let modified = fs::metadata(as_file).unwrap().modified().unwrap();
        File::options().write(true).open(path).unwrap().set_times(FileTimes::new().set_modified(modified)).unwrap();
    }

    #[test]
    fn replaced_file_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (tree, secret) = (folder.path().join("tree"), folder.path().join("secret"));
        fs::create_dir_all(tree.join("a")).unwrap();
        let file = tree.join("a/m");
        fs::write(&file, "open").unwrap();
        disguise(&secret, "hush", &file);
        let root = open_root(&tree).unwrap();
        let version = listed(&root, "a/m");
        assert_eq!(opened(&root, "a/m", version).as_deref(), Some("open"));
        fs::remove_file(&file).unwrap();
        symlink(&secret, &file).unwrap();
        assert_eq!(opened(&root, "a/m", version), None);
        assert!(!listed(&root, "a/m").is_file());
        fs::remove_file(&file).unwrap();
        fs::hard_link(&secret, &file).unwrap();
        assert_eq!(listed(&root, "a/m").validator(), version.validator());
        assert_eq!(opened(&root, "a/m", version), None);
        fs::remove_file(&file).unwrap();
        mknodat(CWD, &file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(opened(&root, "a/m", version), None);
        assert!(open_configured(&file, version).unwrap().is_none());
    }

    #[test]
    fn path_never_leaves_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (tree, outside) = (folder.path().join("tree"), folder.path().join("outside"));
        for place in [tree.join("a"), outside.clone()] {
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("m"), "x").unwrap();
        }
        let root = open_root(&tree).unwrap();
        let version = listed(&root, "a/m");
        // The folder was moved away, and a link has its name: the same file, but not below the folder.
        fs::remove_dir_all(&outside).unwrap();
        fs::rename(tree.join("a"), &outside).unwrap();
        symlink(&outside, tree.join("a")).unwrap();
        assert_eq!(opened(&root, "a/m", version), None);
        for path in ["../outside/m", "/etc/passwd", "", "a"] {
            assert_eq!(opened(&root, path, version), None, "{path}");
        }
    }
}
