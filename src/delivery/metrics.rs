//! What the deliveries count and measure, by the facade of the `metrics` crate.

use metrics::{counter, gauge};

use super::websub;
use crate::model::SubscriptionName;

/// What became of messages: delivered, unroutable, refused or retried.
pub const DELIVERIES: &str = "tidings_deliveries_total";

/// How many changes a subscription is behind.
pub const LAG: &str = "tidings_subscription_lag_changes";

/// 1 while a subscription delivers or waits for changes, else 0: also while its receiver fails and has taken nothing since.
pub const UP: &str = "tidings_subscription_up";

/// 1 while a subscription is paused, by somebody or since its receiver has failed for too long, else 0.
pub const PAUSED: &str = "tidings_subscription_paused";

/// How many dead letters a subscription has.
pub const DEAD_LETTERS: &str = "tidings_dead_letter_messages";

/// How many subscriptions the WebSub hub has.
pub const SUBSCRIBERS: &str = "tidings_websub_subscriptions";

/// What became of what WebSub callbacks were asked: verified, failed or denied.
pub const VERIFICATIONS: &str = "tidings_websub_verifications_total";

pub(super) fn verified(outcome: &'static str) {
    counter!(VERIFICATIONS, "outcome" => outcome).increment(1);
}

pub(super) fn delivered(name: &SubscriptionName, outcome: &'static str, messages: u64) {
    counter!(DELIVERIES, "subscription" => series(name), "outcome" => outcome).increment(messages);
}

/// Those of the hub have one series together: they come and go, and what is measured by name stays.
fn series(name: &SubscriptionName) -> String {
    if websub::is_of_hub(name) { "websub".to_owned() } else { name.to_string() }
}

#[expect(clippy::cast_precision_loss, reason = "there are ten thousand at the most")]
pub(super) fn subscribers(count: usize) {
    gauge!(SUBSCRIBERS).set(count as f64);
}

#[expect(clippy::cast_precision_loss, reason = "no journal holds 2⁵³ changes")]
pub(super) fn subscription(name: &SubscriptionName, up: bool, paused: bool, lag: u64, dead_letters: u64) {
    gauge!(UP, "subscription" => name.to_string()).set(if up { 1.0 } else { 0.0 });
    gauge!(PAUSED, "subscription" => name.to_string()).set(if paused { 1.0 } else { 0.0 });
    gauge!(LAG, "subscription" => name.to_string()).set(lag as f64);
    gauge!(DEAD_LETTERS, "subscription" => name.to_string()).set(dead_letters as f64);
}
