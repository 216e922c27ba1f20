//! Resolution of host names to the addresses that connections may use.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    pin::Pin,
    sync::{Arc, LazyLock},
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

use super::outbound_url::OutboundPolicy;

/// Future of a host's addresses.
pub type ResolveFuture = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Resolves host names. Tests implement it.
pub trait NameResolver: Send + Sync {
    /// Resolves a host name.
    fn find(&self, host: &str) -> ResolveFuture;
}

/// Resolver of the operating system. Clones share their limit of concurrent lookups.
#[derive(Clone, Debug)]
pub struct SystemResolver(Arc<Semaphore>);

/// Maximum number of concurrent lookups. Each occupies a thread until the system responds, even if its caller
/// has gone.
const MAX_LOOKUPS: usize = 64;

/// Maximum number of concurrent lookups for names that strangers choose.
const MAX_LOOKUPS_OF_STRANGERS: usize = 16;

static SHARED_LIMIT: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MAX_LOOKUPS)));

impl Default for SystemResolver {
    /// Returns the resolver for names from the operator's configuration. All of them share one limit.
    fn default() -> Self {
        Self(Arc::clone(&SHARED_LIMIT))
    }
}

impl SystemResolver {
    /// Returns a resolver with a limit of its own, for names that strangers choose. Slow names of strangers
    /// then delay nobody else.
    #[must_use]
    pub fn with_separate_limit() -> Self {
        Self(Arc::new(Semaphore::new(MAX_LOOKUPS_OF_STRANGERS)))
    }
}

impl NameResolver for SystemResolver {
    fn find(&self, host: &str) -> ResolveFuture {
        let (host, permits) = (host.to_owned(), Arc::clone(&self.0));
        Box::pin(async move {
            let permit = permits.acquire_owned().await.map_err(io::Error::other)?;
            let addresses = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                (host.as_str(), 0).to_socket_addrs().map(|addresses| addresses.map(|socket| socket.ip()).collect())
            });
            addresses.await.map_err(io::Error::other)?
        })
    }
}

impl OutboundPolicy {
    /// Resolves a host to the addresses that the policy allows.
    ///
    /// # Errors
    /// Fails if the host has no address, or none that is allowed.
    pub async fn resolve(
        &self,
        resolver: &dyn NameResolver,
        host: &str,
        is_encrypted: bool,
    ) -> Result<Vec<IpAddr>, String> {
        let addresses = resolver.find(host).await.map_err(|error| error.to_string())?;
        self.allowed(host, addresses, is_encrypted).map_err(|error| error.to_string())
    }
}

/// Resolver of an HTTP client. It drops the addresses that the policy refuses.
pub(super) struct GuardedResolver {
    pub(super) resolver: Arc<dyn NameResolver>,
    pub(super) policy: OutboundPolicy,
    /// True if the connections use TLS.
    pub(super) is_encrypted: bool,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (lookup, policy, is_encrypted) =
            (self.resolver.find(name.as_str()), self.policy.clone(), self.is_encrypted);
        Box::pin(async move {
            let allowed = policy.allowed(name.as_str(), lookup.await?, is_encrypted)?;
            // With port 0 the client uses the port of the URL.
            let sockets: Addrs = Box::new(allowed.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(sockets)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::{NameResolver, SystemResolver};

    /// Timeout for the system to resolve its own name.
    const TIMEOUT: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn names_of_strangers_do_not_delay_other_lookups() {
        let (ours, strangers) = (SystemResolver::default(), SystemResolver::with_separate_limit());
        let all = u32::try_from(strangers.0.available_permits()).unwrap();
        let _slow = strangers.0.clone().try_acquire_many_owned(all).unwrap();
        let addresses = tokio::select! {
            _ = strangers.find("localhost") => panic!("all turns are taken"),
            addresses = timeout(TIMEOUT, ours.find("localhost")) => addresses,
        };
        assert!(!addresses.expect("strangers take no turn of ours").unwrap().is_empty());
    }
}
