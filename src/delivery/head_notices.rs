//! Notices to the engines that the journal has new changes, at a bounded rate.
//!
//! An engine needs some microseconds to look at changes, even if it delivers none of them. With many engines this would take
//! more of the processor than everything else, so they rest after each notice and find several changes at the next one.

use std::time::Duration;

use tokio::{sync::watch, time::sleep};

use crate::{journal::Journal, model::Seq};

/// Rest after a notice, for each engine: about ten times as long as one needs to look at a page without finding anything.
const REST: Duration = Duration::from_micros(10);

/// Shortest rest. The timer has no shorter one, and fewer engines need none.
const SHORTEST_REST: Duration = Duration::from_millis(1);

/// Sends notices to the engines that wait for changes. The first change after a rest is noticed at once.
pub(super) struct HeadNotices(watch::Sender<Seq>);

impl HeadNotices {
    pub(super) fn new(journal: &Journal) -> Self {
        Self(watch::Sender::new(journal.head()))
    }

    /// Returns a receiver of the notices for an engine, as long as it waits: the numbers of the newest change.
    pub(super) fn receiver(&self) -> watch::Receiver<Seq> {
        self.0.subscribe()
    }

    /// Sends notices until the journal is closed.
    pub(super) async fn run(&self, journal: &Journal) {
        let mut head = journal.watch();
        while head.changed().await.is_ok() {
            let newest = *head.borrow_and_update();
            self.0.send_replace(newest);
            let engines = u32::try_from(self.0.receiver_count()).unwrap_or(u32::MAX);
            let rest = REST.saturating_mul(engines);
            if rest >= SHORTEST_REST {
                sleep(rest).await;
            }
        }
    }
}
