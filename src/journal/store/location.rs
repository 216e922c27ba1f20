//! Location of a journal: a folder, or a database.

use std::{fmt, path::PathBuf};

use super::postgres::PostgresUrl;

/// Location of a journal.
#[derive(Clone, Debug)]
pub enum StoreLocation {
    /// Folder of an SQLite file.
    Folder(PathBuf),
    /// PostgreSQL database.
    Postgres(PostgresUrl),
}

/// Prints the folder, or the URL of the database without user and password.
impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => folder.display().fmt(f),
            Self::Postgres(url) => url.fmt(f),
        }
    }
}

/// Content of a location in which a journal can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreContent {
    /// A journal.
    Journal,
    /// No journal; opening creates a new one.
    Empty,
}
