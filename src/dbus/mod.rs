//! D-Bus: one connection to a message bus, over the crate `zbus`.
//!
//! The module knows no interface. It connects ([`Connection::open`]), owns a name, sends calls, and separates what the
//! bus sends: replies complete their calls, and signals go to the owner of the connection
//! ([`Incoming::next_signal`]). The owner supervises the connection: after [`Incoming::next_signal`] has returned
//! `None`, it waits and connects again.
//!
//! A bus disconnects a sender of an invalid message, which would end the calls to everybody. A caller therefore cleans
//! each text with [`crate::text::storable`], because no text may contain U+0000, and keeps each array below [`MAX_ARRAY_BYTES`].

mod address;
#[cfg(feature = "dbus")]
mod connection;
#[cfg(feature = "dbus")]
mod replies;
#[cfg_attr(not(feature = "dbus"), path = "syntax_absent.rs")]
mod syntax;

pub use address::{Bus, InvalidBus, InvalidName, Name, Path};
#[cfg(feature = "dbus")]
pub use connection::{BusError, CallError, Connection, Incoming, message};
#[cfg(feature = "dbus")]
pub use replies::Reply;

/// Maximum size of an array in a message, in bytes, by the specification of D-Bus.
pub const MAX_ARRAY_BYTES: usize = 64 * 1024 * 1024;
