//! Limits on tables that every store trims automatically.

/// Limits on tables that the store trims automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Minimum number of newest changes whose event keys are kept. A key is removed when it exceeds both this
    /// number and `dedupe_millis`.
    pub dedupe_events: u64,
    /// Minimum time for which an event key is kept, in milliseconds.
    pub dedupe_millis: i64,
    /// Maximum number of messages in the quarantine; the oldest of the source with the most are dropped first.
    pub quarantine_entries: u64,
    /// Maximum size of all bodies in the quarantine, in bytes; the oldest messages of the source with the most bytes are
    /// dropped first.
    pub quarantine_bytes: u64,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            dedupe_events: 1_000_000,
            dedupe_millis: 30 * 24 * 60 * 60 * 1000,
            quarantine_entries: 10_000,
            quarantine_bytes: 256 * 1024 * 1024,
        }
    }
}
