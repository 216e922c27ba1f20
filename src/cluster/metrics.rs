//! Metrics of the nodes.

use metrics::{counter, gauge};

/// Gauge: number of duties of this node.
pub const DUTIES: &str = "tidings_node_duties";

/// Counter: duties that this node has taken.
pub const TAKEOVERS: &str = "tidings_duty_takeovers_total";

/// Counter: duties that this node has lost without giving them back.
pub const LOSSES: &str = "tidings_duty_losses_total";

/// Gauge: number of changes that this node does not know yet.
pub const LAG: &str = "tidings_node_lag_changes";

#[expect(clippy::cast_precision_loss, reason = "no journal holds 2⁵³ changes")]
pub(super) fn set_lag(changes: u64) {
    gauge!(LAG).set(changes as f64);
}

#[expect(clippy::cast_precision_loss, reason = "there are fewer than 2⁵³ subscriptions")]
pub(super) fn set_duties(count: usize) {
    gauge!(DUTIES).set(count as f64);
}

/// Shows the series of counters, because a `rate()` query needs the initial zero.
pub(super) fn register() {
    count_takeovers(0);
    count_losses(0);
}

pub(super) fn count_takeovers(count: usize) {
    counter!(TAKEOVERS).increment(count as u64);
}

pub(super) fn count_losses(count: usize) {
    counter!(LOSSES).increment(count as u64);
}
