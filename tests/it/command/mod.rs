//! The command line.

mod check;
mod gateway_url;
pub(crate) mod help_and_exit_codes;
mod replay;
mod subscriptions;
mod tail;
