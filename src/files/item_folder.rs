//! Folders of items: other names of stored files, replaced as a whole.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use super::part_file::blocking;

/// Replaces the folder of an item below a root by other names of files. `names` are pairs of a file and its name below the
/// folder. All names are on disk on return. A crash in the middle leaves the former item, or none.
pub(super) async fn replace(root: PathBuf, item: PathBuf, names: Vec<(PathBuf, PathBuf)>) -> io::Result<()> {
    blocking(move || {
        let (new, old) = (beside(&item, "new"), beside(&item, "old"));
        remove(&new)?;
        remove(&old)?;
        let mut folders = BTreeSet::from([new.clone()]);
        fs::create_dir_all(&new)?;
        for (file, name) in names {
            let below = name.strip_prefix(&item).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
            let name = new.join(below);
            let folder = name.parent().unwrap_or(&new).to_owned();
            fs::create_dir_all(&folder)?;
            // Not every file system has links.
            fs::hard_link(&file, &name).or_else(|_| fs::copy(&file, &name).map(drop))?;
            folders.extend(folder.ancestors().take_while(|folder| folder.starts_with(&new)).map(Path::to_owned));
        }
        folders.iter().try_for_each(|folder| File::open(folder)?.sync_all())?;
        match fs::rename(&item, &old) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::rename(&new, &item)?;
        let parents = item.ancestors().skip(1).take_while(|folder| folder.starts_with(&root));
        parents.into_iter().try_for_each(|folder| File::open(folder)?.sync_all())?;
        remove(&old)
    })
    .await
}

/// Returns the path of a hidden folder beside an item.
fn beside(item: &Path, what: &str) -> PathBuf {
    let name = item.file_name().unwrap_or_default().to_string_lossy();
    item.with_file_name(format!(".{name}.{what}"))
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
