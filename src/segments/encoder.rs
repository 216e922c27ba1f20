//! Bytes of a segment: lines of JSON in frames of Zstandard.
//!
//! A frame ends after each thousandth number, so that a reader of a page decompresses about a page, and at a size that
//! bounds the memory of such a reader. The bytes of the lines depend on the changes alone. Each frame has a checksum.

use std::{io::Write, sync::Arc};

use bytes::Bytes;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use zstd::stream::write::Encoder;

use super::manifest::{Frame, Names};
use crate::{
    files::FileDigest,
    journal::RecordedChange,
    model::{Seq, SourceName, Timestamp, Uri},
};

/// Number of numbers in a frame.
const FRAME: u64 = 1000;

/// Size of the lines at which a frame ends, in bytes.
const FRAME_BYTES: usize = 4 << 20;

/// Compression level. Higher ones gain less than a tenth, and need a multiple of the time.
const LEVEL: i32 = 3;

/// What a manifest says about a change.
#[derive(Deserialize)]
struct Facts {
    source: SourceName,
    received: Timestamp,
    object: Uri,
    #[serde(default)]
    parent: Option<Uri>,
    #[serde(default)]
    types: Vec<Uri>,
}

/// Writer of a segment.
#[derive(Default)]
pub(super) struct SegmentEncoder {
    frame: Option<OpenFrame>,
    hash: Sha256,
    /// Contents so far.
    written: Written,
}

/// What a segment contains.
#[derive(Default)]
pub(super) struct Written {
    pub(super) frames: Vec<Frame>,
    pub(super) names: Names,
    pub(super) changes: u64,
    /// Size of the lines, in bytes.
    pub(super) plain_size: u64,
    /// Times of receipt of the first and the last change.
    pub(super) received: Option<(Timestamp, Timestamp)>,
    /// Numbers of changes whose JSON has not its form.
    pub(super) unreadable: Vec<Seq>,
}

/// A frame that is being written.
struct OpenFrame {
    encoder: Encoder<'static, Vec<u8>>,
    first: Seq,
    last: Seq,
    plain_size: usize,
}

impl OpenFrame {
    fn begin(first: Seq) -> std::io::Result<Self> {
        let mut encoder = Encoder::new(Vec::new(), LEVEL)?;
        encoder.include_checksum(true)?;
        Ok(Self { encoder, first, last: first, plain_size: 0 })
    }

    fn is_full_before(&self, seq: Seq) -> bool {
        frame_of(self.first) != frame_of(seq) || self.plain_size >= FRAME_BYTES
    }
}

/// Returns the number of the frame to which a change belongs.
fn frame_of(seq: Seq) -> u64 {
    seq.0.saturating_sub(1) / FRAME
}

impl SegmentEncoder {
    /// Adds changes; returns the bytes of the frames that are complete.
    pub(super) fn add(&mut self, changes: &[Arc<RecordedChange>]) -> std::io::Result<Bytes> {
        let mut complete = Vec::new();
        for change in changes {
            let (seq, json) = (change.seq(), change.json());
            let Ok(Facts { source, received, object, parent, types }) = serde_json::from_slice(json) else {
                self.written.unreadable.push(seq);
                continue;
            };
            if self.frame.as_ref().is_some_and(|frame| frame.is_full_before(seq)) {
                complete.extend(self.end_frame()?);
            }
            self.written.names.add(&source, &object, parent.as_ref(), &types);
            self.written.received = Some((self.written.received.map_or(received, |(first, _)| first), received));
            let frame = match &mut self.frame {
                Some(frame) => frame,
                None => self.frame.insert(OpenFrame::begin(seq)?),
            };
            for piece in [&json[..], b"\n"] {
                frame.encoder.write_all(piece)?;
                self.hash.update(piece);
                frame.plain_size += piece.len();
                self.written.plain_size += piece.len() as u64;
            }
            frame.last = seq;
            self.written.changes += 1;
        }
        Ok(complete.into())
    }

    /// Ends the last frame; returns its bytes, the digest of the lines, and what the segment contains.
    pub(super) fn finish(mut self) -> std::io::Result<(Bytes, FileDigest, Written)> {
        let last = self.end_frame()?;
        Ok((last.into(), FileDigest::of_hash(self.hash), self.written))
    }

    /// Ends the open frame; returns its bytes.
    fn end_frame(&mut self) -> std::io::Result<Vec<u8>> {
        let Some(OpenFrame { encoder, first, last, .. }) = self.frame.take() else { return Ok(Vec::new()) };
        let bytes = encoder.finish()?;
        let offset = self.written.frames.last().map_or(0, |frame| frame.offset + frame.size);
        self.written.frames.push(Frame { first, last, offset, size: bytes.len() as u64 });
        Ok(bytes)
    }
}
