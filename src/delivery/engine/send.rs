//! What is sent next: dead letters that are wanted again, then changes, alone or several as one body.

use std::{collections::VecDeque, ptr, sync::Arc};

use bytes::Bytes;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout},
};

use super::{
    Cut, Engine,
    page::{Page, Reading},
    retry,
};
use crate::{
    delivery::{
        Outcome, Outgoing, Pending,
        flight::{Flight, SentChanges},
        memory::{Reservation, Reserving},
    },
    format::KEPT,
    journal::{RecordedChange, store::StoreError, subscriptions::DeadLetter},
    model::Seq,
    retry::Backoff,
};

/// How many dead letters are read at once to be sent again: each may be large.
const LETTERS: usize = 1;

/// State of one connection to the receiver.
pub(super) struct Session {
    pub(super) flight: Flight,
    /// Changes that were read and not sent, at most a page of them.
    waiting: VecDeque<Arc<RecordedChange>>,
    /// Permit to hold these changes.
    page_permit: Option<OwnedSemaphorePermit>,
    pub(super) letters: VecDeque<DeadLetter>,
    pub(super) look_for_letters: bool,
    /// Time before which no dead letter is sent, because the last one was not taken.
    pub(super) letters_after: Option<Instant>,
    pub(super) letters_backoff: Backoff,
    /// The number of the last change that was taken from what waits.
    pub(super) read: Seq,
    pub(super) reading: Option<Reading>,
    /// Memory that the next message waits for, and what it got.
    pub(super) reserving: Option<Reserving>,
    pub(super) reserved: Option<Reservation>,
    idle_since: Option<Instant>,
}

impl Session {
    /// Session that reads the journal after `cursor`.
    pub(super) fn new(flight: Flight, cursor: Seq, letters_backoff: Backoff) -> Self {
        Self {
            flight,
            waiting: VecDeque::new(),
            page_permit: None,
            letters: VecDeque::new(),
            look_for_letters: true,
            letters_after: None,
            letters_backoff,
            read: cursor,
            reading: None,
            reserving: None,
            reserved: None,
            idle_since: None,
        }
    }

    /// Whether nothing is in flight and nothing that was read waits.
    pub(super) fn is_idle(&self) -> bool {
        self.flight.is_empty() && self.waiting.is_empty() && self.letters.is_empty() && self.reserving.is_none()
    }

    /// Time since which the session has been idle, if it `is_idle` now.
    pub(super) fn idle_since(&mut self, is_idle: bool) -> Option<Instant> {
        self.idle_since = is_idle.then(|| self.idle_since.unwrap_or_else(Instant::now));
        self.idle_since
    }

    /// Whether more changes are to be read.
    pub(super) fn wants_page(&self) -> bool {
        self.waiting.is_empty() && self.reserving.is_none() && self.flight.has_room()
    }

    /// Whether changes wait that cannot be sent at present.
    pub(super) fn is_stuck(&self) -> bool {
        !self.waiting.is_empty() && !self.flight.has_room()
    }

    /// Adds a page that was read.
    pub(super) fn add_page(&mut self, (changes, permit): Page) {
        self.waiting.extend(changes);
        self.page_permit = permit;
    }

    /// Drops what was read and not sent. It is read again when it can be sent.
    pub(super) fn forget_page(&mut self) {
        self.waiting = VecDeque::new();
        self.reading = None;
        self.page_permit = None;
    }

    /// Drops all that waits, and waits for memory of so many bytes.
    fn wait_for(&mut self, reserving: Reserving) {
        self.forget_page();
        self.look_for_letters |= !self.letters.is_empty();
        self.letters.clear();
        self.reserved = None;
        self.reserving = Some(reserving);
    }
}

/// Waits for the memory that the next message needs; for ever if it needs none.
pub(super) async fn reserved(reserving: &mut Option<Reserving>) -> Option<Reservation> {
    let Some(waiting) = reserving else { return std::future::pending().await };
    let reserved = waiting.await;
    *reserving = None;
    reserved
}

/// Changes of the next message, and its body.
struct Gathered {
    changes: Vec<Arc<RecordedChange>>,
    encoded: Vec<Bytes>,
    /// Bytes of the body.
    bytes: usize,
    /// All changes up to this one are done with, once the message has arrived.
    through: Seq,
    /// Number of changes of the page that this takes.
    taken: usize,
}

/// What comes next of what waits.
enum Next {
    Message(Gathered),
    /// A change that nobody wants.
    Passed(Seq),
    Nothing,
}

impl Engine {
    /// Sends what there is, as far as the window has room.
    pub(super) async fn send_on(&mut self, session: &mut Session) -> Result<(), Cut> {
        let may_send_letters = session.letters_after.is_none() && session.reserving.is_none();
        if session.look_for_letters && may_send_letters && session.letters.is_empty() && !session.flight.has_letters() {
            session.letters = self.journal.replays(self.name.clone(), None, LETTERS).await.map_err(retry)?.into();
            session.look_for_letters = session.letters.len() == LETTERS;
        }
        let mut passed = None;
        while session.reserving.is_none() && session.flight.has_room() {
            if let Some(letter) = session.letters.pop_front() {
                self.send_letter(session, letter).await?;
                continue;
            }
            match self.next(session)? {
                Next::Message(gathered) => self.send_changes(session, gathered).await?,
                Next::Passed(seq) if session.flight.pass(seq) => passed = Some(seq),
                Next::Passed(_) => {}
                Next::Nothing => break,
            }
        }
        // What was passed over before the first message of the flight is done with.
        if let Some(seq) = passed.filter(|seq| *seq > self.cursor) {
            self.done_with(seq, 0);
        }
        Ok(())
    }

    /// Takes the next message from what waits. It waits for no more changes than there are.
    fn next(&self, session: &mut Session) -> Result<Next, Cut> {
        let is_batch = self.delivery.window().changes > 1;
        let most = self.delivery.window().changes;
        let most_bytes = self.delivery.batch_bytes().min(self.batching.bytes);
        let mut gathered: Option<Gathered> = None;
        for (at, change) in session.waiting.iter().enumerate() {
            let seq = change.seq();
            if let Some(so_far) = &gathered {
                let goes_alone = self.batching.is_alone(so_far.changes[0].seq()) || self.batching.is_alone(seq);
                if goes_alone || so_far.changes.len() >= most {
                    break;
                }
            }
            let shown = change.filtered(&self.filter).map_err(retry)?;
            match (&mut gathered, shown) {
                (None, None) => {
                    session.waiting.pop_front();
                    session.read = seq;
                    return Ok(Next::Passed(seq));
                }
                (Some(gathered), None) => (gathered.through, gathered.taken) = (seq, at + 1),
                (None, Some(shown)) => {
                    let encoded = self.encoded(&shown).map_err(retry)?;
                    let bytes = self.delivery.size_in_message(&shown, &encoded) + self.envelope(is_batch);
                    let (changes, encoded) = (vec![shown], vec![encoded]);
                    gathered = Some(Gathered { changes, encoded, bytes, through: seq, taken: at + 1 });
                }
                (Some(gathered), Some(shown)) => {
                    let encoded = self.encoded(&shown).map_err(retry)?;
                    let size = self.delivery.size_in_message(&shown, &encoded);
                    let bytes = gathered.bytes + self.between() + size;
                    if bytes > most_bytes {
                        break;
                    }
                    gathered.bytes = bytes;
                    gathered.changes.push(shown);
                    gathered.encoded.push(encoded);
                    (gathered.through, gathered.taken) = (seq, at + 1);
                }
            }
        }
        Ok(gathered.map_or(Next::Nothing, Next::Message))
    }

    async fn send_changes(&mut self, session: &mut Session, gathered: Gathered) -> Result<(), Cut> {
        let Gathered { changes, encoded, bytes, through, taken } = gathered;
        let (first, last) = (changes[0].seq(), changes[changes.len() - 1].seq());
        let json = (changes.len() == 1).then(|| changes[0].json().clone());
        let bytes = bytes + json.as_ref().map_or(0, Bytes::len) + self.delivery.extra_bytes(bytes);
        let Some(memory) = self.reserve(session, bytes) else { return Ok(()) };
        session.waiting.drain(..taken);
        session.read = through;
        if session.waiting.is_empty() {
            session.page_permit = None;
        }
        let sent = SentChanges { first, last, count: changes.len() as u64, json };
        let pending = self.send(changes, &encoded).await?;
        session.flight.push(sent, through, bytes, memory, pending);
        Ok(())
    }

    async fn send_letter(&mut self, session: &mut Session, letter: DeadLetter) -> Result<(), Cut> {
        let change = Arc::new(RecordedChange::from_json(letter.letter.seq, letter.letter.json.clone()));
        let encoded = match self.encoded(&change) {
            Ok(encoded) => encoded,
            Err(error) => {
                let outcome = Outcome::Retry { reason: error.to_string(), after: None };
                return self.settle_letter(session, letter.id, outcome).await.map(|_| ());
            }
        };
        let size = self.delivery.size_in_message(&change, &encoded);
        let bytes = size + change.json().len() + self.delivery.extra_bytes(size);
        let Some(memory) = self.reserve(session, bytes) else {
            session.look_for_letters = true;
            return Ok(());
        };
        let pending = self.send(vec![change], &[encoded]).await?;
        session.flight.push_letter(letter.id, bytes, memory, pending);
        Ok(())
    }

    /// Reserves memory for a message. Without enough of it the session forgets all that it has read and waits.
    fn reserve(&self, session: &mut Session, bytes: usize) -> Option<Reservation> {
        let is_failing = session.flight.is_probing();
        let reserved = session.reserved.take().filter(|reserved| self.memory.suffices(reserved, bytes, is_failing));
        let reserved = reserved.or_else(|| self.memory.try_reserve(bytes, is_failing));
        if reserved.is_none() {
            session.wait_for(self.memory.reserve(bytes, is_failing));
        }
        reserved
    }

    /// Sends one message; gives what will tell its outcome.
    async fn send(&mut self, changes: Vec<Arc<RecordedChange>>, encoded: &[Bytes]) -> Result<Pending, Cut> {
        let is_batch = self.delivery.window().changes > 1;
        let body = match (self.format.batch.filter(|_| is_batch), encoded) {
            (None, [body]) => body.clone(),
            (None, _) => return Err(retry("a message of this format has one change")),
            (Some(batch), _) => batch.join(encoded).into(),
        };
        let mut changes = changes.into_iter();
        let Some(change) = changes.next() else { return Err(retry("a message has at least one change")) };
        let message = Outgoing { change, more: changes.collect(), is_batch, format: self.format, body };
        match timeout(self.tuning.patience, self.delivery.send(message)).await {
            Ok(sent) => sent.map_err(retry),
            Err(_) => Err(retry(format!("the receiver took nothing for {} seconds", self.tuning.patience.as_secs()))),
        }
    }

    /// Bytes of a batch around its changes.
    fn envelope(&self, is_batch: bool) -> usize {
        self.format.batch.filter(|_| is_batch).map_or(0, |batch| batch.open.len() + batch.close.len())
    }

    /// Bytes of a batch between two changes.
    fn between(&self) -> usize {
        self.format.batch.map_or(0, |batch| batch.between.len())
    }

    fn encoded(&self, change: &Arc<RecordedChange>) -> Result<Bytes, StoreError> {
        // What the journal keeps is our JSON: it need be neither read nor written.
        match ptr::eq(self.format, KEPT) {
            true => Ok(change.json().clone()),
            false => change.encoded(self.format.name, self.format.write),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, KEPT, RecordedChange, Seq};

    #[test]
    fn what_the_journal_keeps_is_what_the_format_writes() {
        let written = |recorded: &RecordedChange| (KEPT.write)(recorded.change().unwrap());
        let fixture =
            RecordedChange::from_json(Seq(1), include_bytes!("../../../fixtures/change.json").as_slice().into());
        let kept = Arc::new(RecordedChange::from_json(Seq(1), written(&fixture).into()));
        assert_eq!(written(&kept), kept.json().to_vec());
        let public = kept.public().unwrap().unwrap();
        assert_eq!(written(public), public.json().to_vec());
    }
}
