//! Access control: tokens with and without a view, readers without a token, signatures, requests of other sites, and secrets.

mod cross_site;
mod first_token;
mod home_and_readiness;
mod public_view;
mod secrets;
mod signatures;
mod token_views;
mod tokens;
