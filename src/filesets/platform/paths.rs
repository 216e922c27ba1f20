//! Paths of the files of a dataset: which ones are safe, and how two files with the same path are told apart.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{super::IngestFailure, PlatformFile};
use crate::format::fileset::{message::ManifestFile, status::IngestStatus};

/// Maximum length of a path, in bytes.
const MAX_PATH_BYTES: usize = 1024;

/// Maximum length of a name in an item, in bytes, which is the one of most file systems.
const MAX_NAME_BYTES: usize = 255;

/// Member of `extra` with the path of the platform, if the file has another one.
const PLATFORM_PATH: &str = "platform_path";

/// Returns whether a path is relative and stays below its folder. Files are stored by their digests, so characters that some
/// operating system does not like are no danger.
pub(in crate::filesets) fn is_safe(path: &str) -> bool {
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.chars().any(char::is_control);
    path.len() <= MAX_PATH_BYTES && path.split('/').all(is_name)
}

/// Gives each file a path of its own. Entries that are the same count once. Of others with the same path, each that has
/// an alternative gets that, and the rest a number before the name.
pub(super) fn separate(files: &mut Vec<PlatformFile>) {
    let mut seen: HashMap<String, Vec<usize>> = HashMap::new();
    let mut is_repeated = vec![false; files.len()];
    for (index, file) in files.iter().enumerate() {
        let same = seen.entry(file.manifest.path.clone()).or_default();
        is_repeated[index] = same.iter().any(|other| files[*other].manifest == file.manifest);
        if !is_repeated[index] {
            same.push(index);
        }
    }
    let shared: HashSet<usize> = seen.into_values().filter(|same| same.len() > 1).flatten().collect();
    for (index, file) in files.iter_mut().enumerate() {
        if shared.contains(&index)
            && let Some(alternative) = file.alternative.take()
        {
            rename(&mut file.manifest, alternative);
        }
    }
    let mut repeated = is_repeated.into_iter();
    files.retain(|_| !repeated.next().unwrap_or_default());
    number(files.iter_mut().map(|file| &mut file.manifest));
}

/// Gives each entry a path of its own: a number before the name of those whose path an earlier one has.
pub(in crate::filesets) fn number<'m>(entries: impl IntoIterator<Item = &'m mut ManifestFile>) {
    let mut taken = HashSet::new();
    let mut last: HashMap<String, u32> = HashMap::new();
    for entry in entries {
        let original = entry.path.clone();
        while !taken.insert(entry.path.clone()) {
            let number = last.entry(original.clone()).or_insert(1);
            *number += 1;
            let path = match original.rsplit_once('/') {
                Some((folder, name)) => format!("{folder}/{number}-{name}"),
                None => format!("{number}-{original}"),
            };
            rename(entry, path);
        }
    }
}

/// Changes the path of an entry, and keeps the one of the platform in `extra`.
fn rename(entry: &mut ManifestFile, path: String) {
    if entry.path == path {
        return;
    }
    let former = std::mem::replace(&mut entry.path, path);
    entry.extra.get_or_insert_default().entry(PLATFORM_PATH).or_insert(Value::String(former));
}

/// Returns the path with an identifier before the name, as an alternative for a path that another file has too.
pub(super) fn with_id(path: &str, id: impl std::fmt::Display) -> Option<String> {
    Some(match path.rsplit_once('/') {
        Some((folder, name)) => format!("{folder}/{id}-{name}"),
        None => format!("{id}-{path}"),
    })
}

/// Checks that an item can have all paths, which are the names of files in folders.
///
/// # Errors
/// Fails if a name is too long, or a file has the path of a folder of another one.
pub(in crate::filesets) fn check_item<'p>(paths: impl IntoIterator<Item = &'p str>) -> Result<(), IngestFailure> {
    let impossible = |path: &str, reason: &str| {
        let message = format!("an item cannot have the path {path:?}: {reason}");
        Err(IngestFailure::permanent(IngestStatus::UNSAFE_PATH, message))
    };
    let paths: HashSet<&str> = paths.into_iter().collect();
    for path in &paths {
        if path.split('/').any(|name| name.len() > MAX_NAME_BYTES) {
            return impossible(path, "a name in it has more than 255 bytes");
        }
        let mut folders = path.match_indices('/').map(|(end, _)| &path[..end]);
        if let Some(folder) = folders.find(|folder| paths.contains(folder)) {
            return impossible(path, &format!("{folder:?} is a file"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::PlatformFile, ManifestFile, check_item, is_safe, separate};

    #[test]
    fn paths_stay_below_their_folder() {
        for path in ["a", "a b/c.csv", "...", "ü/..a", "a:b", "C:x", "a\\b", "A: x.txt"] {
            assert!(is_safe(path), "{path}");
        }
        for path in ["", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\0", "a\nb", &"a".repeat(1025)] {
            assert!(!is_safe(path), "{path:?}");
        }
    }

    #[test]
    fn files_with_the_same_path_are_told_apart() {
        let file = |path: &str, url: &str, alternative: Option<&str>| PlatformFile {
            alternative: alternative.map(str::to_owned),
            ..PlatformFile::new(ManifestFile {
                path: path.to_owned(),
                platform_url: Some(url.to_owned()),
                ..ManifestFile::default()
            })
        };
        let paths = |mut files: Vec<PlatformFile>| {
            separate(&mut files);
            files.into_iter().map(|file| file.manifest.path).collect::<Vec<_>>()
        };
        assert_eq!(paths(vec![file("a", "1", None), file("a", "1", None)]), ["a"]);
        assert_eq!(
            paths(vec![file("d/a", "1", Some("d/7-a")), file("b", "3", Some("x")), file("d/a", "2", Some("d/8-a"))]),
            ["d/7-a", "b", "d/8-a"]
        );
        let table = file("data.csv", "1", Some("data.tab"));
        assert_eq!(paths(vec![table, file("data.csv", "2", None)]), ["data.tab", "data.csv"]);
        let numbered = paths(vec![
            file("d/a", "1", None),
            file("d/a", "2", None),
            file("d/2-a", "3", None),
            file("d/a", "4", None),
        ]);
        assert_eq!(numbered, ["d/a", "d/2-a", "d/2-2-a", "d/3-a"]);
    }

    #[test]
    fn item_has_files_in_folders() {
        assert!(check_item(["a", "b/c", "b/d", "ab"]).is_ok());
        assert!(check_item(["a/b", "a"]).is_err() && check_item(["a", "b/c/d", "b/c"]).is_err());
        assert!(check_item([&*"n".repeat(255)]).is_ok() && check_item([&*format!("a/{}", "n".repeat(256))]).is_err());
    }
}
