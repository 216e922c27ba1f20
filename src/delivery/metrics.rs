//! Metrics of deliveries.

use metrics::{counter, gauge};

use super::websub;
use crate::model::SubscriptionName;

/// Messages by outcome: delivered, unroutable, refused or retried.
pub const DELIVERIES: &str = "tidings_deliveries_total";

/// Number of changes that a subscription is behind the journal.
pub const LAG: &str = "tidings_subscription_lag_changes";

/// 1 while a subscription delivers or waits for changes, else 0; a failing receiver counts as down until it
/// accepts a message.
pub const UP: &str = "tidings_subscription_up";

/// 1 while a subscription is paused, by a person or after long failure of its receiver, else 0.
pub const PAUSED: &str = "tidings_subscription_paused";

/// Number of dead letters of a subscription.
pub const DEAD_LETTERS: &str = "tidings_dead_letter_messages";

/// Number of subscriptions at the WebSub hub.
pub const SUBSCRIBERS: &str = "tidings_websub_subscriptions";

/// WebSub verifications by outcome: verified, failed or denied.
pub const VERIFICATIONS: &str = "tidings_websub_verifications_total";

/// Label of all subscriptions of the hub.
const HUB: &str = "websub";

/// Shows the series of the hub and of its subscriptions, because a `rate()` query needs the initial zero.
pub(super) fn register_hub() {
    for outcome in ["verified", "failed", "denied"] {
        counter!(VERIFICATIONS, "outcome" => outcome).increment(0);
    }
    register_deliveries_of(HUB);
}

/// Shows the series of a subscription, because a `rate()` query needs the initial zero.
pub(super) fn register_deliveries(name: &SubscriptionName) {
    register_deliveries_of(&subscription_label(name));
}

fn register_deliveries_of(label: &str) {
    for outcome in ["delivered", "unroutable", "refused", "retried"] {
        counter!(DELIVERIES, "subscription" => label.to_owned(), "outcome" => outcome).increment(0);
    }
}

pub(super) fn count_verification(outcome: &'static str) {
    counter!(VERIFICATIONS, "outcome" => outcome).increment(1);
}

pub(super) fn count_deliveries(name: &SubscriptionName, outcome: &'static str, messages: u64) {
    counter!(DELIVERIES, "subscription" => subscription_label(name), "outcome" => outcome).increment(messages);
}

/// Returns the label of a subscription. Hub subscriptions share one label, because they come and go and a time
/// series remains.
fn subscription_label(name: &SubscriptionName) -> String {
    if websub::is_hub_subscription(name) { HUB.to_owned() } else { name.to_string() }
}

#[expect(clippy::cast_precision_loss, reason = "there are ten thousand at the most")]
pub(super) fn set_subscribers(count: usize) {
    gauge!(SUBSCRIBERS).set(count as f64);
}

#[expect(clippy::cast_precision_loss, reason = "no journal holds 2⁵³ changes")]
pub(super) fn set_subscription_gauges(name: &SubscriptionName, up: bool, paused: bool, lag: u64, dead_letters: u64) {
    gauge!(UP, "subscription" => name.to_string()).set(if up { 1.0 } else { 0.0 });
    gauge!(PAUSED, "subscription" => name.to_string()).set(if paused { 1.0 } else { 0.0 });
    gauge!(LAG, "subscription" => name.to_string()).set(lag as f64);
    gauge!(DEAD_LETTERS, "subscription" => name.to_string()).set(dead_letters as f64);
}
