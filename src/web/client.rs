//! Facts about the sender of a request, determined by the server and access control, as extractors for handlers.

use std::{
    convert::Infallible,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::{
    extract::{ConnectInfo, FromRequestParts},
    http::request::Parts,
};

use super::connections::client_address;

/// Sender of a request, for limits per client: the token if there is one, and the IP address otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// The token with this name.
    Token(Arc<str>),
    /// An IPv4 address, or the /64 network of an IPv6 address.
    Address(IpAddr),
    /// A client on this machine without a token.
    Local,
}

impl fmt::Display for Client {
    /// Writes the sender for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(name) => write!(f, "the token {name}"),
            Self::Address(address) => address.fmt(f),
            Self::Local => f.write_str("this machine"),
        }
    }
}

/// Name of the token of a request: an extension that access control adds.
#[derive(Clone)]
pub(super) struct TokenName(pub(super) Arc<str>);

impl<S: Sync> FromRequestParts<S> for Client {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        if let Some(TokenName(name)) = parts.extensions.get() {
            return Ok(Self::Token(Arc::clone(name)));
        }
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        Ok(peer.and_then(|ConnectInfo(peer)| client_address(peer.ip())).map_or(Self::Local, Self::Address))
    }
}

/// `true` if the sender of a request to an open route may see details: its token has the scope `read`, or access is
/// open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MayRead(pub bool);

impl<S: Sync> FromRequestParts<S> for MayRead {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or(Self(false)))
    }
}

/// Extension that marks a request admitted only by the signature of its body. Other parts of the request are not
/// authenticated.
#[derive(Clone, Copy, Debug)]
pub struct SignedBody;
