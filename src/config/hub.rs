//! `[hub]`: the WebSub hub of the feed.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error as _};

use super::{seconds, setting::bounded};
use crate::delivery::websub::{self, SignatureMethod};

/// `[hub]`: limits of the WebSub hub.
#[derive(Clone, Debug, Deserialize)]
pub struct HubConfig {
    /// Whether the hub is enabled.
    pub enabled: bool,
    /// `lease_seconds`: duration of a subscription that requests none, a minute to a year.
    #[serde(rename = "lease_seconds", deserialize_with = "seconds::<60, 31_536_000, _>")]
    pub lease: Duration,
    /// `longest_lease_seconds`: maximum duration of a subscription, a minute to a year.
    #[serde(rename = "longest_lease_seconds", deserialize_with = "seconds::<60, 31_536_000, _>")]
    pub longest_lease: Duration,
    /// Maximum number of subscriptions, 1 to 10 000.
    #[serde(deserialize_with = "bounded::<1, { websub::MAX_SUBSCRIPTIONS as u64 }, _, _>")]
    pub subscriptions: usize,
    /// Maximum number of subscriptions with the same callback, 1 to 10 000.
    #[serde(deserialize_with = "bounded::<1, { websub::MAX_SUBSCRIPTIONS as u64 }, _, _>")]
    pub per_callback: usize,
    /// Signature algorithm of messages.
    #[serde(deserialize_with = "signature_method")]
    pub signature: SignatureMethod,
}

fn signature_method<'de, D: Deserializer<'de>>(setting: D) -> Result<SignatureMethod, D::Error> {
    let name = String::deserialize(setting)?;
    SignatureMethod::ALL.into_iter().find(|method| method.name() == name).ok_or_else(|| {
        let known = SignatureMethod::ALL.map(|method| format!("{:?}", method.name())).join(", ");
        D::Error::custom(format_args!("it is {name:?}; give one of {known}"))
    })
}
