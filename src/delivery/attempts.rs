//! The latest delivery attempts of each subscription, for diagnosing a receiver.
//!
//! The log is in memory only, because on disk it would cost one write per delivery. State that must survive a
//! restart (cursor, reason of a stop) is in the journal. Failures are stored separately; otherwise the
//! successes of a recovered receiver would push them out within a second.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    model::{Seq, Timestamp},
    text::line,
    web::Secret,
};

/// Maximum numbers of successful and of failed attempts in the log.
const MAX_DELIVERED: usize = 20;
const MAX_FAILED: usize = 50;

/// Maximum number of bytes stored of a response body.
const MAX_RESPONSE_CHARS: usize = 256;

/// An attempt to deliver a message.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeliveryAttempt)]
pub struct Attempt {
    /// Time at which it began.
    pub at: Timestamp,
    /// Identifier of the message.
    pub id: String,
    /// Number of the first change in the message.
    pub seq: Seq,
    /// Number of changes in the message.
    pub changes: usize,
    /// Duration in milliseconds.
    pub millis: u64,
    /// Outcome.
    pub outcome: AttemptOutcome,
    /// Status of the response, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status: Option<u16>,
    /// First bytes of the response body.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    pub answer: String,
    /// Cause of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<String>,
}

/// Outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = DeliveryAttemptOutcome)]
pub enum AttemptOutcome {
    /// The receiver accepted the message.
    Delivered,
    /// The message will be sent again.
    Retried,
    /// The message became a dead letter; a batch is sent again as single changes.
    Refused,
    /// The receiver wants no further messages.
    Gone,
}

/// Latest delivery attempts of one subscription.
#[derive(Debug, Default)]
pub struct AttemptLog(Mutex<RecentAttempts>);

#[derive(Debug, Default)]
struct RecentAttempts {
    /// Number of attempts so far. It orders attempts that began in the same millisecond.
    count: u64,
    delivered: VecDeque<(u64, Attempt)>,
    failed: VecDeque<(u64, Attempt)>,
}

impl AttemptLog {
    fn recent(&self) -> MutexGuard<'_, RecentAttempts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an attempt, and drops the oldest one of the same kind if there are too many.
    pub(super) fn record(&self, attempt: Attempt) {
        let recent = &mut *self.recent();
        let (ring, most) = match attempt.outcome {
            AttemptOutcome::Delivered => (&mut recent.delivered, MAX_DELIVERED),
            _ => (&mut recent.failed, MAX_FAILED),
        };
        if ring.len() == most {
            ring.pop_front();
        }
        ring.push_back((recent.count, attempt));
        recent.count += 1;
    }

    /// Returns the stored attempts, newest first.
    pub(super) fn list(&self) -> Vec<Attempt> {
        let recent = self.recent();
        let mut all: Vec<_> = recent.delivered.iter().chain(&recent.failed).collect();
        all.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        all.into_iter().map(|(_, attempt)| attempt.clone()).collect()
    }
}

/// Shows the beginning of a response body in one line. Secrets of the request are removed, because some receivers echo
/// them.
pub(super) fn excerpt(answer: &[u8], secrets: &[Secret]) -> String {
    let text = without_secrets(&String::from_utf8_lossy(answer), secrets);
    line(text.trim(), MAX_RESPONSE_CHARS).to_string()
}

/// Replaces secrets in a text of a receiver.
pub(super) fn without_secrets<'s>(text: &str, secrets: impl IntoIterator<Item = &'s Secret>) -> String {
    let secrets = secrets.into_iter().filter_map(|secret| std::str::from_utf8(secret.expose()).ok());
    secrets.filter(|secret| !secret.is_empty()).fold(text.to_owned(), |text, secret| text.replace(secret, "(secret)"))
}

#[cfg(test)]
mod tests {
    use super::{
        Attempt, AttemptLog, AttemptOutcome, MAX_DELIVERED, MAX_FAILED, MAX_RESPONSE_CHARS, Secret, Seq, Timestamp,
        excerpt,
    };

    fn attempt(number: u64, outcome: AttemptOutcome) -> Attempt {
        let at = Timestamp::from_millis(0).unwrap();
        let (answer, reason) = (String::new(), None);
        Attempt {
            at,
            id: number.to_string(),
            seq: Seq(number),
            changes: 1,
            millis: 1,
            outcome,
            status: None,
            answer,
            reason,
        }
    }

    #[test]
    fn failures_are_not_displaced_by_successes() {
        let attempts = AttemptLog::default();
        attempts.record(attempt(1, AttemptOutcome::Refused));
        for number in 2..1000 {
            attempts.record(attempt(number, AttemptOutcome::Delivered));
        }
        let numbers: Vec<_> = attempts.list().iter().map(|attempt| attempt.seq.0).collect();
        assert_eq!((numbers.len(), numbers[0], numbers[MAX_DELIVERED]), (MAX_DELIVERED + 1, 999, 1));
        for number in 1000..2000 {
            attempts.record(attempt(number, AttemptOutcome::Retried));
        }
        assert_eq!(attempts.list().len(), MAX_DELIVERED + MAX_FAILED);
    }

    #[test]
    fn excerpt_is_truncated_and_contains_no_secret() {
        assert_eq!(excerpt(b" \x1b[2Jno\r\nmore ", &[]), "\\u{1b}[2Jno\\r\\nmore");
        assert_eq!(excerpt(b"got /in?key=hush", &[Secret::new("key=hush")]), "got /in?(secret)");
        assert_eq!(excerpt(&[0xff, b'a'], &[]), "\u{fffd}a");
        assert_eq!(excerpt("é".repeat(1000).as_bytes(), &[]).chars().count(), MAX_RESPONSE_CHARS + 1);
    }
}
