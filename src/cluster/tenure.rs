//! Proof that this node has a duty.
//!
//! The store checks the term with every write, so a former holder writes nothing. Effects outside the journal, such as
//! a message to a subscriber, cannot be checked there. The node therefore trusts itself only until shortly before its
//! lease ends, by its own monotonic clock, counted from before the request of the last renewal.
//!
//! Once the trust has ended, a renewal that succeeds after all does not restore it: some of the work may have stopped.
//! The duty is given back, and taken again in a new tenure.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::journal::nodes::Term;

/// Time before the end of a lease from which the node does not trust itself any more.
const MARGIN: Duration = Duration::from_secs(1);

/// Returns the end of the trust in a lease that was renewed by a request at `requested`.
pub(super) fn trusted_until(requested: Instant, lease: Duration) -> Instant {
    requested + lease.saturating_sub(MARGIN)
}

/// One tenure of a duty. Clones belong to the same tenure.
#[derive(Clone, Debug)]
pub struct Tenure {
    term: Option<Term>,
    stop: CancellationToken,
    /// End of the node's trust in its lease; `None` if the node has the duty for ever.
    trusted_until: Option<watch::Receiver<Instant>>,
    /// Cancelled once somebody has seen that the trust has ended.
    distrust: CancellationToken,
}

impl Tenure {
    /// Returns the tenure of a node that has the duty for ever.
    #[must_use]
    pub fn permanent(stop: CancellationToken) -> Self {
        Self { term: None, stop, trusted_until: None, distrust: CancellationToken::new() }
    }

    pub(super) fn of(term: Term, stop: CancellationToken, trusted_until: watch::Receiver<Instant>) -> Self {
        Self { term: Some(term), stop, trusted_until: Some(trusted_until), distrust: CancellationToken::new() }
    }

    /// Returns the term that every write for the duty must carry; `None` if the node has the duty for ever.
    #[must_use]
    pub fn term(&self) -> Option<Term> {
        self.term
    }

    /// Returns the token after whose cancellation the work must finish.
    #[must_use]
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Returns whether the node may still act for the duty. Work checks this before each effect outside the journal,
    /// because a process that was suspended resumes in the middle of its work.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        if self.trusted_until.as_ref().is_some_and(|until| Instant::now() >= *until.borrow()) {
            self.distrust.cancel();
        }
        !self.distrust.is_cancelled()
    }

    /// Does work while the node trusts its lease, and never polls it afterwards. A process that was suspended finds the events
    /// of its work, such as the response to a request, before it finds that the timer of [`Tenure::untrusted`] has run out.
    pub(super) async fn while_trusted(&self, mut work: Pin<&mut impl Future<Output = ()>>) {
        let poll = |context: &mut Context<'_>| match self.is_trusted() {
            true => work.as_mut().poll(context),
            false => Poll::Pending,
        };
        std::future::poll_fn(poll).await;
    }

    /// Waits until the node does not trust its lease any more; for ever if it has the duty for ever.
    pub(super) async fn untrusted(&self) {
        let Some(mut until) = self.trusted_until.clone() else { return std::future::pending().await };
        while self.is_trusted() {
            let current = *until.borrow_and_update();
            tokio::select! {
                () = self.distrust.cancelled() => {}
                () = tokio::time::sleep_until(current.into()) => {}
                renewed = until.changed() => if renewed.is_err() { self.distrust.cancel() },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::atomic::{AtomicU32, Ordering},
    };

    use super::{CancellationToken, Duration, Instant, Tenure, Term, trusted_until, watch};

    #[test]
    fn trust_ends_a_second_before_the_lease() {
        let requested = Instant::now();
        assert_eq!(trusted_until(requested, Duration::from_secs(10)), requested + Duration::from_secs(9));
    }

    #[tokio::test]
    async fn renewals_extend_the_trust() {
        let now = Instant::now();
        let (until, trust) = watch::channel(now + Duration::from_millis(30));
        let tenure = Tenure::of(Term(uuid::Uuid::new_v4()), CancellationToken::new(), trust);
        assert!(tenure.is_trusted());
        until.send_replace(now + Duration::from_millis(60));
        tenure.untrusted().await;
        assert!(now.elapsed() >= Duration::from_millis(60) && !tenure.is_trusted());
        assert!(Tenure::permanent(CancellationToken::new()).is_trusted());
    }

    #[tokio::test]
    async fn work_is_not_polled_after_a_suspension() {
        let (_until, trust) = watch::channel(Instant::now() + Duration::from_millis(50));
        let tenure = Tenure::of(Term(uuid::Uuid::new_v4()), CancellationToken::new(), trust);
        let (event, steps) = (tokio::sync::Notify::new(), AtomicU32::new(0));
        let mut work = pin!(async {
            loop {
                event.notified().await;
                steps.fetch_add(1, Ordering::Relaxed);
            }
        });
        let suspension = async {
            event.notify_one();
            tokio::task::yield_now().await;
            assert_eq!(steps.load(Ordering::Relaxed), 1);
            // No timer runs meanwhile, as if the process had been suspended.
            std::thread::sleep(Duration::from_millis(100));
            event.notify_one();
            tokio::task::yield_now().await;
        };
        tokio::select! {
            biased;
            () = tenure.while_trusted(work.as_mut()) => unreachable!(),
            () = suspension => {}
        }
        assert_eq!(steps.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn late_renewal_does_not_restore_the_trust() {
        let (until, trust) = watch::channel(Instant::now());
        let tenure = Tenure::of(Term(uuid::Uuid::new_v4()), CancellationToken::new(), trust);
        let clone = tenure.clone();
        assert!(!clone.is_trusted());
        until.send_replace(Instant::now() + Duration::from_secs(60));
        assert!(!tenure.is_trusted() && !clone.is_trusted());
        tenure.untrusted().await;
    }
}
