//! The server: takes connections from a listener, serves HTTP/1.1 on each, and holds what
//! `axum::serve` leaves open: how many connections there are, how long the head of a request may
//! take to come, and how long a client may take nothing of its answer.
//!
//! A connection is plain or inside TLS. The handshake is made in the connection's own task, so that one
//! that takes its time holds up no other.

use std::{
    convert::Infallible,
    future::{Future, poll_fn, ready},
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
    crowd::{Crowd, Member, OnTrial, Trial},
    endless::{EndlessBody, Framing, Taken},
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

/// How long the end of an endless answer may take to be sent when the server stops.
const FAREWELL: Duration = Duration::from_millis(500);

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
    let conversation = converse(io, peer, Arc::clone(&member.trial), served);
    // On the heap, since an endless answer outlives it.
    let mut conversation = Box::pin(conversation);
    let ended = tokio::select! {
        ended = &mut conversation => ended,
        () = member.trial.evicted() => {
            tracing::debug!("a connection whose request did not come to its end was closed to make room");
            return limit_hit(Limit::HeadSeconds);
        }
    };
    drop(conversation);
    let Some((io, endless)) = ended else { return };
    member.trial.exempt();
    let stop = &served.stop;
    let cut_off = async {
        stop.cancelled().await;
        tokio::time::sleep(FAREWELL).await;
    };
    tokio::select! {
        sent = endless.send(io) => if let Err(error) = sent {
            tracing::debug!(%error, "an endless answer broke off");
        },
        () = cut_off => tracing::debug!("an endless answer was cut off"),
    }
}

/// HTTP on a connection, until it ends, or until the head of an endless answer has been sent: what is left then is to
/// send that.
async fn converse<Io: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    io: Io,
    peer: SocketAddr,
    trial: Arc<Trial>,
    served: &Served,
) -> Option<(Watched<Refusals<Io>>, EndlessBody)> {
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
        let (framing, line) = (Framing::of(&request), Arc::clone(&answered));
        line.trial.end();
        line.is_answered.store(false, Ordering::Relaxed);
        let answering = router.call(request);
        async move {
            let answer = answering.await?;
            line.trial.end();
            line.is_answered.store(true, Ordering::Relaxed);
            Ok::<_, Infallible>(line.endless.from(answer, framing))
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
    let mut is_to_end = false;
    let served = loop {
        let turn = poll_fn(|cx| match Pin::new(&mut serving).poll(cx) {
            Poll::Ready(served) => Poll::Ready(Ok(served)),
            // Whatever was to be sent is sent, unless the client has no room for it.
            Poll::Pending if line.is_full.load(Ordering::Relaxed) => Poll::Pending,
            Poll::Pending => line.endless.out().map_or(Poll::Pending, |body| Poll::Ready(Err(body))),
        });
        tokio::select! {
            biased;
            turn = turn => match turn {
                Ok(served) => break served,
                Err(endless) => return Some((serving.into_parts().io.into_inner(), endless)),
            },
            () = end.as_mut(), if !is_to_end => {
                Pin::new(&mut serving).graceful_shutdown();
                is_to_end = true;
            }
        }
    };
    match served {
        Err(error) if error.is_timeout() && line.awaits_head.load(Ordering::Relaxed) => limit_hit(Limit::HeadSeconds),
        Err(error) => tracing::debug!(%error, "a connection broke off"),
        Ok(()) => {}
    }
    None
}

/// What the parts of one connection tell each other.
struct Line {
    /// Whether a head has begun to come, or never one has: then waiting in vain for its end is no
    /// idleness between two requests.
    awaits_head: AtomicBool,
    /// Whether something is to be sent and the client has no room for it.
    is_full: AtomicBool,
    /// The body of an endless answer whose head is being sent.
    endless: Taken,
    /// Whether the answer to the newest request has begun, if there was one: what comes then belongs to the next head.
    is_answered: AtomicBool,
    /// Progress of the client.
    trial: Arc<Trial>,
}

impl Line {
    fn new(trial: Arc<Trial>) -> Self {
        Self {
            awaits_head: AtomicBool::new(true),
            is_full: AtomicBool::default(),
            endless: Taken::default(),
            is_answered: AtomicBool::new(true),
            trial,
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
        self.line.is_full.store(written.is_pending(), Ordering::Relaxed);
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
