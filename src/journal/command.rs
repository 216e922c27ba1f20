//! Commands to the writer thread, and the channels for its replies.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{
    harvest::{HarvestWrite, Progress},
    nodes::Term,
    quarantine::{NewQuarantinedMessage, QuarantineId},
    seed::{CrawlPart, CrawlPartOutcome},
    segments::SpanWrite,
    settle::SourcePolicy,
    store::{EventKey, StoreError},
    subscriptions::{CursorAdvance, SubscriptionWrite},
};
use crate::model::{Change, ChangeId, Draft, Seq, SourceName};

/// Drafts of one message. The journal accepts either all of them or none.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Policy of the source that sent the message.
    pub policy: Arc<SourcePolicy>,
    /// Drafts of the message, each with the key of its event; `None` for an event whose repeats cannot be detected.
    pub drafts: Vec<(Option<EventKey>, Draft)>,
    /// Treatment of events whose key the journal already has.
    pub duplicate_policy: DuplicatePolicy,
    /// Incomplete change that needs no further lookup after this submission, whatever the outcomes of the drafts.
    pub completes: Option<Seq>,
}

/// Which events the journal remembers, and which repeats it therefore drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicatePolicy {
    /// Remembers events that made a change. A repeat of any other event cannot do harm, because it is older than every
    /// change since.
    RememberChanges,
    /// Remembers all events, also those without effect, because a repeat of one could undo a later change.
    RememberAll,
    /// Remembers all events, but accepts a repeat that reports a new state: one that the registry does not have,
    /// and that is not late.
    RememberAllUnlessNewState,
    /// Remembers events that made a change, for a redelivery of their messages by the transport, and accepts each repeat:
    /// nothing says that equal messages are about the same event.
    RememberForRedelivery,
    /// Remembers events that made a change, but accepts a repeat that would change the registry. The transport may have
    /// delivered the message before; it can also be the first delivery of an event that looks like an earlier one.
    RememberUnlessNews,
    /// Remembers events that made a change, and drops changes whose identifier the journal has from any source.
    DropKnownChanges,
}

impl DuplicatePolicy {
    /// Returns whether events without effect are remembered.
    pub(super) fn remembers_all(self) -> bool {
        matches!(self, Self::RememberAll | Self::RememberAllUnlessNewState)
    }

    /// Returns whether a repeat is dropped whatever it says.
    pub(super) fn drops_all_repeats(self) -> bool {
        match self {
            Self::RememberChanges | Self::RememberAll | Self::DropKnownChanges => true,
            Self::RememberAllUnlessNewState | Self::RememberForRedelivery | Self::RememberUnlessNews => false,
        }
    }
}

/// Outcome of one draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftOutcome {
    /// The journal has appended a change.
    Accepted {
        /// Number of the change.
        seq: Seq,
        /// Identifier of the change.
        id: ChangeId,
    },
    /// The journal already has a change from the same event.
    Duplicate {
        /// Number of the first change.
        seq: Seq,
        /// Identifier of the first change; `None` after retention has removed it.
        id: Option<ChangeId>,
    },
    /// The draft changed nothing.
    Unchanged,
    /// The draft would exceed the maximum number of items of an object
    /// ([`ChangeBounds::object_items`](super::ChangeBounds)). Nothing of its message was written.
    TooManyItems,
    /// The storage refuses the message, and accepts others. Nothing of it was written; the log has the reason.
    Refused,
    /// The journal has an event with the same identifier about another object, so the source has used the identifier twice.
    /// Nothing of the message was written.
    OtherObject {
        /// Number of the first change of the other event.
        seq: Seq,
    },
}

impl DraftOutcome {
    /// Returns whether the journal has refused the message.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::TooManyItems | Self::Refused | Self::OtherObject { .. })
    }
}

/// Effect that a submission would have now.
#[derive(Clone, Debug)]
pub struct TriedSubmission {
    /// Outcomes of the drafts.
    pub outcomes: Vec<DraftOutcome>,
    /// The changes, with numbers and identifiers that nothing has.
    pub changes: Vec<Change>,
}

/// A command to the writer, with the channel for its reply. The writer also executes a command whose caller no longer
/// waits for the reply. A command with a term is refused if the term has ended.
pub(super) enum Command {
    Append {
        submissions: Vec<Submission>,
        term: Option<Term>,
        /// Progress of the source that these drafts belong to.
        progress: Option<Progress>,
        reply: Replies<Vec<DraftOutcome>>,
    },
    Seed(Box<CrawlPart>, Reply<CrawlPartOutcome>),
    Quarantine(Vec<NewQuarantinedMessage>, Option<Term>, Replies<QuarantineId>),
    Release(QuarantineId, Reply<bool>),
    /// Moves cursors forward. The writer commits them with the batch that is waiting, so they cost no additional
    /// sync of the disk. A cursor whose term has ended stays where it is.
    Advance(Vec<CursorAdvance>, Reply<()>),
    WriteSubscriptions(Vec<SubscriptionWrite>, Option<Term>, Reply<Vec<u64>>),
    WriteHarvest(SourceName, HarvestWrite, Reply<()>),
    Prune {
        before: Seq,
        at_most: usize,
        term: Option<Term>,
        reply: Reply<usize>,
    },
    WriteSpan(SpanWrite, Option<Term>, Reply<()>),
    /// Checks that a message can be written.
    Probe(Reply<()>),
    /// Settles a message and writes nothing.
    Try(Submission, Reply<TriedSubmission>),
}

/// Channel for the reply to a command.
pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// Channel for the reply to a command with several parts: one value a part, in order, or one error for all.
pub(super) type Replies<T> = Reply<Vec<T>>;

/// Drafts, crawled facts and cursors that the writer commits together.
#[derive(Clone, Debug, Default)]
pub(super) struct BatchInput {
    pub(super) submissions: Vec<Submission>,
    /// The `Append`s that the submissions belong to, in order.
    pub(super) appends: Vec<AppendGroup>,
    pub(super) crawl_parts: Vec<CrawlPart>,
    pub(super) cursors: Vec<CursorAdvance>,
}

/// The part of an `Append` that is not its submissions.
#[derive(Clone, Debug)]
pub(super) struct AppendGroup {
    /// Number of submissions.
    pub(super) submissions: usize,
    pub(super) term: Option<Term>,
    pub(super) progress: Option<Progress>,
}

/// Commands that the writer executes together, grouped by kind.
#[derive(Default)]
pub(super) struct CommandBatch {
    /// Number of commands.
    count: usize,
    /// Whether no other command may join the batch.
    pub(super) is_closed: bool,
    /// Drafts and rows that the writer settles and writes in one transaction.
    pub(super) input: BatchInput,
    /// Number of submissions of each `Append`, with its channel.
    pub(super) append_replies: Vec<(usize, Replies<Vec<DraftOutcome>>)>,
    pub(super) seed_replies: Vec<Reply<CrawlPartOutcome>>,
    pub(super) quarantines: Vec<QuarantineGroup>,
    pub(super) releases: Vec<(QuarantineId, Reply<bool>)>,
    pub(super) advance_replies: Vec<Reply<()>>,
    pub(super) subscription_writes: Vec<SubscriptionWrites>,
    pub(super) harvest_writes: Vec<(SourceName, HarvestWrite, Reply<()>)>,
    pub(super) span_writes: Vec<(SpanWrite, Option<Term>, Reply<()>)>,
    pub(super) probes: Vec<Reply<()>>,
    pub(super) trials: Vec<(Submission, Reply<TriedSubmission>)>,
    pub(super) prunes: Vec<(Seq, usize, Option<Term>, Reply<usize>)>,
}

/// Modifications of subscriptions that share a transaction.
pub(super) struct SubscriptionWrites {
    pub(super) writes: Vec<SubscriptionWrite>,
    pub(super) term: Option<Term>,
    pub(super) reply: Reply<Vec<u64>>,
}

/// Messages for the quarantine that share a transaction, because their commands have the same term.
pub(super) struct QuarantineGroup {
    pub(super) term: Option<Term>,
    pub(super) messages: Vec<NewQuarantinedMessage>,
    /// Number of messages of each `Quarantine`, with its channel.
    pub(super) replies: Vec<(usize, Replies<QuarantineId>)>,
}

impl BatchInput {
    /// Returns the distinct terms of the appends and cursors.
    pub(super) fn terms(&self) -> Vec<Term> {
        let of_appends = self.appends.iter().filter_map(|append| append.term);
        let mut terms: Vec<_> = of_appends.chain(self.cursors.iter().filter_map(|advance| advance.term)).collect();
        terms.sort_unstable();
        terms.dedup();
        terms
    }

    /// Drops the appends and cursors whose terms have ended. Returns for each append whether it was dropped; nothing if
    /// none was.
    pub(super) fn refuse(&mut self, stale: &[Term]) -> Vec<bool> {
        if stale.is_empty() {
            return Vec::new();
        }
        let is_stale = |term: Option<Term>| term.is_some_and(|term| stale.contains(&term));
        self.cursors.retain(|advance| !is_stale(advance.term));
        let mut submissions = std::mem::take(&mut self.submissions).into_iter();
        let mut refused = Vec::with_capacity(self.appends.len());
        self.appends.retain(|append| {
            let submitted = submissions.by_ref().take(append.submissions);
            let is_refused = is_stale(append.term);
            refused.push(is_refused);
            if is_refused {
                submitted.for_each(drop);
            } else {
                self.submissions.extend(submitted);
            }
            !is_refused
        });
        refused
    }
}

impl CommandBatch {
    /// Adds commands, by kind.
    pub(super) fn extend(&mut self, commands: impl IntoIterator<Item = Command>) {
        for command in commands {
            self.count += 1;
            match command {
                Command::Append { submissions, term, progress, reply } => {
                    self.input.appends.push(AppendGroup { submissions: submissions.len(), term, progress });
                    self.append_replies.push((submissions.len(), reply));
                    self.input.submissions.extend(submissions);
                }
                Command::Seed(part, reply) => {
                    self.input.crawl_parts.push(*part);
                    self.seed_replies.push(reply);
                }
                Command::Quarantine(messages, term, reply) => {
                    let count = messages.len();
                    match self.quarantines.last_mut().filter(|last| last.term == term) {
                        Some(last) => {
                            last.messages.extend(messages);
                            last.replies.push((count, reply));
                        }
                        None => {
                            let replies = vec![(count, reply)];
                            self.quarantines.push(QuarantineGroup { term, messages, replies });
                        }
                    }
                }
                Command::Release(id, reply) => self.releases.push((id, reply)),
                Command::Advance(cursors, reply) => {
                    self.input.cursors.extend(cursors);
                    self.advance_replies.push(reply);
                }
                Command::WriteSubscriptions(writes, term, reply) => {
                    self.subscription_writes.push(SubscriptionWrites { writes, term, reply });
                }
                Command::WriteHarvest(source, write, reply) => self.harvest_writes.push((source, write, reply)),
                Command::Prune { before, at_most, term, reply } => self.prunes.push((before, at_most, term, reply)),
                Command::WriteSpan(write, term, reply) => self.span_writes.push((write, term, reply)),
                Command::Probe(reply) => self.probes.push(reply),
                Command::Try(submission, reply) => self.trials.push((submission, reply)),
            }
        }
    }

    /// Takes what needs a commit out of the batch: each append and each part of a crawl as a batch of its own, and then all
    /// cursors.
    pub(super) fn split(&mut self) -> Vec<Self> {
        let BatchInput { submissions, appends, crawl_parts, cursors } = std::mem::take(&mut self.input);
        let alone = |input| Self { input, count: 1, is_closed: true, ..Self::default() };
        let (mut submissions, mut parts) = (submissions.into_iter(), Vec::new());
        for (append, reply) in appends.into_iter().zip(self.append_replies.drain(..)) {
            let submissions = submissions.by_ref().take(append.submissions).collect();
            let input = BatchInput { submissions, appends: vec![append], ..BatchInput::default() };
            parts.push(Self { append_replies: vec![reply], ..alone(input) });
        }
        for (part, reply) in crawl_parts.into_iter().zip(self.seed_replies.drain(..)) {
            let input = BatchInput { crawl_parts: vec![part], ..BatchInput::default() };
            parts.push(Self { seed_replies: vec![reply], ..alone(input) });
        }
        if !self.advance_replies.is_empty() {
            let input = BatchInput { cursors, ..BatchInput::default() };
            parts.push(Self { advance_replies: std::mem::take(&mut self.advance_replies), ..alone(input) });
        }
        parts
    }

    /// Returns the number of messages, of parts of crawls and of moves of cursors.
    pub(super) fn parts(&self) -> usize {
        self.input.submissions.len() + self.input.crawl_parts.len() + self.advance_replies.len()
    }

    /// Returns the number of commands.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Returns whether a commit is needed for drafts, parts of crawls or cursors.
    pub(super) fn needs_commit(&self) -> bool {
        !(self.append_replies.is_empty() && self.seed_replies.is_empty() && self.advance_replies.is_empty())
    }

    /// Replies to the appends that were refused because their terms have ended.
    pub(super) fn reply_to_refused(&mut self, refused: &[bool]) {
        let mut refused = refused.iter();
        let is_refused = |_: &mut (usize, Replies<Vec<DraftOutcome>>)| refused.next().is_some_and(|refused| *refused);
        for (_, reply) in self.append_replies.extract_if(.., is_refused) {
            let _ = reply.send(Err(StoreError::DutyLost));
        }
    }

    /// Replies with an error to all commands that the failed commit was for, and drops them.
    pub(super) fn fail_commit(&mut self, error: &StoreError) {
        self.input = BatchInput::default();
        for reply in self.seed_replies.drain(..) {
            let _ = reply.send(Err(error.clone()));
        }
        for reply in self.advance_replies.drain(..) {
            let _ = reply.send(Err(error.clone()));
        }
        reply_to_all(std::mem::take(&mut self.append_replies), Err(error.clone()));
    }
}

/// Sends each channel as many results as its command has parts, or sends all of them the same error.
pub(super) fn reply_to_all<T>(replies: Vec<(usize, Replies<T>)>, results: Result<Vec<T>, StoreError>) {
    match results {
        Ok(results) => {
            let mut results = results.into_iter();
            for (count, reply) in replies {
                let _ = reply.send(Ok(results.by_ref().take(count).collect()));
            }
        }
        Err(error) => {
            for (_, reply) in replies {
                let _ = reply.send(Err(error.clone()));
            }
        }
    }
}
