//! Look-ups: what a message cannot say, its repository is asked over HTTP.
//!
//! Requests go to the address in the source's configuration and nowhere else, whatever a message names; how they go,
//! and what bounds them, is [`Repository`]'s.

mod breaker;
mod client;
mod settings;
pub mod walk;

pub use client::{Answer, Body, Health, LookupError, Repository, There};
pub use settings::{Api, BaseUrl, Credentials, InvalidBaseUrl, Mode, RepositorySettings};
