//! Settings of the journal.

use std::time::Duration;

use super::{ChangeBounds, TailBounds};

/// Settings of the journal.
#[derive(Clone, Copy, Debug)]
pub struct JournalSettings {
    /// Maximum number of commands in the queue of the writer.
    pub queue: usize,
    /// Maximum number of commands that the writer executes in one transaction.
    pub batch: usize,
    /// Bounds on the changes in memory.
    pub tail: TailBounds,
    /// Maximum time of a command in the queue and on its way to the disk.
    pub patience: Duration,
    /// Bounds on one change and on one object.
    pub bounds: ChangeBounds,
}

impl Default for JournalSettings {
    fn default() -> Self {
        let (tail, bounds) = (TailBounds::default(), ChangeBounds::default());
        Self { queue: 1024, batch: 512, tail, patience: Duration::from_secs(20), bounds }
    }
}
