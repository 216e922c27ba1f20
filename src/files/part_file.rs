//! Files that are being written in a folder. Their bytes survive the end of the process, so that a later one can
//! continue the file.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path as FilePath, PathBuf},
};

use bytes::Bytes;
use tokio::task::spawn_blocking;

/// Number of bytes that are written at once.
const WRITE_BYTES: usize = 1024 * 1024;

/// A file that is being written, locked against other processes.
pub(super) struct PartFile {
    path: PathBuf,
    /// `None` while a thread writes, and after a failed write.
    file: Option<File>,
    /// Bytes that are not written yet.
    pieces: Vec<Bytes>,
    pending: usize,
}

impl PartFile {
    /// Opens a file, which is created if it does not exist. The next bytes are appended.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(io::Error::other("another process is writing the file")),
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => {}
        }
        file.seek(SeekFrom::End(0))?;
        Ok(Self { path, file: Some(file), pieces: Vec::new(), pending: 0 })
    }

    /// Passes the bytes that the file has to `each`, from the beginning.
    pub(super) async fn read_from_start(&mut self, mut each: impl FnMut(Bytes)) -> io::Result<()> {
        let mut file = self.file.take().ok_or_else(failed_before)?;
        file.seek(SeekFrom::Start(0))?;
        loop {
            let (read_file, piece) = blocking(move || {
                let mut piece = Vec::with_capacity(WRITE_BYTES);
                (&mut file).take(WRITE_BYTES as u64).read_to_end(&mut piece)?;
                Ok((file, piece))
            })
            .await?;
            file = read_file;
            if piece.is_empty() {
                self.file = Some(file);
                return Ok(());
            }
            each(piece.into());
        }
    }

    /// Removes the bytes that the file has.
    pub(super) fn truncate(&mut self) -> io::Result<()> {
        (self.pieces, self.pending) = (Vec::new(), 0);
        let file = self.file.as_mut().ok_or_else(failed_before)?;
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0)).map(drop)
    }

    /// Appends bytes.
    pub(super) async fn write(&mut self, piece: Bytes) -> io::Result<()> {
        self.pending += piece.len();
        self.pieces.push(piece);
        if self.pending < WRITE_BYTES { Ok(()) } else { self.flush().await }
    }

    /// Passes all bytes to the operating system, so that they survive the end of the process.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        let mut file = self.file.take().ok_or_else(failed_before)?;
        let pieces = std::mem::take(&mut self.pieces);
        self.pending = 0;
        let write = move || {
            pieces.iter().try_for_each(|piece| file.write_all(piece))?;
            Ok(file)
        };
        self.file = Some(blocking(write).await?);
        Ok(())
    }

    /// Moves the file, which was flushed, to its name.
    pub(super) async fn rename(self, name: PathBuf) -> io::Result<()> {
        let Self { path, file, .. } = self;
        // The lock ends after the file has its new name.
        blocking(move || rename(&path, &name).map(|()| drop(file))).await
    }

    /// Removes the file.
    pub(super) async fn remove(self) -> io::Result<()> {
        let Self { path, file, .. } = self;
        blocking(move || fs::remove_file(path).map(|()| drop(file))).await
    }
}

/// Moves a file to another name.
fn rename(path: &FilePath, name: &FilePath) -> io::Result<()> {
    fs::create_dir_all(name.parent().unwrap_or(FilePath::new(".")))?;
    fs::rename(path, name)
}

/// Writes files and their names below a folder to the disk.
pub(super) async fn sync_all(root: PathBuf, files: Vec<PathBuf>) -> io::Result<()> {
    let sync = move || {
        let mut folders = BTreeSet::new();
        for file in &files {
            File::open(file)?.sync_all()?;
            folders.extend(file.ancestors().skip(1).take_while(|folder| folder.starts_with(&root)));
        }
        folders.iter().try_for_each(|folder| File::open(folder)?.sync_all())
    };
    blocking(sync).await
}

/// Writes a small file at once: a reader finds the former file or the new one. A crash of the machine may lose it.
pub(super) fn replace(path: &FilePath, content: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = path.with_extension("new");
    fs::write(&new, content)?;
    fs::rename(&new, path)
}

fn failed_before() -> io::Error {
    io::Error::other("an earlier write failed")
}

/// Runs file operations on a thread for blocking calls.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(work).await.unwrap_or_else(|_| Err(io::Error::other("the program is stopping")))
}
