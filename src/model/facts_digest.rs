//! Digests of the facts about items, and their sums: the algorithm of `docs/compare.md`.

use std::{
    fmt::{self, Write as _},
    ops::AddAssign,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use super::{ContentLocation, State, deserialize_str::deserialize_str};

/// Sum of digests of items, modulo 2¹²⁸. The order of the items does not matter. It is written with 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DigestSum(u128);

/// Error for a text that is no digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a digest, which has 32 hexadecimal digits")]
pub struct InvalidDigestSum;

/// An item with the facts about it that a subscriber has.
#[derive(Clone, Copy, Debug)]
pub struct ItemFacts<'a> {
    /// URI of the object.
    pub object: &'a str,
    /// URI of the item.
    pub item: &'a str,
    /// State, if it is known. The public does not know it.
    pub state: Option<&'a State>,
    /// Location of the content, if it is known.
    pub content: Option<&'a ContentLocation>,
}

impl DigestSum {
    /// Returns the sum with one digest: the first 16 octets of the SHA-256 digest of a text, as a number.
    fn of(text: &str) -> Self {
        let digest: [u8; 32] = Sha256::digest(text).into();
        let first = digest.first_chunk().map_or(0, |first: &[u8; 16]| u128::from_be_bytes(*first));
        Self(first)
    }

    /// Parses 32 hexadecimal digits.
    ///
    /// # Errors
    /// Fails if the text is something else.
    pub fn parse(text: &str) -> Result<Self, InvalidDigestSum> {
        let is_hexadecimal = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_hexadecimal);
        number.map(Self).ok_or(InvalidDigestSum)
    }

    /// Returns the sum without the digests of another one.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0.wrapping_sub(other.0))
    }
}

impl AddAssign for DigestSum {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }
}

impl fmt::Display for DigestSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Serialize for DigestSum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DigestSum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_str(deserializer, Self::parse)
    }
}

impl ItemFacts<'_> {
    /// Returns the digest of the fact that the object has the item.
    #[must_use]
    pub fn existence(&self) -> DigestSum {
        DigestSum::of(&format!("{}\n{}", self.object, self.item))
    }

    /// Returns the digest of all facts: the item, its state, and the URL, the media type, the size and the digest of its
    /// content, each on a line, which is empty if the fact is unknown.
    #[must_use]
    pub fn all(&self) -> DigestSum {
        let mut text = format!("{}\n{}\n", self.object, self.item);
        let digest = self.content.and_then(|content| content.digest.as_ref());
        let digest = digest.map(|digest| format!("{}:{}", digest.algorithm().name(), digest.hex()));
        let facts: [Option<&dyn fmt::Display>; 5] = [
            self.state.map(|state| state as _),
            self.content.map(|content| &content.url as _),
            self.content.and_then(|content| content.media_type.as_ref()).map(|media_type| media_type as _),
            self.content.and_then(|content| content.size.as_ref()).map(|size| size as _),
            digest.as_ref().map(|digest| digest as _),
        ];
        for fact in facts {
            // Writing to a text cannot fail.
            let _ = match fact {
                Some(fact) => writeln!(text, "{fact}"),
                None => writeln!(text),
            };
        }
        DigestSum::of(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::{ContentLocation, DigestSum, ItemFacts, State};

    /// The vectors of `docs/compare.md`.
    #[test]
    fn digests_are_those_of_the_page() {
        let page = include_str!("../../docs/compare.md");
        let content: ContentLocation = serde_json::from_str(
            r#"{"url":"http://h.example/1/image/v2","mediaType":"image/jpeg","size":1234,
                "digest":{"algorithm":"sha-1","value":"da39a3ee5e6b4b0d3255bfef95601890afd80709"}}"#,
        )
        .unwrap();
        let state = State::parse("ACTIVE").unwrap();
        let whole = ItemFacts {
            object: "http://h.example/1",
            item: "http://h.example/1/image",
            state: Some(&state),
            content: Some(&content),
        };
        let bare = ItemFacts { item: "http://h.example/1", state: None, content: None, ..whole };
        let mut sum = whole.all();
        sum += bare.all();
        for digest in [whole.existence(), whole.all(), bare.existence(), bare.all(), sum] {
            assert!(page.contains(&format!("`{digest}`")), "{digest} is not on the page");
            assert_eq!(DigestSum::parse(&digest.to_string()), Ok(digest));
        }
        assert_eq!(sum.without(bare.all()), whole.all());
        assert!(DigestSum::parse("+0000000000000000000000000000000").is_err());
        assert!(DigestSum::parse("00").is_err());
    }
}
