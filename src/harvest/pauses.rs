//! Pauses of a harvest: an administrator has paused it at any node, and the journal has the pause.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{
    engine::Interruption,
    status::{HarvestState, HarvestStatus},
};
use crate::{journal::Journal, model::SourceName};

/// Maximum time between two looks at the clock, which an administrator may set.
pub(super) const LONGEST_SLEEP: Duration = Duration::from_secs(60 * 60);

/// Pauses of the harvest of one source.
#[derive(Clone, Copy)]
pub(super) struct Pauses<'a> {
    pub(super) journal: &'a Journal,
    pub(super) source: &'a SourceName,
    pub(super) status: &'a HarvestStatus,
}

impl Pauses<'_> {
    /// Waits while an administrator has paused the harvest.
    pub(super) async fn wait_until_resumed(self, stop: &CancellationToken) -> Result<(), Interruption> {
        while self.is_paused().await? {
            self.status.set(HarvestState::Paused, None);
            self.wait_for_administrator(LONGEST_SLEEP, stop).await?;
        }
        Ok(())
    }

    /// Waits until an administrator pauses the harvest.
    pub(super) async fn wait_until_paused(self, stop: &CancellationToken) -> Result<(), Interruption> {
        loop {
            self.wait_for_administrator(LONGEST_SLEEP, stop).await?;
            if self.is_paused().await? {
                return Ok(());
            }
        }
    }

    pub(super) async fn is_paused(self) -> Result<bool, Interruption> {
        let stored = self.journal.harvest(self.source.clone()).await?;
        Ok(stored.is_some_and(|stored| stored.paused))
    }

    /// Waits this long, or until an administrator may have modified the harvest.
    pub(super) async fn wait_for_administrator(
        self,
        longest: Duration,
        stop: &CancellationToken,
    ) -> Result<(), Interruption> {
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(Interruption::Stopped),
            () = self.status.woken() => Ok(()),
            () = tokio::time::sleep(longest) => Ok(()),
        }
    }
}
