//! `[page]`: the page of the gateway.

use crate::settings::{Flag, settings};

settings! {
    /// `[page]`: the page of the gateway at `/`.
    #[derive(Clone, Copy, Debug)]
    pub struct PageConfig {
        /// Whether browsers get the page.
        pub enabled: Flag,
    }
}
