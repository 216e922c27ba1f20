//! What the journal keeps of a subscriber: callback, topic, lease, and the secret, which has to be kept since
//! every message is signed by it. It goes with the journal's backups, and is shown nowhere.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    http_client::{InvalidOutboundUrl, OutboundPolicy, OutboundUrl},
    model::{SubscriptionName, Timestamp},
    web::Secret,
};

/// How the names of subscriptions begin that a hub has made.
const PREFIX: &str = "websub-";

/// Whether a hub has made the subscription of that name: nobody else would give it such a one.
pub(in crate::delivery) fn is_of_hub(name: &SubscriptionName) -> bool {
    let digest = name.as_str().strip_prefix(PREFIX);
    digest.is_some_and(|digest| digest.len() == 32 && digest.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// A subscriber, verified.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) callback: OutboundUrl,
    /// The address of the topic, in its one spelling.
    pub(super) topic: String,
    /// Until when.
    pub(super) lease: Timestamp,
    pub(super) secret: Option<Secret>,
}

#[derive(Serialize, Deserialize)]
struct Json {
    callback: String,
    topic: String,
    lease: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

/// Why what is kept cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("it cannot be read")]
    Unreadable,
    #[error(transparent)]
    Callback(#[from] InvalidOutboundUrl),
}

impl Kept {
    /// The name of the subscription: callback and topic are its key (section 1, Subscription).
    pub(super) fn name_of(callback: &OutboundUrl, topic: &str) -> Option<SubscriptionName> {
        let digest = Sha256::new().chain_update(callback.expose().as_str()).chain_update("\n").chain_update(topic);
        SubscriptionName::parse(&format!("{PREFIX}{}", hex::encode(&digest.finalize()[..16]))).ok()
    }

    #[expect(clippy::expect_used, reason = "texts and a time alone")]
    pub(super) fn to_json(&self) -> String {
        let secret = self.secret.as_ref().map(|secret| String::from_utf8_lossy(secret.expose()).into_owned());
        let callback = self.callback.expose().to_string();
        let json = Json { callback, topic: self.topic.clone(), lease: self.lease, secret };
        serde_json::to_string(&json).expect("texts have a JSON shape")
    }

    /// What is kept, if it may still be used: where a callback may lead is a matter of the configuration.
    pub(super) fn from_json(json: &str, guard: &OutboundPolicy) -> Result<Self, Unusable> {
        // No error repeats it: it has a secret.
        let Json { callback, topic, lease, secret } = serde_json::from_str(json).map_err(|_| Unusable::Unreadable)?;
        Ok(Self { callback: OutboundUrl::parse(&callback, guard)?, topic, lease, secret: secret.map(Secret::new) })
    }

    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.lease <= now
    }
}

#[cfg(test)]
mod tests {
    use super::{Kept, OutboundPolicy, OutboundUrl, Secret, SubscriptionName, Timestamp, is_of_hub};

    #[test]
    fn comes_back_as_it_was_and_shows_no_secret() {
        let guard = OutboundPolicy::unrestricted();
        let kept = Kept {
            callback: OutboundUrl::parse("http://h/cb?key=abc", &guard).unwrap(),
            topic: "http://g/feed".to_owned(),
            lease: Timestamp::from_millis(1_000_000).unwrap(),
            secret: Some(Secret::new("pssst")),
        };
        let name = Kept::name_of(&kept.callback, &kept.topic).unwrap();
        assert!(is_of_hub(&name) && !is_of_hub(&SubscriptionName::parse("websub-index").unwrap()));
        let back = Kept::from_json(&kept.to_json(), &guard).unwrap();
        assert_eq!(back.callback.expose(), kept.callback.expose());
        assert_eq!((&back.topic, back.lease, &back.secret), (&kept.topic, kept.lease, &kept.secret));
        let shown = format!("{kept:?}");
        assert!(!shown.contains("pssst") && !shown.contains("abc"), "{shown}");
        let wrong = Kept::from_json(&kept.to_json().replace("lease", "pssst"), &guard).unwrap_err().to_string();
        assert!(!wrong.contains("pssst"), "{wrong}");
    }
}
