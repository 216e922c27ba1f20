//! From the name of a host to the addresses that may be connected to.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    pin::Pin,
    sync::{Arc, LazyLock},
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

use super::destination::Guard;

/// The addresses of a name, as they are being looked up.
pub type Finding = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// What knows the addresses of names. A test has its own.
pub trait Names: Send + Sync {
    /// Looks a name up.
    fn find(&self, host: &str) -> Finding;
}

/// The operating system. Clones share their bound on look-ups.
#[derive(Clone, Debug)]
pub struct SystemNames(Arc<Semaphore>);

/// How many names are looked up at once. Each takes a thread until the system has an answer, also when nobody waits
/// for it any more.
const LOOK_UPS: usize = 64;

/// Number of look-ups at once for names that strangers give.
const LOOK_UPS_OF_STRANGERS: usize = 16;

static LOOKING_UP: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(LOOK_UPS)));

impl Default for SystemNames {
    /// Those that the operator's own words are looked up with: they share one bound.
    fn default() -> Self {
        Self(Arc::clone(&LOOKING_UP))
    }
}

impl SystemNames {
    /// Those with a bound of their own, for names that strangers give: slow ones keep nobody else waiting.
    #[must_use]
    pub fn with_own_bound() -> Self {
        Self(Arc::new(Semaphore::new(LOOK_UPS_OF_STRANGERS)))
    }
}

impl Names for SystemNames {
    fn find(&self, host: &str) -> Finding {
        let (host, turns) = (host.to_owned(), Arc::clone(&self.0));
        Box::pin(async move {
            let turn = turns.acquire_owned().await.map_err(io::Error::other)?;
            let found = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                (host.as_str(), 0).to_socket_addrs().map(|found| found.map(|socket| socket.ip()).collect())
            });
            found.await.map_err(io::Error::other)?
        })
    }
}

impl Guard {
    /// Resolves a host to those of its addresses that a connection may go to.
    ///
    /// # Errors
    /// When the host has no address, or none that is allowed; the text says why.
    pub async fn resolve(&self, names: &dyn Names, host: &str, is_encrypted: bool) -> Result<Vec<IpAddr>, String> {
        let found = names.find(host).await.map_err(|error| error.to_string())?;
        self.allowed(host, found, is_encrypted).map_err(|error| error.to_string())
    }
}

/// Looks names up for a client, and leaves out the addresses that its guard does not allow.
pub(super) struct Guarded {
    pub(super) names: Arc<dyn Names>,
    pub(super) guard: Guard,
    /// Whether the connections are encrypted.
    pub(super) is_encrypted: bool,
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let (finding, guard, is_encrypted) = (self.names.find(name.as_str()), self.guard.clone(), self.is_encrypted);
        Box::pin(async move {
            let allowed = guard.allowed(name.as_str(), finding.await?, is_encrypted)?;
            // Port 0 stands for that of the address that was asked for.
            let sockets: Addrs = Box::new(allowed.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(sockets)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::{Names, SystemNames};

    /// How long the system may take for a name of its own.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn names_of_strangers_keep_nobody_else_waiting() {
        let (ours, strangers) = (SystemNames::default(), SystemNames::with_own_bound());
        let all = u32::try_from(strangers.0.available_permits()).unwrap();
        let _slow = strangers.0.clone().try_acquire_many_owned(all).unwrap();
        let found = tokio::select! {
            _ = strangers.find("localhost") => panic!("all turns are taken"),
            found = timeout(PATIENCE, ours.find("localhost")) => found,
        };
        assert!(!found.expect("strangers take no turn of ours").unwrap().is_empty());
    }
}
