//! SIGTERM and Ctrl-C: the request to stop, and the end of the process when nothing else ends it.

use std::{io, process, thread, time::Duration};

use tokio_util::sync::CancellationToken;

/// Time after the grace time at which the process ends without having stopped. The gateway uses the whole grace time
/// itself, so this is a margin for slow machines.
const MARGIN: Duration = Duration::from_secs(1);

/// Time for the last line of the log.
const LOG_TIME: Duration = Duration::from_millis(200);

/// Returns a token that is cancelled by SIGTERM or Ctrl-C. If the process has not ended a second after the grace time, it
/// ends then, with status 1.
///
/// A thread of its own waits for the signal, because work that never yields can occupy all threads of the gateway, and
/// nothing there would then notice the signal or the time.
///
/// # Errors
/// Fails if the operating system starts no thread.
pub(super) fn stop_signal(grace: Duration) -> io::Result<CancellationToken> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    thread::Builder::new().name("stop-signal".to_owned()).spawn(move || {
        runtime.block_on(terminated());
        stop.cancel();
        thread::sleep(grace + MARGIN);
        // Another thread writes the log, because standard error may be blocked for ever.
        let log = thread::Builder::new().spawn(|| {
            tracing::error!(
                "the gateway has not stopped within the grace time: the process ends now; the next start recovers the journal"
            );
        });
        if log.is_ok() {
            thread::sleep(LOG_TIME);
        }
        process::exit(1);
    })?;
    Ok(token)
}

/// Waits for SIGTERM or Ctrl-C.
async fn terminated() {
    let interrupted = tokio::signal::ctrl_c();
    #[cfg(unix)]
    let terminated = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot handle SIGTERM; stop the gateway with Ctrl-C");
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
