//! Open connections, and the ones that are closed to make room for others: the oldest whose client has not shown
//! for a while that it may be served. So nobody keeps others out by connections on which a request never ends.

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

/// Time that a client has to show that it may be served, however crowded it is. An honest one needs a round trip, and
/// a gateway with too much to do may need a while to read what has come.
const GRACE: Duration = Duration::from_secs(3);

/// Address that counts as one client: an IPv4 address, or the /64 network of an IPv6 address, which one host may have for
/// itself. `None` for the loopback interface: behind it may be a proxy, and whoever is on this machine needs no
/// connections to disturb it.
pub(super) fn client_address(peer: IpAddr) -> Option<IpAddr> {
    match peer.to_canonical() {
        own if own.is_loopback() => None,
        IpAddr::V4(address) => Some(address.into()),
        IpAddr::V6(address) => Some(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()),
    }
}

/// Progress of a client on its connection. While it is on trial, the connection may be closed to make room.
#[derive(Debug)]
pub(super) struct Trial {
    opened: Instant,
    /// Milliseconds from `opened` to the start of the trial, and one more; 0 where there is none.
    since: AtomicU64,
    /// Whether the connection can still be evicted.
    is_evictable: AtomicBool,
    eviction: Notify,
}

/// Handle to the [`Trial`] of the connection that a request came on: an extension that the server puts on every request.
#[derive(Clone, Debug)]
pub(super) struct OnTrial(pub(super) Arc<Trial>);

impl Trial {
    fn new() -> Self {
        Self {
            opened: Instant::now(),
            since: AtomicU64::new(0),
            is_evictable: AtomicBool::new(true),
            eviction: Notify::new(),
        }
    }

    /// Begins, unless it has begun: the head of a request has begun to come, or a body whose sender is not known.
    pub(super) fn begin(&self) {
        if self.since.load(Ordering::Relaxed) == 0 {
            let elapsed = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
            self.since.store(elapsed + 1, Ordering::Relaxed);
        }
    }

    /// Ends: a request is being answered.
    pub(super) fn end(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// Ends for good.
    pub(super) fn exempt(&self) {
        self.is_evictable.store(false, Ordering::Relaxed);
    }

    /// Waits until the connection is to be closed.
    pub(super) async fn evicted(&self) {
        self.eviction.notified().await;
    }

    /// Returns the start of the trial, if the connection can be evicted.
    fn began(&self) -> Option<Instant> {
        let since = self.since.load(Ordering::Relaxed).checked_sub(1)?;
        self.is_evictable.load(Ordering::Relaxed).then(|| self.opened + Duration::from_millis(since))
    }

    fn evict(&self) {
        self.exempt();
        self.eviction.notify_one();
    }
}

/// Every open connection.
pub(super) struct Crowd {
    open: Mutex<Open>,
    /// Largest number of connections of one client.
    per_client: usize,
}

#[derive(Default)]
struct Open {
    last: u64,
    connections: HashMap<u64, (Option<IpAddr>, Arc<Trial>)>,
    of_clients: HashMap<IpAddr, usize>,
}

/// Entry of a connection among those that are open; dropping it removes the entry.
pub(super) struct Member {
    crowd: Arc<Crowd>,
    number: u64,
    pub(super) trial: Arc<Trial>,
}

impl Crowd {
    pub(super) fn new(per_client: usize) -> Arc<Self> {
        Arc::new(Self { open: Mutex::default(), per_client })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection. Where its client has as many as it may have, the oldest of them that is on trial is evicted;
    /// `None` if there is none.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Member> {
        let client = client_address(peer);
        let mut open = self.open();
        if let Some(client) = client {
            if open.of_clients.get(&client).is_some_and(|count| *count >= self.per_client) {
                limit_hit(Limit::ClientPercent);
                open.oldest(|of| of == Some(client))?.1.evict();
            }
            *open.of_clients.entry(client).or_default() += 1;
        }
        open.last += 1;
        let (number, trial) = (open.last, Arc::new(Trial::new()));
        open.connections.insert(number, (client, Arc::clone(&trial)));
        Some(Member { crowd: Arc::clone(self), number, trial })
    }

    /// Evicts the oldest connection that has been on trial for long enough. Returns how long to wait for the next one,
    /// if that is known.
    pub(super) fn make_room(&self, now: Instant) -> Option<Duration> {
        let open = self.open();
        let (began, trial) = open.oldest(|_| true)?;
        let wait = GRACE.checked_sub(now.saturating_duration_since(began)).filter(|wait| !wait.is_zero());
        if wait.is_none() {
            trial.evict();
        }
        wait
    }
}

impl Open {
    fn oldest(&self, is_meant: impl Fn(Option<IpAddr>) -> bool) -> Option<(Instant, &Trial)> {
        let meant = self.connections.values().filter(|(client, _)| is_meant(*client));
        meant.filter_map(|(_, trial)| Some((trial.began()?, &**trial))).min_by_key(|(began, _)| *began)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut open = self.crowd.open();
        let Some((Some(client), _)) = open.connections.remove(&self.number) else { return };
        if let Some(count) = open.of_clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                open.of_clients.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, sync::atomic::Ordering};

    use super::{Crowd, GRACE, Instant, Member, client_address};

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn evicted<'a>(members: impl IntoIterator<Item = &'a Member>) -> Vec<bool> {
        members.into_iter().map(|member| !member.trial.is_evictable.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn a_client_is_an_address_or_a_network() {
        let same = |a: &str, b: &str| client_address(ip(a)) == client_address(ip(b));
        assert!(same("2001:db8::1", "2001:db8::ffff:1") && !same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("192.0.2.1", "::ffff:192.0.2.1") && !same("192.0.2.1", "192.0.2.2"));
        assert_eq!(["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"].map(|own| client_address(ip(own))), [None; 4]);
    }

    #[test]
    fn one_client_has_its_share_and_no_more() {
        let crowd = Crowd::new(2);
        let admit = || {
            let member = crowd.admit(ip("192.0.2.1")).unwrap();
            member.trial.begin();
            member
        };
        let mut first = vec![admit(), admit()];
        assert!(crowd.admit(ip("192.0.2.2")).is_some(), "others have their own share");
        // The first is being answered; so the second goes, and then there is none to go.
        first[0].trial.end();
        first.push(admit());
        assert_eq!(evicted(&first), [false, true, false]);
        first[2].trial.end();
        assert!(crowd.admit(ip("192.0.2.1")).is_none());
        drop(first);
        assert!(crowd.open().of_clients.is_empty() && crowd.open().connections.is_empty());
        let own: Vec<_> = (0..9).map(|_| crowd.admit(ip("127.0.0.1")).unwrap()).collect();
        assert!(!evicted(&own).contains(&true), "the loopback interface is not bounded");
    }

    #[test]
    fn the_oldest_on_trial_makes_room_after_its_grace() {
        let (crowd, now) = (Crowd::new(9), Instant::now());
        assert_eq!(crowd.make_room(now), None);
        let members: Vec<_> = (0..3).map(|_| crowd.admit(ip("127.0.0.1")).unwrap()).collect();
        assert_eq!(crowd.make_room(now + GRACE), None, "nothing has begun to come on them");
        assert_eq!(evicted(&members), [false; 3]);
        members.iter().for_each(|member| member.trial.begin());
        assert!(crowd.make_room(now).is_some_and(|wait| wait <= GRACE));
        assert_eq!(evicted(&members), [false; 3]);
        members[0].trial.end();
        let later = Instant::now() + GRACE;
        assert_eq!(crowd.make_room(later), None);
        assert_eq!(evicted(&members).iter().filter(|evicted| **evicted).count(), 1);
        assert_eq!(crowd.make_room(later), None);
        assert_eq!(evicted(&members), [false, true, true], "one that is being answered stays");
        members[0].trial.begin();
        assert!(crowd.make_room(Instant::now()).is_some(), "its trial has begun just now");
    }
}
