//! The reload of the configuration at SIGHUP.

use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;

use super::{
    ServeError,
    reload::{ReloadEffect, Reloader},
    spawn,
};
use crate::{
    supervision::{Supervisor, Worker},
    web::Tls,
};

/// Reads the configuration again, and the certificate if it has not changed. Returns the changed tables, or the errors of the configuration. The
/// call blocks.
pub(super) fn reload(reloader: &Reloader, tls: Option<&Tls>) -> Result<Vec<String>, String> {
    match reloader.reload() {
        Ok(ReloadEffect::BeginsAgain(changed)) => {
            tracing::info!(tables = changed.join(", "), "the configuration has changed; the gateway begins again");
            Ok(changed)
        }
        Ok(ReloadEffect::Unchanged) => match tls.map(Tls::reload) {
            Some(Ok(())) => {
                tracing::info!("the configuration has not changed; certificate reloaded; new connections use it");
                Ok(Vec::new())
            }
            Some(Err(error)) => {
                tracing::error!(%error, "cannot reload the certificate; continuing with the previous one");
                Err(error.to_string())
            }
            None => {
                tracing::info!("the configuration has not changed");
                Ok(Vec::new())
            }
        },
        Err(errors) => {
            tracing::error!(%errors, "cannot reload the configuration; continuing with the former one");
            Err(errors.to_string())
        }
    }
}

/// Starts a task that reloads the configuration at SIGHUP. Without anything to reload, SIGHUP is ignored instead of ending
/// the process, which is the default of the system.
#[cfg(unix)]
pub(super) fn reload_on_hangup(
    reloader: Option<Arc<Reloader>>,
    tls: Option<Tls>,
    supervisor: &Supervisor,
) -> Result<AbortOnDropHandle<()>, ServeError> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangups = signal(SignalKind::hangup()).map_err(ServeError::Hangup)?;
    let reload = async move {
        while hangups.recv().await.is_some() {
            let Some(reloader) = reloader.clone() else { continue };
            let tls = tls.clone();
            // The outcome is in the log.
            let _ = tokio::task::spawn_blocking(move || reload(&reloader, tls.as_ref())).await;
        }
    };
    Ok(spawn(supervisor, Worker::Reload, reload))
}

#[cfg(not(unix))]
pub(super) fn reload_on_hangup(
    _: Option<Arc<Reloader>>,
    _: Option<Tls>,
    supervisor: &Supervisor,
) -> Result<AbortOnDropHandle<()>, ServeError> {
    Ok(spawn(supervisor, Worker::Reload, std::future::pending()))
}
