//! The stream below the library: decrypted, and corrected by the [`FrameScanner`].
//!
//! The library accepts any stream type that its runtime names ([`Reactor::TcpStream`]). This runtime is tokio
//! with the scanned stream as that type, and otherwise unchanged.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use async_rs::{Runtime, Tokio, traits::Reactor, util::RuntimeParts};
use futures_util::Stream as Items;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt};

use super::frames::{FrameScanner, LARGEST_FRAME, Notes};
use crate::broker::Stream;

/// Maximum size of a read, in octets.
const READ: usize = LARGEST_FRAME;

/// Runtime of the library.
pub(super) type ScanningRuntime = Runtime<RuntimeParts<Tokio, ScanningReactor>>;

/// Returns the caller's runtime, for scanned streams.
pub(super) fn runtime() -> ScanningRuntime {
    let tokio = Tokio::current();
    Runtime::new(RuntimeParts::new(tokio.clone(), ScanningReactor(tokio)))
}

/// Tokio's reactor with another stream type. It opens no streams.
#[derive(Clone, Debug)]
pub(super) struct ScanningReactor(Tokio);

impl Reactor for ScanningReactor {
    type TcpStream = Compat<ScannedStream>;
    type Sleep = <Tokio as Reactor>::Sleep;

    #[expect(refining_impl_trait, reason = "this reactor opens no streams")]
    fn register<H>(&self, _: H) -> io::Result<Self::TcpStream> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sleep(&self, duration: Duration) -> Self::Sleep {
        self.0.sleep(duration)
    }

    fn interval(&self, duration: Duration) -> impl Items<Item = Instant> + Send + 'static {
        self.0.interval(duration)
    }

    #[expect(clippy::manual_async_fn, reason = "the future must be Send")]
    fn tcp_connect_addr(&self, _: SocketAddr) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        async { Err(io::ErrorKind::Unsupported.into()) }
    }
}

/// A stream that returns the broker's frames after the scanner has passed them.
pub(super) struct ScannedStream {
    stream: Stream,
    scanner: FrameScanner,
    /// Octets from `begin` to `ready` may be read. Octets from `ready` to `end` wait for the rest of their
    /// frame.
    buffer: Box<[u8]>,
    begin: usize,
    ready: usize,
    end: usize,
}

impl ScannedStream {
    /// Wraps a decrypted stream. The scanner records its corrections in `notes`.
    pub(super) fn over(stream: Stream, notes: Notes) -> Compat<Self> {
        let buffer = vec![0; LARGEST_FRAME + READ].into_boxed_slice();
        Self { stream, scanner: FrameScanner::new(notes), buffer, begin: 0, ready: 0, end: 0 }.compat()
    }
}

impl AsyncRead for ScannedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.begin < this.ready {
                let count = out.remaining().min(this.ready - this.begin);
                out.put_slice(&this.buffer[this.begin..this.begin + count]);
                this.begin += count;
                return Poll::Ready(Ok(()));
            }
            this.buffer.copy_within(this.ready..this.end, 0);
            this.end -= this.ready;
            (this.begin, this.ready) = (0, 0);
            let mut free = ReadBuf::new(&mut this.buffer[this.end..]);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut free))?;
            let count = free.filled().len();
            if count == 0 {
                return Poll::Ready(Ok(()));
            }
            this.end += count;
            let scanned = this.scanner.scan(&mut this.buffer[..this.end]);
            this.ready = scanned.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }
}

impl AsyncWrite for ScannedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, octets)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
