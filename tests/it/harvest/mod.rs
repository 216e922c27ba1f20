//! Harvests of repositories.

mod feeds;
mod misbehaviour;
mod oai_pmh;
mod program;
