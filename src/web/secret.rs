//! Secrets. The types of this module cannot be printed or serialized, so no log line, error or `Debug` output
//! contains a secret.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Token or signature key.
///
/// Prints as `(secret)`. Comparison takes constant time.
#[derive(Clone)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Wraps a secret.
    #[must_use]
    pub fn new(secret: impl Into<Vec<u8>>) -> Self {
        Self(secret.into().into_boxed_slice())
    }

    /// Returns the secret, only for code that sends it or computes with it.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Returns the SHA-256 of the secret.
    #[must_use]
    pub fn digest(&self) -> SecretDigest {
        SecretDigest(Sha256::digest(&self.0).into())
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// SHA-256 of a secret, as the configuration stores tokens. Comparison takes constant time.
///
/// A digest without salt is sufficient, because a token is random and cannot be guessed like a password.
#[derive(Clone, Copy)]
pub struct SecretDigest([u8; 32]);

impl SecretDigest {
    /// Parses 64 hexadecimal digits; `None` if the text is anything else.
    #[must_use]
    pub fn parse(hex: &str) -> Option<Self> {
        let mut digest = [0; 32];
        hex::decode_to_slice(hex, &mut digest).ok()?;
        Some(Self(digest))
    }

    /// Returns the 64 hexadecimal digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }
}

impl PartialEq for SecretDigest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for SecretDigest {}

/// The digest is not secret, but no log needs it.
impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(digest)")
    }
}

#[cfg(test)]
mod tests {
    use super::{Secret, SecretDigest};

    #[test]
    fn secret_cannot_be_printed() {
        let secret = Secret::new("hush");
        assert_eq!(format!("{secret} {secret:?} {:?}", Some(&secret)), "(secret) (secret) Some((secret))");
        assert_eq!(format!("{:?}", secret.digest()), "(digest)");
        assert_eq!(secret.expose(), b"hush");
    }

    #[test]
    fn secret_matches_its_digest() {
        // FIPS 180-4, the example "abc".
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Secret::new("abc").digest().to_hex(), digest);
        assert_eq!(SecretDigest::parse(digest), Some(Secret::new("abc").digest()));
        assert_eq!(SecretDigest::parse(&digest.to_uppercase()), Some(Secret::new("abc").digest()));
        assert_ne!(SecretDigest::parse(digest), Some(Secret::new("abd").digest()));
        assert!(SecretDigest::parse(&digest[1..]).is_none() && SecretDigest::parse("tdg_abc").is_none());
        assert!(Secret::new("a") == Secret::new("a") && Secret::new("a") != Secret::new("ab"));
    }
}
