//! Symmetric signatures of Standard Webhooks 1.0.0, section "Signature scheme".

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::web::Secret;

/// Prefix of a secret.
const PREFIX: &str = "whsec_";

/// Minimum and maximum number of bytes in a key, by the standard.
const MIN_KEY_BYTES: usize = 24;
const MAX_KEY_BYTES: usize = 64;

/// A signing key.
#[derive(Clone, Debug)]
pub(super) struct SigningKey(Secret);

impl SigningKey {
    /// Parses a secret: `whsec_` and a key of 24 to 64 bytes in base64.
    ///
    /// # Errors
    /// Fails on any other text; the error does not contain it.
    pub(super) fn parse(secret: &Secret) -> Result<Self, &'static str> {
        let wrong = "it is not whsec_ and a key of 24 to 64 bytes in base64; make one with `tidings token --webhook`";
        let text = std::str::from_utf8(secret.expose()).map_err(|_| wrong)?;
        let key = text.trim().strip_prefix(PREFIX).and_then(|key| STANDARD.decode(key).ok());
        key.filter(|key| (MIN_KEY_BYTES..=MAX_KEY_BYTES).contains(&key.len()))
            .map(|key| Self(Secret::new(key)))
            .ok_or(wrong)
    }

    /// Returns the signature for the header `webhook-signature`: `v1,` and the HMAC-SHA256 of identifier, time
    /// (seconds since 1970) and body.
    fn sign(&self, id: &str, seconds: i64, body: &[u8]) -> Option<String> {
        let mac = Hmac::<Sha256>::new_from_slice(self.0.expose()).ok()?;
        let mac = mac.chain_update(format!("{id}.{seconds}.")).chain_update(body);
        Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
    }
}

/// Returns the signatures by all keys, separated by spaces. A receiver needs to know only one of the keys.
pub(super) fn signatures(keys: &[SigningKey], id: &str, seconds: i64, body: &[u8]) -> String {
    keys.iter().filter_map(|key| key.sign(id, seconds, body)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::{Secret, SigningKey, signatures};

    fn key(text: &str) -> Result<SigningKey, &'static str> {
        SigningKey::parse(&Secret::new(text))
    }

    /// Test vector of the Standard Webhooks libraries.
    #[test]
    fn signature_matches_the_standard() {
        let key = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed = signatures(
            std::slice::from_ref(&key),
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let two = signatures(&[key.clone(), key], "a", 1, b"b");
        assert_eq!(two.split(' ').count(), 2);
    }

    #[test]
    fn key_length_is_checked() {
        for wrong in ["", "whsec_", "whsec_aGVsbG8=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!!!!"] {
            assert!(!key(wrong).unwrap_err().contains("MfKQ"), "{wrong}");
        }
        assert!(key(&format!("whsec_{}", "A".repeat(88))).is_err());
        assert!(key(" whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").is_ok());
        assert!(!format!("{:?}", key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")).contains("MfKQ"));
    }
}
