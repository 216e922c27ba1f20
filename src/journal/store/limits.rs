//! The limits that every store keeps by itself.

/// Limits on the tables that the store trims by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Least number of the newest changes whose events are known when they are repeated …
    pub dedupe_events: u64,
    /// … and least time, in milliseconds, for which they are known. A key is forgotten when both have passed.
    pub dedupe_millis: i64,
    /// Most messages in the quarantine; the oldest go first.
    pub quarantine_entries: u64,
    /// Most bytes of bodies in the quarantine; the oldest messages go first.
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
