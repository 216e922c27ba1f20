//! Webhook subscriptions, and checks of the requests that their receivers get.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;

use crate::support::{
    chaos::ReceivedChanges,
    http_receiver::{ReceivedRequest, Reply},
};

/// Signing secrets.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
pub(crate) const NEXT_SECRET: &str = "whsec_dGlkaW5ncy1nby1vdXQtdG8tZXZlcnlib2R5Li4u";

/// Returns a subscription that posts JSON to a URL, from the first change on.
pub(crate) fn webhook(name: &str, url: &str, more: &str) -> String {
    format!(
        "[subscriptions.{name}]\ndelivery = \"webhook\"\nformat = \"json\"\nstart = \"beginning\"\nurl = \"{url}\"\n\
         secrets = [\"{SECRET}\"]\n{more}\n"
    )
}

impl ReceivedRequest {
    /// Returns the JSON body.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Returns the number of the change in the body.
    pub(crate) fn seq(&self) -> u64 {
        self.json()["seq"].as_u64().unwrap()
    }

    /// Returns true if the request is signed with a secret.
    pub(crate) fn is_signed_with(&self, secret: &str) -> bool {
        let key = STANDARD.decode(secret.trim_start_matches("whsec_")).unwrap();
        let mac = Hmac::<sha2::Sha256>::new_from_slice(&key).unwrap();
        let mac = mac.chain_update(format!("{}.{}.", self.header("webhook-id"), self.header("webhook-timestamp")));
        let signature = STANDARD.encode(mac.chain_update(&self.body).finalize().into_bytes());
        self.header("webhook-signature").split(' ').any(|signed| signed == format!("v1,{signature}"))
    }
}

/// Records the changes of a request, whatever its reply will be.
pub(crate) fn record_changes(received: &ReceivedChanges, request: &ReceivedRequest) -> Option<Reply> {
    assert!(request.is_signed_with(SECRET));
    let body = request.json();
    match body["changes"].as_array() {
        Some(changes) => {
            changes.iter().for_each(|one| received.record(one["seq"].as_u64().unwrap(), one["id"].as_str().unwrap()));
        }
        None => received.record(request.seq(), request.header("webhook-id")),
    }
    None
}

/// Panics unless the messages are complete up to `last` and in order, apart from repeats with the same
/// identifier and body.
pub(crate) fn are_in_order(requests: &[ReceivedRequest], last: u64) {
    let mut previous: BTreeMap<u64, (String, Vec<u8>)> = BTreeMap::new();
    for message in requests {
        let (seq, id) = (message.seq(), message.header("webhook-id").to_owned());
        let newest = previous.last_key_value().map_or(0, |(newest, _)| *newest);
        assert!(seq <= newest + 1, "{seq} comes after {newest}");
        let first = previous.entry(seq).or_insert_with(|| (id.clone(), message.body.clone()));
        assert_eq!(*first, (id, message.body.clone()), "a repeat is the same");
        assert_eq!(message.json()["id"].as_str(), Some(message.header("webhook-id")));
        assert!(message.is_signed_with(SECRET));
    }
    assert_eq!(previous.len() as u64, last);
}
