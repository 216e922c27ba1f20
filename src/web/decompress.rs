//! Request bodies, decoded while they arrive.
//!
//! Each chunk is decompressed on arrival, and the output is counted before it is stored. Therefore a decompression
//! bomb costs no more than the limit.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::http::{HeaderMap, header};
use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

/// Base-2 logarithm of the maximum zstd window: the 8 MiB that RFC 9659 allows in HTTP. Without this limit, a frame
/// of a few bytes could claim 128 MiB.
const ZSTD_WINDOW_LOG: u32 = 23;

/// Size of the output buffer of the zstd decoder, in bytes.
const ZSTD_OUTPUT: usize = 32 * 1024;

/// Number of bytes that an encoding may add to a small body.
const ENCODING_OVERHEAD: usize = 1024;

/// Content encoding of a body (RFC 9110 section 8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Identity,
    Gzip,
    Zstd,
}

impl Encoding {
    /// Supported encodings, as a value of `Accept-Encoding`.
    pub(super) const SUPPORTED: &str = "gzip, zstd";

    /// Returns the encoding that the headers declare; `None` if it is unsupported or there are several.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut encodings = headers.get_all(header::CONTENT_ENCODING).iter();
        let Some(name) = encodings.next() else { return Some(Self::Identity) };
        if encodings.next().is_some() {
            return None;
        }
        match name.to_str().ok()?.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Self::Identity),
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// Budget for the bodies of all requests together: an extension that a layer adds to each request. Clones share the
/// budget.
#[derive(Clone, Debug)]
pub struct BodyBudget {
    used: Arc<AtomicUsize>,
    max: usize,
    /// Part of `used` that belongs to unauthenticated senders.
    unauthenticated: Arc<AtomicUsize>,
    /// Limit of `unauthenticated`, if this handle is for an unauthenticated sender.
    max_unauthenticated: Option<usize>,
}

impl BodyBudget {
    /// Creates a budget of `max` bytes.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { used: Arc::default(), max, unauthenticated: Arc::default(), max_unauthenticated: None }
    }

    /// Returns a handle for the body of an unauthenticated sender. All such bodies together may use half of the
    /// budget, which leaves room for others, but always one body of `body_limit` bytes.
    pub(super) fn for_unauthenticated(&self, body_limit: usize) -> Self {
        Self { max_unauthenticated: Some((self.max / 2).max(body_limit)), ..self.clone() }
    }

    fn try_reserve(&self, bytes: usize) -> bool {
        let add = |counter: &AtomicUsize, max: usize| {
            let fits = |used: usize| used.checked_add(bytes).filter(|used| *used <= max);
            counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
        };
        let Some(max_unauthenticated) = self.max_unauthenticated else { return add(&self.used, self.max) };
        if !add(&self.unauthenticated, max_unauthenticated) {
            return false;
        }
        let is_reserved = add(&self.used, self.max);
        if !is_reserved {
            self.unauthenticated.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_reserved
    }

    fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        if self.max_unauthenticated.is_some() {
            self.unauthenticated.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// An unlimited budget, for requests without the extension: only the limit of each body applies.
impl Default for BodyBudget {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

/// Reason why a body cannot be decoded.
#[derive(Debug)]
pub(super) enum DecodeError {
    /// The body exceeds its limit.
    TooLarge,
    /// All bodies together exceed the budget.
    OverBudget,
    /// The body does not have the declared encoding.
    Corrupt(io::Error),
}

/// Result of decompressing a body that did not arrive by HTTP.
#[derive(Debug)]
pub enum Decompression {
    /// The declared value names no encoding: it is empty or a charset.
    NotEncoded,
    /// The decompressed body.
    Body(Bytes),
    /// The decompressed body would exceed the limit.
    TooLarge,
    /// The body does not have the declared encoding; the text says why.
    Corrupt(String),
    /// The encoding is not supported.
    Unsupported,
}

/// Decompresses a body that declares the encoding `encoding`, to at most `limit` bytes.
#[must_use]
pub fn decompress(encoding: &str, body: &[u8], limit: usize) -> Decompression {
    let encoding = match encoding.trim().to_ascii_lowercase().as_str() {
        "gzip" | "x-gzip" => Encoding::Gzip,
        "zstd" => Encoding::Zstd,
        // The other registered content encodings of HTTP. A value that is none of them is a charset.
        "br" | "compress" | "x-compress" | "deflate" | "dcb" | "dcz" | "exi" | "pack200-gzip" | "aes128gcm" => {
            return Decompression::Unsupported;
        }
        _ => return Decompression::NotEncoded,
    };
    let decoded = BodyDecoder::new(encoding, 0, limit, BodyBudget::default()).and_then(|mut decoder| {
        decoder.write(body)?;
        decoder.finish()
    });
    match decoded {
        Ok(body) => Decompression::Body(body),
        Err(DecodeError::Corrupt(reason)) => Decompression::Corrupt(reason.to_string()),
        Err(DecodeError::TooLarge | DecodeError::OverBudget) => Decompression::TooLarge,
    }
}

/// Decoded bytes of a body so far. Dropping it, or the [`Bytes`] created from it, releases its part of the budget.
struct BoundedBuffer {
    bytes: Vec<u8>,
    limit: usize,
    budget: BodyBudget,
    error: Option<DecodeError>,
}

impl BoundedBuffer {
    fn append(&mut self, data: &[u8]) -> Result<(), DecodeError> {
        if data.len() > self.limit - self.bytes.len() {
            return Err(DecodeError::TooLarge);
        }
        if !self.budget.try_reserve(data.len()) {
            return Err(DecodeError::OverBudget);
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }
}

impl Drop for BoundedBuffer {
    fn drop(&mut self) {
        self.budget.release(self.bytes.len());
    }
}

impl AsRef<[u8]> for BoundedBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Receives the output of the gzip decoder.
impl Write for BoundedBuffer {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match self.append(data) {
            Ok(()) => Ok(data.len()),
            Err(error) => {
                self.error = Some(error);
                Err(io::ErrorKind::OutOfMemory.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Decoder of one body. It limits both the encoded and the decoded bytes. Otherwise data without output, such as
/// empty gzip members and skippable zstd frames, would cost unlimited work.
pub(super) struct BodyDecoder {
    state: DecoderState,
    /// Number of encoded bytes that are still accepted.
    remaining: usize,
}

enum DecoderState {
    Identity(BoundedBuffer),
    Gzip(Box<MultiGzDecoder<BoundedBuffer>>),
    Zstd { decoder: Decoder<'static>, is_complete: bool, output: BoundedBuffer },
}

impl BodyDecoder {
    /// Creates a decoder of a body of at most `limit` bytes, encoded and decoded. `declared_len` is the length that
    /// the sender declared, or 0.
    pub(super) fn new(
        encoding: Encoding,
        declared_len: usize,
        limit: usize,
        budget: BodyBudget,
    ) -> Result<Self, DecodeError> {
        let capacity = if encoding == Encoding::Identity { declared_len.min(limit) } else { 0 };
        let output = BoundedBuffer { bytes: Vec::with_capacity(capacity), limit, budget, error: None };
        let state = match encoding {
            Encoding::Identity => DecoderState::Identity(output),
            Encoding::Gzip => DecoderState::Gzip(Box::new(MultiGzDecoder::new(output))),
            Encoding::Zstd => {
                let mut decoder = Decoder::new().map_err(DecodeError::Corrupt)?;
                decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG)).map_err(DecodeError::Corrupt)?;
                DecoderState::Zstd { decoder, is_complete: false, output }
            }
        };
        // Encoding makes an incompressible body slightly longer, because blocks have headers and members have
        // trailers.
        let remaining = limit.saturating_add(limit / 1024).saturating_add(ENCODING_OVERHEAD);
        Ok(Self { state, remaining })
    }

    /// Returns `true` if the body has a content encoding.
    pub(super) fn is_encoded(&self) -> bool {
        !matches!(self.state, DecoderState::Identity(_))
    }

    /// Decodes the next encoded bytes.
    pub(super) fn write(&mut self, data: &[u8]) -> Result<(), DecodeError> {
        self.remaining = self.remaining.checked_sub(data.len()).ok_or(DecodeError::TooLarge)?;
        match &mut self.state {
            DecoderState::Identity(output) => output.append(data),
            DecoderState::Gzip(decoder) => {
                decoder.write_all(data).map_err(|error| decode_error(decoder.get_mut(), error))
            }
            DecoderState::Zstd { decoder, is_complete, output } => {
                *is_complete = decode_zstd(decoder, output, data)?;
                Ok(())
            }
        }
    }

    /// Returns the decoded body.
    pub(super) fn finish(self) -> Result<Bytes, DecodeError> {
        let output = match self.state {
            DecoderState::Gzip(mut decoder) => {
                decoder.try_finish().map_err(|error| decode_error(decoder.get_mut(), error))?;
                decoder.finish().map_err(DecodeError::Corrupt)?
            }
            DecoderState::Zstd { is_complete: false, .. } => {
                return Err(DecodeError::Corrupt(io::ErrorKind::UnexpectedEof.into()));
            }
            DecoderState::Identity(output) | DecoderState::Zstd { output, .. } => output,
        };
        Ok(if output.bytes.is_empty() { Bytes::new() } else { Bytes::from_owner(output) })
    }
}

/// Returns the reason why the decoder failed: its output was refused, or its input is corrupt.
fn decode_error(output: &mut BoundedBuffer, error: io::Error) -> DecodeError {
    output.error.take().unwrap_or(DecodeError::Corrupt(error))
}

/// Decodes `data` into `output`. Returns `true` if the last frame is complete.
fn decode_zstd(decoder: &mut Decoder<'static>, output: &mut BoundedBuffer, data: &[u8]) -> Result<bool, DecodeError> {
    let mut buffer = [0; ZSTD_OUTPUT];
    let mut input = InBuffer::around(data);
    loop {
        let mut decoded = OutBuffer::around(&mut buffer[..]);
        let expected = decoder.run(&mut input, &mut decoded).map_err(DecodeError::Corrupt)?;
        let is_full = decoded.pos() == ZSTD_OUTPUT;
        output.append(decoded.as_slice())?;
        // If the buffer is full, the decoder may hold more output.
        if input.pos() == data.len() && !(is_full && expected > 0) {
            return Ok(expected == 0);
        }
    }
}

#[cfg(test)]
mod tests;
