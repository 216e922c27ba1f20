//! The body of a message as a dialect is given it: inflated, and no larger than it may be.

use crate::{
    format::{Place, Rejection},
    intake::{Arrived, Incoming},
    web::{Inflated, inflate},
};

/// The message with its body inflated, if it tells a content encoding. A body of more than `largest` bytes,
/// as it came or inflated, is for no dialect.
pub(in crate::source) fn whole(mut incoming: Incoming, coding: Option<&str>, largest: usize) -> Arrived {
    let unreadable = |incoming, rejection, coded| Arrived::Unreadable { incoming, rejection, coded };
    let bytes = incoming.body.len();
    if bytes > largest {
        let is_coded = coding.is_some_and(|coding| !matches!(inflate(coding, b"", 0), Inflated::AsItIs));
        return unreadable(incoming, too_large(&format!("it has {bytes} bytes"), largest), is_coded);
    }
    let Some(coding) = coding else { return Arrived::Whole(incoming) };
    match inflate(coding, &incoming.body, largest) {
        Inflated::AsItIs => Arrived::Whole(incoming),
        Inflated::Body(body) => {
            incoming.body = body;
            Arrived::Whole(incoming)
        }
        Inflated::TooLarge => {
            let what = format!("its {bytes} bytes of {coding} inflate to more");
            unreadable(incoming, too_large(&what, largest), true)
        }
        Inflated::Corrupt(reason) => {
            let reason = format!("it tells the content encoding {coding:?} and is not of it: {reason}");
            unreadable(incoming, Rejection::malformed(Place::Message, reason), true)
        }
        Inflated::Unknown => {
            let reason = format!("the content encoding {coding:?} is not read; gzip and zstd are");
            unreadable(incoming, Rejection::malformed(Place::Message, reason), true)
        }
    }
}

fn too_large(what: &str, largest: usize) -> Rejection {
    let reason = format!("{what}, and limits.body_bytes is {largest}; raise it if such messages are meant");
    Rejection::unprocessable(Place::Message, reason)
}
