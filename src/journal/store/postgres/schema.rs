//! The tables, and the conversion of databases of older versions.

use super::{PostgresOpenError, PostgresUrl, connection::Session, open_error::MissingRight, row};
use crate::journal::store::{StoreContent, StoreError};

/// Version of the tables.
const VERSION: usize = 14;

/// Oldest version that this program opens and converts.
const OLDEST_VERSION: usize = 9;

/// Statements that create the tables.
const SCHEMA: &str = include_str!("schema.sql");

/// Statements that convert the tables of each older version to those of the next one, from [`OLDEST_VERSION`] on.
const CONVERSIONS: [&str; 5] = [
    include_str!("convert_version_9.sql"),
    include_str!("convert_version_10.sql"),
    include_str!("convert_version_11.sql"),
    include_str!("convert_version_12.sql"),
    include_str!("convert_version_13.sql"),
];

/// Key of the advisory lock that only one node at a time migrates under: the letters `TDNG`. The lock ends with its
/// transaction.
const LOCK: &str = "SELECT pg_advisory_xact_lock(1413762631)";

/// Query for the existence of the schema and of the table of versions. `CREATE SCHEMA IF NOT EXISTS` needs a privilege
/// even if the schema exists. The query reads the catalog: `to_regnamespace` would answer from the session's cache, which
/// waiting for the lock does not refresh.
const HAS_SCHEMA: &str = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'tidings'),
    EXISTS (SELECT FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
        WHERE n.nspname = 'tidings' AND t.relname = 'migrations')";

const CREATE_VERSIONS: &str = "
    CREATE TABLE IF NOT EXISTS migrations (
        version integer PRIMARY KEY,
        applied timestamptz NOT NULL DEFAULT clock_timestamp()
    );
    COMMENT ON TABLE migrations IS 'Versions of these tables, each with the time of its migration.';
";

/// Query for the right that the role lacks to open a journal: to create the schema, to create its tables, or to write them. The
/// result is null if it lacks none. Only a migration writes the table of versions.
const MISSING_RIGHT: &str = "SELECT CASE
        WHEN NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'tidings') THEN
            CASE WHEN NOT has_database_privilege(current_database(), 'CREATE') THEN 'database' END
        WHEN NOT has_schema_privilege('tidings', 'USAGE') THEN
            CASE WHEN EXISTS (SELECT FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
                WHERE n.nspname = 'tidings' AND t.relname = 'migrations') THEN 'tables' ELSE 'schema' END
        WHEN to_regclass('tidings.migrations') IS NULL THEN
            CASE WHEN NOT has_schema_privilege('tidings', 'CREATE') THEN 'schema' END
        WHEN EXISTS (SELECT FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
            CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS needed
            WHERE n.nspname = 'tidings' AND t.relkind = 'r' AND t.relname <> 'migrations'
                AND NOT has_table_privilege(t.oid, needed)) THEN 'tables'
    END";

/// Checks whether the database has a journal that this version can open, or could get one.
pub(super) async fn inspect(url: &PostgresUrl, session: &Session) -> Result<StoreContent, PostgresOpenError> {
    let failed = |error| PostgresOpenError::storage(url, error);
    let missing = session.query_one(MISSING_RIGHT, &[]).await;
    let missing = missing.and_then(|missing| row::get::<Option<String>>(&missing, 0)).map_err(failed)?;
    if let Some(missing) = missing {
        return Err(PostgresOpenError::rights(url, MissingRight::of(&missing)));
    }
    check_is_complete(url, session).await?;
    match version(session).await.map_err(failed)? {
        0 => Ok(StoreContent::Empty),
        version => check_version(version).map(|()| StoreContent::Journal),
    }
}

/// Checks that this program can open a database of this version; 0 stands for one without tables.
fn check_version(version: usize) -> Result<(), PostgresOpenError> {
    match version {
        0 | OLDEST_VERSION..=VERSION => Ok(()),
        version if version > VERSION => Err(PostgresOpenError::Newer { version, supported: VERSION }),
        version => Err(PostgresOpenError::Unreleased { version, oldest: OLDEST_VERSION }),
    }
}

/// Creates the tables, or converts those of an older version, in one transaction.
pub(super) async fn migrate(url: &PostgresUrl, session: &Session) -> Result<(), PostgresOpenError> {
    let found = migrate_from_older(session).await.map_err(|error| PostgresOpenError::storage(url, error))?;
    check_version(found)
}

/// Returns the version of the database afterwards, unless this program cannot convert it: another node can have converted
/// it to a newer one meanwhile.
async fn migrate_from_older(session: &Session) -> Result<usize, StoreError> {
    if version(session).await? == VERSION {
        return Ok(VERSION);
    }
    // A conversion of a large table takes longer than any other statement.
    session.run("BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '10s'").await?;
    session.run(LOCK).await?;
    // Another node may have converted meanwhile.
    match version(session).await? {
        0 => {
            let exists = session.query_one(HAS_SCHEMA, &[]).await?;
            if !row::get::<bool>(&exists, 0)? {
                session.run("CREATE SCHEMA tidings").await?;
            }
            session.run(CREATE_VERSIONS).await?;
            session.run(SCHEMA).await?;
        }
        older @ OLDEST_VERSION..VERSION => {
            for conversion in CONVERSIONS.iter().skip(older - OLDEST_VERSION) {
                session.run(conversion).await?;
            }
        }
        other => {
            session.run("ROLLBACK").await?;
            return Ok(other);
        }
    }
    let version = i32::try_from(VERSION).unwrap_or(i32::MAX);
    session.execute("INSERT INTO migrations (version) VALUES ($1)", &[&version]).await?;
    session.run("COMMIT").await?;
    Ok(VERSION)
}

/// Checks, without a change of the database, that it has a complete journal of the current version.
pub(super) async fn check_is_current(url: &PostgresUrl, session: &Session) -> Result<(), PostgresOpenError> {
    check_is_complete(url, session).await?;
    match version(session).await.map_err(|error| PostgresOpenError::storage(url, error))? {
        0 => Err(PostgresOpenError::NoJournal { url: url.clone() }),
        OLDEST_VERSION..VERSION => Err(PostgresOpenError::Older { url: url.clone() }),
        version => check_version(version),
    }
}

/// Checks that no migration of a journal into the database is unfinished.
async fn check_is_complete(url: &PostgresUrl, session: &Session) -> Result<(), PostgresOpenError> {
    let failed = |error| PostgresOpenError::storage(url, error);
    let migrating =
        session.query_one("SELECT to_regclass('tidings.migration') IS NOT NULL", &[]).await.map_err(failed)?;
    match row::get(&migrating, 0).map_err(failed)? {
        true => Err(PostgresOpenError::HalfMigrated { url: url.clone() }),
        false => Ok(()),
    }
}

/// Returns the version of the database; 0 for one without tables.
async fn version(session: &Session) -> Result<usize, StoreError> {
    let exists = session.query_one(HAS_SCHEMA, &[]).await?;
    if !row::get::<bool>(&exists, 1)? {
        return Ok(0);
    }
    let version = session.query_one("SELECT coalesce(max(version), 0) FROM migrations", &[]).await?;
    Ok(usize::try_from(row::get::<i32>(&version, 0)?).unwrap_or_default())
}
