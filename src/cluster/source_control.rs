//! Control of a source that reads a broker: an administrator pauses, resumes and reconnects it at any node.

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Tenure;
use crate::{
    journal::{Journal, JournalError, harvest::HarvestWrite},
    model::SourceName,
};

/// Control of one source. Pauses are in the journal, so they survive a restart and hold on every node.
pub struct SourceControl {
    source: SourceName,
    journal: Journal,
    /// Notified when this node must look at the pause again, or connect again.
    interrupted: Notify,
}

impl SourceControl {
    /// Creates the control of a source.
    #[must_use]
    pub fn new(source: SourceName, journal: Journal) -> Self {
        Self { source, journal, interrupted: Notify::new() }
    }

    /// Pauses the source until it is resumed. Messages that were already read are written and acknowledged; all others stay
    /// with the broker.
    ///
    /// # Errors
    /// Fails if the journal fails.
    pub async fn pause(&self) -> Result<(), JournalError> {
        self.set_paused(true).await
    }

    /// Resumes the source.
    ///
    /// # Errors
    /// As [`Self::pause`].
    pub async fn resume(&self) -> Result<(), JournalError> {
        self.set_paused(false).await
    }

    /// Closes the connection to the broker, if there is one, and connects again without a wait.
    ///
    /// # Errors
    /// As [`Self::pause`].
    pub async fn reconnect(&self) -> Result<(), JournalError> {
        // The end of the duty informs its holder, which begins a new tenure.
        self.journal.write_harvest(self.source.clone(), HarvestWrite::Restart).await?;
        self.interrupted.notify_waiters();
        Ok(())
    }

    async fn set_paused(&self, paused: bool) -> Result<(), JournalError> {
        self.journal.write_harvest(self.source.clone(), HarvestWrite::SetPaused(paused)).await?;
        self.reconnect().await
    }

    /// Calls `read` until the tenure ends, unless the source is paused. Each call ends when its token is cancelled, and a new
    /// one begins when the source is resumed or is to connect again.
    pub async fn read_unless_paused<F: Future<Output = ()>>(
        &self,
        tenure: &Tenure,
        show_paused: impl Fn(),
        mut read: impl FnMut(CancellationToken) -> F,
    ) {
        while !tenure.stop().is_cancelled() {
            // Before the look at the journal, so that no later pause is missed.
            let interrupted = self.interrupted.notified();
            tokio::pin!(interrupted);
            interrupted.as_mut().enable();
            let Some(record) = tenure.read(|| self.journal.harvest(self.source.clone())).await else { return };
            if record.is_some_and(|record| record.paused) {
                show_paused();
                let _ = tenure.stop().run_until_cancelled(interrupted).await;
                continue;
            }
            let stop = tenure.stop().child_token();
            let reading = read(stop.clone());
            tokio::pin!(reading);
            tokio::select! {
                () = &mut reading => {}
                () = interrupted => {
                    stop.cancel();
                    reading.await;
                }
            }
        }
    }
}
