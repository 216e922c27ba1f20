//! Messages on their way into the journal, and what became of them: the part of the write path that a single message and a
//! batch share.

use std::collections::BTreeMap;

use super::{Incoming, Intake, Receipt, Source, enrichment, log_accepted};
use crate::{
    format::{ParsedMessage, Rejection},
    journal::{DraftOutcome, Submission},
};

/// A parsed message.
pub(super) struct ReadMessage {
    pub(super) submission: Submission,
    /// Reason why the message has no drafts, if it has none.
    empty_reason: Option<&'static str>,
}

impl ReadMessage {
    pub(super) fn new(source: &Source, incoming: &Incoming, reading: ParsedMessage) -> Self {
        let (submission, empty_reason) = source.submission(incoming, reading);
        source.note_dropped_parts(submission.drafts.iter().map(|(_, draft)| draft));
        Self { submission, empty_reason }
    }
}

/// Parsed messages that keep the limits, in order.
#[derive(Default)]
pub(super) struct CheckedMessages {
    pub(super) submissions: Vec<Submission>,
    /// For each of them the number of its incomplete drafts, and the reason why it has none.
    notes: Vec<(u64, Option<&'static str>)>,
}

/// Messages that were refused, each by its position among the parsed ones.
pub(super) type RefusedMessages = BTreeMap<usize, Rejection>;

impl CheckedMessages {
    /// Checks messages, and returns those that exceed a limit apart.
    pub(super) fn check(source: &Source, messages: impl IntoIterator<Item = ReadMessage>) -> (Self, RefusedMessages) {
        let (mut checked, mut refused) = (Self::default(), BTreeMap::new());
        for (position, ReadMessage { submission, empty_reason }) in messages.into_iter().enumerate() {
            match source.check(&submission.drafts) {
                Ok(()) => {
                    checked.notes.push((enrichment::count_incomplete(&submission.drafts), empty_reason));
                    checked.submissions.push(submission);
                }
                Err(rejection) => _ = refused.insert(position, rejection),
            }
        }
        (checked, refused)
    }
}

impl Intake {
    /// Returns the receipts of the messages that the journal has accepted, and counts them. The others are returned apart.
    pub(super) fn receipts(
        &self,
        source: &Source,
        CheckedMessages { notes, .. }: CheckedMessages,
        outcomes: Vec<Vec<DraftOutcome>>,
    ) -> (Vec<Receipt>, RefusedMessages) {
        let (mut receipts, mut refused) = (Vec::with_capacity(outcomes.len()), BTreeMap::new());
        for (position, ((incomplete, empty_reason), outcomes)) in notes.into_iter().zip(outcomes).enumerate() {
            if let Some(rejection) = self.journal_refusal(&outcomes) {
                refused.insert(position, rejection);
                continue;
            }
            source.note_incomplete(incomplete, &outcomes);
            receipts.push(Receipt { outcomes, empty_reason });
        }
        let mut counts = BTreeMap::new();
        for receipt in &receipts {
            *counts.entry(receipt.outcome()).or_insert(0) += 1;
            log_accepted(source, receipt);
        }
        for (outcome, messages) in counts {
            source.count(outcome, messages);
        }
        (receipts, refused)
    }
}
