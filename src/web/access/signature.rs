//! `X-Hub-Signature-256`: who knows the key of a source may post to its hook. The header is that of
//! WebSub (section 8, "Authenticated Content Distribution") and of GitHub's webhooks:
//! `sha256=` and the HMAC-SHA256 of the body as it is sent (RFC 2104) in hexadecimal digits.

use axum::http::{HeaderMap, HeaderName};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::web::Secret;

const HEADER: HeaderName = HeaderName::from_static("x-hub-signature-256");

/// The signature that a request brings.
pub(super) struct Signature([u8; 32]);

impl Signature {
    /// Reads the header; `None` when it is not there, `Some(None)` when it is no signature.
    pub(super) fn of(headers: &HeaderMap) -> Option<Option<Self>> {
        let field = headers.get(HEADER)?;
        Some(field.to_str().ok().and_then(Self::parse))
    }

    fn parse(field: &str) -> Option<Self> {
        let mut digits = [0; 32];
        hex::decode_to_slice(field.trim().strip_prefix("sha256=")?, &mut digits).ok()?;
        Some(Self(digits))
    }

    /// Whether it is that of this body by this key; compared in constant time.
    pub(super) fn is_of(&self, body: &[u8], key: &Secret) -> bool {
        // HMAC takes a key of any length (RFC 2104 section 3).
        Hmac::<Sha256>::new_from_slice(key.expose())
            .is_ok_and(|mac| mac.chain_update(body).verify_slice(&self.0).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::Signature;
    use crate::web::Secret;

    #[test]
    fn a_signature_is_of_one_body_and_one_key() {
        // RFC 4231 section 4.3, test case 2.
        let field = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let signature = Signature::parse(field).unwrap();
        let body = b"what do ya want for nothing?";
        assert!(signature.is_of(body, &Secret::new("Jefe")));
        assert!(!signature.is_of(body, &Secret::new("Jeff")));
        assert!(!signature.is_of(&body[1..], &Secret::new("Jefe")));
    }

    #[test]
    fn what_is_no_signature_is_none() {
        let digits = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        for field in ["", "sha256=", digits, &format!("sha1={digits}"), &format!("sha256={}", &digits[2..])] {
            assert!(Signature::parse(field).is_none(), "{field}");
        }
        assert!(Signature::parse(&format!("sha256={}", digits.to_uppercase())).is_some());
    }
}
