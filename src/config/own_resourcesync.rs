//! `[resourcesync]`: the gateway as a source with ResourceSync.

use crate::settings::{Flag, settings};

settings! {
    /// `[resourcesync]`: the gateway as a source with ResourceSync 1.1 at `/.well-known/resourcesync`.
    #[derive(Clone, Copy, Debug)]
    pub struct OwnResourceSyncConfig {
        /// Whether the capability list announces change notifications, which the hub sends. rs-aggregator reads nothing of a
        /// source that announces them.
        pub notifications: Flag,
    }
}
