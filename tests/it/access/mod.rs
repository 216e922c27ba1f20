//! Access control: tokens, signatures, requests of other sites, and secrets.

mod cross_site;
mod first_token;
mod home_and_readiness;
mod secrets;
mod signatures;
mod tokens;
