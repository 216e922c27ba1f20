//! Outcomes of requests to a receiver, by its answer. Webhooks and WebSub have the same.
//!
//! | answer | what it means |
//! | --- | --- |
//! | 2xx | the message has arrived |
//! | 410 | the receiver wants no more: the subscription ends |
//! | one of `refused_statuses` (webhooks) | this message never: a dead letter |
//! | 413 | several changes: at once in smaller messages; one change: later |
//! | 429, 503 | later, and not before the time of `Retry-After` |
//! | any other, or none | later |
//!
//! What stands for “this message never” is the administrator's choice, and nothing does by default. Receivers
//! answer 400 or 404 as readily when they are set up wrongly, and then every change of a day would end as a
//! dead letter; to wait costs nothing, since what waits is in the journal.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use chrono::Utc;

use super::Outcome;
use crate::http_client::{BoundedResponse, ClientError, retry_after};

/// Returns the outcome of a request that was answered so, where the statuses in `refused` refuse a message for good.
pub(super) fn judge(answer: &Result<BoundedResponse, ClientError>, refused: &BTreeSet<u16>) -> Outcome {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return Outcome::Retry { reason: error.to_string(), after: None },
    };
    let status = answer.status;
    let reason = format!("it answered {status}");
    match status {
        _ if status.is_success() => Outcome::Delivered,
        StatusCode::GONE => Outcome::Gone { reason },
        _ if refused.contains(&status.as_u16()) => Outcome::Refused { reason },
        StatusCode::PAYLOAD_TOO_LARGE => Outcome::TooLarge { reason },
        _ if status.is_redirection() => {
            let reason = format!("{reason}: redirects are not followed; give the address that it has moved to");
            Outcome::Retry { reason, after: None }
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            Outcome::Retry { reason, after: retry_after(&answer.headers, Utc::now()) }
        }
        _ => Outcome::Retry { reason, after: None },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::HeaderMap;
    use bytes::Bytes;

    use super::{BTreeSet, BoundedResponse, ClientError, Outcome, StatusCode, judge};

    fn answer(status: u16, after: Option<&'static str>) -> Result<BoundedResponse, ClientError> {
        let status = StatusCode::from_u16(status).unwrap();
        let mut headers = HeaderMap::new();
        if let Some(after) = after {
            headers.insert("retry-after", after.parse().unwrap());
        }
        Ok(BoundedResponse { status, headers, body_start: Bytes::new(), is_complete: true })
    }

    #[test]
    fn every_status_has_its_meaning() {
        let too_large = judge(&answer(413, None), &BTreeSet::new());
        assert_eq!(too_large, Outcome::TooLarge { reason: "it answered 413 Payload Too Large".to_owned() });
        assert_eq!(
            judge(&answer(503, None), &BTreeSet::new()),
            Outcome::Retry { reason: "it answered 503 Service Unavailable".to_owned(), after: None }
        );
        let refused = BTreeSet::from([413, 422, 503]);
        for status in 200..=599 {
            let judged = judge(&answer(status, None), &refused);
            let right = match status {
                200..=299 => judged == Outcome::Delivered,
                410 => matches!(judged, Outcome::Gone { .. }),
                413 | 422 | 503 => matches!(judged, Outcome::Refused { .. }),
                _ => matches!(judged, Outcome::Retry { after: None, .. }),
            };
            assert!(right, "{status}: {judged:?}");
        }
        let none = judge(&Err(ClientError::Timeout(15)), &refused);
        assert_eq!(none, Outcome::Retry { reason: "no response within 15 seconds".to_owned(), after: None });
    }

    #[test]
    fn the_time_to_come_back_counts_where_it_is_meant_to() {
        let after = |status, after| match judge(&answer(status, Some(after)), &BTreeSet::new()) {
            Outcome::Retry { after, .. } => after,
            other => panic!("{other:?}"),
        };
        assert_eq!(after(429, "7"), Some(Duration::from_secs(7)));
        assert_eq!(after(503, "7"), Some(Duration::from_secs(7)));
        assert_eq!(after(500, "7"), None);
        assert_eq!(after(429, "soon"), None);
        let dated = after(503, "Fri, 31 Dec 2100 23:59:59 GMT").unwrap();
        assert!(dated > Duration::from_secs(86_400 * 365), "{dated:?}");
    }
}
