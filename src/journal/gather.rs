//! How orders gather to batches. A batch costs one sync of the disk, however much is in it, so the
//! writer should not begin one while those whom it has just answered are on their way back with their
//! next order: it would serve them in two halves by turns, each waiting for the other's sync.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::{Receiver, error::TryRecvError};

/// The longest that a batch is held back for more to come.
const LONGEST: Duration = Duration::from_millis(5);

/// How long is waited before looking again.
const NAP: Duration = Duration::from_micros(20);

/// After which part of that time without another one no more are expected.
const PAUSE: u32 = 4;

/// Orders as batches.
pub(super) struct Batches<T> {
    orders: Receiver<T>,
    most: usize,
    last: usize,
    began: Instant,
}

impl<T> Batches<T> {
    /// Batches of at most so many orders.
    pub(super) fn new(orders: Receiver<T>, most: usize) -> Self {
        Self { orders, most, last: 0, began: Instant::now() }
    }

    /// The next batch, when the one before is done; `false` when there will be none.
    ///
    /// Expected are as many as the last batch had and as have come during it. While they come one after
    /// the other they are waited for, half as long as the last batch took at most. Who sends alone, one
    /// after the other, is not waited for.
    pub(super) fn next(&mut self, batch: &mut Vec<T>) -> bool {
        let patience = (self.began.elapsed() / 2).min(LONGEST);
        let came = self.gather(batch, patience);
        self.began = Instant::now();
        came
    }

    fn gather(&mut self, batch: &mut Vec<T>, patience: Duration) -> bool {
        let expected = self.most.min(self.last + self.orders.len());
        if self.orders.blocking_recv_many(batch, self.most) == 0 {
            return false;
        }
        let began = Instant::now();
        let mut newest = began;
        while batch.len() < expected {
            let may_come = || began.elapsed() < patience && newest.elapsed() < patience / PAUSE;
            match self.orders.try_recv() {
                Ok(order) => {
                    batch.push(order);
                    newest = Instant::now();
                }
                Err(TryRecvError::Empty) if may_come() => std::thread::sleep(NAP),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        self.last = batch.len();
        true
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use tokio::sync::mpsc;

    use super::Batches;

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn who_was_answered_is_waited_for() {
        let (sender, orders) = mpsc::channel(16);
        let mut batches = Batches::new(orders, 16);
        let mut batch = Vec::new();
        (1..=4).for_each(|order| sender.blocking_send(order).unwrap());
        assert!(batches.gather(&mut batch, LONG));
        assert_eq!(batch.len(), 4);
        // Two have come meanwhile, and the four come back one by one.
        (5..=6).for_each(|order| sender.blocking_send(order).unwrap());
        let returning = thread::spawn(move || {
            (7..=10).for_each(|order| {
                thread::yield_now();
                sender.blocking_send(order).unwrap();
            });
            sender
        });
        batch.clear();
        assert!(batches.gather(&mut batch, LONG));
        assert_eq!(batch, [5, 6, 7, 8, 9, 10]);
        // Who stays away is not expected for long.
        let sender = returning.join().unwrap();
        for _ in 0..2 {
            sender.blocking_send(11).unwrap();
            batch.clear();
            assert!(batches.gather(&mut batch, Duration::ZERO));
            assert_eq!(batch, [11]);
        }
        drop(sender);
        assert!(!batches.gather(&mut batch, LONG));
    }

    #[test]
    fn a_batch_has_no_more_than_it_may() {
        let (sender, orders) = mpsc::channel(16);
        let mut batches = Batches::new(orders, 3);
        (1..=7).for_each(|order| sender.blocking_send(order).unwrap());
        let mut sizes = Vec::new();
        for _ in 0..3 {
            let mut batch = Vec::new();
            assert!(batches.gather(&mut batch, Duration::ZERO));
            sizes.push(batch.len());
        }
        assert_eq!(sizes, [3, 3, 1]);
    }
}
