//! One file of an export, in one of the formats.

use std::{fs::File, io};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{NumberedChange, Skipped, ndjson::LineWriter};

/// Compression of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Compression {
    /// Zstandard (RFC 8878).
    Zst,
    /// Gzip (RFC 1952).
    Gz,
}

/// Format of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Format {
    /// Parquet.
    Parquet,
    /// The JSON of each change on a line.
    Ndjson(Option<Compression>),
}

/// Writer of one file.
pub(super) trait PartitionWriter: Send {
    /// Adds changes, and returns how many of them were written. The others are skipped.
    fn add(&mut self, changes: &[NumberedChange], skipped: &mut Skipped) -> io::Result<u64>;

    /// Completes the file. It is not synced.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

impl Format {
    /// Returns the extension of the files.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Ndjson(None) => "ndjson",
            Self::Ndjson(Some(Compression::Zst)) => "ndjson.zst",
            Self::Ndjson(Some(Compression::Gz)) => "ndjson.gz",
        }
    }

    /// Returns the options that select the format.
    pub(super) fn options(self) -> &'static str {
        match self {
            Self::Parquet => "--parquet",
            Self::Ndjson(None) => "--ndjson",
            Self::Ndjson(Some(Compression::Zst)) => "--ndjson --compress zst",
            Self::Ndjson(Some(Compression::Gz)) => "--ndjson --compress gz",
        }
    }

    /// Returns the error about a format that this build lacks.
    pub(super) fn missing(self) -> Option<String> {
        match self {
            Self::Parquet => tidings::features::missing("parquet"),
            Self::Ndjson(_) => None,
        }
    }

    /// Starts a file.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(super) fn writer(self, file: File, journal: Uuid) -> io::Result<Box<dyn PartitionWriter>> {
        match self {
            Self::Ndjson(compression) => Ok(Box::new(LineWriter::new(file, compression)?)),
            #[cfg(feature = "parquet")]
            Self::Parquet => Ok(Box::new(super::parquet::ParquetWriter::new(file, journal)?)),
            // `missing` has refused it.
            #[cfg(not(feature = "parquet"))]
            Self::Parquet => Err(io::Error::other(format!("{:?} of {journal}", self.missing()))),
        }
    }
}
