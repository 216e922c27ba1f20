//! The gateways of a process, one after the other: each reload of a changed configuration ends one and begins the next.

use std::{
    io::{self, Write},
    net::{SocketAddr, TcpListener as Socket},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpSocket},
    time::Instant,
};
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

/// Maximum number of connections that wait for the listener.
const BACKLOG: u32 = 1024;

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
        Box::pin(Gateway::build_in(config.clone(), self, ended)).await
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

    /// Takes the configured address, without accepting connections. A socket that listens there already is used again, so
    /// that connections that arrive between two gateways wait in its queue.
    pub(super) fn reserve(&mut self, address: SocketAddr) -> io::Result<ReservedSocket> {
        if self.socket.as_ref().is_some_and(|(bound, _)| *bound == address) {
            return Ok(ReservedSocket::Listening);
        }
        // Before the new one is bound, because the two addresses can overlap.
        self.socket = None;
        Ok(ReservedSocket::Bound(address, bind(address)?))
    }

    /// Returns a listener on a reserved address.
    pub(super) fn listen(&mut self, socket: ReservedSocket) -> io::Result<TcpListener> {
        if let ReservedSocket::Bound(address, socket) = socket {
            self.socket = Some((address, socket.listen(BACKLOG)?.into_std()?));
        }
        let (_, socket) = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        TcpListener::from_std(socket.try_clone()?)
    }
}

/// A socket that a gateway will listen on.
pub(super) enum ReservedSocket {
    /// It is bound to an address.
    Bound(SocketAddr, TcpSocket),
    /// The process listens on it already.
    Listening,
}

/// Checks that the gateway can listen on a socket address.
///
/// # Errors
/// In the words in which the start of the gateway fails.
pub fn check_address(address: SocketAddr) -> Result<(), ServeError> {
    let reserved = bind(address).and_then(|socket| socket.listen(1));
    reserved.map(drop).map_err(|error| ServeError::Listen { address, error })
}

/// Takes the socket address, without accepting connections.
fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // As for every listener: a connection of an earlier start that still waits for its end keeps nobody out.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
