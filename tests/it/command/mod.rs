//! The command line.

mod check;
mod check_brokers;
mod check_connections;
mod completions_and_man;
mod config;
mod explain;
mod export;
mod gateway_url;
mod help_and_exit_codes;
mod messages;
mod quarantine;
mod reload;
mod replay;
mod subscriptions;
mod tail;
mod tail_cursor;
mod top;
