//! Bodies that a server has compressed although nobody has asked for that.

use std::io::Write;

use axum::http::{HeaderMap, header::CONTENT_ENCODING};
use bytes::Bytes;
use flate2::write::{GzDecoder, ZlibDecoder};

use super::TransferError;

/// Decoder of a body.
pub(super) enum Decoder {
    Gzip(GzDecoder<Vec<u8>>),
    Deflate(ZlibDecoder<Vec<u8>>),
}

/// Returns whether a response says that its body is encoded.
pub(super) fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_ENCODING).is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

impl Decoder {
    /// Creates the decoder for the encoding of a response.
    ///
    /// # Errors
    /// Fails for an encoding other than gzip and deflate.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, TransferError> {
        let encoding = headers.get(CONTENT_ENCODING).map(|encoding| encoding.as_bytes().to_ascii_lowercase());
        match encoding.as_deref() {
            Some(b"gzip" | b"x-gzip") => Ok(Self::Gzip(GzDecoder::new(Vec::new()))),
            Some(b"deflate") => Ok(Self::Deflate(ZlibDecoder::new(Vec::new()))),
            other => {
                let encoding = String::from_utf8_lossy(other.unwrap_or_default()).into_owned();
                Err(TransferError::Permanent(format!("the server sends the unknown encoding {encoding:?}")))
            }
        }
    }

    /// Returns the decoded bytes of the next piece.
    ///
    /// # Errors
    /// Fails if the body does not have the encoding.
    pub(super) fn decode(&mut self, piece: &[u8]) -> Result<Bytes, TransferError> {
        let wrong = |error: std::io::Error| {
            TransferError::Permanent(format!("the body does not have the encoding that the server announces: {error}"))
        };
        let decoded = match self {
            Self::Gzip(decoder) => {
                decoder.write_all(piece).and_then(|()| decoder.flush()).map_err(wrong)?;
                std::mem::take(decoder.get_mut())
            }
            Self::Deflate(decoder) => {
                decoder.write_all(piece).and_then(|()| decoder.flush()).map_err(wrong)?;
                std::mem::take(decoder.get_mut())
            }
        };
        Ok(decoded.into())
    }

    /// Returns the last bytes.
    ///
    /// # Errors
    /// Fails if the body ends too early.
    pub(super) fn finish(&mut self) -> Result<Bytes, TransferError> {
        let cut = |error: std::io::Error| TransferError::Transient(format!("the encoded body is cut: {error}"));
        let rest = match self {
            Self::Gzip(decoder) => decoder.try_finish().map(|()| std::mem::take(decoder.get_mut())),
            Self::Deflate(decoder) => decoder.try_finish().map(|()| std::mem::take(decoder.get_mut())),
        };
        Ok(rest.map_err(cut)?.into())
    }
}
