//! Opening the journal: in a folder, or in a database.

use std::{path::Path, time::Duration};

use super::ServeError;
use crate::{
    config::Config,
    http_client::{self, TlsRootsError},
    journal::{
        Journal, JournalSettings, JournalThreads, TailBounds,
        store::{self, StoreContent, StoreLimits, StoreLocation},
    },
    supervision::Supervisor,
};

const MILLIS_PER_DAY: i64 = 24 * 60 * 60 * 1000;

/// Lease that the time limits of a command's sessions follow; a command has no lease of its own.
const COMMAND_LEASE: Duration = Duration::from_secs(30);

/// Opens the journal on a blocking thread, because a database may respond slowly.
pub(super) async fn open(config: &Config, supervisor: &Supervisor) -> Result<(Journal, JournalThreads), ServeError> {
    let limits = StoreLimits {
        dedupe_events: config.journal.dedupe_events,
        dedupe_millis: i64::from(config.journal.dedupe_days) * MILLIS_PER_DAY,
        quarantine_entries: config.limits.quarantine_entries,
        quarantine_bytes: config.limits.quarantine_bytes,
    };
    let settings = JournalSettings {
        queue: config.journal.queue,
        batch: config.journal.batch,
        bounds: config.limits.change_bounds(),
        tail: TailBounds { changes: config.journal.tail_changes, bytes: config.journal.tail_bytes },
        ..JournalSettings::default()
    };
    let begin_new = config.begin_new_journal;
    let (location, supervisor) = (config.store.clone(), supervisor.clone());
    let (node, lease) = (config.node.settings().name.to_string(), config.node.lease);
    let connection = connection_options(&location, config.journal.ca.as_deref())?;
    let connection = store::ConnectionOptions { node, lease, ..connection };
    let opening = tokio::task::spawn_blocking(move || {
        let is_new = store::inspect(&location, &connection).is_ok_and(|found| found == StoreContent::Empty);
        let store = store::open(&location, store::OpenOptions { limits, connection, begin_new })?;
        if is_new {
            tracing::info!(journal = %location, "created a new, empty journal");
        }
        Ok(Journal::start_supervised(store, settings, &supervisor)?)
    });
    opening.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Returns the settings of the connections to a journal's database. The call reads files if the connections may be
/// encrypted.
///
/// # Errors
/// Fails if the CA certificates cannot be read.
pub fn connection_options(
    location: &StoreLocation,
    ca: Option<&Path>,
) -> Result<store::ConnectionOptions, TlsRootsError> {
    let is_encrypted = matches!(location, StoreLocation::Postgres(url) if url.may_be_encrypted());
    let tls = if is_encrypted { http_client::tls_client_config(ca)? } else { http_client::tls_without_roots()? };
    Ok(store::ConnectionOptions { node: std::process::id().to_string(), tls, lease: COMMAND_LEASE })
}
