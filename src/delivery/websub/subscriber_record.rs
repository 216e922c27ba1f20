//! A subscriber as stored in the journal: callback, topic, lease and secret.
//!
//! The secret must be stored because every message is signed with it. It is contained in backups of the journal
//! and never shown.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    http_client::{InvalidOutboundUrl, OutboundPolicy, OutboundUrl},
    model::{ReaderView, SubscriptionName, Timestamp},
    web::Secret,
};

/// Prefix of the names of hub subscriptions.
const PREFIX: &str = "websub-";

/// Returns whether the name belongs to a hub subscription. No other subscription gets such a name.
pub(in crate::delivery) fn is_hub_subscription(name: &SubscriptionName) -> bool {
    let digest = name.as_str().strip_prefix(PREFIX);
    digest.is_some_and(|digest| digest.len() == 32 && digest.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// A verified subscriber.
#[derive(Clone, Debug)]
pub(super) struct SubscriberRecord {
    pub(super) callback: OutboundUrl,
    /// Canonical URL of the topic.
    pub(super) topic: String,
    /// End of the lease.
    pub(super) lease: Timestamp,
    pub(super) secret: Option<Secret>,
    /// Part of the journal that the subscriber could see when it subscribed; `None` if everything.
    pub(super) view: Option<Arc<ReaderView>>,
}

#[derive(Serialize, Deserialize)]
struct StoredRecord {
    callback: String,
    topic: String,
    lease: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    view: Option<ReaderView>,
}

/// Reason why a stored record cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidRecord {
    #[error("its stored record cannot be read")]
    Unreadable,
    #[error(transparent)]
    Callback(#[from] InvalidOutboundUrl),
}

impl SubscriberRecord {
    /// Returns the name of a subscription. Callback and topic are its key (section 1, Subscription).
    pub(super) fn name_of(callback: &OutboundUrl, topic: &str) -> Option<SubscriptionName> {
        let digest = Sha256::new().chain_update(callback.expose().as_str()).chain_update("\n").chain_update(topic);
        SubscriptionName::parse(&format!("{PREFIX}{}", hex::encode(&digest.finalize()[..16]))).ok()
    }

    #[expect(clippy::expect_used, reason = "texts and a time alone")]
    pub(super) fn to_json(&self) -> String {
        let secret = self.secret.as_ref().map(|secret| String::from_utf8_lossy(secret.expose()).into_owned());
        let callback = self.callback.expose().to_string();
        let view = self.view.as_deref().cloned();
        let json = StoredRecord { callback, topic: self.topic.clone(), lease: self.lease, secret, view };
        serde_json::to_string(&json).expect("texts have a JSON shape")
    }

    /// Parses a stored record. The callback is checked again, because the configuration may have changed.
    pub(super) fn from_json(json: &str, guard: &OutboundPolicy) -> Result<Self, InvalidRecord> {
        // The error must not contain the record, because it includes a secret.
        let StoredRecord { callback, topic, lease, secret, view } =
            serde_json::from_str(json).map_err(|_| InvalidRecord::Unreadable)?;
        let callback = OutboundUrl::parse(&callback, guard)?;
        Ok(Self { callback, topic, lease, secret: secret.map(Secret::new), view: view.map(Arc::new) })
    }

    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        self.lease <= now
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Arc, OutboundPolicy, OutboundUrl, ReaderView, Secret, SubscriberRecord, SubscriptionName, Timestamp,
        is_hub_subscription,
    };

    #[test]
    fn record_round_trips_and_hides_its_secret() {
        let guard = OutboundPolicy::unrestricted();
        let record = SubscriberRecord {
            callback: OutboundUrl::parse("http://h/cb?key=abc", &guard).unwrap(),
            topic: "http://g/feed".to_owned(),
            lease: Timestamp::from_millis(1_000_000).unwrap(),
            secret: Some(Secret::new("pssst")),
            view: Some(Arc::new(ReaderView { public: true, ..ReaderView::default() })),
        };
        let name = SubscriberRecord::name_of(&record.callback, &record.topic).unwrap();
        assert!(is_hub_subscription(&name) && !is_hub_subscription(&SubscriptionName::parse("websub-index").unwrap()));
        let back = SubscriberRecord::from_json(&record.to_json(), &guard).unwrap();
        assert_eq!(back.callback.expose(), record.callback.expose());
        assert_eq!((&back.topic, back.lease, &back.secret), (&record.topic, record.lease, &record.secret));
        assert_eq!(back.view, record.view);
        let debug = format!("{record:?}");
        assert!(!debug.contains("pssst") && !debug.contains("abc"), "{debug}");
        let wrong =
            SubscriberRecord::from_json(&record.to_json().replace("lease", "pssst"), &guard).unwrap_err().to_string();
        assert!(!wrong.contains("pssst"), "{wrong}");
    }
}
