//! The file of the recorded flow, `flow.json` in the data folder. It only makes a restart invisible: whoever deletes it
//! loses the past of the flow and nothing else.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::ring::Rings;
use crate::{journal::private_files, model::Seq};

/// Name of the file.
pub(super) const NAME: &str = "flow.json";

/// Version of the content. A file of another version is foreign.
const VERSION: u32 = 1;

/// Maximum size of the file in bytes. That of the largest flow that is recorded is smaller.
const MAX_BYTES: u64 = 32 << 20;

/// Content of the file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FlowFile {
    version: u32,
    /// Identity of the journal whose flow this is.
    journal: Uuid,
    /// Number of the last change that is counted.
    pub(super) counted: Seq,
    pub(super) rings: Rings,
}

/// Reason why a file is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
    #[error("it is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
    #[error("it is larger than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("it has another form than this version writes")]
    Foreign,
    #[error("it is of another journal")]
    OtherJournal,
}

impl FlowFile {
    pub(super) fn new(journal: Uuid, counted: Seq, rings: Rings) -> Self {
        Self { version: VERSION, journal, counted, rings }
    }

    /// Reads the file of a journal; `None` if there is none.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is damaged, or is not of this journal and this version.
    pub(super) fn read(path: &Path, journal: Uuid) -> Result<Option<Self>, FileError> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        if file.metadata()?.len() > MAX_BYTES {
            return Err(FileError::TooLarge);
        }
        let read: Self = serde_json::from_reader(BufReader::new(file.take(MAX_BYTES)))?;
        if read.version != VERSION || !read.rings.are_sound() {
            return Err(FileError::Foreign);
        }
        if read.journal != journal {
            return Err(FileError::OtherJournal);
        }
        Ok(Some(read))
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        private_files::replace_file(path, |file| {
            let mut out = BufWriter::new(file);
            serde_json::to_writer(&mut out, self)?;
            out.flush()
        })
    }
}
