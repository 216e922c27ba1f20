//! What is settled and waits to be written, between the thread that settles ([`Writer`](super::writer)) and the one that
//! writes ([`Disk`](super::disk)).
//!
//! The one that writes takes what is here as soon as it has nothing to do, and does not wait until the other has a moment
//! to hand it over: that may be in the middle of settling the next.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::{disk::Work, store::StoreError};

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

    /// Nobody writes any more.
    pub(super) fn leave(&self) {
        self.state().is_gone = true;
        self.changed.notify_all();
    }
}

impl State {
    fn is_idle(&self) -> bool {
        !self.is_writing && self.works.is_empty()
    }
}
