//! Selects and sends the next messages: first replayed dead letters, then changes, alone or in batches.

use std::{collections::VecDeque, ptr, sync::Arc};

use bytes::Bytes;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout},
};

use super::{
    Engine, Exit, SessionEnd,
    page::{Page, PendingPage},
    retry,
};
use crate::{
    delivery::{
        DeliveryFuture, DeliveryOutcome, Outgoing,
        in_flight::{InFlightWindow, ReplayedLetter, SentChanges},
        memory::{PendingReservation, Reservation},
    },
    format::{FormatKind, JOURNAL_FORMAT},
    journal::{JournalError, RecordedChange, store::StoreError, subscriptions::DeadLetter},
    model::{Filter, Seq},
    retry::Backoff,
};

/// Number of dead letters read at once for replay. It is low because each may be large.
const DEAD_LETTERS_PAGE: usize = 1;

/// State of one connection to the receiver.
pub(super) struct Session {
    pub(super) in_flight: InFlightWindow,
    /// Changes read but not sent, at most one page.
    unsent: VecDeque<Arc<RecordedChange>>,
    /// Permit for these changes, if they were read from disk.
    page_permit: Option<OwnedSemaphorePermit>,
    pub(super) dead_letters: VecDeque<DeadLetter>,
    pub(super) check_dead_letters: bool,
    /// Time before which no dead letter is sent, because the receiver did not accept the last one.
    pub(super) dead_letters_after: Option<Instant>,
    pub(super) dead_letters_backoff: Backoff,
    /// Number of the last change that was sent or skipped.
    pub(super) read_through: Seq,
    /// Page that is being read.
    pub(super) pending_page: Option<PendingPage>,
    /// Error of the next page or change. The session ends with it when everything before is settled.
    pub(super) read_error: Option<JournalError>,
    /// Memory reservation that the next message waits for.
    pub(super) pending_reservation: Option<PendingReservation>,
    /// Memory reserved for the next message.
    pub(super) reservation: Option<Reservation>,
    /// Whether the newest page had no changes, so that the session waits for others.
    pub(super) is_waiting: bool,
    idle_since: Option<Instant>,
}

impl Session {
    /// Creates a session that reads the journal after `cursor`.
    pub(super) fn new(in_flight: InFlightWindow, cursor: Seq, dead_letters_backoff: Backoff) -> Self {
        Self {
            in_flight,
            unsent: VecDeque::new(),
            page_permit: None,
            dead_letters: VecDeque::new(),
            check_dead_letters: true,
            dead_letters_after: None,
            dead_letters_backoff,
            read_through: cursor,
            pending_page: None,
            read_error: None,
            pending_reservation: None,
            reservation: None,
            is_waiting: false,
            idle_since: None,
        }
    }

    /// Returns whether nothing is in flight or waiting.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
            && self.unsent.is_empty()
            && self.dead_letters.is_empty()
            && self.pending_reservation.is_none()
    }

    /// Returns the time since which the session has been idle, if it `is_idle` now.
    pub(super) fn idle_since(&mut self, is_idle: bool) -> Option<Instant> {
        self.idle_since = is_idle.then(|| self.idle_since.unwrap_or_else(Instant::now));
        self.idle_since
    }

    /// Returns whether the session needs another page.
    pub(super) fn wants_page(&self) -> bool {
        self.unsent.is_empty()
            && self.read_error.is_none()
            && self.pending_reservation.is_none()
            && self.in_flight.has_room()
    }

    /// Returns the error of the next page or change once everything before it is settled.
    pub(super) fn take_read_error(&mut self) -> Option<JournalError> {
        self.is_idle().then(|| self.read_error.take()).flatten()
    }

    /// Returns whether changes wait that cannot be sent now.
    pub(super) fn is_stuck(&self) -> bool {
        !self.unsent.is_empty() && !self.in_flight.has_room()
    }

    /// Drops the unsent page. It is read again when there is room to send it.
    pub(super) fn drop_page(&mut self) {
        self.unsent = VecDeque::new();
        self.pending_page = None;
        self.page_permit = None;
    }

    /// Drops everything unsent and waits for memory.
    fn wait_for(&mut self, pending_reservation: PendingReservation) {
        self.drop_page();
        self.check_dead_letters |= !self.dead_letters.is_empty();
        self.dead_letters.clear();
        self.reservation = None;
        self.pending_reservation = Some(pending_reservation);
    }
}

/// Waits for the memory reservation of the next message; waits forever if there is none.
pub(super) async fn wait_for_memory(pending_reservation: &mut Option<PendingReservation>) -> Option<Reservation> {
    let Some(waiting) = pending_reservation else { return std::future::pending().await };
    let reservation = waiting.await;
    *pending_reservation = None;
    reservation
}

/// Changes of the next message and their encodings.
struct NextMessage {
    changes: Vec<Arc<RecordedChange>>,
    encoded: Vec<Bytes>,
    /// Size of the body in bytes.
    bytes: usize,
    /// Last change that is complete when the message has been delivered.
    through: Seq,
    /// Number of changes that this message takes from the page.
    from_page: usize,
}

/// Result of examining the unsent changes.
enum Next {
    Message(NextMessage),
    /// A change that the filter does not select.
    Filtered(Seq),
    Nothing,
}

impl Engine {
    /// Adds a page, and completes the changes that it skips.
    pub(super) fn add_page(&mut self, session: &mut Session, page: Page) {
        let Page { skipped, changes, permit } = page;
        if let Some(seq) = skipped {
            session.read_through = seq;
            if session.in_flight.skip(seq) {
                self.advance_cursor(seq, 0);
            }
        }
        session.is_waiting = changes.is_empty();
        session.unsent.extend(changes);
        session.page_permit = permit;
    }

    /// Sends dead letters and changes until the window is full or nothing is left.
    pub(super) async fn fill_window(&mut self, session: &mut Session) -> Result<(), SessionEnd> {
        let may_send_dead_letters = session.dead_letters_after.is_none() && session.pending_reservation.is_none();
        if session.check_dead_letters
            && may_send_dead_letters
            && session.dead_letters.is_empty()
            && !session.in_flight.has_dead_letters()
        {
            session.dead_letters =
                self.journal.replays(self.name.clone(), None, DEAD_LETTERS_PAGE).await.map_err(retry)?.into();
            session.check_dead_letters = session.dead_letters.len() == DEAD_LETTERS_PAGE;
        }
        let mut filtered = None;
        while session.pending_reservation.is_none() && session.in_flight.has_room() {
            // After a suspension of the process, another node may deliver already.
            if !self.tenure.is_trusted() {
                return Err(SessionEnd::Exit(Exit::Stopped));
            }
            if let Some(letter) = session.dead_letters.pop_front() {
                self.send_dead_letter(session, letter).await?;
                continue;
            }
            match self.next(session)? {
                Next::Message(message) => self.send_changes(session, message).await?,
                Next::Filtered(seq) if session.in_flight.skip(seq) => filtered = Some(seq),
                Next::Filtered(_) => {}
                Next::Nothing => break,
            }
        }
        // Skipped changes before the first in-flight message are complete.
        if let Some(seq) = filtered.filter(|seq| *seq > self.cursor) {
            self.advance_cursor(seq, 0);
        }
        Ok(())
    }

    /// Builds the next message from the unsent changes. A batch does not wait for further changes.
    fn next(&self, session: &mut Session) -> Result<Next, SessionEnd> {
        let is_batch = self.delivery.window().changes > 1;
        let max_changes = self.delivery.window().changes;
        let max_bytes = self.delivery.batch_bytes().min(self.batching.bytes);
        let mut message: Option<NextMessage> = None;
        let mut failed = None;
        for (at, change) in session.unsent.iter().enumerate() {
            let seq = change.seq();
            if let Some(so_far) = &message {
                let is_unbatched =
                    self.batching.is_unbatched(so_far.changes[0].seq()) || self.batching.is_unbatched(seq);
                if is_unbatched || so_far.changes.len() >= max_changes {
                    break;
                }
            }
            let selected = match self.encoded_selection(change) {
                Ok(selected) => selected,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            };
            match (&mut message, selected) {
                (None, None) => {
                    session.unsent.pop_front();
                    session.read_through = seq;
                    return Ok(Next::Filtered(seq));
                }
                (Some(message), None) => (message.through, message.from_page) = (seq, at + 1),
                (None, Some((selected, encoded))) => {
                    let bytes = self.delivery.size_in_message(&selected, &encoded) + self.envelope(is_batch);
                    let (changes, encoded) = (vec![selected], vec![encoded]);
                    message = Some(NextMessage { changes, encoded, bytes, through: seq, from_page: at + 1 });
                }
                (Some(message), Some((selected, encoded))) => {
                    let size = self.delivery.size_in_message(&selected, &encoded);
                    let bytes = message.bytes + self.between() + size;
                    if bytes > max_bytes {
                        break;
                    }
                    message.bytes = bytes;
                    message.changes.push(selected);
                    message.encoded.push(encoded);
                    (message.through, message.from_page) = (seq, at + 1);
                }
            }
        }
        if let Some(error) = failed.filter(|_| message.is_none()) {
            session.drop_page();
            session.read_error = Some(error.into());
        }
        Ok(message.map_or(Next::Nothing, Next::Message))
    }

    /// Returns the selected part of a change with its encoding.
    fn encoded_selection(
        &self,
        change: &Arc<RecordedChange>,
    ) -> Result<Option<(Arc<RecordedChange>, Bytes)>, StoreError> {
        let Some(selected) = self.select(change)? else { return Ok(None) };
        let encoded = self.encode(&selected)?;
        Ok(Some((selected, encoded)))
    }

    /// Returns the part of a change that the filter selects, if the format has a message for it.
    fn select(&self, change: &Arc<RecordedChange>) -> Result<Option<Arc<RecordedChange>>, StoreError> {
        select(change, &self.filter, self.format)
    }

    async fn send_changes(&mut self, session: &mut Session, message: NextMessage) -> Result<(), SessionEnd> {
        let NextMessage { changes, encoded, bytes, through, from_page } = message;
        let (first, last) = (changes[0].seq(), changes[changes.len() - 1].seq());
        let json = (changes.len() == 1).then(|| changes[0].json().clone());
        let bytes = bytes + json.as_ref().map_or(0, Bytes::len) + self.delivery.extra_bytes(bytes);
        let Some(memory) = self.reserve(session, bytes) else { return Ok(()) };
        session.unsent.drain(..from_page);
        session.read_through = through;
        if session.unsent.is_empty() {
            session.page_permit = None;
        }
        let sent = SentChanges { first, last, count: changes.len() as u64, json };
        let pending = self.send(changes, &encoded, false).await?;
        session.in_flight.push(sent, through, bytes, memory, pending);
        Ok(())
    }

    async fn send_dead_letter(&mut self, session: &mut Session, letter: DeadLetter) -> Result<(), SessionEnd> {
        let change = Arc::new(RecordedChange::from_json(letter.letter.seq, letter.letter.json.clone()));
        let replayed = ReplayedLetter { id: letter.id, is_repeat: letter.attempts == 0 };
        let encoded = match self.encode(&change) {
            Ok(encoded) => encoded,
            Err(error) => {
                let outcome = DeliveryOutcome::Retry { reason: error.to_string(), after: None };
                return self.settle_dead_letter(session, replayed, outcome).await.map(|_| ());
            }
        };
        let size = self.delivery.size_in_message(&change, &encoded);
        let bytes = size + change.json().len() + self.delivery.extra_bytes(size);
        let Some(memory) = self.reserve(session, bytes) else {
            session.check_dead_letters = true;
            return Ok(());
        };
        let pending = self.send(vec![change], &[encoded], replayed.is_repeat).await?;
        session.in_flight.push_dead_letter(replayed, bytes, memory, pending);
        Ok(())
    }

    /// Reserves memory for a message. If there is too little, the session drops everything unsent and waits.
    fn reserve(&self, session: &mut Session, bytes: usize) -> Option<Reservation> {
        let is_failing = session.in_flight.is_probing();
        let reservation =
            session.reservation.take().filter(|reservation| self.memory.suffices(reservation, bytes, is_failing));
        let reservation = reservation.or_else(|| self.memory.try_reserve(bytes, is_failing));
        if reservation.is_none() {
            session.wait_for(self.memory.reserve(bytes, is_failing));
        }
        reservation
    }

    /// Sends one message and returns the future of its outcome.
    async fn send(
        &mut self,
        changes: Vec<Arc<RecordedChange>>,
        encoded: &[Bytes],
        is_repeat: bool,
    ) -> Result<DeliveryFuture, SessionEnd> {
        let is_batch = self.delivery.window().changes > 1;
        let body = match (self.format.batch.filter(|_| is_batch), encoded) {
            (None, [body]) => body.clone(),
            (None, _) => return Err(retry("a message of this format has one change")),
            (Some(batch), _) => batch.join(encoded).into(),
        };
        let mut changes = changes.into_iter();
        let Some(change) = changes.next() else { return Err(retry("a message has at least one change")) };
        let message = Outgoing { change, more: changes.collect(), is_batch, is_repeat, format: self.format, body };
        match timeout(self.timeouts.send, self.delivery.send(message)).await {
            Ok(sent) => sent.map_err(retry),
            Err(_) => Err(retry(format!("the receiver accepted nothing for {} seconds", self.timeouts.send.as_secs()))),
        }
    }

    /// Returns the bytes of a batch around its changes.
    fn envelope(&self, is_batch: bool) -> usize {
        self.format.batch.filter(|_| is_batch).map_or(0, |batch| batch.open.len() + batch.close.len())
    }

    /// Returns the bytes of a batch between two changes.
    fn between(&self) -> usize {
        self.format.batch.map_or(0, |batch| batch.between.len())
    }

    fn encode(&self, change: &Arc<RecordedChange>) -> Result<Bytes, StoreError> {
        encode(change, self.format)
    }
}

/// Returns the part of a change that a filter selects, if the format has a message for it.
pub(in crate::delivery) fn select(
    change: &Arc<RecordedChange>,
    filter: &Filter,
    format: &FormatKind,
) -> Result<Option<Arc<RecordedChange>>, StoreError> {
    let Some(selected) = change.filtered(filter)? else { return Ok(None) };
    // Most formats cover all changes, and a change is parsed only if necessary.
    let is_covered = format.covers.is_none() || format.covers(selected.change()?);
    Ok(is_covered.then_some(selected))
}

/// Returns a change in a format.
pub(in crate::delivery) fn encode(
    change: &Arc<RecordedChange>,
    format: &'static FormatKind,
) -> Result<Bytes, StoreError> {
    // The journal stores this format, so the bytes are used unchanged.
    match ptr::eq(format, JOURNAL_FORMAT) {
        true => Ok(change.json().clone()),
        false => change.encoded(format.name, format.write),
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, JOURNAL_FORMAT, RecordedChange, Seq};

    #[test]
    fn journal_format_equals_stored_json() {
        let written = |recorded: &RecordedChange| (JOURNAL_FORMAT.write)(recorded.change().unwrap());
        let fixture =
            RecordedChange::from_json(Seq(1), include_bytes!("../../../fixtures/change.json").as_slice().into());
        let stored = Arc::new(RecordedChange::from_json(Seq(1), written(&fixture).into()));
        assert_eq!(written(&stored), stored.json().to_vec());
        let public = stored.public().unwrap().unwrap();
        assert_eq!(written(public), public.json().to_vec());
    }
}
