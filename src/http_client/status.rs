//! Advice of a server for retries: the status, and `Retry-After`.

use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header::RETRY_AFTER};
use chrono::{DateTime, Utc};

use crate::web::header_date;

/// True if the same request may succeed later without anyone's intervention: 408, 425, 429 and 5xx.
#[must_use]
pub fn is_transient(status: StatusCode) -> bool {
    let of_the_client = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
    status.is_server_error() || of_the_client.contains(&status)
}

/// Returns the wait that a server asks for: `Retry-After`, in seconds or as a date (RFC 9110 section 10.2.3).
/// The wait has no upper limit.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match value.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => Some((header_date(headers, &RETRY_AFTER)? - now).to_std().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::{DateTime, Duration, HeaderMap, RETRY_AFTER, StatusCode, Utc, is_transient, retry_after};

    #[test]
    fn retry_after_is_parsed_from_seconds_and_dates() {
        let now: DateTime<Utc> = "2026-11-21T08:00:00Z".parse().unwrap();
        for (value, wait) in [
            ("3", Some(3)),
            ("0", Some(0)),
            ("86400", Some(86_400)),
            ("Sat, 21 Nov 2026 08:00:05 GMT", Some(5)),
            ("Saturday, 21-Nov-26 08:00:05 GMT", Some(5)),
            ("Sat, 21 Nov 2026 07:00:00 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))]);
            assert_eq!(retry_after(&headers, now), wait.map(Duration::from_secs), "{value}");
        }
    }

    #[test]
    fn transient_statuses_are_those_of_load_and_server_errors() {
        let transient = (100..600).filter(|status| is_transient(StatusCode::from_u16(*status).unwrap()));
        assert_eq!(transient.collect::<Vec<_>>(), [408, 425, 429].into_iter().chain(500..600).collect::<Vec<_>>());
    }
}
