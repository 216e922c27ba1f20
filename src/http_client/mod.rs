//! HTTP client for outgoing requests: the policy for their targets ([`OutboundPolicy`], [`OutboundUrl`]), and
//! a client that enforces it.
//!
//! A target is checked three times: when its URL is set, so that the user sees a mistake; when a request is
//! sent, because a URL with an IP address is never resolved; and after name resolution. The connection then
//! uses the addresses that were checked, and not the result of a second resolution.
//!
//! Credentials are an [`Authorization`], and the client sends them only to their [`Origin`].

mod allow;
mod client;
mod ip_ranges;
mod origin;
mod outbound_url;
mod probe;
mod redirection;
mod resolve;
mod status;
mod tls_roots;

pub use allow::{AllowList, InvalidAllow};
pub use client::{
    BoundedResponse, Client, ClientError, ClientSettings, ResponseStream, describe_error, unrestricted_client,
};
pub use origin::{Authorization, Origin, RequestHeaders};
pub use outbound_url::{InvalidOutboundUrl, NotAllowed, OutboundPolicy, OutboundUrl};
pub use probe::probe;
pub use redirection::{header_text, redirection_target};
pub use resolve::{NameResolver, ResolveFuture, SystemResolver};
pub use status::{is_transient, rate_limit_reset, retry_after};
pub use tls_roots::{TlsRootsError, check_ca_certificates, tls_client_config, tls_without_roots};
