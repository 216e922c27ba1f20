//! axum's extractors for paths and bodies, with problem documents as their rejections.

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
    HeldBytes, Limit, Problem, ProblemCode,
    fallback::body_too_large,
    inflate::{Coding, Incoming, Refused},
    limit_hit,
};

/// Number of bytes of a coded body that are inflated without letting other tasks run.
const INFLATED_AT_ONCE: usize = 16 * 1024;

/// The parameters of a path. One that is not of its type is [`ProblemCode::NotFound`]: what is no
/// identifier identifies nothing.
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
        | ErrorKind::ParseError { value, expected_type } => format!("{value:?} is not {}", in_words(expected_type)),
        ErrorKind::DeserializeError { message, .. } | ErrorKind::Message(message) => message,
        ErrorKind::InvalidUtf8InPathParam { key } => format!("{key} is not UTF-8 once its percent signs are decoded"),
        kind => return Problem::internal(format!("a route and its handler disagree: {kind}")),
    };
    Problem::new(ProblemCode::NotFound, format!("There is nothing at this address: {reason}."))
}

/// What a Rust type is to the reader of an error.
pub(super) fn in_words(rust_type: &str) -> &str {
    match rust_type {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "bool" => "true or false",
        other => other,
    }
}

/// How large a request body may be, in bytes: an extension that a layer puts on every request.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimit(pub usize);

impl BodyLimit {
    /// How much of a body that is too large is read and thrown away, in bytes. A client that is cut
    /// off while it sends sees a broken connection; one that is heard out reads why it was refused.
    const HEARD_OUT: usize = 64 * 1024 * 1024;
}

/// The limit where no layer has set one.
impl Default for BodyLimit {
    fn default() -> Self {
        Self(2 * 1024 * 1024)
    }
}

/// The whole body of a request, inflated if it came in gzip or zstd, within [`BodyLimit`] and
/// [`HeldBytes`]. One that is larger is [`ProblemCode::BodyTooLarge`], one that breaks off or is not of
/// its coding is [`ProblemCode::BadRequest`], one of another coding [`ProblemCode::UnsupportedEncoding`],
/// and when too many are held already it is [`ProblemCode::Unavailable`].
#[derive(Clone, Debug)]
pub struct Body(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let coding = Coding::of(request.headers());
        Self::taken(request, coding).await
    }
}

impl Body {
    /// The whole body as it was sent, whatever its coding, within the same limits; its sender is not known yet.
    pub(super) async fn as_sent(mut request: Request) -> Result<Self, Problem> {
        let BodyLimit(limit) = request.extensions().get().copied().unwrap_or_default();
        if let Some(held) = request.extensions_mut().get_mut::<HeldBytes>() {
            *held = held.of_unproven(limit);
        }
        Self::taken(request, Some(Coding::Identity)).await
    }

    async fn taken(request: Request, coding: Option<Coding>) -> Result<Self, Problem> {
        let BodyLimit(limit) = request.extensions().get().copied().unwrap_or_default();
        let held = request.extensions().get::<HeldBytes>().cloned().unwrap_or_default();
        let waits_to_send = request.headers().contains_key(header::EXPECT);
        let mut body = request.into_body();
        let told = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if told > limit && waits_to_send {
            return Err(body_too_large());
        }
        let started =
            coding.ok_or_else(unsupported).and_then(|coding| Incoming::new(coding, told, limit, held).map_err(refusal));
        // From the first trouble on, the rest is heard out and thrown away.
        let mut taken = started;
        let mut length = 0_usize;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(broken_off)?;
            let Some(data) = frame.data_ref() else { continue };
            length = length.saturating_add(data.len());
            match &mut taken {
                Ok(incoming) => {
                    if let Err(refused) = inflate(incoming, data).await {
                        taken = Err(refusal(refused));
                    }
                }
                Err(_) if length > limit.saturating_add(BodyLimit::HEARD_OUT) => break,
                Err(_) => {}
            }
        }
        taken?.finish().map(Self).map_err(refusal)
    }
}

/// Hands a chunk to the decoder in pieces, and lets other tasks run in between: an empty member of 20 bytes keeps a decoder as
/// busy as several kilobytes of content.
async fn inflate(incoming: &mut Incoming, data: &[u8]) -> Result<(), Refused> {
    if !incoming.is_coded() {
        return incoming.write(data);
    }
    for piece in data.chunks(INFLATED_AT_ONCE) {
        incoming.write(piece)?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

fn refusal(refused: Refused) -> Problem {
    match refused {
        Refused::TooLarge => body_too_large(),
        Refused::NoRoom => {
            limit_hit(Limit::HeldBytes);
            let detail = "The gateway holds as many messages as it takes at once (limits.held_bytes). Nothing was \
                          accepted; send the message again.";
            Problem::new(ProblemCode::Unavailable, detail).retry_after(Duration::from_secs(1))
        }
        Refused::Corrupt(error) => {
            let detail =
                "The body is not of the coding that Content-Encoding tells, or it is cut short. Send it whole.";
            Problem::new(ProblemCode::BadRequest, detail).because(error)
        }
    }
}

fn unsupported() -> Problem {
    let read = Coding::READ;
    let detail = format!("The Content-Encoding is not read here. Send the body in one of {read}, or plain.");
    Problem::new(ProblemCode::UnsupportedEncoding, detail)
}

/// Reads what is left of a request that is refused, up to [`BodyLimit`], and throws it away: a client
/// that is cut off while it sends sees a broken connection, and tries again what will never do.
pub(super) async fn hear_out(request: Request) {
    let BodyLimit(limit) = request.extensions().get().copied().unwrap_or_default();
    if request.headers().contains_key(header::EXPECT) {
        return;
    }
    let mut body = request.into_body();
    let mut left = limit;
    while left > 0
        && let Some(Ok(frame)) = body.frame().await
    {
        left = left.saturating_sub(frame.data_ref().map_or(1, Bytes::len));
    }
}

fn broken_off(error: axum::Error) -> Problem {
    let detail = "The body broke off before its end. Send the request again.";
    Problem::new(ProblemCode::BadRequest, detail).because(error)
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, io::Write};

    use flate2::{Compression, write::GzEncoder};

    use super::{Coding, HeldBytes, INFLATED_AT_ONCE, Incoming, inflate};

    #[tokio::test]
    async fn a_body_that_keeps_the_decoder_busy_lets_other_tasks_run() {
        const PIECES: usize = 8;
        let mut member = GzEncoder::new(Vec::new(), Compression::best());
        member.write_all(b"").unwrap();
        let member = member.finish().unwrap();
        let members = member.repeat(PIECES * INFLATED_AT_ONCE / member.len() + 1);
        let mut incoming = Incoming::new(Coding::Gzip, 0, members.len(), HeldBytes::default()).unwrap();
        let (turns, is_done) = (Cell::new(0), Cell::new(false));
        let other = async {
            while !is_done.get() {
                turns.set(turns.get() + 1);
                tokio::task::yield_now().await;
            }
        };
        let inflating = async {
            inflate(&mut incoming, &members).await.unwrap();
            is_done.set(true);
        };
        tokio::join!(inflating, other);
        assert!(turns.get() >= PIECES, "{} turns", turns.get());
    }
}
