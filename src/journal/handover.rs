//! What is settled and waits to be written, between the thread that settles ([`Writer`](super::writer)) and the one that
//! writes ([`Disk`](super::disk)).
//!
//! The one that writes takes what is here as soon as it has nothing to do, and does not wait until the other has a moment
//! to hand it over: that may be in the middle of settling the next.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::{disk::Work, order::Taken, store::StoreError};

/// What is settled and not written yet, in order.
#[derive(Default)]
pub(super) struct Handover {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    works: Vec<Work>,
    /// Of how many orders they are.
    orders: usize,
    is_writing: bool,
    /// How many works were ever put here, and how many of them are done with.
    put: u64,
    done: u64,
    /// What could not be written, and why the last time.
    failures: u64,
    error: Option<StoreError>,
    /// Nothing more comes.
    is_closed: bool,
    /// Nobody writes any more.
    is_gone: bool,
}

/// What the thread that settles finds before it does so.
pub(super) struct Seen {
    /// Works up to the one of this number are done with.
    pub(super) done: u64,
    /// How often something could not be written. What was settled on it is not written either.
    pub(super) failures: u64,
    /// Whether nothing is written, or about to be.
    pub(super) is_idle: bool,
    /// How many orders are settled and not on their way to the disk.
    pub(super) orders: usize,
}

/// The thread that writes has gone, by a fault of ours: what it had acknowledged is on disk.
pub(super) struct Gone;

impl Handover {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change of the state is whole: nothing panics in the middle of one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while(&self, holds: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        self.changed.wait_while(self.state(), |state| holds(state)).unwrap_or_else(PoisonError::into_inner)
    }

    /// How things stand.
    pub(super) fn see(&self) -> Result<Seen, Gone> {
        let state = self.state();
        if state.is_gone {
            return Err(Gone);
        }
        Ok(Seen { done: state.done, failures: state.failures, is_idle: state.is_idle(), orders: state.orders })
    }

    /// Puts what was settled when there had been so many failures; gives its number. If there was one meanwhile, nothing
    /// of it is written, and its senders hear why.
    pub(super) fn put(&self, mut work: Work, failures: u64) -> u64 {
        let mut state = self.state();
        if state.is_gone {
            work = Work::new(work.orders, Taken::default());
        }
        if failures != state.failures
            && let Some(error) = &state.error
        {
            work.refuse(error);
        }
        state.orders += work.orders;
        state.put += 1;
        state.works.push(work);
        self.changed.notify_all();
        state.put
    }

    /// Waits until some of this, as it was seen, is on its way or done with.
    pub(super) fn wait(&self, done: u64, orders: usize) {
        drop(self.wait_while(|state| state.done == done && state.orders >= orders && !state.is_gone));
    }

    /// Nothing more comes: who writes ends when all is written.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    /// Takes what is to be written in one transaction, and waits for it; `None` when nothing more comes. What has more to
    /// be done than to be written is the last, since that comes before what was ordered later.
    pub(super) fn take(&self) -> Option<Vec<Work>> {
        let mut state = self.wait_while(|state| state.works.is_empty() && !state.is_closed);
        let last = state.works.iter().position(|work| work.rest.has_more()).map_or(state.works.len(), |last| last + 1);
        let works: Vec<_> = state.works.drain(..last).collect();
        state.orders -= works.iter().map(|work| work.orders).sum::<usize>();
        state.is_writing = !works.is_empty();
        self.changed.notify_all();
        state.is_writing.then_some(works)
    }

    /// So many works are done with. When they could not be written, neither is what was settled on them.
    pub(super) fn done(&self, works: usize, written: Result<(), StoreError>) {
        let mut state = self.state();
        state.is_writing = false;
        state.done += works as u64;
        if let Err(error) = written {
            state.works.iter_mut().for_each(|work| work.refuse(&error));
            state.failures += 1;
            state.error = Some(error);
        }
        self.changed.notify_all();
    }

    /// Nobody writes any more. The senders of what is left hear that the journal is closed.
    pub(super) fn leave(&self) {
        let mut state = self.state();
        state.is_gone = true;
        let left = std::mem::take(&mut state.works);
        drop(state);
        drop(left);
        self.changed.notify_all();
    }
}

impl State {
    fn is_idle(&self) -> bool {
        !self.is_writing && self.works.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, mpsc::channel},
        time::Duration,
    };

    use tokio::sync::oneshot;

    use super::{Handover, StoreError, Work};
    use crate::journal::order::{Answer, Outcome, Taken};

    const PATIENCE: Duration = Duration::from_secs(10);

    type Answered = oneshot::Receiver<Result<Vec<Vec<Outcome>>, StoreError>>;

    /// Work of one order, and where its answer comes.
    fn work() -> (Work, Answered) {
        let (answer, answered) = oneshot::channel();
        let taken = Taken { submitters: vec![(1, answer)], ..Taken::default() };
        (Work::new(1, taken), answered)
    }

    /// Work with something else to be done after it is written.
    fn work_with_more() -> Work {
        let answer: Answer<Vec<u64>> = oneshot::channel().0;
        Work::new(1, Taken { writes: vec![(Vec::new(), answer)], ..Taken::default() })
    }

    #[test]
    fn what_was_settled_on_what_could_not_be_written_is_refused() {
        let handover = Handover::default();
        let ((first, _first), (second, mut second_answer)) = (work(), work());
        assert_eq!(handover.put(first, 0), 1);
        assert_eq!(handover.take().unwrap().len(), 1);
        assert_eq!(handover.put(second, 0), 2);
        handover.done(1, Err(StoreError::Full));
        assert!(matches!(second_answer.try_recv(), Ok(Err(StoreError::Full))), "it was here when that failed");

        let ((third, mut third_answer), (fourth, mut fourth_answer)) = (work(), work());
        handover.put(third, 0);
        assert!(matches!(third_answer.try_recv(), Ok(Err(StoreError::Full))), "it was being settled when that failed");
        let seen = handover.see().unwrap_or_else(|_| panic!("nobody has gone"));
        assert_eq!((seen.done, seen.failures, seen.orders, seen.is_idle), (1, 1, 2, false));
        handover.put(fourth, seen.failures);
        assert!(fourth_answer.try_recv().is_err(), "it was settled after that");
        assert_eq!(handover.take().unwrap().len(), 3);
    }

    #[test]
    fn what_has_more_to_be_done_ends_a_transaction() {
        let handover = Handover::default();
        for work in [work().0, work_with_more(), work().0, work().0] {
            handover.put(work, 0);
        }
        handover.close();
        assert_eq!(handover.take().unwrap().len(), 2);
        assert!(handover.see().is_ok_and(|seen| !seen.is_idle && seen.orders == 2));
        handover.done(2, Ok(()));
        assert_eq!(handover.take().unwrap().len(), 2, "what is here is written though nothing more comes");
        handover.done(2, Ok(()));
        assert!(handover.see().is_ok_and(|seen| seen.is_idle && seen.done == 4));
        assert!(handover.take().is_none());
        handover.leave();
        assert!(handover.see().is_err());
    }

    /// Has one thread wait, and another do what ends that; the first may come too late to wait, so it is done again.
    fn wakes(orders: usize, begin: fn(&Handover), end: fn(&Handover)) {
        for _ in 0..200 {
            let handover = Arc::new(Handover::default());
            begin(&handover);
            let (waiting, (woken, is_woken)) = (Arc::clone(&handover), channel());
            std::thread::spawn(move || {
                waiting.wait(0, orders);
                woken.send(())
            });
            std::thread::yield_now();
            end(&handover);
            is_woken.recv_timeout(PATIENCE).unwrap();
        }
    }

    #[test]
    fn who_waits_is_woken_when_some_is_on_its_way() {
        let put = |handover: &Handover| {
            handover.put(work().0, 0);
        };
        wakes(1, put, |handover| drop(handover.take()));
    }

    #[test]
    fn who_waits_is_woken_when_some_is_done_with() {
        let put_and_take = |handover: &Handover| {
            handover.put(work().0, 0);
            handover.take();
        };
        wakes(0, put_and_take, |handover| handover.done(1, Ok(())));
    }
}
