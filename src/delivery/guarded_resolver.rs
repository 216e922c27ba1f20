//! Resolver of brokers' hosts that heeds the guard of outbound requests.

use std::{net::SocketAddr, sync::Arc};

use crate::{
    broker::Resolver,
    http_client::{OutboundPolicy, SystemResolver},
};

/// Returns a resolver that omits addresses which the guard does not allow. The connection uses exactly the
/// checked addresses; the name is not resolved again.
pub(super) fn guarded_resolver(guard: OutboundPolicy) -> Resolver {
    Arc::new(move |endpoint| {
        let (guard, host) = (guard.clone(), endpoint.host().to_owned());
        let (port, is_encrypted) = (endpoint.port(), endpoint.is_encrypted());
        Box::pin(async move {
            let addresses = guard.resolve(&SystemResolver::default(), &host, is_encrypted).await?;
            Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
        })
    })
}
