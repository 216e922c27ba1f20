//! Facts about the sender of a request that handlers need, as the server and access control have found them.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::{
    extract::{ConnectInfo, FromRequestParts},
    http::request::Parts,
};

use super::crowd::client_address;

/// Sender of a request, for bounds on each: the token that it has sent, or else its address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// The token of this name.
    Token(Arc<str>),
    /// An IPv4 address, or the /64 network of an IPv6 address.
    Address(IpAddr),
    /// Somebody on the gateway's own machine, without a token.
    Local,
}

/// Name of the token by which a request was let in: an extension that access control puts on it.
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

/// Whether the sender of a request to an open route may read, and so may see details: it has a token with that scope, or
/// there is no access control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MayRead(pub bool);

impl<S: Sync> FromRequestParts<S> for MayRead {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or(Self(false)))
    }
}

/// Marks a request, in its extensions, that was let in by the signature of its body alone: nothing else in it is known
/// to be from the owner of the key.
#[derive(Clone, Copy, Debug)]
pub struct SignedBody;
