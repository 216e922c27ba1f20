//! The division of the journal into change lists.
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

use super::{
    change_lists::{ChangeList, ChangeLists},
    loss::Loss,
};
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
    /// The last loss of changes.
    loss: Loss,
    /// Number of the last change that has been read.
    last: Seq,
    /// Its order time.
    time: OrderTime,
    /// The parts that have become lists, oldest first.
    parts: Vec<Part>,
    /// The changes of the newest key, at most [`SPAN`].
    newest: Vec<ChangeSize>,
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

/// Size of a change in a list.
#[derive(Clone, Copy, Debug)]
struct ChangeSize {
    seq: Seq,
    time: OrderTime,
    items: usize,
    bytes: usize,
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
        self.read(spool, &CancellationToken::new()).await?.ok_or_else(unfinished)
    }

    /// Returns the change lists as [`Self::lists`] does, however long the first division takes. Requests get their lists
    /// meanwhile.
    ///
    /// # Errors
    /// `unavailable` if `ended` is cancelled; fails if the journal does.
    pub(super) async fn all_lists(&self, spool: &Spool, ended: &CancellationToken) -> Result<ChangeLists, Problem> {
        loop {
            if let Some(lists) = self.read(spool, ended).await? {
                return Ok(lists);
            }
            if ended.is_cancelled() {
                return Err(unfinished());
            }
        }
    }

    /// Returns the change lists; `None` if [`PATIENCE`] or the reader has ended before the end of the journal.
    async fn read(&self, spool: &Spool, ended: &CancellationToken) -> Result<Option<ChangeLists>, Problem> {
        let journal = self.journal.clone();
        let mut read = Arc::clone(&self.read).lock_owned().await;
        if read.is_current(&journal) {
            return Ok(Some(read.lists(journal.first())));
        }
        let ended = ended.child_token();
        let _guard = ended.clone().drop_guard();
        let permit = spool.list_permit().await;
        Spool::blocking(permit, move || {
            let is_whole = read.extend(&journal, &ended)?;
            Ok(is_whole.then(|| read.lists(journal.first())))
        })
        .await
    }
}

fn unfinished() -> Problem {
    let detail = "The journal is being read for the first time since the start. Try again in a moment.";
    Problem::new(ProblemCode::Unavailable, detail).retry_after(RETRY_AFTER)
}

impl DivisionState {
    fn is_current(&self, journal: &Journal) -> bool {
        self.journal == journal.identity() && self.loss == Loss::of(journal) && self.last >= journal.head()
    }

    /// Returns the state before the oldest change that is there. The call blocks.
    fn before_oldest(journal: &Journal) -> Result<Self, Problem> {
        let (identity, loss) = (journal.identity(), Loss::of(journal));
        let last = Seq(journal.first().0.saturating_sub(1)).max(loss.after);
        let time = block_on(journal.order_time(last)).map_err(journal_problem)?;
        Ok(Self { journal: identity, loss, last, time, ..Self::default() })
    }

    /// Reads the changes up to the head. Returns whether it has come to the end; the next call continues. The call blocks.
    fn extend(&mut self, journal: &Journal, ended: &CancellationToken) -> Result<bool, Problem> {
        if self.journal != journal.identity() || self.loss != Loss::of(journal) {
            *self = Self::before_oldest(journal)?;
        }
        let (head, begun) = (journal.head(), Instant::now());
        while self.last < head {
            if ended.is_cancelled() || begun.elapsed() > PATIENCE {
                return Ok(false);
            }
            match block_on(journal.after_within(self.last, READ_CHANGES, PIECE_BYTES)) {
                Ok(changes) if changes.is_empty() => break,
                Ok(changes) => changes.iter().try_for_each(|change| self.add(change, journal))?,
                Err(JournalError::Gone { .. }) => *self = Self::before_oldest(journal)?,
                Err(JournalError::Store(StoreError::DamagedChange { seq, .. })) => self.add_damaged(seq, 0, journal)?,
                Err(error) => return Err(journal_problem(error)),
            }
        }
        Ok(true)
    }

    fn add(&mut self, change: &Arc<RecordedChange>, journal: &Journal) -> Result<(), Problem> {
        let json = change.json();
        // Only this character of a URI becomes longer in XML.
        let escaped = memchr::memchr_iter(b'&', json).count() * "amp;".len();
        let bytes = json.len() + escaped;
        let outline = if json.len() < LARGE { change.outline() } else { change.without_caches().outline() };
        let Ok(outline) = outline else { return self.add_damaged(change.seq(), bytes, journal) };
        let items = outline.items.len();
        self.add_outline(change.seq(), outline.received, items, bytes + items * ENTRY_BYTES);
        Ok(())
    }

    /// Adds a change that cannot be read, with its order time. The call blocks.
    fn add_damaged(&mut self, seq: Seq, bytes: usize, journal: &Journal) -> Result<(), Problem> {
        let time = block_on(order_time_of_damaged(journal, seq, self.time)).map_err(journal_problem)?;
        self.add_size(ChangeSize { seq, time, items: 1, bytes }, day_of(time.0));
        Ok(())
    }

    fn add_outline(&mut self, seq: Seq, received: Timestamp, items: usize, bytes: usize) {
        let size = ChangeSize { seq, time: self.time.following(received), items, bytes };
        self.add_size(size, day_of(received.millis()));
    }

    fn add_size(&mut self, size: ChangeSize, day: i64) {
        (self.last, self.time) = (size.seq, size.time);
        let key = Key { span: span_of(size.seq, self.loss.after), day };
        if self.parts.last().is_none_or(|part| part.key != key) {
            self.newest.clear();
        }
        self.newest.push(size);
        add_to(&mut self.parts, key, size);
    }

    /// Returns the lists, if `first` is the oldest change that is there.
    fn lists(&mut self, first: Seq) -> ChangeLists {
        let loss = self.loss;
        let oldest = first.max(loss.after.next());
        let mut parts = self.complete_parts(oldest);
        let begin_moves = parts.is_empty() && !self.parts.is_empty();
        if begin_moves {
            parts = self.rest(oldest);
        }
        let head = self.last.max(loss.after);
        let at = loss.time(head, self.time);
        let lists = if parts.is_empty() {
            let begin = OrderTime::default();
            vec![ChangeList { first: head.next(), last: head, begin, from: at, until: None }]
        } else {
            lists_of(&parts, loss)
        };
        ChangeLists { lists, head, at, loss, begin_moves }
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
        // The lists must follow each other, so a later part with this key stays.
        self.parts.iter().skip_while(|part| Some(part.key) == incomplete).copied().collect()
    }

    /// Divides the changes of the newest key from the oldest one that is there. So few changes are kept that no list is
    /// complete, and these lists begin elsewhere after each removal.
    fn rest(&mut self, oldest: Seq) -> Vec<Part> {
        let removed = self.newest.partition_point(|size| size.seq < oldest);
        self.newest.drain(..removed);
        let mut parts = Vec::new();
        if let Some(key) = self.parts.last().map(|part| part.key) {
            self.newest.iter().for_each(|size| add_to(&mut parts, key, *size));
        }
        parts
    }
}

/// Adds a change to the last part, if this has the same key and room for it, and begins a part with it otherwise.
fn add_to(parts: &mut Vec<Part>, key: Key, size: ChangeSize) {
    let ChangeSize { seq, time, items, bytes } = size;
    let has_room = |part: &&mut Part| {
        part.key == key && part.items + items <= MAX_ITEMS && part.bytes.saturating_add(bytes) <= MAX_BYTES
    };
    match parts.last_mut().filter(has_room) {
        Some(part) => (part.last, part.items, part.bytes) = (seq, part.items + items, part.bytes + bytes),
        None => parts.push(Part { key, first: seq, last: seq, begin: time, items, bytes }),
    }
}

/// Returns the lists of parts that follow each other, of which the last is open.
fn lists_of(parts: &[Part], loss: Loss) -> Vec<ChangeList> {
    let from = |part: &Part| {
        // Nothing is before the first change, or all of it is lost.
        if part.first == loss.after.next() { loss.begin() } else { loss.time(part.first, part.begin) }
    };
    let list = |(at, part): (usize, &Part)| ChangeList {
        first: part.first,
        last: part.last,
        begin: part.begin,
        from: from(part),
        // Times are whole milliseconds, so no change is between two lists.
        until: parts.get(at + 1).and_then(|next| Timestamp::from_millis(from(next).millis() - 1)),
    };
    parts.iter().enumerate().map(list).collect()
}

/// Returns the order time of a change that cannot be read. If the database cannot read its time either, it follows that of
/// the change before, `time`.
///
/// # Errors
/// Fails if the journal cannot be read for another reason.
pub(super) async fn order_time_of_damaged(
    journal: &Journal,
    seq: Seq,
    time: OrderTime,
) -> Result<OrderTime, JournalError> {
    match journal.order_time(seq).await {
        // One that was removed meanwhile has the time of the change before.
        Ok(own) => Ok(own.max(time.following(Timestamp::EPOCH))),
        Err(JournalError::Store(StoreError::Damaged(_))) => Ok(time.following(Timestamp::EPOCH)),
        Err(error) => Err(error),
    }
}

/// Returns the day of a time, counted from 1970.
fn day_of(millis: i64) -> i64 {
    millis.div_euclid(MILLIS_PER_DAY)
}

/// Returns the least number of the span of a number.
fn span_of(seq: Seq, loss: Seq) -> Seq {
    Seq((seq.0.saturating_sub(1)) / SPAN * SPAN).max(loss).next()
}

#[cfg(test)]
mod tests;
