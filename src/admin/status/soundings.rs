//! Soundings: what no part publishes, and the gateway must ask a disk or the journal for. They are taken at intervals, so
//! that a request for the status waits for neither.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use super::{StatusParts, archive::ArchiveFacts};
use crate::{
    journal::{
        Journal, JournalError,
        due::DeniedItems,
        quarantine::{QuarantineReason, QuarantineShare, QuarantineSize},
        store::sqlite,
    },
    model::Timestamp,
};

/// Least room on a disk, in bytes.
const LEAST_ROOM: u64 = 1_000_000_000;

/// Least share of a small disk that must be free: one of so many parts.
const LEAST_PART: u64 = 10;

/// Maximum number of reasons of the quarantine.
const MAX_REASONS: usize = 20;

/// Wait after a question, as a multiple of the time that the answer took. So the questions take a twentieth of the time, and
/// a problem is known within five seconds if the answer takes less than a tenth of a second.
const WAIT_FACTOR: u32 = 20;

/// Maximum of that wait.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Facts of the last sounding.
#[derive(Clone, Debug, Default)]
pub(super) struct Soundings {
    /// Room on the disk of the data folder; `None` if it is unknown.
    pub(super) disk: Option<DiskRoom>,
    /// Size of the files of the journal, in bytes; `None` if they are not in the data folder.
    pub(super) journal_bytes: Option<u64>,
    /// Messages in the quarantine, by the names of their sources.
    pub(super) quarantine: BTreeMap<String, QuarantineShare>,
    /// Number of messages that the quarantine has deleted because it is full.
    pub(super) lost: u64,
    /// The most frequent reasons of the quarantine.
    pub(super) reasons: Vec<QuarantineReason>,
    /// Time of the last backup of the journal in the data folder, if there was one.
    pub(super) last_backup: Option<Timestamp>,
    /// Room on the disk of the file store; `None` if that is no folder, or the room is unknown.
    pub(super) files_disk: Option<FilesDisk>,
    /// Archived datasets and stored files.
    pub(super) archive: ArchiveFacts,
    /// Items whose sources have denied that their date had come.
    pub(super) denied: Vec<DeniedItems>,
    /// Size of the quarantine for which the shares were read.
    shares_size: QuarantineSize,
    /// Size of the quarantine for which the reasons were read.
    reasons_size: QuarantineSize,
    reasons_pace: Pace,
}

/// Pace of a question to the journal whose answer can take long: after a slow answer, the next question waits for longer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Time before which the journal is not asked again.
    next: Option<Instant>,
}

impl Pace {
    /// Returns the pace after an answer that took this time.
    pub(super) fn after(answer: Duration) -> Self {
        Self { next: Some(Instant::now() + answer.saturating_mul(WAIT_FACTOR).min(LONGEST_WAIT)) }
    }

    /// Returns whether the journal may be asked.
    pub(super) fn is_due(self) -> bool {
        self.next.is_none_or(|next| next <= Instant::now())
    }
}

/// Room on a disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DiskRoom {
    /// Room that this process can use.
    pub(super) free: u64,
    /// Size of the disk.
    pub(super) size: u64,
}

/// Room on the disk of the file store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilesDisk {
    /// The room.
    pub(super) room: DiskRoom,
    /// Whether it is another disk than that of the data folder.
    pub(super) is_other: bool,
}

impl FilesDisk {
    /// Returns the room on the disk of a file store, whose folder the first file makes; `None` if it is unknown.
    #[cfg(unix)]
    fn of(files: &Path, data: &Path) -> Option<Self> {
        let folder = files.ancestors().find(|folder| folder.is_dir())?;
        let device = |folder: &Path| rustix::fs::stat(folder).ok().map(|stat| stat.st_dev);
        Some(Self { room: DiskRoom::of(folder)?, is_other: device(folder) != device(data) })
    }

    #[cfg(not(unix))]
    fn of(_: &Path, _: &Path) -> Option<Self> {
        None
    }
}

impl DiskRoom {
    /// Returns the room on the disk of a folder; `None` if it is unknown.
    #[cfg(unix)]
    pub(super) fn of(folder: &Path) -> Option<Self> {
        let disk = rustix::fs::statvfs(folder).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Some(Self { free: bytes(disk.f_bavail), size: bytes(disk.f_blocks) })
    }

    #[cfg(not(unix))]
    pub(super) fn of(_: &Path) -> Option<Self> {
        None
    }

    /// Returns whether the room is a problem: less than 1 GB, and less than a tenth of a disk of up to 10 GB.
    pub(super) fn is_scarce(&self) -> bool {
        self.free < LEAST_ROOM.min(self.size / LEAST_PART)
    }
}

impl Soundings {
    /// Asks the disk and the journal. Where one of them fails, the last answer stays, and the journal notes its outage.
    pub(super) async fn take(&mut self, parts: &StatusParts) {
        let StatusParts { journal, sources, folder, files, .. } = parts;
        let (folder, files) = (folder.clone(), files.folder.clone());
        let measured = tokio::task::spawn_blocking(move || {
            let files_disk = files.and_then(|files| FilesDisk::of(&files, &folder));
            (DiskRoom::of(&folder), journal_bytes(&folder), sqlite::backup::last_backup(&folder), files_disk)
        });
        if let Ok(measured) = measured.await {
            (self.disk, self.journal_bytes, self.last_backup, self.files_disk) = measured;
        }
        // The journal notes a failure as its outage, which is a problem by itself.
        let _ = self.count_quarantine(journal).await;
        let _ = self.archive.take(journal, &sources.harvests).await;
        let _ = self.find_denied(journal).await;
        if journal.outage().is_some() {
            // A probe before the first failure would prove less than a message, and make the gateway ready without one.
            let _ = journal.check_writable().await;
        }
    }

    async fn find_denied(&mut self, journal: &Journal) -> Result<(), JournalError> {
        self.denied = journal.denied_items().await?;
        Ok(())
    }

    async fn count_quarantine(&mut self, journal: &Journal) -> Result<(), JournalError> {
        // The size can be in memory, and would then prove that the journal can be read.
        journal.stored_head().await?;
        let size = journal.quarantine_size().await?;
        self.lost = journal.quarantine_loss().await?;
        if size != self.shares_size {
            self.quarantine = journal.quarantine_shares().await?;
            self.shares_size = size;
        }
        if size != self.reasons_size && self.reasons_pace.is_due() {
            let began = Instant::now();
            self.reasons = journal.quarantine_reasons(MAX_REASONS).await?;
            (self.reasons_size, self.reasons_pace) = (size, Pace::after(began.elapsed()));
        }
        Ok(())
    }
}

/// Returns the size of an SQLite journal with its write-ahead log; `None` if the folder has none.
fn journal_bytes(folder: &Path) -> Option<u64> {
    let size = |name: &str| fs::metadata(folder.join(name)).map(|file| file.len()).ok();
    let log = format!("{}-wal", sqlite::FILE_NAME);
    Some(size(sqlite::FILE_NAME)? + size(&log).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::DiskRoom;

    #[test]
    fn room_is_scarce_below_a_gigabyte_or_a_tenth_of_a_small_disk() {
        let is_scarce = |free, size| DiskRoom { free, size }.is_scarce();
        assert!(is_scarce(999_999_999, 100_000_000_000) && !is_scarce(1_000_000_000, 100_000_000_000));
        assert!(is_scarce(6_000_000, 64_000_000) && !is_scarce(7_000_000, 64_000_000));
    }
}
