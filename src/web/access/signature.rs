//! Signatures of bodies, which allow a sender with the key of a source to post to its hook. Each kind has its header
//! ([`SignatureHeader`]) with the HMAC-SHA256 (RFC 2104) of the encoded body.

use axum::http::HeaderMap;
use base64::{Engine, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::web::Secret;

named_values! {
    /// Header with the signatures of a source.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum SignatureHeader {
        /// `sha256=` and hexadecimal digits, as of WebSub (section 8, "Authenticated Content Distribution") and GitHub.
        #[default]
        Hub = "X-Hub-Signature-256",
        /// Base64, as of Ex Libris Alma.
        ExLibris = "X-Exl-Signature",
    }
}

/// Key of the signatures of a source, and their header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureKey {
    /// Header with the signature.
    pub header: SignatureHeader,
    /// The key.
    pub secret: Secret,
}

/// Signature of a request.
pub(super) struct Signature([u8; 32]);

impl SignatureHeader {
    /// Returns whether a request has a signature of any kind.
    pub(super) fn is_in(headers: &HeaderMap) -> bool {
        Self::ALL.iter().any(|header| headers.contains_key(header.name()))
    }

    /// Reads the signature of a request; `None` if it is missing or invalid.
    pub(super) fn read(self, headers: &HeaderMap) -> Option<Signature> {
        self.parse(headers.get(self.name())?.to_str().ok()?)
    }

    fn parse(self, field: &str) -> Option<Signature> {
        let mut code = [0; 32];
        match self {
            Self::Hub => hex::decode_to_slice(field.trim().strip_prefix("sha256=")?, &mut code).ok()?,
            Self::ExLibris => code = BASE64_STANDARD.decode(field.trim()).ok()?.try_into().ok()?,
        }
        Some(Signature(code))
    }
}

impl Signature {
    /// Returns `true` if this is the signature of `body` by `key`. The comparison takes constant time.
    pub(super) fn matches(&self, body: &[u8], key: &Secret) -> bool {
        // HMAC accepts a key of any length (RFC 2104 section 3).
        Hmac::<Sha256>::new_from_slice(key.expose())
            .is_ok_and(|mac| mac.chain_update(body).verify_slice(&self.0).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::SignatureHeader;
    use crate::web::Secret;

    #[test]
    fn signature_matches_one_body_and_one_key() {
        // RFC 4231 section 4.3, test case 2.
        let field = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let base64 = "W9zBRr9gdU5qBCQmCJV1x1oAPwidJzmDnexYuWTsOEM=";
        for signature in [SignatureHeader::Hub.parse(field), SignatureHeader::ExLibris.parse(base64)] {
            let signature = signature.unwrap();
            let body = b"what do ya want for nothing?";
            assert!(signature.matches(body, &Secret::new("Jefe")));
            assert!(!signature.matches(body, &Secret::new("Jeff")));
            assert!(!signature.matches(&body[1..], &Secret::new("Jefe")));
        }
    }

    #[test]
    fn invalid_signature_is_none() {
        let digits = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        for field in ["", "sha256=", digits, &format!("sha1={digits}"), &format!("sha256={}", &digits[2..])] {
            assert!(SignatureHeader::Hub.parse(field).is_none(), "{field}");
        }
        assert!(SignatureHeader::Hub.parse(&format!("sha256={}", digits.to_uppercase())).is_some());
        for field in ["", "W9zBRr9gdU5qBCQmCJV1x1oAPwidJzmDnexYuWTsOE", digits, &format!("sha256={digits}")] {
            assert!(SignatureHeader::ExLibris.parse(field).is_none(), "{field}");
        }
    }
}
