//! Extractors for paths and bodies whose rejections are problem documents.

use std::time::Duration;

use axum::{
    body::HttpBody,
    extract::{FromRequest, FromRequestParts, Request, path::ErrorKind, rejection::PathRejection},
    http::{header, request::Parts},
};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;

use super::{
    BodyBudget, Limit, Problem, ProblemCode,
    decompress::{BodyDecoder, DecodeError, Encoding},
    fallback::body_too_large,
    limit_hit,
};

/// Maximum number of encoded bytes that are decoded before other tasks may run.
const MAX_BLOCKING_DECODE: usize = 16 * 1024;

/// Path parameters. A parameter of the wrong type is [`ProblemCode::NotFound`], because no resource has that path.
#[derive(Clone, Copy, Debug)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            Err(rejection) => Err(path_problem(rejection)),
        }
    }
}

fn path_problem(rejection: PathRejection) -> Problem {
    let PathRejection::FailedToDeserializePathParams(failure) = rejection else {
        return Problem::internal(rejection);
    };
    let reason = match failure.into_kind() {
        ErrorKind::ParseErrorAtKey { value, expected_type, .. }
        | ErrorKind::ParseErrorAtIndex { value, expected_type, .. }
        | ErrorKind::ParseError { value, expected_type } => {
            format!("{value:?} is not {}", describe_type(expected_type))
        }
        ErrorKind::DeserializeError { message, .. } | ErrorKind::Message(message) => message,
        ErrorKind::InvalidUtf8InPathParam { key } => format!("{key} is not UTF-8 after percent-decoding"),
        kind => return Problem::internal(format!("a route and its handler do not match: {kind}")),
    };
    Problem::new(ProblemCode::NotFound, format!("No resource has this URL: {reason}."))
}

/// Describes a Rust type to the reader of an error message.
pub(super) fn describe_type(rust_type: &str) -> &str {
    match rust_type {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "bool" => "true or false",
        other => other,
    }
}

/// Maximum size of a request body, in bytes: an extension that a layer adds to each request.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimit(pub usize);

impl BodyLimit {
    /// Number of bytes of an oversized body that are read and discarded. A client that is disconnected while it sends
    /// sees a broken connection; a client whose body is drained can read the error response.
    const DRAIN_LIMIT: usize = 64 * 1024 * 1024;
}

/// The default limit, for requests without the extension.
impl Default for BodyLimit {
    fn default() -> Self {
        Self(2 * 1024 * 1024)
    }
}

/// Complete body of a request, decoded if its encoding is gzip or zstd, within [`BodyLimit`] and [`BodyBudget`].
/// Rejections: [`ProblemCode::BodyTooLarge`] for a larger body, [`ProblemCode::BadRequest`] for a body that is
/// incomplete or does not have the declared encoding, [`ProblemCode::UnsupportedEncoding`] for another encoding, and
/// [`ProblemCode::Unavailable`] if the budget is exhausted.
#[derive(Clone, Debug)]
pub struct Body(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let encoding = Encoding::of(request.headers());
        Self::read(request, encoding).await
    }
}

impl Body {
    /// Reads the complete body without decoding it, within the same limits. Its sender is not authenticated yet.
    pub(super) async fn as_sent(mut request: Request) -> Result<Self, Problem> {
        let BodyLimit(limit) = request.extensions().get().copied().unwrap_or_default();
        if let Some(budget) = request.extensions_mut().get_mut::<BodyBudget>() {
            *budget = budget.for_unauthenticated(limit);
        }
        Self::read(request, Some(Encoding::Identity)).await
    }

    async fn read(request: Request, encoding: Option<Encoding>) -> Result<Self, Problem> {
        let BodyLimit(limit) = request.extensions().get().copied().unwrap_or_default();
        let budget = request.extensions().get::<BodyBudget>().cloned().unwrap_or_default();
        let expects_continue = request.headers().contains_key(header::EXPECT);
        let mut body = request.into_body();
        let declared_len = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if declared_len > limit && expects_continue {
            return Err(body_too_large());
        }
        let mut decoder = encoding
            .ok_or_else(unsupported_encoding)
            .and_then(|encoding| BodyDecoder::new(encoding, declared_len, limit, budget).map_err(decode_problem));
        // After an error, the rest of the body is drained.
        let mut length = 0_usize;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(incomplete_body)?;
            let Some(data) = frame.data_ref() else { continue };
            length = length.saturating_add(data.len());
            match &mut decoder {
                Ok(running) => {
                    if let Err(error) = decode(running, data).await {
                        decoder = Err(decode_problem(error));
                    }
                }
                Err(_) if length > limit.saturating_add(BodyLimit::DRAIN_LIMIT) => break,
                Err(_) => {}
            }
        }
        decoder?.finish().map(Self).map_err(decode_problem)
    }
}

/// Decodes a chunk in pieces and lets other tasks run in between, because an empty gzip member of 20 bytes takes as
/// much time as several kilobytes of content.
async fn decode(decoder: &mut BodyDecoder, data: &[u8]) -> Result<(), DecodeError> {
    if !decoder.is_encoded() {
        return decoder.write(data);
    }
    for piece in data.chunks(MAX_BLOCKING_DECODE) {
        decoder.write(piece)?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

fn decode_problem(error: DecodeError) -> Problem {
    match error {
        DecodeError::TooLarge => body_too_large(),
        DecodeError::OverBudget => {
            limit_hit(Limit::HeldBytes);
            let detail = "The request bodies in memory have reached limits.held_bytes. Nothing was accepted; send the \
                          message again.";
            Problem::new(ProblemCode::Unavailable, detail).retry_after(Duration::from_secs(1))
        }
        DecodeError::Corrupt(error) => {
            let detail =
                "The body does not have the declared Content-Encoding, or it is truncated. Send it completely.";
            Problem::new(ProblemCode::BadRequest, detail).because(error)
        }
    }
}

fn unsupported_encoding() -> Problem {
    let supported = Encoding::SUPPORTED;
    let detail =
        format!("The Content-Encoding is not supported. Send the body in one of {supported}, or without encoding.");
    Problem::new(ProblemCode::UnsupportedEncoding, detail)
}

/// Reads and discards the rest of a refused request, up to [`BodyLimit`]. A client that is disconnected while it
/// sends would see a broken connection and retry in vain.
pub(super) async fn drain_body(request: Request) {
    let BodyLimit(limit) = request.extensions().get().copied().unwrap_or_default();
    if request.headers().contains_key(header::EXPECT) {
        return;
    }
    let mut body = request.into_body();
    let mut remaining = limit;
    while remaining > 0
        && let Some(Ok(frame)) = body.frame().await
    {
        remaining = remaining.saturating_sub(frame.data_ref().map_or(1, Bytes::len));
    }
}

fn incomplete_body(error: axum::Error) -> Problem {
    let detail = "The body ended early. Send the request again.";
    Problem::new(ProblemCode::BadRequest, detail).because(error)
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, io::Write};

    use flate2::{Compression, write::GzEncoder};

    use super::{BodyBudget, BodyDecoder, Encoding, MAX_BLOCKING_DECODE, decode};

    #[tokio::test]
    async fn slow_decoding_lets_other_tasks_run() {
        const PIECES: usize = 8;
        let mut member = GzEncoder::new(Vec::new(), Compression::best());
        member.write_all(b"").unwrap();
        let member = member.finish().unwrap();
        let members = member.repeat(PIECES * MAX_BLOCKING_DECODE / member.len() + 1);
        let mut decoder = BodyDecoder::new(Encoding::Gzip, 0, members.len(), BodyBudget::default()).unwrap();
        let (turns, is_done) = (Cell::new(0), Cell::new(false));
        let other = async {
            while !is_done.get() {
                turns.set(turns.get() + 1);
                tokio::task::yield_now().await;
            }
        };
        let decoding = async {
            decode(&mut decoder, &members).await.unwrap();
            is_done.set(true);
        };
        tokio::join!(decoding, other);
        assert!(turns.get() >= PIECES, "{} turns", turns.get());
    }
}
