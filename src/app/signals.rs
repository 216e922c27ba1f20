//! The signals of the operating system that the gateway waits for.

use tokio_util::task::AbortOnDropHandle;

use super::{ServeError, spawn};
use crate::{
    supervision::{Supervisor, Worker},
    web::Tls,
};

/// Waits for SIGTERM or Ctrl-C.
pub(super) async fn terminated() {
    let interrupted = tokio::signal::ctrl_c();
    #[cfg(unix)]
    let terminated = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(error) => {
                tracing::warn!(%error, "SIGTERM cannot be waited for; stop the gateway with Ctrl-C");
                std::future::pending::<()>().await;
            }
        }
    };
    #[cfg(not(unix))]
    let terminated = std::future::pending::<()>();
    tokio::select! {
        _ = interrupted => {}
        () = terminated => {}
    }
}

/// Starts to wait for SIGHUP, at which the certificate is read again. A gateway without one stays as
/// it is: it does not end, as it would by default.
#[cfg(unix)]
pub(super) fn reload_on_hangup(tls: Option<Tls>, supervisor: &Supervisor) -> Result<AbortOnDropHandle<()>, ServeError> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangups = signal(SignalKind::hangup()).map_err(ServeError::Hangup)?;
    let reloading = async move {
        while hangups.recv().await.is_some() {
            match tls.as_ref().map(Tls::reload) {
                Some(Ok(())) => tracing::info!("SIGHUP: new connections get the certificate as its file is now"),
                Some(Err(error)) => tracing::error!(%error, "SIGHUP: the certificate before is served on"),
                None => tracing::info!("SIGHUP: there is no certificate to read again"),
            }
        }
    };
    Ok(spawn(supervisor, Worker::CertificateReload, reloading))
}

#[cfg(not(unix))]
pub(super) fn reload_on_hangup(_: Option<Tls>, supervisor: &Supervisor) -> Result<AbortOnDropHandle<()>, ServeError> {
    Ok(spawn(supervisor, Worker::CertificateReload, std::future::pending()))
}
