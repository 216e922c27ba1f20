//! Settings of a source whose messages are posted to `/hooks/NAME`.

use std::ffi::OsString;

use super::{
    secret,
    transport::{Connection, TransportKind},
};
use crate::{
    settings::{Choice, Choose, SecretText, Setting, SettingErrors, Table, Whole, settings},
    web::{SignatureHeader, SignatureKey},
};

/// The transport `http`: `POST /hooks/NAME`.
pub(super) static HTTP: TransportKind =
    TransportKind { name: "http", keys: &[HttpTable::KEYS], read: |_, _| Ok(Connection::Hook) };

/// A number of messages.
type MessageCount = Whole<u32, 1, 1_000_000>;

settings! {
    struct HttpTable {
        /// Maximum average number of messages per second, 1 to 1000000; more are refused with 429. Default:
        /// unlimited.
        rate: Option<MessageCount>,
        /// Maximum number of messages in a burst, 1 to 1000000. Default: the same as `rate`.
        burst: Option<MessageCount>,
        /// Accepts messages without a token if a header contains the HMAC-SHA256 of the body as it was sent, with
        /// the key `secret`. The key has at least 16 bytes and is given by value, as { file = "PATH" } or as
        /// { env = "NAME" } (an environment variable). `header`: "X-Hub-Signature-256" or, for Alma,
        /// "X-Exl-Signature". Defaults: none, "X-Hub-Signature-256".
        signature: Option<SignatureTable>,
    }
}

settings! {
    /// `signature`
    struct SignatureTable {
        /// Key of the signatures, of at least 16 bytes.
        secret: SecretText,
        /// Header with the signatures.
        header: Choice<SignatureHeader> = SignatureHeader::default(),
    }
}

impl Choose for SignatureHeader {
    const WHAT: &'static str = "header for signatures";
}

/// Rate limit of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRate {
    /// Average number of messages per second.
    pub per_second: u32,
    /// Maximum number of messages in a burst.
    pub burst: u32,
}

/// Reads the rate limit of a source, if it has one.
pub(super) fn rate(table: &Setting) -> Result<Option<MessageRate>, SettingErrors> {
    let HttpTable { rate, burst, .. } = HttpTable::read_part(table)?;
    match (rate, burst) {
        (Some(per_second), burst) => Ok(Some(MessageRate { per_second, burst: burst.unwrap_or(per_second) })),
        (None, Some(_)) => Err(table.at("burst").invalid("burst needs a rate; give both").into()),
        (None, None) => Ok(None),
    }
}

/// Reads the key of the signatures of messages, if they are signed.
pub(super) fn signature(
    table: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<Option<SignatureKey>, SettingErrors> {
    let HttpTable { signature, .. } = HttpTable::read_part(table)?;
    let key =
        |SignatureTable { secret, header }| Ok(SignatureKey { header, secret: secret::read(&secret, environment)? });
    signature.map(key).transpose()
}
