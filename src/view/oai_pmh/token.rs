//! Resumption tokens (section 3.5), which carry the whole state of a list, encrypted. The gateway keeps none, so a token is valid at
//! each node, after a restart, and as often as a harvester sends it.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use uuid::Uuid;

use super::arguments::Verb;
use crate::journal::acceptance::{AcceptanceTime, AcceptedPosition};

/// Length of the code that authenticates a token, in bytes.
const CODE_BYTES: usize = 16;

/// Maximum length of a token, in bytes. A setSpec can have several thousand.
const MAX_TOKEN: usize = 16 * 1024;

/// State of a list of records or headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ListState {
    /// Prefix of the metadata format.
    #[serde(rename = "p")]
    pub(super) prefix: String,
    /// Set that the list is restricted to.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    pub(super) set: Option<String>,
    /// Begin of the selected time, in microseconds since 1970.
    #[serde(rename = "f", default, skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<i64>,
    /// End of the selected time, not included.
    #[serde(rename = "u", default, skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<i64>,
    /// Time and number of the last object of the pages before.
    #[serde(rename = "l", default)]
    pub(super) last: (i64, i64),
    /// Number of records on the pages before.
    #[serde(rename = "n", default)]
    pub(super) count: u64,
    /// Time of the first request.
    #[serde(rename = "b")]
    pub(super) begun: i64,
    /// Time with which the list ends, when its pages have passed [`ListState::begun`].
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<i64>,
}

impl ListState {
    /// Returns the position after which the next page begins.
    pub(super) fn after(&self) -> AcceptedPosition {
        let before_from = self.from.map(|from| (from.saturating_sub(1), i64::MAX));
        let (time, object) = self.last.max(before_from.unwrap_or_default());
        AcceptedPosition { time: AcceptanceTime(time), object }
    }
}

/// What a token resumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Resumed {
    /// `ListRecords`
    Records(ListState),
    /// `ListIdentifiers`
    Identifiers(ListState),
    /// `ListSets` after this setSpec.
    Sets(String),
}

impl Resumed {
    /// Returns the verb whose list the token resumes.
    pub(super) fn verb(&self) -> Verb {
        match self {
            Self::Records(_) => Verb::ListRecords,
            Self::Identifiers(_) => Verb::ListIdentifiers,
            Self::Sets(_) => Verb::ListSets,
        }
    }
}

/// Key of the tokens of a journal.
#[derive(Clone)]
pub(super) struct TokenKey {
    key: [u8; 16],
    /// Identity of the journal. After a restore or a failover, positions have no meaning any more.
    journal: Uuid,
}

impl TokenKey {
    pub(super) fn new(key: [u8; 16], journal: Uuid) -> Self {
        Self { key, journal }
    }

    /// Returns the token, whose characters need no encoding in a URL, because many harvesters encode none.
    pub(super) fn seal(&self, resumed: &Resumed) -> Option<String> {
        let mut bytes = serde_json::to_vec(resumed).ok()?;
        let code = self.code(&bytes)?;
        self.mask(&mut bytes, &code)?;
        bytes.extend_from_slice(&code);
        Some(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Opens a token; `None` if this key has not made it.
    pub(super) fn open(&self, token: &str) -> Option<Resumed> {
        if token.len() > MAX_TOKEN {
            return None;
        }
        let mut bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let length = bytes.len().checked_sub(CODE_BYTES)?;
        let (state, code) = bytes.split_at_mut_checked(length)?;
        self.mask(state, code)?;
        self.mac(b"code", state)?.verify_truncated_left(code).ok()?;
        serde_json::from_slice(state).ok()
    }

    /// Encrypts a state, or decrypts it again: with a stream that its code decides. Positions have numbers and times that show
    /// the public how many hidden objects there are, and when.
    fn mask(&self, state: &mut [u8], code: &[u8]) -> Option<()> {
        for (number, part) in (0_u64..).zip(state.chunks_mut(32)) {
            let stream = self.mac(b"mask", code)?.chain_update(number.to_be_bytes()).finalize().into_bytes();
            part.iter_mut().zip(stream).for_each(|(byte, of_stream)| *byte ^= of_stream);
        }
        Some(())
    }

    fn code(&self, state: &[u8]) -> Option<[u8; CODE_BYTES]> {
        self.mac(b"code", state)?.finalize().into_bytes().first_chunk().copied()
    }

    /// Begins a code of some bytes, for one purpose.
    fn mac(&self, purpose: &[u8; 4], bytes: &[u8]) -> Option<Hmac<Sha256>> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.key).ok()?;
        Some(mac.chain_update(purpose).chain_update(self.journal.as_bytes()).chain_update(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::{Engine, ListState, Resumed, TokenKey, URL_SAFE_NO_PAD, Uuid};

    #[test]
    fn only_tokens_of_the_journal_are_opened() {
        let state = ListState {
            prefix: "oai_dc".to_owned(),
            set: Some("source.a".to_owned()),
            from: Some(1),
            until: None,
            last: (7, 8),
            count: 100,
            begun: 9,
            end: None,
        };
        let resumed = Resumed::Records(state);
        let key = TokenKey::new([7; 16], Uuid::from_u128(1));
        let token = key.seal(&resumed).unwrap();
        assert_eq!(key.open(&token), Some(resumed));
        let sealed = URL_SAFE_NO_PAD.decode(&token).unwrap();
        assert!(!String::from_utf8_lossy(&sealed).contains("oai_dc"), "a reader learns nothing from it");
        assert_eq!(key.seal(&key.open(&token).unwrap()).unwrap(), token, "the same state has the same token");
        assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{token}");
        for other in [TokenKey::new([8; 16], Uuid::from_u128(1)), TokenKey::new([7; 16], Uuid::from_u128(2))] {
            assert_eq!(other.open(&token), None);
        }
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(key.open(&String::from_utf8(changed).unwrap()), None, "{at}");
        }
        for garbage in ["", "a", "junk", "-", "é", &"A".repeat(40_000)] {
            assert_eq!(key.open(garbage), None, "{garbage}");
        }
    }
}
