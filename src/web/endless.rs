//! Answers without an end, as a stream of events is one.
//!
//! hyper sends the head of such an answer, and holds two buffers of 8 KiB for as long as the connection lasts, of which
//! a stream that waits has no use. So when the head is on its way, the connection is taken from hyper, and the
//! body is sent from here: what is ready goes out together, and between that nothing is held.

use std::{
    convert::Infallible,
    future::poll_fn,
    io::{self, IoSlice},
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, HttpBody},
    http::{Method, Request, Response, StatusCode, Version},
};
use bytes::Bytes;
use futures_util::stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much of a body is sent at once at the most: pieces, and bytes beside the last piece.
const PIECES: usize = 64;
const BYTES: usize = 64 * 1024;

/// Marks an answer, in its extensions, whose body has no end of its own and loses nothing by being cut off: its
/// client knows how to go on. It must end by itself when the server stops; a client that does not take that
/// end does not hold the server up. The connection ends with the answer.
#[derive(Clone, Copy, Debug)]
pub struct Endless;

/// How a request is to be answered if the answer is endless.
#[derive(Clone, Copy)]
pub(super) enum Framing {
    /// Not at all: it is a HEAD.
    None,
    /// As it is, to the end of the connection: HTTP/1.0 knows nothing else (RFC 9112 section 6.3).
    Bare,
    /// In chunks (RFC 9112 section 7.1).
    Chunks,
}

impl Framing {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        match request.version() {
            _ if request.method() == Method::HEAD => Self::None,
            Version::HTTP_11 => Self::Chunks,
            _ => Self::Bare,
        }
    }
}

/// The body of an endless answer.
pub(super) struct EndlessBody {
    body: Body,
    in_chunks: bool,
}

/// Where the body of an endless answer is put until its head is sent.
#[derive(Default)]
pub(super) struct Taken(Mutex<Option<EndlessBody>>);

impl Taken {
    /// Takes the body of an answer if it is endless, and leaves one from which nothing ever comes.
    pub(super) fn from(&self, answer: Response<Body>, framing: Framing) -> Response<Body> {
        let in_chunks = match framing {
            Framing::None => return answer,
            Framing::Bare => false,
            Framing::Chunks => true,
        };
        if answer.status() != StatusCode::OK || answer.extensions().get::<Endless>().is_none() {
            return answer;
        }
        let (head, body) = answer.into_parts();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(EndlessBody { body, in_chunks });
        Response::from_parts(head, Body::from_stream(stream::pending::<Result<Bytes, Infallible>>()))
    }

    /// The body, if one has been taken.
    pub(super) fn out(&self) -> Option<EndlessBody> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl EndlessBody {
    /// Sends the body to its end, and ends the connection.
    ///
    /// # Errors
    /// When the client is gone, or takes nothing for too long.
    pub(super) async fn send(mut self, mut io: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        loop {
            let (pieces, has_ended) = poll_fn(|cx| self.gather(&mut io, cx)).await?;
            write(&mut io, &pieces, self.in_chunks, has_ended).await?;
            poll_fn(|cx| Pin::new(&mut io).poll_flush(cx)).await?;
            if has_ended {
                return poll_fn(|cx| Pin::new(&mut io).poll_shutdown(cx)).await;
            }
        }
    }

    /// What is ready of the body, as soon as anything is, and whether that is the end.
    fn gather(
        &mut self,
        io: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(Vec<Bytes>, bool)>> {
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        while pieces.len() < PIECES && bytes < BYTES {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    // An empty chunk would be the end; there are no trailers.
                    let piece = frame.into_data().ok().filter(|piece| !piece.is_empty());
                    bytes += piece.as_ref().map_or(0, Bytes::len);
                    pieces.extend(piece);
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(io::Error::other(error))),
                Poll::Ready(None) => return Poll::Ready(Ok((pieces, true))),
                Poll::Pending if pieces.is_empty() => return gone(io, cx).map(Err),
                Poll::Pending => break,
            }
        }
        Poll::Ready(Ok((pieces, false)))
    }
}

/// Writes these pieces as one chunk, if it is to be one, and the last chunk if that is all.
async fn write(
    io: &mut (impl AsyncWrite + Unpin),
    pieces: &[Bytes],
    in_chunks: bool,
    has_ended: bool,
) -> io::Result<()> {
    let length: usize = pieces.iter().map(Bytes::len).sum();
    let begin = format!("{length:x}\r\n");
    let mut parts = Vec::with_capacity(pieces.len() + 3);
    if in_chunks && length > 0 {
        parts.push(IoSlice::new(begin.as_bytes()));
    }
    parts.extend(pieces.iter().map(|piece| IoSlice::new(piece)));
    if in_chunks && length > 0 {
        parts.push(IoSlice::new(b"\r\n"));
    }
    if in_chunks && has_ended {
        parts.push(IoSlice::new(b"0\r\n\r\n"));
    }
    let mut left = parts.as_mut_slice();
    while !left.is_empty() {
        let written = poll_fn(|cx| Pin::new(&mut *io).poll_write_vectored(cx, left)).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut left, written);
    }
    Ok(())
}

/// Ready when the client has gone. What it says meanwhile, such as another request, is not heard.
fn gone(io: &mut (impl AsyncRead + Unpin), cx: &mut Context<'_>) -> Poll<io::Error> {
    loop {
        let mut said = [0; 64];
        let mut said = ReadBuf::new(&mut said);
        match ready!(Pin::new(&mut *io).poll_read(cx, &mut said)) {
            Ok(()) if said.filled().is_empty() => return Poll::Ready(io::ErrorKind::UnexpectedEof.into()),
            Ok(()) => {}
            Err(error) => return Poll::Ready(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::{Body, Bytes, EndlessBody, Infallible, stream};

    async fn sent(pieces: &[&'static str], in_chunks: bool) -> String {
        let pieces = pieces.iter().map(|piece| Ok::<_, Infallible>(Bytes::from_static(piece.as_bytes())));
        let body = Body::from_stream(stream::iter(pieces.collect::<Vec<_>>()));
        // The client takes a few bytes at a time.
        let (mut client, server) = tokio::io::duplex(7);
        let sending = tokio::spawn(EndlessBody { body, in_chunks }.send(server));
        let mut came = String::new();
        client.read_to_string(&mut came).await.unwrap();
        sending.await.unwrap().unwrap();
        came
    }

    #[tokio::test]
    async fn what_is_ready_goes_out_together() {
        assert_eq!(sent(&["one\n", "", "three\n"], true).await, "a\r\none\nthree\n\r\n0\r\n\r\n");
        assert_eq!(sent(&[], true).await, "0\r\n\r\n");
        assert_eq!(sent(&["one\n", "two\n"], false).await, "one\ntwo\n");
        let many = sent(&["0123456789abcdef"; 65], true).await;
        assert!(
            many.starts_with("400\r\n0123") && many.ends_with("f\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n"),
            "{many}"
        );
    }

    #[tokio::test]
    async fn who_has_gone_is_noticed_while_nothing_is_sent() {
        let body = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let (client, server) = tokio::io::duplex(7);
        let sending = tokio::spawn(EndlessBody { body, in_chunks: true }.send(server));
        drop(client);
        assert_eq!(sending.await.unwrap().unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    }
}
