//! Content of a stored file in pieces.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt, stream, stream::BoxStream};
use object_store::{GetResult, GetResultPayload};
use tokio::task::spawn_blocking;

use super::{FileStore, FileStoreError};

/// Size of the pieces of a file in a folder, in bytes. The library reads 8 KiB at a time, which takes several times as long.
const PIECE_BYTES: u64 = 64 * 1024;

impl FileStore {
    /// Returns the bytes of a response of the object store.
    pub(super) fn pieces(&self, content: GetResult) -> BoxStream<'static, Result<Bytes, FileStoreError>> {
        let store = self.clone();
        match content.payload {
            GetResultPayload::File(file, _) => {
                pieces_of(file, content.range).map_err(move |error| store.io_failed(&error)).boxed()
            }
            GetResultPayload::Stream(pieces) => pieces.map_err(move |error| store.failed(&error)).boxed(),
        }
    }
}

/// Reads a range of a file as fast as the stream is read.
fn pieces_of(file: File, range: Range<u64>) -> impl Stream<Item = io::Result<Bytes>> {
    let begin = (file, range.start);
    stream::try_unfold(begin, move |(mut file, at)| async move {
        let length = range.end.saturating_sub(at).min(PIECE_BYTES);
        if length == 0 {
            return Ok(None);
        }
        let read = spawn_blocking(move || {
            file.seek(SeekFrom::Start(at))?;
            let mut piece = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
            (&mut file).take(length).read_to_end(&mut piece)?;
            // A stored file never changes, so only a damaged disk or another program ends it early.
            if (piece.len() as u64) < length {
                Err(io::Error::from(io::ErrorKind::UnexpectedEof))
            } else {
                Ok((file, piece))
            }
        });
        let (file, piece) = read.await.map_err(io::Error::other)??;
        Ok(Some((Bytes::from(piece), (file, at + length))))
    })
}
