//! Harvests of repositories.

mod downloads;
mod feeds;
mod misbehaviour;
mod oai_pmh;
mod program;
