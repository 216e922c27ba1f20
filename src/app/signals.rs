//! The reload of the certificate at SIGHUP.

use tokio_util::task::AbortOnDropHandle;

use super::{ServeError, spawn};
use crate::{
    supervision::{Supervisor, Worker},
    web::Tls,
};

/// Starts a task that reloads the certificate at SIGHUP. Without a certificate, SIGHUP is ignored instead of ending
/// the process, which is the default of the system.
#[cfg(unix)]
pub(super) fn reload_on_hangup(tls: Option<Tls>, supervisor: &Supervisor) -> Result<AbortOnDropHandle<()>, ServeError> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangups = signal(SignalKind::hangup()).map_err(ServeError::Hangup)?;
    let reload = async move {
        while hangups.recv().await.is_some() {
            match tls.as_ref().map(Tls::reload) {
                Some(Ok(())) => tracing::info!("SIGHUP: certificate reloaded; new connections use it"),
                Some(Err(error)) => {
                    tracing::error!(%error, "SIGHUP: cannot reload the certificate; continuing with the previous one");
                }
                None => tracing::info!("SIGHUP: ignored, because server.tls is not configured"),
            }
        }
    };
    Ok(spawn(supervisor, Worker::CertificateReload, reload))
}

#[cfg(not(unix))]
pub(super) fn reload_on_hangup(_: Option<Tls>, supervisor: &Supervisor) -> Result<AbortOnDropHandle<()>, ServeError> {
    Ok(spawn(supervisor, Worker::CertificateReload, std::future::pending()))
}
