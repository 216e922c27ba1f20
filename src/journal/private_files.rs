//! Folders and files that only their owner may use, because the journal contains secrets of subscribers, URLs of
//! webhooks, and bodies of messages.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    path::Path,
};

/// Creates a folder and its missing parents, accessible only to the owner. An existing folder keeps its permissions.
///
/// # Errors
/// Fails if the operating system refuses.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Returns options that create a file accessible only to the owner. An existing file keeps its permissions.
#[must_use]
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Creates an empty file accessible only to the owner, or truncates an existing file and restricts its permissions.
///
/// # Errors
/// Fails if the operating system refuses.
pub fn create_file(path: &Path) -> io::Result<File> {
    let file = options().read(true).write(true).create(true).truncate(true).open(path)?;
    restrict_to_owner(&file)?;
    Ok(file)
}

/// Replaces a file atomically and durably by what `write` writes.
///
/// # Errors
/// Fails if `write` fails, or the operating system refuses.
pub fn replace_file(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = Path::new(&temporary);
    let mut file = create_file(temporary)?;
    let written = write(&mut file).and_then(|()| file.sync_all()).and_then(|()| fs::rename(temporary, path));
    // On a full disk, a part of a file only takes room.
    written.inspect_err(|_| drop(fs::remove_file(temporary)))
}

/// Removes all permissions on a file except those of its owner.
///
/// # Errors
/// Fails if the operating system refuses.
pub fn restrict_to_owner(file: &File) -> io::Result<()> {
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    #[cfg(not(unix))]
    let _ = file;
    Ok(())
}

/// Returns whether every user of the machine can read a file in a folder. Permissions of the group are ignored, because
/// they are the operator's choice.
#[must_use]
pub fn is_readable_by_everybody(folder: &Path, file: &Path) -> bool {
    #[cfg(unix)]
    {
        let has = |path: &Path, bit| {
            path.metadata().is_ok_and(|metadata| std::os::unix::fs::MetadataExt::mode(&metadata) & bit != 0)
        };
        has(folder, 0o001) && has(file, 0o004)
    }
    #[cfg(not(unix))]
    {
        let _ = (folder, file);
        false
    }
}
