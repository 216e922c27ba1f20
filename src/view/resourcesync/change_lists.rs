//! The change lists (section 12): where the journal is divided, and the index.
//!
//! A list ends
//! * before a number that follows a multiple of [`SPAN`], as every other division of the journal does;
//! * before the first change that was received on another day, because retention removes changes by age, a list goes with its
//!   oldest change, and readers exist that pass over the changes of a list that is open for long;
//! * before a change with which it would have more entries or bytes than a document may have.
//!
//! The first two depend on the numbers and times of two neighbours alone, and the third on the changes since one of the first
//! two. So the division is a function of the journal: every node divides it in the same way, and a list that is closed never
//! changes. A list is closed when a later change exists, and not by the clock.
//!
//! A restore or a failover loses changes that readers may have got. The lists before it are gone, so that all readers begin
//! anew; the numbers after it were never used before ([`Journal::skipped_ranges`]), and so are the names of the lists.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    journal::{Journal, JournalError, RecordedChange, order::OrderTime, store::StoreError},
    model::{Seq, Timestamp},
    view::{LARGE, PIECE_BYTES, block_on, journal_problem},
    web::{Problem, ProblemCode, Spool},
};

/// Number of changes of a list at most: those with the numbers k × `SPAN` + 1 to (k + 1) × `SPAN`.
pub(super) const SPAN: u64 = 10_000;

/// Number of items of the changes of a list at most, unless a single change has more. A late purge can have more entries than
/// items, so that this is less than the 50 000 entries of a Sitemap.
const MAX_ITEMS: usize = 40_000;

/// Estimated size of a list at most, in bytes, unless a single change has more. A Sitemap has at most 50 MB.
const MAX_BYTES: usize = 40_000_000;

/// Size of the elements and attributes of an entry without their values, and with a digest, in bytes.
const ENTRY_BYTES: usize = 400;

/// Number of changes that are read at once.
const READ_CHANGES: usize = 1_000;

/// Time after which a request gives up the division of a long journal. The next one continues it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time after which a reader may try again.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

const MILLIS_PER_DAY: i64 = 24 * 60 * 60 * 1000;

/// A change list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChangeList {
    /// Number of its first change.
    pub(super) first: Seq,
    /// Number of its last change; less than `first` if the journal has no change that readers may get.
    pub(super) last: Seq,
    /// Order time of the first change.
    pub(super) begin: OrderTime,
    /// Time since which the list has all changes.
    pub(super) from: Timestamp,
    /// Time until which the list has all changes, if it is closed.
    pub(super) until: Option<Timestamp>,
}

/// The change lists at one head.
#[derive(Clone, Debug)]
pub(super) struct ChangeLists {
    /// The lists, of which the last is open. There is at least one.
    pub(super) lists: Vec<ChangeList>,
    /// Number of the newest change in the lists, or before them if they have none.
    pub(super) head: Seq,
    /// Order time of that change. All changes after `head` are later.
    pub(super) at: Timestamp,
    /// Number after which the journal continued after the last loss of changes; 0 if it has lost none.
    pub(super) loss: Seq,
    /// Time of the resource lists that were begun before the first change after the loss.
    pub(super) loss_at: Timestamp,
}

impl ChangeLists {
    /// Returns the list that begins with this change.
    ///
    /// # Errors
    /// `gone` if retention or a loss of changes has removed it; `not-found` if no list begins there.
    pub(super) fn find(&self, first: Seq) -> Result<ChangeList, Problem> {
        let found = self.lists.iter().find(|list| list.first == first).copied();
        let begin = self.begin();
        found.ok_or_else(|| match first < begin {
            true => list_gone(begin),
            false => {
                let detail = format!("No change list begins with change {first}. The index has all: changelist.xml.");
                Problem::new(ProblemCode::NotFound, detail)
            }
        })
    }

    /// Returns the number from which on the lists have all changes.
    pub(super) fn begin(&self) -> Seq {
        self.lists.first().map_or(self.head.next(), |list| list.first)
    }
}

/// Returns the problem of a list that was removed. The index shows this to readers by its later begin.
pub(super) fn list_gone(first: Seq) -> Problem {
    let detail = format!(
        "The document has been removed by retention, or the journal was restored after it was made. The change lists begin \
         with change {first}. Start again: read the resource list, and then the changes since its attribute \"at\"."
    );
    Problem::new(ProblemCode::Gone, detail).with("first", first.0)
}

/// The division of the journal, as far as it has been read. Requests share it.
pub(super) struct Division {
    journal: Journal,
    read: Arc<tokio::sync::Mutex<DivisionState>>,
}

/// The part of the journal that has been read.
#[derive(Debug, Default)]
struct DivisionState {
    /// Identity of the journal.
    journal: Uuid,
    /// Number after which the journal continued after the last loss of changes; 0 if it has lost none.
    loss: Seq,
    /// Time at which the reading began.
    begun: Option<Timestamp>,
    /// Number of the last change that has been read.
    last: Seq,
    /// Its order time.
    time: OrderTime,
    /// The parts that have become lists, oldest first.
    parts: Vec<Part>,
}

/// A part of the journal between two divisions.
#[derive(Clone, Copy, Debug)]
struct Part {
    key: Key,
    first: Seq,
    last: Seq,
    /// Order time of the first change.
    begin: OrderTime,
    items: usize,
    bytes: usize,
}

/// The changes with one key are divided by their size alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    /// Least number of the span.
    span: Seq,
    /// Day of receipt, counted from 1970.
    day: i64,
}

impl Division {
    pub(super) fn new(journal: Journal) -> Self {
        Self { journal, read: Arc::default() }
    }

    /// Returns the change lists up to the present head, or a later one.
    ///
    /// # Errors
    /// `unavailable` if the journal is so long that its first division takes longer than a request; fails if the journal does.
    pub(super) async fn lists(&self, spool: &Spool) -> Result<ChangeLists, Problem> {
        let journal = self.journal.clone();
        let mut read = Arc::clone(&self.read).lock_owned().await;
        if read.is_current(&journal) {
            return read.lists(&journal).await;
        }
        let ended = CancellationToken::new();
        let _guard = ended.clone().drop_guard();
        let permit = spool.list_permit().await;
        Spool::blocking(permit, move || {
            read.extend(&journal, &ended)?;
            block_on(read.lists(&journal))
        })
        .await
    }
}

impl DivisionState {
    fn is_current(&self, journal: &Journal) -> bool {
        self.journal == journal.identity() && self.loss == last_loss(journal) && self.last >= journal.head()
    }

    /// Reads the changes up to the head. The call blocks.
    fn extend(&mut self, journal: &Journal, ended: &CancellationToken) -> Result<(), Problem> {
        let (identity, loss) = (journal.identity(), last_loss(journal));
        if self.journal != identity || self.loss != loss {
            *self = Self { journal: identity, loss, begun: Some(Timestamp::now()), ..Self::default() };
            self.skip_removed(journal)?;
        }
        let (head, begun) = (journal.head(), Instant::now());
        while self.last < head {
            if ended.is_cancelled() || begun.elapsed() > PATIENCE {
                let detail = "The journal is being read for the first time since the start. Try again in a moment.";
                return Err(Problem::new(ProblemCode::Unavailable, detail).retry_after(RETRY_AFTER));
            }
            match block_on(journal.after_within(self.last, READ_CHANGES, PIECE_BYTES)) {
                Ok(changes) if changes.is_empty() => break,
                Ok(changes) => changes.iter().for_each(|change| self.add(change)),
                Err(JournalError::Gone { .. }) => {
                    self.parts.clear();
                    self.skip_removed(journal)?;
                }
                // It costs itself alone: the list that has it cannot be read.
                Err(JournalError::Store(StoreError::DamagedChange { seq, .. })) => self.add_outline(seq, None, 1, 0),
                Err(error) => return Err(journal_problem(error)),
            }
        }
        Ok(())
    }

    /// Begins with the oldest change that is there.
    fn skip_removed(&mut self, journal: &Journal) -> Result<(), Problem> {
        self.last = Seq(journal.first().0.saturating_sub(1)).max(self.loss);
        self.time = block_on(journal.order_time(self.last)).map_err(journal_problem)?;
        Ok(())
    }

    fn add(&mut self, change: &Arc<RecordedChange>) {
        let json = change.json();
        // Only this character of a URI becomes longer in XML.
        let escaped = memchr::memchr_iter(b'&', json).count() * "amp;".len();
        let outline = if json.len() < LARGE { change.outline() } else { change.without_caches().outline() };
        let (received, items) = outline.map_or((None, 1), |outline| (Some(outline.received), outline.items.len()));
        self.add_outline(change.seq(), received, items, json.len() + escaped + items * ENTRY_BYTES);
    }

    /// Adds a change. `received` is missing if the change is damaged.
    fn add_outline(&mut self, seq: Seq, received: Option<Timestamp>, items: usize, bytes: usize) {
        self.time = self.time.following(received.unwrap_or(Timestamp::EPOCH));
        self.last = seq;
        let span = span_of(seq, self.loss);
        let day_before = self.parts.last().map_or(0, |part| part.key.day);
        let day = received.map_or(day_before, |received| received.millis().div_euclid(MILLIS_PER_DAY));
        let key = Key { span, day };
        let is_part_of = |part: &&mut Part| {
            part.key == key && part.items + items <= MAX_ITEMS && part.bytes.saturating_add(bytes) <= MAX_BYTES
        };
        if let Some(part) = self.parts.last_mut().filter(is_part_of) {
            (part.last, part.items, part.bytes) = (seq, part.items + items, part.bytes + bytes);
            return;
        }
        self.parts.push(Part { key, first: seq, last: seq, begin: self.time, items, bytes });
    }

    async fn lists(&mut self, journal: &Journal) -> Result<ChangeLists, Problem> {
        let oldest = journal.first().max(self.loss.next());
        let mut parts = self.complete_parts(oldest);
        if let Some(newest) = self.parts.last().filter(|_| parts.is_empty()) {
            // So few changes are kept that no list is complete. The rest is one list, which never closes.
            let begin = journal.order_time(oldest).await.map_err(journal_problem)?;
            parts.push(Part { first: oldest, begin, ..*newest });
        }
        let loss_time = time_of_loss(self.loss, journal);
        let (head, loss) = (self.last.max(self.loss), self.loss);
        // The time of a loss is up to a day late if it follows another one, and the next change must not be before it.
        let loss_at = self.begun.map_or(loss_time, |begun| begun.min(loss_time));
        if parts.is_empty() {
            let begin = OrderTime::default();
            let empty = ChangeList { first: head.next(), last: head, begin, from: loss_at, until: None };
            return Ok(ChangeLists { lists: vec![empty], head, at: loss_at, loss, loss_at });
        }
        let lists = lists_of(&parts, loss, loss_time);
        Ok(ChangeLists { lists, head, at: time_of(self.time), loss, loss_at })
    }

    /// Returns the parts of which no change has been removed, if `oldest` is the oldest change that is there. Forgets parts that
    /// have been removed.
    ///
    /// A list goes with its oldest change, and so do all lists of its key, because they are divided from there. Whether a
    /// change is the first of its day is not known when the one before is removed, so the rest of its day goes with it.
    fn complete_parts(&mut self, oldest: Seq) -> Vec<Part> {
        let removed = self.parts.partition_point(|part| part.last < oldest);
        self.parts.drain(..removed);
        let incomplete = self.parts.first().map(|part| part.key).filter(|key| key.span != oldest);
        self.parts.iter().filter(|part| Some(part.key) != incomplete).copied().collect()
    }
}

/// Returns the lists of parts that follow each other, of which the last is open.
fn lists_of(parts: &[Part], loss: Seq, loss_time: Timestamp) -> Vec<ChangeList> {
    let from = |part: &Part| {
        let begin = time_of(part.begin);
        // Nothing is before the first change, or all of it is lost.
        if part.first == loss.next() { begin.min(loss_time) } else { begin }
    };
    let list = |(at, part): (usize, &Part)| ChangeList {
        first: part.first,
        last: part.last,
        begin: part.begin,
        from: from(part),
        // Order times are whole milliseconds, so no change is between two lists.
        until: parts.get(at + 1).and_then(|next| Timestamp::from_millis(from(next).millis() - 1)),
    };
    parts.iter().enumerate().map(list).collect()
}

/// Returns the least number of the span of a number.
fn span_of(seq: Seq, loss: Seq) -> Seq {
    Seq((seq.0.saturating_sub(1)) / SPAN * SPAN).max(loss).next()
}

/// Returns the number after which the journal continued after the last loss of changes.
fn last_loss(journal: &Journal) -> Seq {
    journal.skipped_ranges().iter().map(|(_, floor)| *floor).max().unwrap_or(Seq::ZERO)
}

/// Returns the time of the last loss of changes; that of 1970 if there was none.
fn time_of_loss(loss: Seq, journal: &Journal) -> Timestamp {
    if loss == Seq::ZERO {
        Timestamp::EPOCH
    } else {
        journal.acceptance_floor().timestamp().unwrap_or(Timestamp::EPOCH)
    }
}

/// Returns an order time as it is written.
pub(super) fn time_of(time: OrderTime) -> Timestamp {
    time.timestamp().unwrap_or(Timestamp::EPOCH)
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::{DivisionState, MAX_ITEMS, MILLIS_PER_DAY, OrderTime, Part, SPAN, Seq, Timestamp, lists_of};

    /// A change: its number, its time of receipt and its items.
    type Change = (Seq, Timestamp, usize);

    fn divided(changes: &[Change], loss: Seq, time: OrderTime) -> DivisionState {
        let mut state = DivisionState { loss, time, ..DivisionState::default() };
        changes.iter().for_each(|(seq, received, items)| state.add_outline(*seq, Some(*received), *items, 1000));
        state
    }

    /// Returns a history with pauses, bursts and large changes.
    fn history(rng: &mut Rng, first: u64, count: u64) -> Vec<Change> {
        let mut millis = 1_764_000_000_000;
        let change = |number| {
            millis += match rng.u32(..2000) {
                0 => i64::from(rng.u32(..3)) * MILLIS_PER_DAY,
                1..100 => 5000,
                _ => 0,
            };
            let items = if rng.u32(..1000) == 0 { rng.usize(..MAX_ITEMS * 2) } else { rng.usize(1..4) };
            (Seq(number), Timestamp::from_millis(millis).unwrap(), items)
        };
        (first..first + count).map(change).collect()
    }

    fn outline(parts: &[Part]) -> Vec<(Seq, Seq, OrderTime)> {
        parts.iter().map(|part| (part.first, part.last, part.begin)).collect()
    }

    #[test]
    fn lists_have_all_changes_once_and_their_intervals_meet() {
        let mut rng = Rng::with_seed(5);
        for loss in [0, 176_000_000_003_700] {
            let changes = history(&mut rng, loss + 1, 40_000);
            let mut state = divided(&changes, Seq(loss), OrderTime::default());
            let parts = state.complete_parts(Seq(loss + 1));
            let loss_time = Timestamp::from_millis(i64::try_from(loss / 100).unwrap()).unwrap();
            let lists = lists_of(&parts, Seq(loss), loss_time);
            assert!(lists.len() > 8, "{}", lists.len());
            assert_eq!((lists[0].first, lists.last().unwrap().last), (Seq(loss + 1), changes.last().unwrap().0));
            for (list, next) in lists.iter().zip(&lists[1..]) {
                assert_eq!(list.last.next(), next.first);
                assert_eq!(list.until.unwrap().millis() + 1, next.from.millis());
                assert!(list.from <= list.until.unwrap());
            }
            assert_eq!(lists.last().unwrap().until, None);
            assert_eq!(lists[0].from, loss_time.min(Timestamp::from_millis(1_764_000_000_000).unwrap()));
            let mut at = 0;
            for (part, list) in parts.iter().zip(&lists) {
                let own = &changes[at..at + usize::try_from(list.last.0 - list.first.0 + 1).unwrap()];
                at += own.len();
                let items: usize = own.iter().map(|(_, _, items)| items).sum();
                assert!(items <= MAX_ITEMS || own.len() == 1, "{list:?}");
                assert_eq!((list.first.0 - 1) / SPAN, (list.last.0 - 1) / SPAN, "{list:?}");
                let day = |change: &Change| change.1.millis().div_euclid(MILLIS_PER_DAY);
                assert_eq!(day(&own[0]), day(own.last().unwrap()));
                assert_eq!(part.items, items);
            }
        }
    }

    /// A node that has read the journal for long has the same lists as one that has just started.
    #[test]
    fn division_depends_on_the_journal_alone() {
        let mut rng = Rng::with_seed(6);
        let changes = history(&mut rng, 1, 30_000);
        let mut before = Vec::new();
        for read in [9_999, 10_000, 10_001, 25_000, 30_000] {
            let whole = divided(&changes[..read], Seq::ZERO, OrderTime::default()).complete_parts(Seq(1));
            // Lists that were closed do not change.
            let closed = before.len().saturating_sub(1);
            assert_eq!(outline(&whole)[..closed], before[..closed]);
            before = outline(&whole);
        }
        let mut times = vec![OrderTime::default()];
        for (_, received, _) in &changes {
            times.push(times.last().unwrap().following(*received));
        }
        let mut old = divided(&changes, Seq::ZERO, OrderTime::default());
        for removed in [1, 500, 4_000, 9_999, 10_000, 10_001, 17_000, 20_000, 29_990] {
            let oldest = Seq(u64::try_from(removed).unwrap() + 1);
            let kept = old.complete_parts(oldest);
            let new = divided(&changes[removed..], Seq::ZERO, times[removed]).complete_parts(oldest);
            assert_eq!(outline(&kept), outline(&new), "{removed}");
            assert!(before.ends_with(&outline(&kept)));
        }
    }
}
