//! HTTP/1.1 server. It adds the limits that `axum::serve` lacks: the number of connections, the time in which the
//! headers of a request must arrive, and the time for which a client may stop reading its response.
//!
//! A connection is plain or TLS. The handshake runs in the connection's own task, so a slow handshake delays no other
//! connection.

use std::{
    convert::Infallible,
    future::{Future, ready},
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{self, Context, Poll},
    time::{Duration, Instant},
};

use axum::{Router, extract::ConnectInfo, serve::Listener};
use hyper::{
    Request,
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::Sleep,
};
use tokio_util::sync::CancellationToken;

use super::{
    Limit, Tls,
    batched_body::BatchedBody,
    connection_state::{ConnectionState, FIRST_REQUEST_TIME},
    connections::{ConnectionEntry, ConnectionTable, Probation, ProbationHandle},
    hyper_errors::RewriteHyperErrors,
    limit_hit,
    security_headers::SecurityHeaders,
};

/// Maximum size of the headers of a request, in bytes. hyper itself refuses larger ones, and more than 100 headers.
/// The limits of `web::middleware` are far lower.
const HEAD_BYTES: usize = 64 * 1024;

/// Interval at which connections are asked to close. It repeats because new and active connections miss earlier
/// notifications.
const NOTIFY_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum number of unsent bytes in the socket buffer of the system, beyond those that the client has room for. By
/// default the system accepts megabytes, and then nothing until a third of them is sent: a slow client would look
/// like a stalled one.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 64 * 1024;

/// Limits on connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Maximum number of connections. Further ones wait in the listener's queue; meanwhile responses close their
    /// connections, idle connections are closed, and the oldest ones whose request does not complete are evicted.
    pub connections: usize,
    /// Maximum number of connections of one client, unless it runs on this machine.
    pub per_client: usize,
    /// Time in which the headers of a request must arrive, and for which a connection may be idle between two
    /// requests.
    pub header_timeout: Duration,
    /// Time for which a client may stop reading its response.
    pub stall_timeout: Duration,
}

/// Serves `router` on the connections of `listener` until `stop` is cancelled and every request that has begun is
/// answered. Dropping the future aborts the remaining requests.
///
/// Handlers find the client's socket address as `ConnectInfo<SocketAddr>`.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    router: Router,
    stop: CancellationToken,
    limits: ConnectionLimits,
) {
    let headers = SecurityHeaders::of_connection(tls.is_some());
    let context = ConnectionContext { router, stop, slot_wanted: Arc::default(), limits, headers };
    match tls {
        Some(tls) => serve_on(listener, |io| tls.accept(configure(io)), context).await,
        None => serve_on(listener, |io| ready(Ok(configure(io))), context).await,
    }
}

/// Sets the socket options: data is sent without delay, and unsent data is bounded. Errors are ignored, because the
/// connection also works with the defaults.
fn configure(connection: TcpStream) -> TcpStream {
    let _ = connection.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(&connection).set_tcp_notsent_lowat(UNSENT_BYTES);
    connection
}

/// Shared context of all connections.
#[derive(Clone)]
struct ConnectionContext {
    router: Router,
    stop: CancellationToken,
    /// Asks connections to close.
    slot_wanted: Arc<Notify>,
    limits: ConnectionLimits,
    headers: SecurityHeaders,
}

/// Serves the connections of a listener. `secure` prepares a connection before HTTP is spoken on it, for example by a
/// TLS handshake. It must finish within the header timeout.
async fn serve_on<L, Secure, Securing, Secured>(mut listener: L, secure: Secure, context: ConnectionContext)
where
    L: Listener<Addr = SocketAddr>,
    Secure: Fn(L::Io) -> Securing,
    Securing: Future<Output = io::Result<Secured>> + Send + 'static,
    Secured: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(context.limits.connections));
    let table = ConnectionTable::new(context.limits.per_client);
    let mut tasks = JoinSet::new();
    let stop = context.stop.clone();
    let accept_loop = async {
        // The semaphore is never closed.
        while let Some(slot) = acquire_slot(&slots, &context.slot_wanted, &table).await {
            let (io, peer) = listener.accept().await;
            let Some(entry) = table.admit(peer.ip()) else { continue };
            let (securing, context) = (secure(io), context.clone());
            tasks.spawn(async move {
                serve_connection(securing, peer, entry, &context).await;
                drop(slot);
            });
            while tasks.try_join_next().is_some() {}
        }
    };
    tokio::select! {
        // A client that has noticed the end, and connects again, is for the next server.
        biased;
        () = stop.cancelled() => {}
        () = accept_loop => {}
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
}

/// Waits for a free connection slot. Meanwhile it asks connections to close, and evicts the oldest connection whose
/// request does not complete.
async fn acquire_slot(
    slots: &Arc<Semaphore>,
    slot_wanted: &Notify,
    table: &ConnectionTable,
) -> Option<OwnedSemaphorePermit> {
    if let Ok(slot) = Arc::clone(slots).try_acquire_owned() {
        return Some(slot);
    }
    limit_hit(Limit::Connections);
    loop {
        slot_wanted.notify_waiters();
        let wait = table.make_room(Instant::now()).unwrap_or(NOTIFY_INTERVAL).min(NOTIFY_INTERVAL);
        let slot = Arc::clone(slots).acquire_owned();
        if let Ok(slot) = tokio::time::timeout(wait, slot).await {
            return slot.ok();
        }
    }
}

async fn serve_connection<Io: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    securing: impl Future<Output = io::Result<Io>>,
    peer: SocketAddr,
    entry: ConnectionEntry,
    context: &ConnectionContext,
) {
    let secured = tokio::select! {
        biased;
        secured = tokio::time::timeout(context.limits.header_timeout, securing) => secured,
        () = entry.probation.evicted() => return limit_hit(Limit::HeadSeconds),
        () = async {
            context.stop.cancelled().await;
            tokio::time::sleep(FIRST_REQUEST_TIME).await;
        } => return,
    };
    let io = match secured {
        Ok(Ok(io)) => io,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => return limit_hit(Limit::HeadSeconds),
    };
    tokio::select! {
        () = serve_http(io, peer, Arc::clone(&entry.probation), context) => {}
        () = entry.probation.evicted() => {
            tracing::debug!("connection with an incomplete request closed to make room for others");
            limit_hit(Limit::HeadSeconds);
        }
    }
}

/// Serves HTTP on a connection until it ends.
async fn serve_http<Io: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    io: Io,
    peer: SocketAddr,
    probation: Arc<Probation>,
    context: &ConnectionContext,
) {
    let ConnectionContext { router, stop, slot_wanted, limits, headers } = context.clone();
    let state = Arc::new(ConnectionState::new(probation));
    let io = RewriteHyperErrors::new(io, headers);
    let io = StallTimeout { io, timeout: limits.stall_timeout, timer: None, state: Arc::clone(&state) };
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.header_timeout).max_buf_size(HEAD_BYTES);
    let router = TowerToHyperService::new(router);
    let service_state = Arc::clone(&state);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(ProbationHandle(Arc::clone(service_state.probation())));
        let state = Arc::clone(&service_state);
        state.request_begins();
        let responding = router.call(request);
        async move {
            let mut response = responding.await?;
            state.response_begins(&mut response);
            Ok::<_, Infallible>(response.map(BatchedBody::new))
        }
    });
    let mut serving = http.serve_connection(TokioIo::new(io), service);
    let mut end = pin!(async {
        tokio::select! {
            () = async {
                stop.cancelled().await;
                state.first_request().await;
            } => {}
            () = async {
                slot_wanted.notified().await;
                while !state.can_close() {
                    slot_wanted.notified().await;
                }
            } => {}
        }
    });
    let result = tokio::select! {
        result = &mut serving => result,
        () = end.as_mut() => {
            Pin::new(&mut serving).graceful_shutdown();
            tokio::select! {
                result = &mut serving => result,
                () = Box::pin(state.stream_timeout(&stop)) => {
                    return tracing::debug!("streaming response aborted: the server is stopping");
                }
            }
        }
    };
    match result {
        Err(error) if error.is_timeout() && state.awaits_headers() => {
            limit_hit(Limit::HeadSeconds);
        }
        Err(error) => tracing::debug!(%error, "connection aborted"),
        Ok(()) => {}
    }
}

/// Connection that fails when its client stops reading for too long.
struct StallTimeout<Io> {
    io: Io,
    timeout: Duration,
    /// Timer of the stall, set while a write is blocked.
    timer: Option<Pin<Box<Sleep>>>,
    state: Arc<ConnectionState>,
}

impl<Io> StallTimeout<Io> {
    fn watch<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.timer = None;
            return written;
        }
        let timeout = self.timeout;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        task::ready!(timer.as_mut().poll(cx));
        limit_hit(Limit::RequestSeconds);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for StallTimeout<Io> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        task::ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.state.bytes_read();
        }
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for StallTimeout<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.state.bytes_written();
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.state.bytes_written();
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.watch(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(cx);
        self.watch(cx, shut)
    }
}
