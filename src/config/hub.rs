//! `[hub]`: the WebSub hub of the feed.

use crate::{
    delivery::websub::{self, SignatureMethod},
    settings::{Choice, Choose, Flag, Seconds, Whole, settings},
};

settings! {
    /// `[hub]`: limits of the WebSub hub.
    #[derive(Clone, Debug)]
    pub struct HubConfig {
        /// Whether the hub is enabled.
        pub enabled: Flag,
        /// Duration of a subscription that requests none, a minute to a year.
        pub lease as "lease_seconds": Seconds<60, 31_536_000>,
        /// Maximum duration of a subscription, a minute to a year.
        pub longest_lease as "longest_lease_seconds": Seconds<60, 31_536_000>,
        /// Maximum number of subscriptions, 1 to 10 000.
        pub subscriptions: Whole<usize, 1, { websub::MAX_SUBSCRIPTIONS as u64 }>,
        /// Maximum number of subscriptions with the same callback, 1 to 10 000.
        pub per_callback: Whole<usize, 1, { websub::MAX_SUBSCRIPTIONS as u64 }>,
        /// Signature algorithm of messages.
        pub signature: Choice<SignatureMethod>,
    }
}

impl Choose for SignatureMethod {
    const WHAT: &'static str = "signature";

    fn unknown(name: &str, known: &[&str]) -> String {
        let known: Vec<_> = known.iter().map(|name| format!("{name:?}")).collect();
        format!("it is {name:?}; give one of {}", known.join(", "))
    }
}
