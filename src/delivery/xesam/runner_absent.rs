//! Stand-in for the task of the target, in a build without the feature `dbus`. The configuration refuses to enable D-Bus, so
//! nobody runs it.

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::crawlers::{Crawlers, Launch};
use crate::cluster::Cluster;

/// Runs the target. The application spawns [`TargetRunner::run`].
pub struct TargetRunner {
    pub(super) crawlers: Crawlers,
    pub(super) launches: mpsc::Receiver<Launch>,
}

impl TargetRunner {
    /// Waits until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken, _: Cluster) {
        stop.cancelled().await;
    }
}
