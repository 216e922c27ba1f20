//! The repository with OAI-PMH at `/oai`: every response of these tests is valid.

mod clients;
mod errors;
mod flow_control;
mod gateways;
mod kept_records;
mod lists;
mod public;
mod records;
