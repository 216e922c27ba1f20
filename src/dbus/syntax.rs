//! Syntax of addresses, names and paths, by the library.

use zbus::{Address, names::WellKnownName, wire::ObjectPath};

/// True for an address of a bus.
pub(super) fn is_address(text: &str) -> bool {
    Address::try_from(text).is_ok()
}

/// True for a well-known name.
pub(super) fn is_name(text: &str) -> bool {
    WellKnownName::try_from(text).is_ok()
}

/// True for the path of an object.
pub(super) fn is_path(text: &str) -> bool {
    ObjectPath::try_from(text).is_ok()
}
