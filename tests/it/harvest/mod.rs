//! Harvests of repositories.

mod misbehaviour;
mod oai_pmh;
mod program;
