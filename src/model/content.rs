//! Where the content of an item is, and what kind of content it is.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::{Uri, deserialize_str::deserialize_str};

/// Where new or changed content can be fetched, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContentLocation {
    /// The URL that answers with the content; for Fedora 3 the version's own (`?asOfDateTime=`).
    pub url: Uri,
    /// The media type, where the source told it: Fedora 3 never does (its `mimeType` parameter is
    /// lost by a bug of the sender), and a made-up one would mislead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = MediaType)]
    pub media_type: Option<MediaType>,
    /// The size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64)]
    pub size: Option<u64>,
    /// A digest of the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Digest)]
    pub digest: Option<Digest>,
    /// The activity that made the content (PROV-O, `wasGeneratedBy`): for a WARC its harvest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Uri)]
    pub generated_by: Option<Uri>,
}

impl ContentLocation {
    /// A location of which nothing but the URL is known.
    #[must_use]
    pub fn at(url: Uri) -> Self {
        Self { url, media_type: None, size: None, digest: None, generated_by: None }
    }
}

/// An Internet media type (RFC 6838 section 4.2), with its parameters if it has any, as written by
/// the source.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct MediaType(Arc<str>);

/// Why a text is not a media type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a media type; write it as in image/jpeg")]
pub struct InvalidMediaType(String);

impl MediaType {
    /// The longest media type taken, in bytes: two names of 127 (RFC 6838) and room for parameters.
    pub const MAX_BYTES: usize = 512;

    /// Takes `type/subtype` with optional parameters.
    ///
    /// # Errors
    /// When it is something else.
    pub fn parse(raw: &str) -> Result<Self, InvalidMediaType> {
        let raw = raw.trim();
        let invalid = || InvalidMediaType(raw.chars().take(64).collect());
        let (names, parameters) = raw.split_once(';').unwrap_or((raw, ""));
        let (kind, subtype) = names.split_once('/').ok_or_else(invalid)?;
        let printable = parameters.bytes().all(|b| matches!(b, b' '..=b'~'));
        let fits = raw.len() <= Self::MAX_BYTES;
        if fits && printable && is_restricted_name(kind) && is_restricted_name(subtype.trim_end_matches(' ')) {
            Ok(Self(raw.into()))
        } else {
            Err(invalid())
        }
    }

    /// The media type as the source wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// RFC 6838 section 4.2, `restricted-name`.
fn is_restricted_name(name: &str) -> bool {
    name.len() <= 127
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
}

impl fmt::Display for MediaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for MediaType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_str(deserializer, Self::parse)
    }
}

/// A digest of content: its algorithm and its value in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Digest {
    algorithm: DigestAlgorithm,
    value: String,
}

named_values! {
    /// A digest algorithm, named as in the IANA registry of hash function textual names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum DigestAlgorithm {
        /// RFC 1321; Fedora's `MD5`.
        #[serde(rename = "md5")]
        Md5 = "md5",
        /// FIPS 180-4; Fedora's and Social Feed Manager's `SHA-1`.
        #[serde(rename = "sha-1")]
        Sha1 = "sha-1",
        /// FIPS 180-4.
        #[serde(rename = "sha-256")]
        Sha256 = "sha-256",
        /// FIPS 180-4.
        #[serde(rename = "sha-384")]
        Sha384 = "sha-384",
        /// FIPS 180-4.
        #[serde(rename = "sha-512")]
        Sha512 = "sha-512",
    }
}

impl DigestAlgorithm {
    /// Takes a name in either case, with or without the hyphen (`SHA1`, `sha-1`).
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let plain = |name: &str| name.replace('-', "").to_ascii_lowercase();
        let wanted = plain(name);
        Self::ALL.into_iter().find(|algorithm| plain(algorithm.name()) == wanted)
    }

    /// How many hexadecimal digits its values have.
    #[must_use]
    pub fn hex_len(self) -> usize {
        match self {
            Self::Md5 => 32,
            Self::Sha1 => 40,
            Self::Sha256 => 64,
            Self::Sha384 => 96,
            Self::Sha512 => 128,
        }
    }
}

/// Why a text is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a {name} digest has {digits} hexadecimal digits", name = .0.name(), digits = .0.hex_len())]
pub struct InvalidDigest(DigestAlgorithm);

impl Digest {
    /// Takes a value in hexadecimal, in either case.
    ///
    /// # Errors
    /// When it has not as many hexadecimal digits as the algorithm's values have.
    pub fn parse(algorithm: DigestAlgorithm, hex: &str) -> Result<Self, InvalidDigest> {
        let value = hex.trim().to_ascii_lowercase();
        if value.len() == algorithm.hex_len() && value.bytes().all(|b| b.is_ascii_hexdigit()) {
            Ok(Self { algorithm, value })
        } else {
            Err(InvalidDigest(algorithm))
        }
    }

    /// The algorithm.
    #[must_use]
    pub fn algorithm(&self) -> DigestAlgorithm {
        self.algorithm
    }

    /// The value, in lower-case hexadecimal.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.value
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Raw {
            algorithm: DigestAlgorithm,
            value: String,
        }
        let raw = Raw::deserialize(deserializer)?;
        Self::parse(raw.algorithm, &raw.value).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::{Digest, DigestAlgorithm, MediaType};

    #[test]
    fn a_media_type_has_a_type_and_a_subtype() {
        for raw in ["image/jpeg", "application/ld+json; profile=\"x\"", "text/plain;charset=UTF-8"] {
            assert_eq!(MediaType::parse(raw).unwrap().as_str(), raw);
        }
        for raw in ["", "image", "image/", "a b/c", "text/\u{7}", "text/plain\u{b};x"] {
            assert!(MediaType::parse(raw).is_err(), "{raw}");
        }
    }

    #[test]
    fn a_digest_has_the_length_of_its_algorithm() {
        let digest = Digest::parse(DigestAlgorithm::Md5, "D41D8CD98F00B204E9800998ECF8427E").unwrap();
        assert_eq!(digest.hex(), "d41d8cd98f00b204e9800998ecf8427e");
        assert!(Digest::parse(DigestAlgorithm::Sha1, digest.hex()).is_err());
        assert_eq!(DigestAlgorithm::parse("SHA1"), Some(DigestAlgorithm::Sha1));
        assert_eq!(DigestAlgorithm::parse("crc32"), None);
    }
}
