//! Harvests of repositories.

mod downloads;
mod example;
mod feeds;
mod gateways;
mod misbehaviour;
mod oai_pmh;
mod program;
