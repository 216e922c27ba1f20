//! The last attempts to deliver, of each subscription: what an administrator looks at when a receiver
//! says that nothing came, or that everything did.
//!
//! They are in memory, and a restart begins anew: on disk they would cost a write for each delivery, and what
//! must outlive the process, the cursor and why a subscription stands still, is in the journal. Those that
//! failed have a place of their own, or a receiver that has recovered would push them out within a second.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    model::{Seq, Timestamp},
    web::Secret,
};

/// How many that delivered are kept, and how many that did not.
const DELIVERED: usize = 20;
const FAILED: usize = 50;

/// How much of an answer is kept, in bytes.
const ANSWER: usize = 256;

/// An attempt to deliver a message.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeliveryAttempt)]
pub struct Attempt {
    /// When it began.
    pub at: Timestamp,
    /// The identifier of the message.
    pub id: String,
    /// The number of the first change that it told.
    pub seq: Seq,
    /// How many changes it told.
    pub changes: usize,
    /// How long it took, in milliseconds.
    pub millis: u64,
    /// What became of it.
    pub outcome: AttemptOutcome,
    /// The status of the answer, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status: Option<u16>,
    /// The first bytes of the answer.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    pub answer: String,
    /// Why it was not delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<String>,
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = DeliveryAttemptOutcome)]
pub enum AttemptOutcome {
    /// The receiver has it.
    Delivered,
    /// It is tried again.
    Retried,
    /// It has become a dead letter, or several messages once each.
    Refused,
    /// The receiver wants no more.
    Gone,
}

/// The last attempts of one subscription.
#[derive(Debug, Default)]
pub struct Attempts(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// How many there were. Several may have begun in the same millisecond.
    count: u64,
    delivered: VecDeque<(u64, Attempt)>,
    failed: VecDeque<(u64, Attempt)>,
}

impl Attempts {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an attempt. The oldest of its like goes.
    pub(super) fn keep(&self, attempt: Attempt) {
        let kept = &mut *self.kept();
        let (ring, most) = match attempt.outcome {
            AttemptOutcome::Delivered => (&mut kept.delivered, DELIVERED),
            _ => (&mut kept.failed, FAILED),
        };
        if ring.len() == most {
            ring.pop_front();
        }
        ring.push_back((kept.count, attempt));
        kept.count += 1;
    }

    /// Those that are kept, newest first.
    pub(super) fn list(&self) -> Vec<Attempt> {
        let kept = self.kept();
        let mut all: Vec<_> = kept.delivered.iter().chain(&kept.failed).collect();
        all.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        all.into_iter().map(|(_, attempt)| attempt.clone()).collect()
    }
}

/// The first bytes of an answer as text. What would play with a terminal is left out; and so is a secret of the
/// request, which some receivers repeat.
pub(super) fn beginning(answer: &[u8], secrets: &[Secret]) -> String {
    let text = String::from_utf8_lossy(answer);
    let mut text = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    for secret in secrets {
        if let Ok(secret) = std::str::from_utf8(secret.expose()) {
            text = text.replace(secret, "(secret)");
        }
    }
    let end = text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= ANSWER).last();
    text.truncate(end.unwrap_or(0));
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{ANSWER, Attempt, AttemptOutcome, Attempts, DELIVERED, FAILED, Secret, Seq, Timestamp, beginning};

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
    fn those_that_failed_outlive_those_that_did_not() {
        let attempts = Attempts::default();
        attempts.keep(attempt(1, AttemptOutcome::Refused));
        for number in 2..1000 {
            attempts.keep(attempt(number, AttemptOutcome::Delivered));
        }
        let numbers: Vec<_> = attempts.list().iter().map(|attempt| attempt.seq.0).collect();
        assert_eq!((numbers.len(), numbers[0], numbers[DELIVERED]), (DELIVERED + 1, 999, 1));
        for number in 1000..2000 {
            attempts.keep(attempt(number, AttemptOutcome::Retried));
        }
        assert_eq!(attempts.list().len(), DELIVERED + FAILED);
    }

    #[test]
    fn an_answer_is_cut_and_says_no_secret() {
        assert_eq!(beginning(b" \x1b[2Jno\r\nmore ", &[]), "[2Jno  more");
        assert_eq!(beginning(b"got /in?key=hush", &[Secret::new("key=hush")]), "got /in?(secret)");
        assert_eq!(beginning(&[0xff, b'a'], &[]), "\u{fffd}a");
        assert!(beginning("é".repeat(ANSWER).as_bytes(), &[]).len() <= ANSWER);
    }
}
