//! Harvests of repositories.

mod downloads;
mod example;
mod feeds;
mod gateways;
mod made_over_http;
mod misbehaviour;
mod oai_pmh;
mod program;
