//! Reasons why the journal in a database cannot be opened: each with the place and the fix.

use std::io;

use tokio_postgres::error::{Error, SqlState};

use super::{PostgresUrl, error::describe};
use crate::journal::store::StoreError;

/// Reasons why the journal in a database could not be opened. No text contains the password.
#[derive(Debug, thiserror::Error)]
pub enum PostgresOpenError {
    /// The server cannot be reached.
    #[error(
        "cannot connect to the journal's database {url}: {reason}; check that the server runs and that this machine may \
         connect to it"
    )]
    Unreachable {
        /// The database.
        url: PostgresUrl,
        /// Error of the connection.
        reason: String,
    },
    /// The server refuses the user or the password.
    #[error(
        "the journal's database {url} refuses the user {}: {reason}; check the password in journal.store, and the file \
         pg_hba.conf of the server", url.user()
    )]
    Authentication {
        /// The database.
        url: PostgresUrl,
        /// Error of the server.
        reason: String,
    },
    /// The server does not have the database.
    #[error(
        "the journal's database {url} does not exist; create it with: createdb --owner={} --encoding=UTF8 --template=template0 {}",
        url.user(), url.database()
    )]
    Missing {
        /// The database.
        url: PostgresUrl,
    },
    /// The server is a standby.
    #[error(
        "the journal's database {url} is read-only, because its server is a standby; give the address of the primary, or \
         of all servers, separated by commas, in journal.store"
    )]
    Standby {
        /// The database.
        url: PostgresUrl,
    },
    /// The user lacks rights in the database.
    #[error("the user {} lacks rights in the journal's database {url}: {reason}; {remedy}", url.user())]
    Rights {
        /// The database.
        url: PostgresUrl,
        /// Error of the server, or the missing right.
        reason: String,
        /// Statements that give the right, or advice.
        remedy: String,
    },
    /// The server is too old.
    #[error("the journal's database server is PostgreSQL {version}; version {minimum} or newer is required")]
    OldServer {
        /// Major version of the server.
        version: i32,
        /// Oldest supported version.
        minimum: i32,
    },
    /// The database cannot store every text.
    #[error("the journal's database has the encoding {encoding}; create it with the encoding UTF8")]
    Encoding {
        /// Encoding of the database.
        encoding: String,
    },
    /// A newer version of the gateway has migrated the tables.
    #[error(
        "the journal's database was written by a newer version of Tidings (format {version}, this version reads up to \
         {supported}); use that version"
    )]
    Newer {
        /// Format version of the tables.
        version: usize,
        /// Newest format version that this gateway supports.
        supported: usize,
    },
    /// A version of the gateway from before the first release has written the tables.
    #[error(
        "the journal's database was written by a version of Tidings from before its first release (format {version}, this \
         version reads from {oldest}); open it once with the commit cf2c915, which converts it"
    )]
    Unreleased {
        /// Format version of the tables.
        version: usize,
        /// Oldest format version that this gateway supports.
        oldest: usize,
    },
    /// An older version of the gateway has written the tables, and only a gateway updates them.
    #[error(
        "the journal's database {url} was written by an older version of Tidings; start a gateway of this version once, \
         which updates the tables"
    )]
    Older {
        /// The database.
        url: PostgresUrl,
    },
    /// The database has no tables of a journal.
    #[error("there is no journal in the database {url}")]
    NoJournal {
        /// The database.
        url: PostgresUrl,
    },
    /// A migration into the database was interrupted.
    #[error(
        "the migration of a journal into the database {url} has not finished; run `tidings migrate` again to resume it, \
         or discard it with DROP SCHEMA tidings CASCADE"
    )]
    HalfMigrated {
        /// The database.
        url: PostgresUrl,
    },
    /// A thread for the connections cannot be started.
    #[error("cannot start a thread for the connections to the journal's database: {0}")]
    Thread(io::Error),
    /// The database refuses a statement, or has become unavailable.
    #[error("the journal's database {url} cannot be opened: {error}")]
    Storage {
        /// The database.
        url: PostgresUrl,
        /// Error of the database.
        error: StoreError,
    },
}

/// Right that a role lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingRight {
    /// To connect to the database.
    Connect,
    /// To create the schema.
    Schema,
    /// To create tables in the schema, which exists.
    Tables,
    /// To read and write the tables, which exist.
    Rows,
}

impl MissingRight {
    /// Returns the right that a query of the schema has named.
    pub(super) fn of(name: &str) -> Self {
        match name {
            "database" => Self::Schema,
            "schema" => Self::Tables,
            _ => Self::Rows,
        }
    }

    /// Returns the operations that the role may not perform.
    fn reason(self) -> &'static str {
        match self {
            Self::Connect => "it may not connect",
            Self::Schema => "it may not create the schema \"tidings\"",
            Self::Tables => "it may not create tables in the schema \"tidings\"",
            Self::Rows => "it may not read and write all tables of the schema \"tidings\"",
        }
    }

    /// Returns the statements that give the right to a role.
    fn statements(self, role: &str, database: &str) -> String {
        let (role, database) = (quoted(role), quoted(database));
        match self {
            Self::Connect => format!("GRANT CONNECT ON DATABASE {database} TO {role};"),
            Self::Schema => format!("CREATE SCHEMA tidings; ALTER SCHEMA tidings OWNER TO {role};"),
            Self::Tables => format!("ALTER SCHEMA tidings OWNER TO {role};"),
            Self::Rows => format!(
                "GRANT USAGE ON SCHEMA tidings TO {role}; \
                 GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tidings TO {role};"
            ),
        }
    }
}

/// Returns an identifier as SQL has it.
fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

impl PostgresOpenError {
    /// Says which right is missing, with the statements that give it.
    pub(super) fn rights(url: &PostgresUrl, missing: MissingRight) -> Self {
        let statements = missing.statements(url.user(), url.database());
        Self::Rights {
            url: url.clone(),
            reason: missing.reason().to_owned(),
            remedy: format!("an administrator of the database gives them with: {statements}"),
        }
    }

    /// Explains why a connection could not be opened.
    pub(super) fn connect(url: &PostgresUrl, error: &Error) -> Self {
        let (url, reason) = (url.clone(), describe(error));
        match error.code() {
            Some(code)
                if [SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION].contains(code) =>
            {
                Self::Authentication { url, reason }
            }
            Some(code) if *code == SqlState::INVALID_CATALOG_NAME => Self::Missing { url },
            Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => Self::rights(&url, MissingRight::Connect),
            None if is_read_only(error) => Self::Standby { url },
            _ => Self::Unreachable { url, reason },
        }
    }

    /// Explains the failure of a statement.
    pub(super) fn storage(url: &PostgresUrl, error: StoreError) -> Self {
        let url = url.clone();
        match error {
            StoreError::ReadOnly(reason, remedy) => Self::Rights { url, reason, remedy: remedy.to_string() },
            error => Self::Storage { url, error },
        }
    }
}

/// Returns whether the library refused a server because it accepts no writes.
fn is_read_only(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::PermissionDenied && cause.raw_os_error().is_none())
}
