//! Signatures in `X-Hub-Signature-256`, which allow a sender with the key of a source to post to its hook. The header
//! is that of WebSub (section 8, "Authenticated Content Distribution") and of GitHub's webhooks: `sha256=` and the
//! HMAC-SHA256 (RFC 2104) of the encoded body in hexadecimal digits.

use axum::http::{HeaderMap, HeaderName};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::web::Secret;

const HEADER: HeaderName = HeaderName::from_static("x-hub-signature-256");

/// Signature of a request.
pub(super) struct Signature([u8; 32]);

impl Signature {
    /// Parses the header; `None` if it is missing, `Some(None)` if it is invalid.
    pub(super) fn of(headers: &HeaderMap) -> Option<Option<Self>> {
        let field = headers.get(HEADER)?;
        Some(field.to_str().ok().and_then(Self::parse))
    }

    fn parse(field: &str) -> Option<Self> {
        let mut digits = [0; 32];
        hex::decode_to_slice(field.trim().strip_prefix("sha256=")?, &mut digits).ok()?;
        Some(Self(digits))
    }

    /// Returns `true` if this is the signature of `body` by `key`. The comparison takes constant time.
    pub(super) fn matches(&self, body: &[u8], key: &Secret) -> bool {
        // HMAC accepts a key of any length (RFC 2104 section 3).
        Hmac::<Sha256>::new_from_slice(key.expose())
            .is_ok_and(|mac| mac.chain_update(body).verify_slice(&self.0).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::Signature;
    use crate::web::Secret;

    #[test]
    fn signature_matches_one_body_and_one_key() {
        // RFC 4231 section 4.3, test case 2.
        let field = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let signature = Signature::parse(field).unwrap();
        let body = b"what do ya want for nothing?";
        assert!(signature.matches(body, &Secret::new("Jefe")));
        assert!(!signature.matches(body, &Secret::new("Jeff")));
        assert!(!signature.matches(&body[1..], &Secret::new("Jefe")));
    }

    #[test]
    fn invalid_signature_is_none() {
        let digits = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        for field in ["", "sha256=", digits, &format!("sha1={digits}"), &format!("sha256={}", &digits[2..])] {
            assert!(Signature::parse(field).is_none(), "{field}");
        }
        assert!(Signature::parse(&format!("sha256={}", digits.to_uppercase())).is_some());
    }
}
