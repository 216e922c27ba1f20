//! Folders and files that only their owner may use: the journal holds secrets of subscribers, URLs of webhooks, and bodies
//! of messages.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io,
    path::Path,
};

/// Creates a folder and the folders above it, each for its owner alone. A folder that exists keeps its permissions.
///
/// # Errors
/// When the operating system refuses.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Returns options that create a file for its owner alone. A file that exists keeps its permissions.
#[must_use]
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Creates an empty file for its owner alone, or empties the one that is there and takes it from everybody else.
///
/// # Errors
/// When the operating system refuses.
pub fn create_file(path: &Path) -> io::Result<File> {
    let file = options().read(true).write(true).create(true).truncate(true).open(path)?;
    take_from_others(&file)?;
    Ok(file)
}

/// Takes every permission on a file from everybody but its owner.
///
/// # Errors
/// When the operating system refuses.
pub fn take_from_others(file: &File) -> io::Result<()> {
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    #[cfg(not(unix))]
    let _ = file;
    Ok(())
}

/// Returns whether every user of the machine can read a file of a folder. Permissions of the group are the operator's
/// choice and do not count.
#[must_use]
pub fn is_readable_by_everybody(folder: &Path, file: &Path) -> bool {
    #[cfg(unix)]
    {
        let has = |path: &Path, bit| {
            path.metadata().is_ok_and(|found| std::os::unix::fs::MetadataExt::mode(&found) & bit != 0)
        };
        has(folder, 0o001) && has(file, 0o004)
    }
    #[cfg(not(unix))]
    {
        let _ = (folder, file);
        false
    }
}
