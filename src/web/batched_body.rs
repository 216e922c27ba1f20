//! Response bodies whose ready pieces are sent as one chunk and in one system call.
//!
//! hyper collects at most 16 pieces per system call. A stream with many ready events needs fewer calls if each piece
//! of its body contains many of them.

use std::{
    collections::VecDeque,
    io::IoSlice,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::body::{Body, HttpBody};
use bytes::{Buf, Bytes};
use hyper::body::{Frame, SizeHint};

/// Maximum number of pieces in a batch. hyper passes at most 64 slices to a system call; the framing of a chunk takes
/// two of them.
const MAX_PIECES: usize = 62;

/// Number of bytes after which no further piece is added to a batch.
const MAX_BYTES: usize = 64 * 1024;

/// Response body whose frames are batches of all pieces that are ready.
pub(super) struct BatchedBody {
    body: Body,
    /// End or error of the body that followed the last batch.
    end: Option<Result<(), axum::Error>>,
}

impl BatchedBody {
    pub(super) fn new(body: Body) -> Self {
        Self { body, end: None }
    }
}

impl HttpBody for BatchedBody {
    type Data = Batch;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Batch>, axum::Error>>> {
        if let Some(end) = self.end.take() {
            return Poll::Ready(end.err().map(Err));
        }
        let mut batch = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            Some(Ok(frame)) => match frame.map_data(Batch::new).into_data() {
                Ok(batch) => batch,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            },
        };
        while batch.has_room() && !self.body.is_end_stream() {
            match Pin::new(&mut self.body).poll_frame(cx) {
                // No handler sends trailers after data.
                Poll::Ready(Some(Ok(frame))) => frame.into_data().into_iter().for_each(|piece| batch.push(piece)),
                Poll::Ready(Some(Err(error))) => {
                    self.end = Some(Err(error));
                    break;
                }
                Poll::Ready(None) => {
                    self.end = Some(Ok(()));
                    break;
                }
                Poll::Pending => break,
            }
        }
        Poll::Ready(Some(Ok(Frame::data(batch))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.end {
            Some(end) => end.is_ok(),
            None => self.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Pieces of a body that are sent together.
#[derive(Debug)]
pub(super) struct Batch {
    first: Bytes,
    /// Pieces after the first, none of them empty.
    rest: VecDeque<Bytes>,
    rest_bytes: usize,
}

impl Batch {
    fn new(first: Bytes) -> Self {
        Self { first, rest: VecDeque::new(), rest_bytes: 0 }
    }

    fn has_room(&self) -> bool {
        self.rest.len() + 1 < MAX_PIECES && self.remaining() < MAX_BYTES
    }

    fn push(&mut self, piece: Bytes) {
        if self.first.is_empty() {
            self.first = piece;
        } else if !piece.is_empty() {
            self.rest_bytes += piece.len();
            self.rest.push_back(piece);
        }
    }
}

impl Buf for Batch {
    fn remaining(&self) -> usize {
        self.first.len() + self.rest_bytes
    }

    fn chunk(&self) -> &[u8] {
        &self.first
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let pieces = std::iter::once(&self.first).chain(&self.rest).filter(|piece| !piece.is_empty());
        let filled = slices.iter_mut().zip(pieces).map(|(slice, piece)| *slice = IoSlice::new(piece));
        filled.count()
    }

    fn advance(&mut self, mut count: usize) {
        while count >= self.first.len() {
            count -= self.first.len();
            self.first = self.rest.pop_front().unwrap_or_default();
            self.rest_bytes -= self.first.len();
            if self.first.is_empty() {
                break;
            }
        }
        // Panics if there are fewer bytes, as `Buf` requires.
        self.first.advance(count);
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, io::IoSlice};

    use axum::body::{Body, HttpBody};
    use bytes::{Buf, Bytes};
    use futures_util::stream::{self, StreamExt};
    use http_body_util::BodyExt;

    use super::{Batch, BatchedBody};

    fn body(pieces: &[&'static str]) -> BatchedBody {
        let pieces: Vec<_> =
            pieces.iter().map(|piece| Ok::<_, Infallible>(Bytes::from_static(piece.as_bytes()))).collect();
        BatchedBody::new(Body::from_stream(stream::iter(pieces)))
    }

    async fn batches(mut body: BatchedBody) -> Vec<String> {
        let mut batches = Vec::new();
        while let Some(frame) = body.frame().await {
            let mut batch = frame.unwrap().into_data().unwrap();
            batches.push(String::from_utf8(batch.copy_to_bytes(batch.remaining()).into()).unwrap());
        }
        batches
    }

    #[tokio::test]
    async fn ready_pieces_form_one_batch() {
        assert_eq!(batches(body(&["one\n", "", "three\n"])).await, ["one\nthree\n"]);
        assert_eq!(batches(body(&["", "two\n"])).await, ["two\n"]);
        assert_eq!(batches(body(&[])).await, Vec::<String>::new());
        let lengths = |batches: Vec<String>| batches.iter().map(String::len).collect::<Vec<_>>();
        assert_eq!(lengths(batches(body(&["0123456789"; 63])).await), [620, 10]);
        let large: &'static str = "x".repeat(40_000).leak();
        assert_eq!(lengths(batches(body(&[large; 3])).await), [80_000, 40_000]);
    }

    #[tokio::test]
    async fn piece_is_sent_before_the_next_is_ready() {
        let pieces = stream::iter([Ok::<_, Infallible>("one")]).chain(stream::pending());
        let mut body = BatchedBody::new(Body::from_stream(pieces));
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().chunk(), b"one");
        assert!(!body.is_end_stream());
    }

    #[tokio::test]
    async fn error_follows_the_pieces_before_it() {
        let pieces = stream::iter([Ok("one"), Err(std::io::Error::other("broken"))]);
        let mut body = BatchedBody::new(Body::from_stream(pieces));
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().chunk(), b"one");
        assert!(!body.is_end_stream());
        assert!(body.frame().await.unwrap().is_err());
    }

    #[tokio::test]
    async fn end_is_known_with_the_last_batch() {
        let mut ended = body(&["one"]);
        assert!(ended.frame().await.unwrap().is_ok() && ended.is_end_stream());
        let whole = BatchedBody::new(Body::from("whole"));
        assert_eq!(whole.size_hint().exact(), Some(5));
        assert!(BatchedBody::new(Body::empty()).is_end_stream());
    }

    #[test]
    fn batch_advances_over_any_number_of_bytes() {
        for step in 1..=9 {
            let mut batch = Batch::new(Bytes::from_static(b"one"));
            for piece in ["", "t", "wo", "three"] {
                batch.push(Bytes::from_static(piece.as_bytes()));
            }
            let mut sent = Vec::new();
            while batch.has_remaining() {
                let mut slices = [IoSlice::new(&[]); 3];
                let filled = batch.chunks_vectored(&mut slices);
                let ready: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect();
                assert!(filled == 3 || ready.len() == batch.remaining(), "{step}");
                let some = step.min(ready.len());
                sent.extend_from_slice(&ready[..some]);
                batch.advance(some);
            }
            assert_eq!(sent, b"onetwothree", "{step}");
        }
    }
}
