//! Table of open connections. When there is no room for a new connection, it evicts the oldest one whose client has
//! not completed a request for a while. Therefore nobody can block others with requests that never end.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use super::{Limit, limit_hit};

/// Time that a client has to complete a request before its connection may be evicted, even if there is no room. An
/// honest client needs a round trip; an overloaded gateway may need a while to read the request.
const GRACE: Duration = Duration::from_secs(3);

/// Returns the address that identifies a client for the limits per client: an IPv4 address, or the /64 network of an
/// IPv6 address, which a single host may own. `None` for the loopback interface: a proxy may connect from there, and
/// local processes have other ways to disturb the gateway.
pub(super) fn client_address(peer: IpAddr) -> Option<IpAddr> {
    match peer.to_canonical() {
        own if own.is_loopback() => None,
        IpAddr::V4(address) => Some(address.into()),
        IpAddr::V6(address) => Some(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()),
    }
}

/// Progress of a client on its connection. While the connection is on probation, it may be evicted.
#[derive(Debug)]
pub(super) struct Probation {
    opened: Instant,
    /// Milliseconds from `opened` to the start of the probation, plus one; 0 if the connection is not on probation.
    since: AtomicU64,
    /// Set while the connection can be evicted.
    is_evictable: AtomicBool,
    eviction: Notify,
}

/// Handle to the [`Probation`] of a request's connection: an extension that the server adds to each request.
#[derive(Clone, Debug)]
pub(super) struct ProbationHandle(pub(super) Arc<Probation>);

impl Probation {
    fn new() -> Self {
        Self {
            opened: Instant::now(),
            since: AtomicU64::new(0),
            is_evictable: AtomicBool::new(true),
            eviction: Notify::new(),
        }
    }

    /// Starts the probation, unless it has started: the client has begun to send a request, or the body of an
    /// unauthenticated request.
    pub(super) fn begin(&self) {
        if self.since.load(Ordering::Relaxed) == 0 {
            let elapsed = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
            self.since.store(elapsed + 1, Ordering::Relaxed);
        }
    }

    /// Ends the probation, because a request is being answered.
    pub(super) fn end(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// Excludes the connection from eviction permanently.
    pub(super) fn exempt(&self) {
        self.is_evictable.store(false, Ordering::Relaxed);
    }

    /// Waits until the connection is evicted.
    pub(super) async fn evicted(&self) {
        self.eviction.notified().await;
    }

    /// Returns the start of the probation if the connection can be evicted.
    fn start(&self) -> Option<Instant> {
        let since = self.since.load(Ordering::Relaxed).checked_sub(1)?;
        self.is_evictable.load(Ordering::Relaxed).then(|| self.opened + Duration::from_millis(since))
    }

    fn evict(&self) {
        self.exempt();
        self.eviction.notify_one();
    }
}

/// All open connections.
pub(super) struct ConnectionTable {
    state: Mutex<TableState>,
    /// Maximum number of connections of one client.
    per_client: usize,
}

#[derive(Default)]
struct TableState {
    last_number: u64,
    connections: HashMap<u64, (Option<IpAddr>, Arc<Probation>)>,
    of_clients: HashMap<IpAddr, usize>,
}

/// Entry of an open connection; dropping it removes the connection from the table.
pub(super) struct ConnectionEntry {
    table: Arc<ConnectionTable>,
    number: u64,
    pub(super) probation: Arc<Probation>,
}

impl ConnectionTable {
    pub(super) fn new(per_client: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), per_client })
    }

    fn state(&self) -> MutexGuard<'_, TableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection. If its client has reached its limit, evicts the client's oldest connection on probation.
    /// Returns `None` if none of them is on probation.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionEntry> {
        let client = client_address(peer);
        let mut state = self.state();
        if let Some(client) = client {
            if state.of_clients.get(&client).is_some_and(|count| *count >= self.per_client) {
                limit_hit(Limit::ClientPercent);
                state.oldest(|of| of == Some(client))?.1.evict();
            }
            *state.of_clients.entry(client).or_default() += 1;
        }
        state.last_number += 1;
        let (number, probation) = (state.last_number, Arc::new(Probation::new()));
        state.connections.insert(number, (client, Arc::clone(&probation)));
        Some(ConnectionEntry { table: Arc::clone(self), number, probation })
    }

    /// Evicts the oldest connection whose probation has lasted for the grace time. If there is none, returns the time
    /// until the next probation ends, if known.
    pub(super) fn make_room(&self, now: Instant) -> Option<Duration> {
        let state = self.state();
        let (start, probation) = state.oldest(|_| true)?;
        let wait = GRACE.checked_sub(now.saturating_duration_since(start)).filter(|wait| !wait.is_zero());
        if wait.is_none() {
            probation.evict();
        }
        wait
    }
}

impl TableState {
    fn oldest(&self, matches: impl Fn(Option<IpAddr>) -> bool) -> Option<(Instant, &Probation)> {
        let matching = self.connections.values().filter(|(client, _)| matches(*client));
        matching.filter_map(|(_, probation)| Some((probation.start()?, &**probation))).min_by_key(|(start, _)| *start)
    }
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        let mut state = self.table.state();
        let Some((Some(client), _)) = state.connections.remove(&self.number) else { return };
        if let Some(count) = state.of_clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                state.of_clients.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, sync::atomic::Ordering};

    use super::{ConnectionEntry, ConnectionTable, GRACE, Instant, client_address};

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn evictions<'a>(entries: impl IntoIterator<Item = &'a ConnectionEntry>) -> Vec<bool> {
        entries.into_iter().map(|entry| !entry.probation.is_evictable.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn client_is_address_or_network() {
        let same = |a: &str, b: &str| client_address(ip(a)) == client_address(ip(b));
        assert!(same("2001:db8::1", "2001:db8::ffff:1") && !same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("192.0.2.1", "::ffff:192.0.2.1") && !same("192.0.2.1", "192.0.2.2"));
        assert_eq!(["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"].map(|own| client_address(ip(own))), [None; 4]);
    }

    #[test]
    fn connections_per_client_are_limited() {
        let table = ConnectionTable::new(2);
        let admit = || {
            let entry = table.admit(ip("192.0.2.1")).unwrap();
            entry.probation.begin();
            entry
        };
        let mut first = vec![admit(), admit()];
        assert!(table.admit(ip("192.0.2.2")).is_some(), "others have their own share");
        // The first connection is being answered, so the second one is evicted. After that, none can be evicted.
        first[0].probation.end();
        first.push(admit());
        assert_eq!(evictions(&first), [false, true, false]);
        first[2].probation.end();
        assert!(table.admit(ip("192.0.2.1")).is_none());
        drop(first);
        assert!(table.state().of_clients.is_empty() && table.state().connections.is_empty());
        let own: Vec<_> = (0..9).map(|_| table.admit(ip("127.0.0.1")).unwrap()).collect();
        assert!(!evictions(&own).contains(&true), "the loopback interface is not bounded");
    }

    #[test]
    fn oldest_on_probation_is_evicted_after_grace() {
        let (table, now) = (ConnectionTable::new(9), Instant::now());
        assert_eq!(table.make_room(now), None);
        let entries: Vec<_> = (0..3).map(|_| table.admit(ip("127.0.0.1")).unwrap()).collect();
        assert_eq!(table.make_room(now + GRACE), None, "no request has begun on them");
        assert_eq!(evictions(&entries), [false; 3]);
        entries.iter().for_each(|entry| entry.probation.begin());
        assert!(table.make_room(now).is_some_and(|wait| wait <= GRACE));
        assert_eq!(evictions(&entries), [false; 3]);
        entries[0].probation.end();
        let later = Instant::now() + GRACE;
        assert_eq!(table.make_room(later), None);
        assert_eq!(evictions(&entries).iter().filter(|evicted| **evicted).count(), 1);
        assert_eq!(table.make_room(later), None);
        assert_eq!(evictions(&entries), [false, true, true], "a connection that is being answered stays");
        entries[0].probation.begin();
        assert!(table.make_room(Instant::now()).is_some(), "its probation has just begun");
    }
}
