//! Opening the journal in a database, with checks that the server and the database are suitable.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize},
    },
    time::Duration,
};

use uuid::Uuid;

use super::{
    ConnectionOptions, PostgresOpenError, PostgresOptions, PostgresStore, PostgresUrl,
    connection::{Connector, Session},
    driver::Driver,
    readers::Readers,
    row, schema, timeline,
    writing::WriteSide,
};
use crate::journal::store::StoreContent;

/// Maximum time to check a database.
const INSPECT_LIMIT: Duration = Duration::from_secs(20);

/// Maximum time to open the journal, including the migration of its tables.
const OPEN_LIMIT: Duration = Duration::from_secs(60 * 60);

/// Oldest supported version of the server.
const MIN_SERVER: i32 = 14;

/// Query for the version and the settings of the server.
const SERVER: &str = "SELECT current_setting('server_version_num')::integer / 10000,
    current_setting('server_encoding'), current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'), current_setting('synchronous_standby_names')";

/// Facts about the journal that are read once.
struct OpenedJournal {
    identity: Uuid,
    seeds: i64,
    /// Whether the database is a promoted standby or a restored backup.
    is_foreign: bool,
}

impl PostgresStore {
    /// Opens the journal in a database, and creates its tables if there are none. Returns an error at once if the server
    /// is not available.
    ///
    /// # Errors
    /// Fails without changes if the database cannot be used, or a newer version has written it.
    pub fn open(url: &PostgresUrl, options: PostgresOptions) -> Result<Self, PostgresOpenError> {
        let driver = Driver::new().map_err(PostgresOpenError::Thread)?;
        let node = Uuid::new_v4();
        let connector = Connector::new(url, &options.connection, node);
        let opened = driver.run(OPEN_LIMIT, async { Ok(prepare(url, &connector).await) });
        let OpenedJournal { identity, seeds, is_foreign } =
            opened.map_err(|error| PostgresOpenError::storage(url, error))??;
        let store = Self {
            options,
            node,
            identity: Mutex::new(identity),
            seeds: AtomicU64::new(seeds.unsigned_abs()),
            written: AtomicUsize::new(0),
            connector,
            readers: Readers::new(),
            write_side: Mutex::new(WriteSide::default()),
            driver,
        };
        if is_foreign {
            timeline::adopt(&store).map_err(|error| PostgresOpenError::storage(url, error))?;
        }
        Ok(store)
    }

    /// Checks whether a journal can be opened or created in a database, without writing anything.
    ///
    /// # Errors
    /// Fails if the database cannot be used, or a newer version has written it.
    pub fn inspect(url: &PostgresUrl, options: &ConnectionOptions) -> Result<StoreContent, PostgresOpenError> {
        let driver = Driver::new().map_err(PostgresOpenError::Thread)?;
        let connector = Connector::new(url, options, Uuid::new_v4());
        let inspected = driver.run(INSPECT_LIMIT, async { Ok(inspect(url, &connector).await) });
        inspected.map_err(|error| PostgresOpenError::storage(url, error))?
    }
}

async fn prepare(url: &PostgresUrl, connector: &Connector) -> Result<OpenedJournal, PostgresOpenError> {
    let session = connector.try_connect().await.map_err(|error| PostgresOpenError::connect(url, &error))?;
    check_server(url, &session).await?.log();
    schema::inspect(url, &session).await?;
    schema::migrate(url, &session).await?;
    let failed = |error| PostgresOpenError::storage(url, error);
    let head = session.query_one("SELECT identity, seeds FROM journal_head", &[]).await.map_err(failed)?;
    // Rows of stores that were closed long ago.
    session.run("DELETE FROM writers WHERE written < now() - interval '30 days'").await.map_err(failed)?;
    let (identity, seeds) = (row::get(&head, 0).map_err(failed)?, row::get(&head, 1).map_err(failed)?);
    let is_foreign = session.query_one(timeline::IS_FOREIGN, &[]).await.map_err(failed)?;
    let is_foreign = row::get(&is_foreign, 0).map_err(failed)?;
    Ok(OpenedJournal { identity, seeds, is_foreign })
}

async fn inspect(url: &PostgresUrl, connector: &Connector) -> Result<StoreContent, PostgresOpenError> {
    let session = connector.try_connect().await.map_err(|error| PostgresOpenError::connect(url, &error))?;
    check_server(url, &session).await?;
    schema::inspect(url, &session).await
}

/// Checks that the server is suitable; returns the settings that decide what it may lose.
pub(super) async fn check_server(
    url: &PostgresUrl,
    session: &Session,
) -> Result<DurabilitySettings, PostgresOpenError> {
    let failed = |error| PostgresOpenError::storage(url, error);
    let server = session.query_one(SERVER, &[]).await.map_err(failed)?;
    let (version, encoding): (i32, String) =
        (row::get(&server, 0).map_err(failed)?, row::get(&server, 1).map_err(failed)?);
    if version < MIN_SERVER {
        return Err(PostgresOpenError::OldServer { version, minimum: MIN_SERVER });
    }
    if encoding != "UTF8" {
        return Err(PostgresOpenError::Encoding { encoding });
    }
    Ok(DurabilitySettings {
        fsync: row::get(&server, 2).map_err(failed)?,
        full_page_writes: row::get(&server, 3).map_err(failed)?,
        synchronous_commit: row::get(&server, 4).map_err(failed)?,
        synchronous_standby_names: row::get(&server, 5).map_err(failed)?,
    })
}

/// Settings of the server that decide what a crash or a failover may lose.
pub(super) struct DurabilitySettings {
    fsync: String,
    full_page_writes: String,
    /// As the session has it. The session never has `off`, because a commit would then not be durable on return.
    synchronous_commit: String,
    synchronous_standby_names: String,
}

impl DurabilitySettings {
    fn log(&self) {
        let Self { fsync, full_page_writes, synchronous_commit, synchronous_standby_names } = self;
        if fsync == "off" || full_page_writes == "off" {
            tracing::warn!(
                fsync,
                full_page_writes,
                "a crash of the journal's database server may lose or damage the journal; set fsync and full_page_writes \
                 to on"
            );
        }
        if synchronous_standby_names.is_empty() || synchronous_commit == "local" {
            tracing::info!(
                synchronous_commit,
                synchronous_standby_names,
                "acknowledged changes survive a crash of the journal's database server, but the newest of them may be \
                 lost if a standby replaces it; set synchronous_standby_names to prevent that"
            );
        } else {
            tracing::info!(
                synchronous_commit,
                synchronous_standby_names,
                "acknowledged changes survive the loss of the journal's database server if a synchronous standby \
                 replaces it"
            );
        }
    }
}
