//! The gateways of a process, one after the other: each reload of a changed configuration ends one and begins the next.

use std::{
    io::{self, Write},
    net::{SocketAddr, TcpListener as Socket},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use tokio::{net::TcpListener, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Gateway, ServeError,
    reload::{ConfigSource, Reloader},
};
use crate::{
    config::{Config, Fingerprint},
    journal::store::{OpenError, sqlite},
};

/// Time for the threads of a former gateway to close the journal.
const CLOSING: Duration = Duration::from_secs(10);

/// Pause between two attempts to open a journal that is being closed.
const CLOSING_PAUSE: Duration = Duration::from_millis(50);

/// Runs the gateway until `stop` is cancelled. When `source` has another configuration at a reload than the one with this
/// fingerprint, the gateway ends, and another one begins with it.
///
/// # Errors
/// When the gateway cannot start, or one of its threads or tasks has died.
pub async fn serve(
    mut config: Config,
    fingerprint: Fingerprint,
    source: Box<dyn ConfigSource>,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let reloader = Arc::new(Reloader::new(source, fingerprint));
    let mut process = ProcessParts { reloader: Some(Arc::clone(&reloader)), socket: None };
    let mut gateway = process.begin(&config, &reloader, &stop).await?;
    {
        let mut out = io::stdout().lock();
        // An unread standard output is no reason not to serve.
        let _ = writeln!(out, "tidings is listening on {}", gateway.url()).and_then(|()| out.flush());
    }
    loop {
        process.run(gateway, &stop).await?;
        let Some(next) = reloader.take_next().filter(|_| !stop.is_cancelled()) else { return Ok(()) };
        gateway = match process.begin_again(&next, &reloader, &stop).await {
            Ok(gateway) => {
                config = next;
                gateway
            }
            Err(error) => {
                tracing::error!(%error, "cannot begin with the new configuration; beginning again with the former one");
                reloader.revert(&config);
                process.begin_again(&config, &reloader, &stop).await?
            }
        };
        tracing::info!("the gateway has begun again");
    }
}

/// Parts of the process that outlast a gateway.
#[derive(Default)]
pub(super) struct ProcessParts {
    /// Reloads the configuration; `None` if it comes from no file.
    pub(super) reloader: Option<Arc<Reloader>>,
    /// The listening socket, with the configured address that it is bound to.
    socket: Option<(SocketAddr, Socket)>,
}

impl ProcessParts {
    /// Begins a gateway, which ends at a reload or when `stop` is cancelled.
    async fn begin(
        &mut self,
        config: &Config,
        reloader: &Reloader,
        stop: &CancellationToken,
    ) -> Result<Gateway, ServeError> {
        let (end, stop) = (reloader.arm(), stop.clone());
        let ended = async move {
            tokio::select! {
                () = end.cancelled() => {}
                () = stop.cancelled() => {}
            }
        };
        Gateway::build_in(config.clone(), self, ended).await
    }

    /// Begins a gateway after another one. The other one may still be closing the journal.
    async fn begin_again(
        &mut self,
        config: &Config,
        reloader: &Reloader,
        stop: &CancellationToken,
    ) -> Result<Gateway, ServeError> {
        let began = Instant::now();
        loop {
            match self.begin(config, reloader, stop).await {
                Err(ServeError::Open(OpenError::Folder(sqlite::OpenError::InUse { .. })))
                    if began.elapsed() < CLOSING =>
                {
                    tokio::time::sleep(CLOSING_PAUSE).await;
                }
                result => return result,
            }
        }
    }

    /// Runs a gateway until it ends. When the process is to stop, its socket is closed at once, so that new connections are
    /// refused.
    async fn run(&mut self, gateway: Gateway, stop: &CancellationToken) -> Result<(), ServeError> {
        let mut run = pin!(gateway.run());
        tokio::select! {
            ended = &mut run => return ended,
            () = stop.cancelled() => self.socket = None,
        }
        run.await
    }

    /// Returns a listener on the configured address. A socket that listens there already is used again, so that connections
    /// that arrive between two gateways wait in its queue.
    pub(super) async fn listen(&mut self, address: SocketAddr) -> io::Result<TcpListener> {
        if let Some((_, socket)) = self.socket.as_ref().filter(|(bound, _)| *bound == address) {
            return TcpListener::from_std(socket.try_clone()?);
        }
        // Before the new one is bound, because the two addresses can overlap.
        self.socket = None;
        let socket = TcpListener::bind(address).await?.into_std()?;
        self.socket = Some((address, socket.try_clone()?));
        TcpListener::from_std(socket)
    }
}
