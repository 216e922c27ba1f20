//! Harvests of repositories.

mod downloads;
mod example;
mod feeds;
mod gateways;
mod made_over_http;
mod misbehaviour;
mod missing_records;
mod oai_pmh;
mod program;
