//! Maps HTTP responses of receivers to delivery outcomes, for webhooks and WebSub.
//!
//! | response | outcome |
//! | --- | --- |
//! | 2xx | delivered |
//! | 410 | the receiver wants no further messages: the subscription ends |
//! | one of `refused_statuses` (webhooks) | permanently refused: a dead letter |
//! | 413 | several changes: sent again immediately in smaller messages; one change: retried later |
//! | 429, 503 | retried later, not before the time in `Retry-After` |
//! | any other, or none | retried later |
//!
//! By default, no status permanently refuses a message; the administrator chooses such statuses. Misconfigured
//! receivers often respond with 400 or 404, and then every change of a day would become a dead letter. Waiting
//! costs nothing, because undelivered changes remain in the journal.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use chrono::Utc;

use super::DeliveryOutcome;
use crate::http_client::{BoundedResponse, ClientError, retry_after};

/// Returns the outcome of a request from its response. Statuses in `refused` permanently refuse a message.
pub(super) fn outcome_of(answer: &Result<BoundedResponse, ClientError>, refused: &BTreeSet<u16>) -> DeliveryOutcome {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return DeliveryOutcome::Retry { reason: error.to_string(), after: None },
    };
    let status = answer.status;
    let reason = format!("it responded with {status}");
    match status {
        _ if status.is_success() => DeliveryOutcome::Delivered,
        StatusCode::GONE => DeliveryOutcome::Gone { reason },
        _ if refused.contains(&status.as_u16()) => DeliveryOutcome::Refused { reason },
        StatusCode::PAYLOAD_TOO_LARGE => DeliveryOutcome::TooLarge { reason },
        _ if status.is_redirection() => {
            let reason = format!("{reason}: redirects are not followed; give the new URL");
            DeliveryOutcome::Retry { reason, after: None }
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            DeliveryOutcome::Retry { reason, after: retry_after(&answer.headers, Utc::now()) }
        }
        _ => DeliveryOutcome::Retry { reason, after: None },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::HeaderMap;
    use bytes::Bytes;

    use super::{BTreeSet, BoundedResponse, ClientError, DeliveryOutcome, StatusCode, outcome_of};

    fn answer(status: u16, after: Option<&'static str>) -> Result<BoundedResponse, ClientError> {
        let status = StatusCode::from_u16(status).unwrap();
        let mut headers = HeaderMap::new();
        if let Some(after) = after {
            headers.insert("retry-after", after.parse().unwrap());
        }
        Ok(BoundedResponse { status, headers, body_start: Bytes::new(), is_complete: true })
    }

    #[test]
    fn every_status_maps_to_an_outcome() {
        let too_large = outcome_of(&answer(413, None), &BTreeSet::new());
        assert_eq!(
            too_large,
            DeliveryOutcome::TooLarge { reason: "it responded with 413 Payload Too Large".to_owned() }
        );
        assert_eq!(
            outcome_of(&answer(503, None), &BTreeSet::new()),
            DeliveryOutcome::Retry { reason: "it responded with 503 Service Unavailable".to_owned(), after: None }
        );
        let refused = BTreeSet::from([413, 422, 503]);
        for status in 200..=599 {
            let actual = outcome_of(&answer(status, None), &refused);
            let right = match status {
                200..=299 => actual == DeliveryOutcome::Delivered,
                410 => matches!(actual, DeliveryOutcome::Gone { .. }),
                413 | 422 | 503 => matches!(actual, DeliveryOutcome::Refused { .. }),
                _ => matches!(actual, DeliveryOutcome::Retry { after: None, .. }),
            };
            assert!(right, "{status}: {actual:?}");
        }
        let none = outcome_of(&Err(ClientError::Timeout(15)), &refused);
        assert_eq!(none, DeliveryOutcome::Retry { reason: "no response within 15 seconds".to_owned(), after: None });
    }

    #[test]
    fn retry_after_applies_to_429_and_503() {
        let after = |status, after| match outcome_of(&answer(status, Some(after)), &BTreeSet::new()) {
            DeliveryOutcome::Retry { after, .. } => after,
            other => panic!("{other:?}"),
        };
        assert_eq!(after(429, "7"), Some(Duration::from_secs(7)));
        assert_eq!(after(503, "7"), Some(Duration::from_secs(7)));
        assert_eq!(after(500, "7"), None);
        assert_eq!(after(429, "soon"), None);
        assert_eq!(after(503, "Fri, 31 Dec 2100 23:59:59 GMT"), Some(Duration::from_secs(86_400)));
    }
}
