//! GET requests from the hub to a callback: verification and denial (WebSub sections 5.2 and 5.3).

use axum::http::HeaderMap;
use subtle::ConstantTimeEq;
use uuid::Uuid;

use super::request::Mode;
use crate::http_client::{Client, ClientError, OutboundUrl};

/// Reason why a subscriber's intent was not verified.
#[derive(Debug, thiserror::Error)]
pub(super) enum VerificationError {
    #[error("cannot reach the callback: {0}")]
    NotReached(#[from] ClientError),
    #[error("the callback responded with {0}")]
    Status(u16),
    #[error("the callback did not return the challenge")]
    Challenge,
}

/// Verifies the subscriber's intent: the callback must respond with 2xx and exactly the challenge.
pub(super) async fn verify(
    client: &Client,
    callback: &OutboundUrl,
    mode: Mode,
    topic: &str,
    lease_seconds: u64,
) -> Result<(), VerificationError> {
    // Two random UUIDs contain 244 random bits.
    let challenge = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    let lease = lease_seconds.to_string();
    let mut parameters = vec![("hub.mode", mode.as_str()), ("hub.topic", topic), ("hub.challenge", &challenge)];
    if mode == Mode::Subscribe {
        parameters.push(("hub.lease_seconds", &lease));
    }
    let answer = client.get(&callback.with_query(parameters), HeaderMap::new()).await?;
    if !answer.status.is_success() {
        return Err(VerificationError::Status(answer.status.as_u16()));
    }
    match bool::from(answer.body_start.ct_eq(challenge.as_bytes())) {
        true => Ok(()),
        false => Err(VerificationError::Challenge),
    }
}

/// Notifies a callback that its subscription was denied or ended. A failure is only logged.
pub(super) async fn deny(client: &Client, callback: &OutboundUrl, topic: &str, reason: &str) {
    let parameters = [("hub.mode", "denied"), ("hub.topic", topic), ("hub.reason", reason)];
    if let Err(error) = client.get(&callback.with_query(parameters), HeaderMap::new()).await {
        tracing::debug!(to = callback.origin(), %error, "cannot notify a subscriber of its denial");
    }
}
