//! Batches that the storage refuses: finds the messages at fault, so that each costs only itself.
//!
//! A database can refuse a value that the gateway could not foresee: by a limit of its own, a trigger or a damaged row. The
//! commands of such a batch are written one by one. If the storage refuses one with several messages, the writer looks for
//! those at fault, and writes the others. Their source puts them into the quarantine ([`DraftOutcome::Refused`]).

use tokio::sync::mpsc;

use super::{
    command::{BatchInput, Command, CommandBatch, DraftOutcome},
    store::StoreError,
    writer::{Writer, WrittenBatch},
};

/// Maximum number of refused messages of a command. A storage that refuses more has a fault of its own, and the messages
/// must not be blamed for it.
const MAX_REFUSED: usize = 16;

impl Writer {
    /// Writes the commands of a batch one by one, because the storage has refused the batch with this error.
    pub(super) fn write_one_by_one(
        &self,
        commands: &mut CommandBatch,
        error: &StoreError,
        queue: &mut mpsc::Receiver<Command>,
    ) {
        tracing::warn!(%error, commands = commands.len(), "the storage has refused a batch; writing its parts one by one");
        for mut command in commands.split() {
            let written = match self.commit_batch(&mut command, queue) {
                Err(error) if !error.is_transient() => self.commit_without_refused(&mut command, error, queue),
                written => written,
            };
            self.reply(&mut command, written);
        }
    }

    /// Writes an append without the messages that the storage refuses. The progress of its source is written only after the
    /// quarantine has these messages.
    ///
    /// # Errors
    /// Fails with `error` if the storage refuses too many of its messages, or all.
    fn commit_without_refused(
        &self,
        command: &mut CommandBatch,
        error: StoreError,
        queue: &mut mpsc::Receiver<Command>,
    ) -> Result<WrittenBatch, StoreError> {
        let submissions = command.input.submissions.len();
        let refused = self.refused_messages(&command.input)?;
        if refused.is_empty() || refused.len() > MAX_REFUSED || refused.len() == submissions {
            return Err(error);
        }
        let drafts: Vec<_> = command.input.submissions.iter().map(|submission| submission.drafts.len()).collect();
        command.input = without(&command.input, &refused);
        command.input.appends.iter_mut().for_each(|append| append.progress = None);
        let mut written = self.commit_batch(command, queue)?;
        // The node has lost the duty meanwhile, so nothing was written.
        if written.refused.contains(&true) {
            return Ok(written);
        }
        tracing::warn!(%error, refused = refused.len(), "the storage refuses messages; the others are written");
        for message in refused {
            written.batch.outcomes.insert(message, vec![DraftOutcome::Refused; drafts[message]]);
        }
        Ok(written)
    }

    /// Returns the messages of an append that the storage refuses, each after those before it that it accepts: at most one
    /// more than the maximum.
    ///
    /// # Errors
    /// Fails if the storage fails for another reason.
    fn refused_messages(&self, input: &BatchInput) -> Result<Vec<usize>, StoreError> {
        let all = input.submissions.len();
        let mut refused: Vec<usize> = Vec::new();
        while refused.len() <= MAX_REFUSED && refused.len() < all {
            let others: Vec<usize> = (0..all).filter(|message| !refused.contains(message)).collect();
            // The messages before `accepted` are accepted, and those before `too_many` are not.
            let (mut accepted, mut too_many) = (0, others.len());
            if self.accepts(&without(input, &refused))? {
                break;
            }
            while too_many - accepted > 1 {
                let middle = usize::midpoint(accepted, too_many);
                let excluded: Vec<usize> = (0..all).filter(|message| !others[..middle].contains(message)).collect();
                if self.accepts(&without(input, &excluded))? { accepted = middle } else { too_many = middle }
            }
            refused.push(others[accepted]);
            refused.sort_unstable();
        }
        Ok(refused)
    }

    /// Returns whether the storage accepts a batch, in a transaction that is rolled back.
    fn accepts(&self, input: &BatchInput) -> Result<bool, StoreError> {
        let mut transaction = self.store.begin()?;
        match self.settle_and_write(&mut *transaction, input.clone()) {
            Ok(_) => Ok(true),
            Err(error) if error.is_transient() => Err(error),
            Err(_) => Ok(false),
        }
    }
}

/// Returns an append without some of its messages.
fn without(input: &BatchInput, messages: &[usize]) -> BatchInput {
    let mut rest = input.clone();
    let mut index = 0;
    rest.submissions.retain(|_| {
        index += 1;
        !messages.contains(&(index - 1))
    });
    for append in &mut rest.appends {
        append.submissions = rest.submissions.len();
    }
    rest
}
