//! Addresses of buses, and names and paths on them.

use std::{fmt, sync::Arc};

use super::syntax::{is_address, is_name, is_path};

/// Buses that have no address of their own in the configuration.
const STANDARD: [(&str, Bus); 2] = [("session", Bus::Session), ("system", Bus::System)];

/// A message bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bus {
    /// The bus of the user's session: `DBUS_SESSION_BUS_ADDRESS`, or else the socket `bus` in `XDG_RUNTIME_DIR`.
    Session,
    /// The bus of the machine: `DBUS_SYSTEM_BUS_ADDRESS`, or else its usual socket.
    System,
    /// A bus at an address, as in `unix:path=/run/user/1000/bus`.
    Address(Arc<str>),
}

/// Error for a text that is not a bus.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a bus; give \"session\", \"system\" or an address as in unix:path=/run/user/1000/bus")]
pub struct InvalidBus(String);

/// Error for a name or a path that D-Bus does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// The text is not a name.
    #[error("{0:?} is not a name on a bus; write it as in org.example.Tidings1")]
    Name(String),
    /// The text is not a path.
    #[error("{0:?} is not an object path; write it as in /org/example/Target")]
    Path(String),
}

impl Bus {
    /// Parses `session`, `system`, or an address.
    ///
    /// # Errors
    /// Fails if the text is neither.
    pub fn parse(text: &str) -> Result<Self, InvalidBus> {
        if let Some((_, bus)) = STANDARD.iter().find(|(name, _)| *name == text) {
            return Ok(bus.clone());
        }
        // The parser of the library accepts a `%` without digits.
        let is_hex = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|digit| digit.is_ascii_hexdigit());
        let is_escaped = text.split('%').skip(1).all(is_hex);
        let is_valid = text.contains(':') && is_escaped && is_address(text);
        is_valid.then(|| Self::Address(text.into())).ok_or_else(|| InvalidBus(text.to_owned()))
    }
}

impl fmt::Display for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session => f.write_str("session"),
            Self::System => f.write_str("system"),
            Self::Address(address) => f.write_str(address),
        }
    }
}

/// A well-known name on a bus, as in `org.example.Tidings1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(Arc<str>);

impl Name {
    /// Parses a name.
    ///
    /// # Errors
    /// Fails if D-Bus does not allow the name.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        is_name(text).then(|| Self(text.into())).ok_or_else(|| InvalidName::Name(text.to_owned()))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The path of an object, as in `/org/example/Target`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path(Arc<str>);

impl Path {
    /// Parses a path.
    ///
    /// # Errors
    /// Fails if D-Bus does not allow the path.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        is_path(text).then(|| Self(text.into())).ok_or_else(|| InvalidName::Path(text.to_owned()))
    }

    /// Returns the path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{Bus, Name, Path};

    #[test]
    fn a_bus_is_a_standard_one_or_an_address() {
        for text in ["session", "system", "unix:path=/run/bus", "tcp:host=localhost,port=1"] {
            assert_eq!(Bus::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "Session", "unix", "/run/bus", "unix:path=/a%"] {
            assert!(Bus::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_and_paths_are_those_of_the_specification() {
        assert_eq!(Name::parse("org.tidings.Tidings1").unwrap().as_str(), "org.tidings.Tidings1");
        for text in ["", "tidings", ":1.5", "org..x", "org.1x"] {
            assert!(Name::parse(text).is_err(), "{text}");
        }
        assert_eq!(Path::parse("/a/b").unwrap().as_str(), "/a/b");
        for text in ["", "a", "/a/", "//a", "/a-b"] {
            assert!(Path::parse(text).is_err(), "{text}");
        }
    }
}
