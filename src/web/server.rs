//! The server: takes connections from a listener, serves HTTP/1.1 on each, and holds what
//! `axum::serve` leaves open: how many connections there are, how long the head of a request may
//! take to come, and how long a client may take nothing of its answer.
//!
//! A connection is plain or inside TLS. The handshake is made in the connection's own task, so that one
//! that takes its time holds up no other.

use std::{
    convert::Infallible,
    future::{Future, ready},
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{self, Context, Poll},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::ConnectInfo,
    http::header::{CONNECTION, HeaderValue},
    response::Response,
    serve::Listener,
};
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
    crowd::{Crowd, Member, OnTrial, Trial},
    limit_hit,
    refusal::Refusals,
    security_headers::SecurityHeaders,
};

/// How many bytes of a head are read. hyper refuses a larger one by itself, and so one of more than 100
/// fields; what `web::around` answers comes well before.
const HEAD_BYTES: usize = 64 * 1024;

/// How often connections are told to make room: one that began after it was said has not heard.
const TOLD_AGAIN: Duration = Duration::from_secs(1);

/// How many bytes may wait in the system's buffer to be sent, beyond those that the client has room for. By itself
/// the system takes megabytes, and then nothing until a third of them is gone: a slow client would look like
/// one that takes nothing.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 64 * 1024;

/// Time that a client has to take the end of a streaming response when the server stops.
const STREAMING_GRACE: Duration = Duration::from_millis(500);

/// Extension of a response whose body ends only at some bound of time or when the server stops, and whose client can
/// resume it anywhere. Its connection closes with it. A client that does not take its end does not hold up the stop of
/// the server.
#[derive(Clone, Copy, Debug)]
pub struct StreamingResponse;

/// Bounds on connections.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How many are served at once; more wait in the listener's queue, and then those that are idle
    /// are closed to make room, and the oldest whose request does not come to its end.
    pub connections: usize,
    /// How many one client may have, unless it is on this machine.
    pub per_client: usize,
    /// How long the head of a request may take to come, and a connection between two requests to
    /// be idle.
    pub head: Duration,
    /// How long a client may take nothing of what is sent to it.
    pub stall: Duration,
}

/// Serves `router` on the connections of `listener`, until `stop` is cancelled and every request that
/// had begun is answered. When it is dropped, what is left is cut off.
///
/// Handlers find the address of the client as `ConnectInfo<SocketAddr>`.
pub async fn serve(listener: TcpListener, tls: Option<Tls>, router: Router, stop: CancellationToken, bounds: Bounds) {
    let headers = SecurityHeaders::of_connection(tls.is_some());
    let served = Served { router, stop, crowded: Arc::default(), bounds, headers };
    match tls {
        Some(tls) => serve_on(listener, |io| tls.accept(prepared(io)), served).await,
        None => serve_on(listener, |io| ready(Ok(prepared(io))), served).await,
    }
}

/// What is written goes out at once, and what the client has no room for is not gathered. Where the system
/// refuses, it is as it would be.
fn prepared(connection: TcpStream) -> TcpStream {
    let _ = connection.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(&connection).set_tcp_notsent_lowat(UNSENT_BYTES);
    connection
}

/// What every connection is served with.
#[derive(Clone)]
struct Served {
    router: Router,
    stop: CancellationToken,
    /// Tells idle connections to make room.
    crowded: Arc<Notify>,
    bounds: Bounds,
    headers: SecurityHeaders,
}

/// `secure` is what is done with a connection before HTTP is spoken on it; it has as long as the head
/// of a request.
async fn serve_on<L, Secure, Securing, Secured>(mut listener: L, secure: Secure, served: Served)
where
    L: Listener<Addr = SocketAddr>,
    Secure: Fn(L::Io) -> Securing,
    Securing: Future<Output = io::Result<Secured>> + Send + 'static,
    Secured: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(served.bounds.connections));
    let crowd = Crowd::new(served.bounds.per_client);
    let mut connections = JoinSet::new();
    let stopped = served.stop.clone();
    let taking = async {
        // The slots are never closed.
        while let Some(slot) = free(&slots, &served.crowded, &crowd).await {
            let (io, peer) = listener.accept().await;
            let Some(member) = crowd.admit(peer.ip()) else { continue };
            let (securing, served) = (secure(io), served.clone());
            connections.spawn(async move {
                connection(securing, peer, member, &served).await;
                drop(slot);
            });
            while connections.try_join_next().is_some() {}
        }
    };
    tokio::select! {
        () = stopped.cancelled() => {}
        () = taking => {}
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// A slot for a connection. While there is none, those that are there are told to end when they have
/// nothing to do: a client that keeps one open for later must not keep others out. Those whose requests do not come to
/// their end are closed, the oldest first.
async fn free(slots: &Arc<Semaphore>, crowded: &Notify, crowd: &Crowd) -> Option<OwnedSemaphorePermit> {
    if let Ok(slot) = Arc::clone(slots).try_acquire_owned() {
        return Some(slot);
    }
    limit_hit(Limit::Connections);
    loop {
        crowded.notify_waiters();
        let wait = crowd.make_room(Instant::now()).unwrap_or(TOLD_AGAIN).min(TOLD_AGAIN);
        let slot = Arc::clone(slots).acquire_owned();
        if let Ok(slot) = tokio::time::timeout(wait, slot).await {
            return slot.ok();
        }
    }
}

async fn connection<Io: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    securing: impl Future<Output = io::Result<Io>>,
    peer: SocketAddr,
    member: Member,
    served: &Served,
) {
    let secured = tokio::select! {
        secured = tokio::time::timeout(served.bounds.head, securing) => secured,
        () = member.trial.evicted() => return limit_hit(Limit::HeadSeconds),
        () = served.stop.cancelled() => return,
    };
    let io = match secured {
        Ok(Ok(io)) => io,
        Ok(Err(error)) => return tracing::debug!(%error, "a connection could not be secured"),
        Err(_) => return limit_hit(Limit::HeadSeconds),
    };
    tokio::select! {
        () = converse(io, peer, Arc::clone(&member.trial), served) => {}
        () = member.trial.evicted() => {
            tracing::debug!("a connection whose request did not come to its end was closed to make room");
            limit_hit(Limit::HeadSeconds);
        }
    }
}

/// Speaks HTTP on a connection until it ends.
async fn converse<Io: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    io: Io,
    peer: SocketAddr,
    trial: Arc<Trial>,
    served: &Served,
) {
    let Served { router, stop, crowded, bounds, headers } = served.clone();
    let line = Arc::new(Line::new(trial));
    let io = Watched { io: Refusals::on(io, headers), patience: bounds.stall, stalled: None, line: Arc::clone(&line) };
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(bounds.head).max_buf_size(HEAD_BYTES);
    let router = TowerToHyperService::new(router);
    let answered = Arc::clone(&line);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(OnTrial(Arc::clone(&answered.trial)));
        let line = Arc::clone(&answered);
        line.request_begins();
        let answering = router.call(request);
        async move {
            let mut answer = answering.await?;
            line.response_begins(&mut answer);
            Ok::<_, Infallible>(answer.map(BatchedBody::new))
        }
    });
    let mut serving = http.serve_connection(TokioIo::new(io), service);
    // Where a head is coming, making room would take away a request that is on its way.
    let mut end = pin!(async {
        tokio::select! {
            () = stop.cancelled() => {}
            () = async {
                crowded.notified().await;
                while line.awaits_head.load(Ordering::Relaxed) {
                    crowded.notified().await;
                }
            } => {}
        }
    });
    let served = tokio::select! {
        served = &mut serving => served,
        () = end.as_mut() => {
            Pin::new(&mut serving).graceful_shutdown();
            tokio::select! {
                served = &mut serving => served,
                () = Box::pin(line.stream_is_cut_off(&stop)) => return tracing::debug!("a streaming response was cut off"),
            }
        }
    };
    match served {
        Err(error) if error.is_timeout() && line.awaits_head.load(Ordering::Relaxed) => limit_hit(Limit::HeadSeconds),
        Err(error) => tracing::debug!(%error, "a connection broke off"),
        Ok(()) => {}
    }
}

/// What the parts of one connection tell each other.
struct Line {
    /// Whether a head has begun to come, or never one has: then waiting in vain for its end is no
    /// idleness between two requests.
    awaits_head: AtomicBool,
    /// Whether bytes that arrive belong to the head of a next request: the response to the newest one has begun, or there
    /// was none.
    is_answered: AtomicBool,
    /// Whether the newest response is a [`StreamingResponse`].
    is_streaming: AtomicBool,
    /// Progress of the client.
    trial: Arc<Trial>,
}

impl Line {
    fn new(trial: Arc<Trial>) -> Self {
        Self {
            awaits_head: AtomicBool::new(true),
            is_answered: AtomicBool::new(true),
            is_streaming: AtomicBool::new(false),
            trial,
        }
    }

    fn request_begins(&self) {
        self.trial.end();
        self.is_answered.store(false, Ordering::Relaxed);
    }

    /// No request follows a streaming response, so that nothing its client sends puts the connection on trial.
    fn response_begins(&self, response: &mut Response) {
        let is_streaming = response.extensions().get::<StreamingResponse>().is_some();
        if is_streaming {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.trial.end();
        self.is_answered.store(!is_streaming, Ordering::Relaxed);
        self.is_streaming.store(is_streaming, Ordering::Relaxed);
    }

    /// Resolves when the server has stopped and a client has not taken the end of its streaming response in time.
    async fn stream_is_cut_off(&self, stop: &CancellationToken) {
        stop.cancelled().await;
        tokio::time::sleep(STREAMING_GRACE).await;
        if !self.is_streaming.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

/// A connection that is given up when its client takes nothing of what is sent to it for too long.
struct Watched<Io> {
    io: Io,
    patience: Duration,
    /// When it is given up; there while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
    line: Arc<Line>,
}

impl<Io> Watched<Io> {
    fn watch<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let patience = self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        task::ready!(stalled.as_mut().poll(cx));
        limit_hit(Limit::RequestSeconds);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Watched<Io> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        task::ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.line.awaits_head.store(true, Ordering::Relaxed);
            if self.line.is_answered.load(Ordering::Relaxed) {
                self.line.trial.begin();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Watched<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.line.awaits_head.store(false, Ordering::Relaxed);
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.line.awaits_head.store(false, Ordering::Relaxed);
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
