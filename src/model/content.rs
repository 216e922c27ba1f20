//! Location, media type and digest of the content of an item.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::{Uri, deserialize_str::deserialize_str, lenient::size};

/// Location of new or changed content, with its known properties.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", expecting = "the location of content, an object with a url")]
pub struct ContentLocation {
    /// URL of the content; for Fedora 3 the URL of the version (`?asOfDateTime=`).
    pub url: Uri,
    /// Media type, if the source reports it. Fedora 3 never does, because a bug of the sender loses its `mimeType`
    /// parameter, and a guessed media type would mislead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = MediaType)]
    pub media_type: Option<MediaType>,
    /// Size in bytes.
    #[serde(default, deserialize_with = "size", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64)]
    pub size: Option<u64>,
    /// Digest of the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Digest)]
    pub digest: Option<Digest>,
    /// Activity that generated the content (PROV-O, `wasGeneratedBy`), for a WARC its harvest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Uri)]
    pub generated_by: Option<Uri>,
    /// Content of which this is a copy, as the source reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = OriginalContent)]
    pub original: Option<Box<OriginalContent>>,
}

/// Content that was copied, with the properties that its source reported.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OriginalContent {
    /// URL of the content.
    pub url: Uri,
    /// Media type, if the source reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = MediaType)]
    pub media_type: Option<MediaType>,
    /// Size in bytes, if the source reported it.
    #[serde(default, deserialize_with = "size", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64)]
    pub size: Option<u64>,
    /// Digest, if the source reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Digest)]
    pub digest: Option<Digest>,
}

impl ContentLocation {
    /// Returns a location of which only the URL is known.
    #[must_use]
    pub fn at(url: Uri) -> Self {
        Self { url, media_type: None, size: None, digest: None, generated_by: None, original: None }
    }

    /// Returns the content as its source reported it: the original, if this is a copy.
    #[must_use]
    pub fn reported(&self) -> OriginalContent {
        let Self { url, media_type, size, digest, .. } = self.clone();
        self.original.as_deref().cloned().unwrap_or(OriginalContent { url, media_type, size, digest })
    }

    /// Returns whether this is a copy of the other content.
    #[must_use]
    pub fn is_copy_of(&self, other: &Self) -> bool {
        let is_original = |original: &OriginalContent| *original == other.reported();
        other.original.is_none() && self.original.as_deref().is_some_and(is_original)
    }
}

/// An Internet media type (RFC 6838 section 4.2) with optional parameters, in the spelling of the source.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct MediaType(Arc<str>);

/// Error for a text that is not a media type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a media type; write it as in image/jpeg")]
pub struct InvalidMediaType(String);

impl MediaType {
    /// Maximum length of a media type, in bytes: two names of 127 (RFC 6838) and room for parameters.
    pub const MAX_BYTES: usize = 512;

    /// Parses `type/subtype` with optional parameters.
    ///
    /// # Errors
    /// Fails if the text has another form or is too long.
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

    /// Returns the media type in the spelling of the source.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns whether the text is a `restricted-name` (RFC 6838 section 4.2).
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

/// A digest of content: an algorithm and a value in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Digest {
    algorithm: DigestAlgorithm,
    value: String,
}

named_values! {
    /// A digest algorithm, with its name in the IANA registry of hash function textual names.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
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
    /// Parses a name in upper or lower case, with or without the hyphen (`SHA1`, `sha-1`).
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let plain = |name: &str| name.replace('-', "").to_ascii_lowercase();
        let searched = plain(name);
        Self::ALL.into_iter().find(|algorithm| plain(algorithm.name()) == searched)
    }

    /// Returns the number of hexadecimal digits of a value.
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

/// Error for a name that is not that of a digest algorithm.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a digest algorithm; there are {all}", all = DigestAlgorithm::ALL.map(DigestAlgorithm::name).join(", "))]
pub(super) struct InvalidDigestAlgorithm(String);

impl<'de> Deserialize<'de> for DigestAlgorithm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let invalid = |name: &str| InvalidDigestAlgorithm(name.chars().take(64).collect());
        deserialize_str(deserializer, |name| Self::parse(name.trim()).ok_or_else(|| invalid(name)))
    }
}

/// Error for a text that is not a digest of the algorithm.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a {name} digest has {digits} hexadecimal digits", name = .0.name(), digits = .0.hex_len())]
pub struct InvalidDigest(DigestAlgorithm);

impl Digest {
    /// Parses a value in hexadecimal, in upper or lower case.
    ///
    /// # Errors
    /// Fails if the number of hexadecimal digits is wrong for the algorithm.
    pub fn parse(algorithm: DigestAlgorithm, hex: &str) -> Result<Self, InvalidDigest> {
        let value = hex.trim().to_ascii_lowercase();
        if value.len() == algorithm.hex_len() && value.bytes().all(|b| b.is_ascii_hexdigit()) {
            Ok(Self { algorithm, value })
        } else {
            Err(InvalidDigest(algorithm))
        }
    }

    /// Returns the algorithm.
    #[must_use]
    pub fn algorithm(&self) -> DigestAlgorithm {
        self.algorithm
    }

    /// Returns the value in lower-case hexadecimal.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.value
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(expecting = "a digest, an object with algorithm and value")]
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
        for name in ["sha256", "SHA-256", "sha-256"] {
            assert_eq!(serde_json::from_value::<DigestAlgorithm>(name.into()).unwrap(), DigestAlgorithm::Sha256);
        }
    }
}
