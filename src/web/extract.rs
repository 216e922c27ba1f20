//! axum's extractors for paths and bodies, with problem documents as their rejections.

use axum::{
    extract::{
        FromRequest, FromRequestParts, Request,
        path::ErrorKind,
        rejection::{BytesRejection, FailedToBufferBody, PathRejection},
    },
    http::request::Parts,
};
use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::{Problem, ProblemCode, fallback::body_too_large};

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

/// The whole body of a request, within the limit of `DefaultBodyLimit`. One that is larger is
/// [`ProblemCode::BodyTooLarge`], one that breaks off is [`ProblemCode::BadRequest`].
#[derive(Clone, Debug)]
pub struct Body(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match Bytes::from_request(request, state).await {
            Ok(body) => Ok(Self(body)),
            Err(BytesRejection::FailedToBufferBody(FailedToBufferBody::LengthLimitError(_))) => Err(body_too_large()),
            Err(rejection) => {
                let detail = "The body broke off before its end. Send the request again.";
                Err(Problem::new(ProblemCode::BadRequest, detail).because(rejection))
            }
        }
    }
}
