//! The store in a PostgreSQL database, which several nodes can share, and which any SQL client can read.
//!
//! * connections: `driver` (runtime of the connections), `connection` (one session), `limits` (its time limits),
//!   `readers` (pool of sessions), `error` and `missing` (errors of the database), `row` (columns),
//!   `value` (values of statements);
//! * opening: `url`, `open`, `open_error`, `schema` (tables and migrations);
//! * writing: `transaction` (one batch), `writing` (transactions and the outcome of a commit), `timeline` (failover),
//!   `watch` (writes of other nodes);
//! * tables: `changes`, `dedupe` (event keys), `registry`, `seeds`, `records` (the record tables), `quarantine` (its
//!   size), `retention`, `nodes` (with the duties);
//! * whole journals: `tables` (the tables with neutral names), `verify`, `migrate`.
//!
//! Each batch locks the one row of `journal_head` until its commit. The order of the numbers is therefore that of the
//! commits, on the primary and on every standby, whichever node writes. No sequence gives numbers, because a sequence
//! gives them before the commit.

mod changes;
mod connection;
mod dedupe;
mod driver;
mod error;
mod limits;
pub(super) mod migrate;
mod missing;
mod nodes;
mod open;
mod open_error;
mod quarantine;
mod readers;
mod records;
mod registry;
mod retention;
mod row;
mod schema;
mod seeds;
mod tables;
mod timeline;
mod transaction;
mod url;
mod value;
pub mod verify;
mod watch;
mod writing;

use std::{
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use foldhash::HashMap;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use open_error::PostgresOpenError;
pub use url::{InvalidPostgresUrl, PostgresUrl};

use self::{
    connection::{Connector, Session},
    driver::Driver,
    readers::Readers,
    transaction::PostgresTransaction,
    watch::PostgresWatch,
    writing::{CALL_LIMIT, WriteSide},
};
use super::{
    CommitId, ObjectSelection, QuarantineReceipt, StateWatch, Store, StoreError, StoreLimits, StoredChange, Transaction,
};
use crate::{
    journal::{
        RegistryPosition,
        acceptance::{AcceptanceTime, AcceptedPage, AcceptedQuery, ObjectTimes},
        nodes::{NodeTable, Term, Wake},
        quarantine::{NewQuarantinedMessage, QuarantineId, QuarantineSize},
        registry::ObjectState,
    },
    model::{ChangeId, Seq, Timestamp, Uri},
};

/// Number of bytes that a probe writes: more than all pages that a message of typical size modifies.
const PROBE_BYTES: usize = 256 * 1024;

const WRITE_PROBE: &str = "INSERT INTO probes (node, value) VALUES ($1, $2)
    ON CONFLICT (node) DO UPDATE SET value = excluded.value";

/// Settings of the connections to a database.
#[derive(Clone)]
pub struct ConnectionOptions {
    /// Name of the node, which the server shows with its sessions.
    pub node: String,
    /// Trusted CA certificates. `sslmode` in the URL decides whether the connection is encrypted.
    pub tls: rustls::ClientConfig,
    /// Lease of the node, which the time limits of its sessions follow.
    pub lease: Duration,
}

impl fmt::Debug for ConnectionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionOptions").field("node", &self.node).finish_non_exhaustive()
    }
}

/// Settings of the store.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Limits that apply to every store.
    pub limits: StoreLimits,
    /// Settings of the connections.
    pub connection: ConnectionOptions,
    /// Number of new event keys after which maintenance removes keys that are out of the deduplication window.
    pub trim_keys: usize,
}

impl PostgresOptions {
    /// Default of [`PostgresOptions::trim_keys`].
    pub const TRIM_KEYS: usize = 4096;
}

/// A journal in a PostgreSQL database.
pub struct PostgresStore {
    options: PostgresOptions,
    /// Identifies this open store in the table `writers`.
    node: Uuid,
    identity: Mutex<Uuid>,
    /// Number of the newest seed that this store knows.
    seeds: AtomicU64,
    /// Number of event keys written since the last maintenance.
    written: AtomicUsize,
    connector: Connector,
    readers: Readers,
    write_side: Mutex<WriteSide>,
    // Dropped last, because the sessions belong to its runtime.
    driver: Driver,
}

impl PostgresStore {
    fn write_side(&self) -> MutexGuard<'_, WriteSide> {
        // A panic in the middle of a transaction rolled it back when the transaction was dropped.
        self.write_side.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(&self, read: impl AsyncFn(&Session) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.explain(self.driver.run(CALL_LIMIT, self.readers.read(&self.connector, read)))
    }

    /// Returns the error of a call with its cause, if the database reported a missing table.
    fn explain<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        missing::explain(&self.driver, &self.connector, result)
    }

    fn set_identity(&self, identity: Uuid) {
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = identity;
    }

    fn note_seeds(&self, seeds: i64) {
        self.seeds.fetch_max(seeds.unsigned_abs(), Ordering::AcqRel);
    }

    fn note_written(&self, keys: usize) {
        self.written.fetch_add(keys, Ordering::Relaxed);
    }
}

impl Store for PostgresStore {
    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StoreError> {
        Ok(Box::new(PostgresTransaction::begin(self)?))
    }

    fn was_committed(&self, commit: CommitId) -> Result<bool, StoreError> {
        self.last_commit_is(commit)
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn watch(&self, stop: CancellationToken) -> Option<Box<dyn StateWatch + '_>> {
        Some(Box::new(PostgresWatch::new(self, stop)))
    }

    fn maintain(&self) -> Result<(), StoreError> {
        if self.written.load(Ordering::Relaxed) < self.options.trim_keys {
            return Ok(());
        }
        self.written.store(0, Ordering::Relaxed);
        self.read(async |session| dedupe::trim(session, self.options.limits).await)
    }

    fn probe(&self) -> Result<(), StoreError> {
        let value = vec![0_u8; PROBE_BYTES];
        self.write(async |session| {
            session.execute(WRITE_PROBE, &[&self.node, &value]).await?;
            session.execute("DELETE FROM probes WHERE node = $1", &[&self.node]).await.map(drop)
        })
    }

    fn skipped_ranges(&self) -> Result<Vec<(Seq, Seq)>, StoreError> {
        let mut ranges = self.read(async |session| changes::restores(session).await)?;
        ranges.reverse();
        Ok(ranges)
    }

    fn seed_count(&self) -> u64 {
        self.seeds.load(Ordering::Acquire)
    }

    fn now(&self) -> Result<Timestamp, StoreError> {
        self.read(async |session| changes::now(session).await)
    }

    fn head(&self) -> Result<Seq, StoreError> {
        let (head, seeds) = self.read(async |session| changes::head(session).await)?;
        self.note_seeds(seeds);
        Ok(head)
    }

    fn after(&self, after: Seq, limit: usize, bytes: usize) -> Result<Option<Vec<StoredChange>>, StoreError> {
        self.read(async |session| changes::after(session, after, limit, bytes).await)
    }

    fn before(&self, before: Seq, limit: usize, bytes: usize) -> Result<Vec<StoredChange>, StoreError> {
        self.read(async |session| changes::before(session, before, limit, bytes).await)
    }

    fn before_restore(&self, seq: Seq) -> Result<Option<Seq>, StoreError> {
        self.read(async |session| changes::before_restore(session, seq).await)
    }

    fn by_id(&self, id: ChangeId) -> Result<Option<StoredChange>, StoreError> {
        self.read(async |session| changes::by_id(session, id).await)
    }

    fn object(&self, object: &Uri) -> Result<Option<ObjectState>, StoreError> {
        self.read(async |session| registry::object(session, object).await)
    }

    fn objects(&self, selected: &ObjectSelection) -> Result<HashMap<Uri, ObjectState>, StoreError> {
        self.read(async |session| registry::objects(session, selected).await)
    }

    fn registry(&self, from: &RegistryPosition, limit: usize) -> Result<Vec<(Uri, ObjectState)>, StoreError> {
        self.read(async |session| registry::page(session, from, limit).await)
    }

    fn accepted(&self, query: &AcceptedQuery) -> Result<AcceptedPage, StoreError> {
        self.read(async |session| registry::page_by_acceptance(session, query).await)
    }

    fn object_times(&self, object: &Uri) -> Result<Option<ObjectTimes>, StoreError> {
        self.read(async |session| registry::object_times(session, object).await)
    }

    fn newest_acceptance(&self) -> Result<AcceptanceTime, StoreError> {
        self.read(async |session| registry::newest_acceptance(session).await)
    }

    fn token_key(&self) -> Result<[u8; 16], StoreError> {
        self.read(async |session| registry::token_key(session).await)
    }

    fn first(&self) -> Result<Option<Seq>, StoreError> {
        self.read(async |session| changes::first(session).await)
    }

    fn first_since(&self, time: Timestamp) -> Result<Option<Seq>, StoreError> {
        self.read(async |session| changes::first_since(session, time).await)
    }

    fn first_of_newest(&self, count: u64) -> Result<Option<Seq>, StoreError> {
        self.read(async |session| changes::first_of_newest(session, count).await)
    }

    fn prune(&self, before: Seq, at_most: usize, term: Option<Term>) -> Result<usize, StoreError> {
        self.write_under(term, async |session| retention::prune(session, before, at_most).await)
    }

    fn quarantine(
        &self,
        messages: &[NewQuarantinedMessage],
        term: Option<Term>,
    ) -> Result<QuarantineReceipt, StoreError> {
        self.write_under(term, async |session| quarantine::put(session, self.options.limits, messages).await)
    }

    fn release(&self, id: QuarantineId) -> Result<bool, StoreError> {
        self.write(async |session| quarantine::remove(session, id).await)
    }

    fn quarantine_size(&self) -> Result<QuarantineSize, StoreError> {
        self.read(async |session| quarantine::size(session).await)
    }

    fn node_table(&self, lease: Duration, wake: Wake) -> Result<Option<Box<dyn NodeTable>>, StoreError> {
        Ok(Some(Box::new(nodes::PostgresNodes::new(self.connector.clone(), lease, wake)?)))
    }

    fn identity(&self) -> Uuid {
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
