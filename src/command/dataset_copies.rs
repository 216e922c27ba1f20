//! Copies of the files of an archived dataset, under their names.

use std::{
    fs::File,
    io::{self, Write},
    path::{Component, Path, PathBuf},
};

use futures_util::TryStreamExt;
use tidings::{
    files::{FileDigest, FileHasher, FileStore},
    format::fileset::message::FilesetResult,
};

/// Name of the file in which all files of a dataset are, if its platform has bundled them.
const BUNDLE: &str = "dataset.zip";

/// Copies the files of an archived dataset from the store into a folder, and returns their number. A file that the folder
/// has already is left as it is.
///
/// # Errors
/// Fails if a file cannot be copied, or the folder has another file with its name.
pub(super) async fn copy_files(store: &FileStore, result: &FilesetResult, folder: &Path) -> Result<u64, String> {
    let bundle = result.fileset_bundle.as_ref().and_then(|bundle| bundle.capture.file_meta.as_ref());
    let files: Vec<_> = match bundle {
        Some(bundle) => vec![(BUNDLE, Some(bundle.sha256hex.as_str()))],
        None => result.manifest.iter().flatten().map(|file| (file.path.as_str(), file.sha256.as_deref())).collect(),
    };
    let mut copied = 0;
    for (path, digest) in files {
        let to = path_below(folder, path).ok_or_else(|| format!("the path {path:?} leaves the folder"))?;
        let digest = digest.and_then(FileDigest::parse).ok_or_else(|| format!("{path} has no SHA-256"))?;
        copy(store, digest, &to).await.map_err(|reason| format!("cannot write {}: {reason}", to.display()))?;
        copied += 1;
    }
    Ok(copied)
}

/// Returns the path of a file below a folder; `None` if it is not below. The names are those of a foreign platform.
fn path_below(folder: &Path, path: &str) -> Option<PathBuf> {
    let is_below = Path::new(path).components().all(|component| matches!(component, Component::Normal(_)));
    (is_below && !path.is_empty()).then(|| folder.join(path))
}

/// Copies a file of the store. A copy that is interrupted has the extension `.partial`.
async fn copy(store: &FileStore, digest: FileDigest, to: &Path) -> Result<(), String> {
    match digest_of(to) {
        Ok(existing) if existing == digest => return Ok(()),
        Ok(_) => return Err("another file has this name; give an empty folder".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.to_string()),
    }
    let text = |error: io::Error| error.to_string();
    let content = store.read(digest, None).await.map_err(|error| error.to_string())?;
    let mut content = content.ok_or_else(|| format!("the archive lacks the file {digest}"))?;
    if let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent).map_err(text)?;
    }
    let partial = partial_name(to);
    let mut file = File::create(&partial).map_err(text)?;
    while let Some(piece) = content.pieces.try_next().await.map_err(|error| error.to_string())? {
        file.write_all(&piece).map_err(text)?;
    }
    std::fs::rename(&partial, to).map_err(text)
}

fn partial_name(to: &Path) -> PathBuf {
    let mut name = to.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// Returns the digest of a file of the operating system.
fn digest_of(path: &Path) -> io::Result<FileDigest> {
    struct Hashing(FileHasher);
    impl Write for Hashing {
        fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
            self.0.update(piece);
            Ok(piece.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut hashing = Hashing(FileHasher::default());
    io::copy(&mut File::open(path)?, &mut hashing)?;
    Ok(hashing.0.finish().digest)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::path_below;

    #[test]
    fn names_stay_below_the_folder() {
        let folder = Path::new("out");
        assert_eq!(path_below(folder, "a/b.csv"), Some(folder.join("a/b.csv")));
        for path in ["", "/etc/passwd", "../a", "a/../../b", "./a"] {
            assert_eq!(path_below(folder, path), None, "{path}");
        }
    }
}
