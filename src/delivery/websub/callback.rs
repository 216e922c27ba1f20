//! What a hub asks of a callback, and tells it, by GET (WebSub sections 5.2 and 5.3).

use axum::http::HeaderMap;
use subtle::ConstantTimeEq;
use uuid::Uuid;

use super::request::Mode;
use crate::http_client::{Client, ClientError, OutboundUrl};

/// Why somebody is not taken for the one who asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotVerified {
    #[error("the callback was not reached: {0}")]
    NotReached(#[from] ClientError),
    #[error("the callback answered {0}")]
    Status(u16),
    #[error("the callback answered something else than the challenge")]
    Challenge,
}

/// Asks a callback whether it wants this: it has to answer 2xx, with the challenge and nothing else.
pub(super) async fn verify(
    client: &Client,
    callback: &OutboundUrl,
    mode: Mode,
    topic: &str,
    lease_seconds: u64,
) -> Result<(), NotVerified> {
    // Two random UUIDs have 244 random bits.
    let challenge = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    let lease = lease_seconds.to_string();
    let mut parameters = vec![("hub.mode", mode.as_str()), ("hub.topic", topic), ("hub.challenge", &challenge)];
    if mode == Mode::Subscribe {
        parameters.push(("hub.lease_seconds", &lease));
    }
    let answer = client.get(&callback.with_query(parameters), HeaderMap::new()).await?;
    if !answer.status.is_success() {
        return Err(NotVerified::Status(answer.status.as_u16()));
    }
    match bool::from(answer.body_start.ct_eq(challenge.as_bytes())) {
        true => Ok(()),
        false => Err(NotVerified::Challenge),
    }
}

/// Tells a callback that there is no subscription, or no longer. Whether it hears that is its own affair.
pub(super) async fn deny(client: &Client, callback: &OutboundUrl, topic: &str, reason: &str) {
    let parameters = [("hub.mode", "denied"), ("hub.topic", topic), ("hub.reason", reason)];
    if let Err(error) = client.get(&callback.with_query(parameters), HeaderMap::new()).await {
        tracing::debug!(to = callback.origin(), %error, "a subscriber could not be told that it is denied");
    }
}
