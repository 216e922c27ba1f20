//! Order times: a time for each change that increases strictly in whole milliseconds, for readers who order changes by time.
//!
//! All changes of a batch have the same time of receipt, and several batches can fall into a millisecond. The order time of
//! a change is its time of receipt, or the millisecond after the order time of the change before it, whichever is later. It
//! depends on the journal alone. In a burst of more than a thousand changes per second it runs ahead of the clock, and
//! returns to it afterwards.
//!
//! The journal notes the order time at the end of each span, and of the newest change that retention has removed. So the time of
//! any change needs no pass over more than a span, and stays when the changes before it are removed.

use super::{
    Journal, JournalError,
    command::Command,
    segments::{SpanWrite, end_of_span},
    store::{OrderStore, StoreError},
};
use crate::model::{Seq, Timestamp};

/// Number of times of receipt that are read at once.
const TIMES_AT_ONCE: usize = 10_000;

/// Order time, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderTime(pub i64);

impl OrderTime {
    /// Returns the order time of the next change, which was received at this time.
    #[must_use]
    pub fn following(self, received: Timestamp) -> Self {
        Self(received.millis().max(self.0.saturating_add(1)))
    }

    /// Returns the time; `None` if it is outside of the years 0 to 9999.
    #[must_use]
    pub fn timestamp(self) -> Option<Timestamp> {
        Timestamp::from_millis(self.0)
    }
}

impl Journal {
    /// Returns the order time of the newest change whose number is at most `seq`; zero if there is none.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn order_time(&self, seq: Seq) -> Result<OrderTime, JournalError> {
        self.read(move |store| order_time(store, (Seq::ZERO, OrderTime::default()), seq)).await
    }

    /// Returns the order times of several changes, each the newest one whose number is at most that of `seqs`. These ascend, so
    /// each time of receipt is read once. `known` is a change with its order time, such as the last result.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn order_times(&self, known: (Seq, OrderTime), seqs: Vec<Seq>) -> Result<Vec<OrderTime>, JournalError> {
        self.read(move |store| {
            let following = |newest: &mut (Seq, OrderTime), seq: &Seq| {
                let time = order_time(store, *newest, *seq);
                *newest = (*seq, time.as_ref().map_or(newest.1, |time| *time));
                Some(time)
            };
            seqs.iter().scan(known, following).collect()
        })
        .await
    }

    /// Returns the number of the first change after `after`, whether or not changes between the two were removed.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn first_after(&self, after: Seq) -> Result<Option<Seq>, JournalError> {
        let newest = Seq(i64::MAX.unsigned_abs());
        let next = self.read(move |store| store.times_of_receipt(after, newest, 1)).await?;
        Ok(next.first().map(|(seq, _)| *seq))
    }

    /// Notes the order times at the ends of all spans that are closed and not noted, so that no reader needs more than a pass
    /// over one span.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn note_spans(&self) -> Result<(), JournalError> {
        let head = self.head();
        let newest = self.read(move |store| store.noted_order_time(head)).await?;
        let mut noted = newest.map_or(Seq::ZERO, |(seq, _)| seq);
        // A restore skips numbers, and therefore spans.
        while let Some(end) = self.first_after(noted).await?.map(end_of_span).filter(|end| *end <= head) {
            self.note_order_time(end, Seq::ZERO).await?;
            noted = end;
        }
        Ok(())
    }

    /// Notes the order time of the last of the next changes that retention removes: at most `at_most` before `before`.
    /// Returns its number; `None` if there are none. The order times of the changes that stay follow from it, at each
    /// moment of the removal.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn note_removal(&self, before: Seq, at_most: usize) -> Result<Option<Seq>, JournalError> {
        let removed = self.read(move |store| {
            let Some(first) = store.first()? else { return Ok(None) };
            let (after, last) = (Seq(first.0.saturating_sub(1)), Seq(before.0.saturating_sub(1)));
            let received = store.times_of_receipt(after, last, at_most)?;
            Ok(received.last().map(|(last, _)| (after, *last)))
        });
        let Some((after, last)) = removed.await? else { return Ok(None) };
        // The note before the oldest change is needed until that is removed.
        self.note_order_time(last, after).await?;
        Ok(Some(last))
    }

    /// Notes the order time of the newest change whose number is at most `seq`, and forgets those that were noted before
    /// `oldest`.
    async fn note_order_time(&self, seq: Seq, oldest: Seq) -> Result<(), JournalError> {
        let time = self.order_time(seq).await?;
        let write = SpanWrite::OrderTime { seq, time, oldest };
        self.send(|reply| Command::WriteSpan(write, self.term, reply)).await
    }
}

/// Computes an order time from the newest one that is known or was noted before it. Retention notes each piece before it removes
/// it, so the sum is right if nothing was noted meanwhile.
fn order_time(store: &(impl OrderStore + ?Sized), known: (Seq, OrderTime), seq: Seq) -> Result<OrderTime, StoreError> {
    loop {
        let noted = store.noted_order_time(seq)?;
        let begin = noted.unwrap_or_default();
        let (mut after, mut time) = if known.0 <= seq { begin.max(known) } else { begin };
        while after < seq {
            let received = store.times_of_receipt(after, seq, TIMES_AT_ONCE)?;
            time = received.iter().fold(time, |time, (_, received)| time.following(*received));
            match received.last() {
                Some((last, _)) => after = *last,
                None => break,
            }
        }
        if store.noted_order_time(seq)? == noted {
            return Ok(time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_times_increase_and_return_to_the_clock() {
        let received = [5, 5, 5, 6, 4, 100].map(|millis| Timestamp::from_millis(millis).unwrap());
        let mut newest = OrderTime::default();
        let times = received.map(|received| {
            newest = newest.following(received);
            newest.0
        });
        assert_eq!(times, [5, 6, 7, 8, 9, 100]);
    }
}
