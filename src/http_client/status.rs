//! Advice of a server for retries: the status, and the wait that it asks for.

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

/// Longest wait that a server can ask for. A longer one counts as this, so that no sum of times overflows, and a mistake of
/// a server ends after a day.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the wait that a server asks for: `Retry-After`, in seconds or as a date (RFC 9110 section 10.2.3). It is a day at
/// most.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    // More digits than a number has are a long wait too.
    let wait = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        (header_date(headers, &RETRY_AFTER)? - now).to_std().unwrap_or_default()
    };
    Some(wait.min(LONGEST_WAIT))
}

/// Returns the wait that a server with a limit on requests asks for: `Retry-After`, or else the reset of `RateLimit` (IETF
/// draft, with `t=`), `RateLimit-Reset` or `X-RateLimit-Reset`, in seconds or as the seconds since 1970. It is a day at
/// most.
#[must_use]
pub fn rate_limit_reset(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let seconds = |text: &str| {
        let whole = text.trim().split('.').next().unwrap_or_default();
        let seconds: i64 = whole.parse().ok()?;
        let wait = if seconds > 1_000_000_000 { seconds - now.timestamp() } else { seconds };
        Some(Duration::from_secs(u64::try_from(wait).unwrap_or(0)).min(LONGEST_WAIT))
    };
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let limit = || text("ratelimit")?.split([';', ',']).find_map(|part| part.trim().strip_prefix("t="));
    let reset = || text("ratelimit-reset").or_else(|| text("x-ratelimit-reset"));
    retry_after(headers, now).or_else(|| seconds(limit().or_else(reset)?))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::{
        DateTime, Duration, HeaderMap, RETRY_AFTER, StatusCode, Utc, is_transient, rate_limit_reset, retry_after,
    };

    #[test]
    fn retry_after_is_parsed_from_seconds_and_dates() {
        let now: DateTime<Utc> = "2026-11-21T08:00:00Z".parse().unwrap();
        for (value, wait) in [
            ("3", Some(3)),
            ("0", Some(0)),
            ("86400", Some(86_400)),
            ("86401", Some(86_400)),
            ("18446744073709551615", Some(86_400)),
            ("99999999999999999999999", Some(86_400)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(86_400)),
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
    fn reset_of_a_rate_limit_is_read_from_each_header() {
        let now: DateTime<Utc> = "2026-11-21T08:00:00Z".parse().unwrap();
        let later = (now.timestamp() + 100).to_string();
        for (name, value, seconds) in [
            ("retry-after", "3", Some(3)),
            ("ratelimit", "\"default\";r=0;t=30", Some(30)),
            ("ratelimit-reset", "7", Some(7)),
            ("ratelimit-reset", "9223372036854775807", Some(86_400)),
            ("ratelimit-reset", "-9223372036854775808", Some(0)),
            ("x-ratelimit-reset", later.as_str(), Some(100)),
            ("x-ratelimit-reset", "1700000000", Some(0)),
            ("ratelimit-reset", "inf", None),
        ] {
            let name = HeaderName::try_from(name).unwrap();
            let headers = HeaderMap::from_iter([(name.clone(), HeaderValue::from_str(value).unwrap())]);
            assert_eq!(rate_limit_reset(&headers, now), seconds.map(Duration::from_secs), "{name}: {value}");
        }
    }

    #[test]
    fn transient_statuses_are_those_of_load_and_server_errors() {
        let transient = (100..600).filter(|status| is_transient(StatusCode::from_u16(*status).unwrap()));
        assert_eq!(transient.collect::<Vec<_>>(), [408, 425, 429].into_iter().chain(500..600).collect::<Vec<_>>());
    }
}
