//! Many messages of one source at once, for a transport that acknowledges in batches and in order.
//!
//! Reading is work for a processor and writing is a wait for the disk, so they are two steps: while one
//! batch is written the next is read. A batch is in the journal as a whole or not at all; where it
//! could not be written the same batch is written again, so that no message overtakes another.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::{
    Incoming, Intake, Receipt, Source,
    looking::{self, Patience},
    tell, tell_quarantined, to_quarantine,
};
use crate::{
    format::{Place, Redacted, Rejection},
    journal::{JournalError, Submission, quarantine::QuarantineId},
};

/// A message as it arrived.
#[derive(Clone, Debug)]
pub enum Arrived {
    /// It is for the dialect to read.
    Whole(Incoming),
    /// Its transport does not give it to a dialect.
    Unreadable {
        /// The message.
        incoming: Incoming,
        /// Why.
        rejection: Rejection,
        /// Whether its body is in a coding that was not undone, so that nobody can see what is in it.
        coded: bool,
    },
}

/// Messages of one source, in their order.
pub struct Batch {
    messages: Vec<Arrived>,
    /// What has been read and not yet handed to the journal.
    read: Option<Vec<Read>>,
    /// When the first of them had come.
    since: Instant,
    rejected: Vec<(Incoming, Rejection)>,
}

/// A message that was read.
struct Read {
    submission: Submission,
    nothing: Option<&'static str>,
    is_looked_up: bool,
}

impl Read {
    async fn look_up(&mut self, source: &Source, since: Instant) {
        if !std::mem::replace(&mut self.is_looked_up, true) {
            // It waits for an answer where one is required, so that none is missing.
            let _ = source.look_up(&mut self.submission.drafts, since, Patience::Endless).await;
        }
    }
}

impl Batch {
    /// Reads messages of `source`. It waits for nothing, and it may take a processor for a while.
    #[must_use]
    pub fn read(source: &Source, mut messages: Vec<Arrived>) -> Self {
        let (read, rejected) = read_all(source, &mut messages);
        Self { messages, read: Some(read), since: Instant::now(), rejected }
    }

    /// The bodies that the quarantine will keep of messages that could not be read.
    #[cfg(test)]
    pub(crate) fn rejected_bodies(&self) -> Vec<Bytes> {
        self.rejected.iter().map(|(incoming, _)| incoming.body.clone()).collect()
    }

    /// Asks the repository of `source`, if it is to be asked, about each of the messages: as many at once as it is
    /// asked at once. Where an answer is required, this takes until there is one. What was handed to the
    /// journal in vain is read again first.
    pub async fn look_up(&mut self, source: &Source) {
        let read = self.read.get_or_insert_with(|| read_all(source, &mut self.messages).0);
        let each = read.iter_mut().map(|one| one.look_up(source, self.since));
        join_all(each).await;
    }

    /// Adds the messages of `next`, which came after these.
    pub fn extend(&mut self, next: Self) {
        self.messages.extend(next.messages);
        // Where one of them was handed to the journal in vain, all are read again.
        self.read = self.read.take().zip(next.read).map(|(mut read, next)| {
            read.extend(next);
            read
        });
        self.rejected.extend(next.rejected);
        self.since = self.since.max(next.since);
    }
}

fn read_all(source: &Source, messages: &mut [Arrived]) -> (Vec<Read>, Vec<(Incoming, Rejection)>) {
    let (mut read, mut rejected) = (Vec::with_capacity(messages.len()), Vec::new());
    for message in messages {
        match message {
            Arrived::Whole(incoming) => match read_one(source, incoming) {
                Ok(one) => read.push(one),
                Err(rejection) => rejected.push((incoming.clone(), rejection)),
            },
            Arrived::Unreadable { incoming, rejection, coded } => {
                redact(source, incoming, *coded);
                rejected.push((incoming.clone(), rejection.clone()));
            }
        }
    }
    (read, rejected)
}

/// The messages that were refused after they had been read, by their places among those that can be read. That is rare, so they are
/// read again instead of having all of them copied.
fn messages_at(
    source: &Source,
    messages: &mut [Arrived],
    mut refused: BTreeMap<usize, Rejection>,
) -> Vec<(Incoming, Rejection)> {
    let mut found = Vec::with_capacity(refused.len());
    let mut place = 0;
    for message in messages {
        if let Arrived::Whole(incoming) = message
            && read_one(source, incoming).is_ok()
        {
            found.extend(refused.remove(&place).map(|rejection| (incoming.clone(), rejection)));
            place += 1;
        }
    }
    found
}

/// A message at which its dialect panics would come again and again, and nothing after it ever.
fn read_one(source: &Source, incoming: &mut Incoming) -> Result<Read, Rejection> {
    let reading = catch_unwind(AssertUnwindSafe(|| source.read(incoming))).unwrap_or_else(|_| {
        redact(source, incoming, false);
        let reason = "the dialect failed at it, which is a fault of this program; please report it with the message";
        Err(Rejection::unprocessable(Place::Message, reason))
    })?;
    let (submission, nothing) = source.submission(incoming, reading);
    Ok(Read { submission, nothing, is_looked_up: false })
}

/// Takes out of a body that no dialect reads what must not be kept. Where that cannot be told from the
/// rest, as in a coding that was not undone, nothing is kept of it.
fn redact(source: &Source, incoming: &mut Incoming, coded: bool) {
    let Some(redact) = source.kind.redact else { return };
    if coded {
        incoming.body = Bytes::new();
        return;
    }
    match catch_unwind(AssertUnwindSafe(|| redact(&incoming.body))) {
        Ok(Redacted::AsItCame) => {}
        Ok(Redacted::Without(body) | Redacted::Blanked(body, _)) => incoming.body = body.into(),
        Ok(Redacted::Opaque) | Err(_) => incoming.body = Bytes::new(),
    }
}

impl Intake {
    /// Takes in a batch; on return all of it is on disk, in the journal or in the quarantine.
    ///
    /// # Errors
    /// When it could not be written. Then the same batch is to be given again, before any other of its
    /// source; what had been written of it is not written twice.
    pub async fn accept_batch(&self, source: &Source, batch: &mut Batch) -> Result<(), JournalError> {
        // What was handed to the journal in vain is read again: that is rare, and a copy of each is not free.
        let read = batch.read.take().unwrap_or_else(|| read_all(source, &mut batch.messages).0);
        let (mut submissions, mut nothing) = (Vec::with_capacity(read.len()), Vec::with_capacity(read.len()));
        let mut marked = Vec::with_capacity(read.len());
        // By their places among those that were read.
        let (mut places, mut refused) = (Vec::with_capacity(read.len()), BTreeMap::new());
        for (place, one) in read.into_iter().enumerate() {
            if let Err(rejection) = source.check(&one.submission.drafts) {
                refused.insert(place, rejection);
                continue;
            }
            places.push(place);
            marked.push(looking::marked(&one.submission.drafts));
            submissions.push(one.submission);
            nothing.push(one.nothing);
        }
        if !submissions.is_empty() {
            let outcomes = self.journal.append_all(submissions).await?;
            let mut receipts = Vec::with_capacity(outcomes.len());
            for (((place, marked), nothing), outcomes) in places.into_iter().zip(marked).zip(nothing).zip(outcomes) {
                if let Some(rejection) = self.refusal(&outcomes) {
                    refused.insert(place, rejection);
                    continue;
                }
                source.note_incomplete(marked, &outcomes);
                receipts.push(Receipt { outcomes, nothing });
            }
            count(source, receipts.into_iter());
        }
        if !refused.is_empty() {
            batch.rejected.extend(messages_at(source, &mut batch.messages, refused));
        }
        // All of these are done with, should the rest fail.
        batch.messages.clear();
        batch.read = Some(Vec::new());
        self.quarantine(source, &batch.rejected).await?;
        batch.rejected.clear();
        Ok(())
    }

    async fn quarantine(&self, source: &Source, rejected: &[(Incoming, Rejection)]) -> Result<(), JournalError> {
        if rejected.is_empty() {
            return Ok(());
        }
        let kept = |(incoming, rejection): &(Incoming, Rejection)| to_quarantine(source, incoming.clone(), rejection);
        let ids: Vec<QuarantineId> = self.journal.quarantine_all(rejected.iter().map(kept).collect()).await?;
        source.count("quarantined", rejected.len() as u64);
        for (id, (_, rejection)) in ids.into_iter().zip(rejected) {
            tell_quarantined(source, id, rejection);
        }
        Ok(())
    }
}

fn count(source: &Source, receipts: impl Iterator<Item = Receipt>) {
    let mut counts = BTreeMap::new();
    for receipt in receipts {
        *counts.entry(receipt.outcome()).or_insert(0) += 1;
        tell(source, &receipt);
    }
    for (outcome, messages) in counts {
        source.count(outcome, messages);
    }
}

#[cfg(test)]
mod tests {
    use super::{Arrived, Batch, Incoming, Intake, Source};
    use crate::{
        format::{Dialect, DialectKind, Headers, InvalidSettings, Limits, Message, Reading, Rejection, Repeats},
        journal::{
            Journal, JournalSettings,
            store::sqlite::{SqliteOptions, SqliteStore},
        },
        model::SourceName,
    };

    static KIND: DialectKind = DialectKind {
        name: "frail",
        about: "",
        accepts: &[],
        headers: &["read"],
        repeats: Repeats::SameBody,
        redact: None,
        repository: None,
        sample_settings: &["{}"],
        build: |_, _| -> Result<Box<dyn Dialect>, InvalidSettings> { Ok(Box::new(Frail)) },
    };

    /// Panics at what is no JSON.
    struct Frail;

    impl Dialect for Frail {
        fn read(&self, message: &Message<'_>) -> Result<Reading, Rejection> {
            Ok(Reading::one(serde_json::from_slice(message.body).unwrap()))
        }
    }

    #[tokio::test]
    async fn a_message_at_which_the_dialect_panics_is_kept_and_the_others_are_journaled() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path(), SqliteOptions::default()).unwrap();
        let (journal, _writer) = Journal::start(store, JournalSettings::default()).unwrap();
        let name = SourceName::parse("s").unwrap();
        let source = Source::new(name, &KIND, serde_json::Value::Null, false, Limits::default()).unwrap();
        let intake = Intake::new(journal.clone());
        let headers: Headers = [("read", "1"), ("routing-key", "a.b"), ("secret", "2")].into_iter().collect();
        let event = |item: &str| {
            let item = format!("http://h/{item}");
            let event = serde_json::json!({ "object": "http://h/1", "items": [{ "uri": item, "change": "ADD" }] });
            event.to_string().into_bytes()
        };
        let message = |body: Vec<u8>| Incoming {
            content_type: None,
            headers: headers.clone(),
            body: body.into(),
            transport_id: None,
            redelivered: false,
        };
        let arrived =
            [event("a"), b"no JSON".to_vec(), event("b"), event("a")].map(|body| Arrived::Whole(message(body)));
        let (first, next) = arrived.split_at(2);
        let mut batch = Batch::read(&source, first.to_vec());
        batch.extend(Batch::read(&source, next.to_vec()));
        intake.accept_batch(&source, &mut batch).await.unwrap();
        // It is done: again, it is nothing.
        intake.accept_batch(&source, &mut batch).await.unwrap();
        assert_eq!(journal.head().0, 2);
        let kept = journal.quarantined_before(None, 10).await.unwrap();
        assert_eq!(kept.len(), 1);
        let kept = journal.quarantined(kept[0].id).await.unwrap().unwrap().message;
        assert!(kept.reason.contains("the dialect failed at it"), "{}", kept.reason);
        assert_eq!(kept.body, "no JSON");
        let expected = [("read", "1"), ("routing-key", "a.b")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(kept.headers, expected);
        let counted = [&source.counts().accepted, &source.counts().duplicate, &source.counts().quarantined];
        assert_eq!(counted.map(|count| count.load(std::sync::atomic::Ordering::Relaxed)), [2, 1, 1]);
    }
}
