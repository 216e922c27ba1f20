//! Files of a copy in a folder. A file is written under another name, synced and renamed.
//!
//! Every user of the machine may read the files and the folders, whatever the umask of the gateway is, because a web server
//! runs as another user.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    path::Path,
};

use tokio_util::sync::CancellationToken;

use crate::web::Content;

/// Folder of unfinished files. Each run removes the files that a crash has left in it.
const UNFINISHED: &str = ".unfinished";

/// Returns the name of something in the folder besides the index and unfinished files; `None` if there is nothing else, or no
/// folder.
pub(super) fn other_entry(root: &Path) -> io::Result<Option<String>> {
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != UNFINISHED && name != super::index::NAME {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Makes the folder of the copy if it does not exist, and removes unfinished files.
pub(super) fn prepare(root: &Path) -> io::Result<()> {
    make_folders(root)?;
    let unfinished = root.join(UNFINISHED);
    match fs::remove_dir_all(&unfinished) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir(unfinished)
}

/// Writes a file and returns its size in bytes. On return, the file and its name are on disk.
pub(super) fn write(root: &Path, name: &str, content: &Content) -> io::Result<u64> {
    let path = root.join(name);
    let folder = path.parent().unwrap_or(root);
    make_folders(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(root.join(UNFINISHED))?;
    let bytes = io::copy(&mut content.reader(), &mut file)?;
    permit_reading(file.path(), 0o644)?;
    file.as_file().sync_all()?;
    file.persist(&path).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()?;
    Ok(bytes)
}

/// Removes a file, or a folder with everything in it, until `stop` is cancelled, and returns the number of files. A link is
/// removed, and not the place that it leads to.
pub(super) fn remove(path: &Path, stop: &CancellationToken) -> io::Result<u64> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
        Ok(found) if found.is_dir() => {
            let mut number = 0;
            for entry in fs::read_dir(path)? {
                if stop.is_cancelled() {
                    return Ok(number);
                }
                number += remove(&entry?.path(), stop)?;
            }
            fs::remove_dir(path).map(|()| number)
        }
        Ok(_) => fs::remove_file(path).map(|()| 1),
    }
}

/// Makes removals in the folder itself, and in a folder of it, outlive a crash of the machine.
pub(super) fn sync_removals(root: &Path, inner: &str) -> io::Result<()> {
    match File::open(root.join(inner)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        inner => inner?.sync_all()?,
    }
    File::open(root)?.sync_all()
}

/// Makes a folder, and those that it is in.
fn make_folders(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        make_folders(parent)?;
    }
    fs::create_dir(folder)?;
    permit_reading(folder, 0o755)?;
    parent.map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

#[cfg(unix)]
fn permit_reading(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
}

#[cfg(not(unix))]
fn permit_reading(_: &Path, _: u32) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use bytes::Bytes;

    use super::{CancellationToken, Content, UNFINISHED, prepare, remove, write};

    #[test]
    fn removal_follows_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let (copy, other) = (folder.path().join("iiif"), folder.path().join("other"));
        for file in [other.join("mine"), copy.join("edition/page-1.json")] {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "text").unwrap();
        }
        std::os::unix::fs::symlink(&other, copy.join("images")).unwrap();
        let stop = CancellationToken::new();
        assert_eq!(remove(&copy, &stop).unwrap(), 2);
        std::os::unix::fs::symlink(&other, &copy).unwrap();
        assert_eq!(remove(&copy, &stop).unwrap(), 1);
        assert_eq!(remove(&copy, &stop).unwrap(), 0);
        assert!(!copy.exists() && other.join("mine").exists());
        stop.cancel();
        assert_eq!(remove(&other, &stop).unwrap(), 0);
        assert!(other.join("mine").exists(), "nobody waits");
    }

    #[test]
    fn files_are_replaced_and_everybody_may_read_them() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("a/copy");
        prepare(&root).unwrap();
        fs::write(root.join(UNFINISHED).join("left"), "by a crash").unwrap();
        prepare(&root).unwrap();
        for text in ["one", "another"] {
            let written = write(&root, "feed/1/2.atom", &Content::from(Bytes::from_static(text.as_bytes()))).unwrap();
            assert_eq!(written, text.len() as u64);
            assert_eq!(fs::read_to_string(root.join("feed/1/2.atom")).unwrap(), text);
        }
        let mode = |name: &str| fs::metadata(root.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!([mode("feed/1/2.atom"), mode("feed/1"), mode("feed"), mode("")], [0o644, 0o755, 0o755, 0o755]);
        assert_eq!(fs::read_dir(root.join(UNFINISHED)).unwrap().count(), 0);
    }
}
