//! The command line.

mod check;
mod gateway_url;
mod help_and_exit_codes;
mod quarantine;
mod reload;
mod replay;
mod subscriptions;
mod tail;
