//! D-Bus: one connection to a message bus, over the crate `zbus`.
//!
//! The module knows no interface. It connects ([`Connection::open`]), owns a name, sends calls, and separates what the
//! bus sends: replies complete their calls, and signals go to the owner of the connection
//! ([`Incoming::next_signal`]). The owner supervises the connection: after [`Incoming::next_signal`] has returned
//! `None`, it waits and connects again.
//!
//! A bus disconnects a sender of an invalid message, which would end the calls to everybody. A caller therefore cleans
//! each text with [`clean`], and keeps each array below [`MAX_ARRAY_BYTES`].

mod address;
mod connection;
mod replies;

use std::borrow::Cow;

pub use address::{Bus, InvalidBus, InvalidName, Name, Path};
pub use connection::{BusError, CallError, Connection, Incoming, message};
pub use replies::Reply;

/// Maximum size of an array in a message, in bytes, by the specification of D-Bus.
pub const MAX_ARRAY_BYTES: usize = 64 * 1024 * 1024;

/// Returns the text without U+0000, which no text in a message may contain.
#[must_use]
pub fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn text_has_no_u0000() {
        assert_eq!(clean("a\u{fffe}b\u{1}"), "a\u{fffe}b\u{1}");
        assert_eq!(clean("a\0b\0"), "a\u{fffd}b\u{fffd}");
    }
}
