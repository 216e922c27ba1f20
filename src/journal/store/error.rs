//! The error of a store.

use std::fmt;

use crate::model::{Seq, Uri};

/// Reasons why a store could not execute a call.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk of the folder or of the database server is full.
    #[error("the disk is full; free some space on the disk of the journal, and the gateway resumes automatically")]
    Full,
    /// The journal is read-only, or the gateway has too few rights: on the folder, or in the database.
    #[error("the gateway has no rights to use the journal, or to write it ({0}); {1}")]
    ReadOnly(String, Remedy),
    /// The operating system failed to read or write.
    #[error("the journal cannot be read or written ({0}); check the disk, and whether it is still mounted for writing")]
    Io(String),
    /// A file of the journal was removed or replaced while the gateway has it open; nothing was written.
    #[error(
        "the journal cannot be written ({0} while the gateway has it open, so that changes would be lost); put the file \
         back where it was, and the gateway resumes automatically, or restart the gateway to use the file that is there"
    )]
    Displaced(String),
    /// The storage does not respond in time, or another process has locked it, or the connection to it was lost.
    #[error("the journal's storage is not available ({0}); the gateway retries automatically")]
    Unavailable(String),
    /// The node has lost the duty that it writes for; nothing was written.
    #[error("this node has lost the duty that it wrote for; another node continues it")]
    DutyLost,
    /// One change is invalid; the changes beside it may be intact.
    #[error(
        "change {seq} is damaged ({what}); `tidings verify` finds all damage, a backup may contain the change, and a \
         reader skips it by continuing after {seq}"
    )]
    DamagedChange {
        /// Number of the change.
        seq: Seq,
        /// Description of the damage.
        what: String,
    },
    /// One object of the registry is invalid; the others may be intact.
    #[error("the registry's rows of the object {uri} are damaged ({what}); `tidings verify` finds all damage")]
    DamagedObject {
        /// The object.
        uri: Uri,
        /// Description of the damage.
        what: String,
    },
    /// The database does not have the tables of a journal, or not all of them, although the role could see them.
    #[error(
        "tables of the journal are missing in the database ({0}); check that journal.store names the right database, and \
         whether somebody has removed or renamed them"
    )]
    Missing(String),
    /// Stored data does not have its type.
    #[error(
        "data of the journal cannot be read ({0}); stop the gateway and run `tidings verify`, which lists all damage"
    )]
    Damaged(String),
    /// A value of this call is larger than the storage allows; nothing of the call was written.
    #[error("the journal's storage refused a value that is too large ({0}); send less in one message")]
    TooLarge(String),
    /// The store refuses only this call; nothing of it was written.
    #[error("the journal's storage refused this call and wrote nothing of it ({0}); report this error")]
    Refused(String),
}

/// Advice on a journal that cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// For a journal in a folder.
    Folder,
    /// For a journal in a database.
    Database,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Folder => "check its folder's permissions and mount",
            Self::Database => {
                "make the gateway's role the owner of the schema \"tidings\", or of the database if that schema does not \
                 exist yet"
            }
        })
    }
}

impl StoreError {
    /// Returns whether the same call may succeed later, without a repair of the journal.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Full
            | Self::ReadOnly(..)
            | Self::Io(_)
            | Self::Displaced(_)
            | Self::Unavailable(_)
            | Self::DutyLost
            | Self::Missing(_) => true,
            Self::DamagedChange { .. }
            | Self::DamagedObject { .. }
            | Self::Damaged(_)
            | Self::TooLarge(_)
            | Self::Refused(_) => false,
        }
    }

    /// Names the object whose rows could not be read, if they are damaged.
    #[must_use]
    pub fn of_object(self, uri: &Uri) -> Self {
        match self {
            Self::Damaged(what) => Self::DamagedObject { uri: uri.clone(), what },
            error => error,
        }
    }
}
