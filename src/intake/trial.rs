//! A message that is tried: parsed, completed and settled as any other, and written nowhere.

use tokio::time::Instant;

use super::{Incoming, Intake, IntakeError, Receipt, Source, enrichment::WaitPolicy};
use crate::{format::Rejection, journal::TriedSubmission, model::Change};

/// Outcome that a message would have.
#[derive(Debug)]
pub enum Trial {
    /// The journal would accept it, with these changes. Their numbers and identifiers are those of no change.
    Accepted(Receipt, Vec<Change>),
    /// It would go to the quarantine.
    Rejected(Rejection),
}

impl Intake {
    /// Returns the outcome that a message would have now. Nothing is written; a lookup asks the repository of the source.
    ///
    /// # Errors
    /// Fails if the journal cannot be read, or a required lookup failed.
    pub async fn dry_run(&self, source: &Source, mut incoming: Incoming) -> Result<Trial, IntakeError> {
        let reading = match self.read(source, &mut incoming).await {
            Ok(reading) => reading,
            Err(rejection) => return Ok(Trial::Rejected(rejection)),
        };
        let (mut submission, empty_reason) = source.submission(&incoming, reading);
        source.enrich(&mut submission.drafts, Instant::now(), WaitPolicy::OneRequest).await?;
        if let Err(rejection) = source.check(&submission.drafts) {
            return Ok(Trial::Rejected(rejection));
        }
        let TriedSubmission { outcomes, changes } = self.journal.try_append(submission).await?;
        Ok(match self.journal_refusal(&outcomes) {
            Some(rejection) => Trial::Rejected(rejection),
            None => Trial::Accepted(Receipt { outcomes, empty_reason }, changes),
        })
    }
}
