//! List of the files of a folder, in the order of their paths.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    path::{Path, PathBuf},
    vec,
};

use super::{
    listed_file::{self, FileVersion, is_replaced, open_folder, open_root},
    member::{is_hidden, short_name},
};

/// Maximum number of names of one folder, which are sorted in memory.
const MAX_NAMES: usize = 1_000_000;

/// Maximum number of folders on the way to a file. The walk has each of them open.
const MAX_DEPTH: usize = 128;

/// Maximum number of remarks about folders that cannot be read.
const MAX_REMARKS: usize = 3;

/// A walk through a folder and the folders in it. Symbolic links, special files and hidden ones are left out.
pub(super) struct Walk {
    root: PathBuf,
    after: PathBuf,
    levels: Vec<Level>,
    /// Remarks about folders that could not be read.
    pub(super) remarks: Vec<String>,
    /// Whether a folder could not be read.
    pub(super) is_short: bool,
}

/// The rest of a folder.
struct Level {
    /// Path in the walk.
    path: PathBuf,
    folder: File,
    names: vec::IntoIter<(OsString, bool)>,
}

/// A file of a walk.
pub(super) struct ListedFile {
    /// Path in the walk.
    pub(super) path: PathBuf,
    pub(super) version: FileVersion,
}

impl Walk {
    /// Begins a walk after a path.
    ///
    /// # Errors
    /// Fails if the folder itself cannot be read, or has too many names.
    pub(super) fn begin(root: &Path, after: &Path) -> io::Result<Self> {
        let (root, after) = (root.to_owned(), after.to_owned());
        let mut walk = Self { root, after, levels: Vec::new(), remarks: Vec::new(), is_short: false };
        let level = walk.level(PathBuf::new(), open_root(&walk.root)?)?;
        walk.levels.push(level);
        Ok(walk)
    }

    /// Returns the next file; `None` at the end.
    pub(super) fn next(&mut self) -> Option<ListedFile> {
        loop {
            let depth = self.levels.len();
            let level = self.levels.last_mut()?;
            let Some((name, is_folder)) = level.names.next() else {
                self.levels.pop();
                continue;
            };
            let path = level.path.join(&name);
            if is_folder {
                let folder = if depth < MAX_DEPTH {
                    open_folder(&level.folder, &name)
                } else {
                    Err(io::Error::other(format!("it is more than {MAX_DEPTH} folders deep")))
                };
                match folder.and_then(|folder| self.level(path.clone(), folder)) {
                    Ok(level) => self.levels.push(level),
                    // It was removed, or replaced by a link, a moment ago.
                    Err(error) if error.kind() == io::ErrorKind::NotFound || is_replaced(&error) => {}
                    Err(error) => self.skip(&path, &error),
                }
                continue;
            }
            match FileVersion::of_entry(&level.folder, &name) {
                Ok(version) if version.is_file() => return Some(ListedFile { path, version }),
                // It was removed or replaced a moment ago.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.skip(&path, &error),
            }
        }
    }

    /// Notes that files may be missing in the list.
    fn skip(&mut self, path: &Path, error: &io::Error) {
        self.is_short = true;
        if self.remarks.len() < MAX_REMARKS {
            let path = short_name(&self.root.join(path).to_string_lossy());
            self.remarks
                .push(format!("{path} cannot be read: {error}; nothing is deleted by this run; check the permissions"));
        }
    }

    /// Reads the names of a folder that are not before the start of the walk.
    fn level(&self, path: PathBuf, folder: File) -> io::Result<Level> {
        let start = self.after.strip_prefix(&path).ok().and_then(|rest| {
            let mut rest = rest.iter();
            rest.next().map(|name| (name, rest.next().is_some()))
        });
        let is_left =
            |name: &OsStr| start.is_none_or(|(first, is_inside)| name > first || (name == first && is_inside));
        let mut names = Vec::new();
        for entry in listed_file::entries(&folder)? {
            let (name, is_folder) = entry?;
            if is_left(&name) && !is_hidden(Path::new(&name)) {
                names.push((name, is_folder));
            }
            if names.len() > MAX_NAMES {
                return Err(io::Error::other(format!("the folder has more than {MAX_NAMES} files; divide it")));
            }
        }
        names.sort_unstable();
        Ok(Level { path, folder, names: names.into_iter() })
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::Walk;

    fn paths(root: &Path, after: &str) -> Vec<String> {
        let mut walk = Walk::begin(root, Path::new(after)).unwrap();
        let paths = std::iter::from_fn(|| walk.next()).map(|file| file.path.to_str().unwrap().to_owned()).collect();
        assert!(!walk.is_short && walk.remarks.is_empty());
        paths
    }

    #[test]
    fn walk_lists_files_in_order_from_any_path() {
        let root = tempfile::tempdir().unwrap();
        let all = ["a/b/c", "a/b.x", "a/d", "a.x", "b", "c/x/y/z", "z"];
        for path in all.into_iter().chain([".hidden", ".cache/x", "a/.DS_Store"]) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        fs::create_dir(root.path().join("empty")).unwrap();
        std::os::unix::fs::symlink("/etc", root.path().join("link")).unwrap();
        std::os::unix::fs::symlink("b", root.path().join("other")).unwrap();
        assert_eq!(paths(root.path(), ""), all);
        for (index, after) in all.iter().enumerate() {
            assert_eq!(paths(root.path(), after), all[index + 1..], "{after}");
        }
        // The path of the position no longer exists.
        assert_eq!(paths(root.path(), "a/b/a"), all);
        assert_eq!(paths(root.path(), "a/b/z"), all[1..]);
        // The folder of the position is a file now, which may be listed twice.
        assert_eq!(paths(root.path(), "b/x/y"), all[4..]);
        assert_eq!(paths(root.path(), "zz"), [""; 0]);
        assert!(Walk::begin(&root.path().join("absent"), Path::new("")).is_err());
    }
}
