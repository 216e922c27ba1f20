//! Cache of responses. Messages about one object need almost the same lookups.
//!
//! A cached response is used only if its request was sent after the message had arrived. The event of the
//! message had happened by then, so a response is never older than the event, however long it is cached.
//! Identical concurrent lookups share one request. A failure is shared by all callers that wait for it, and is
//! not cached. An entry without a response lives as long as a caller waits for it, because nobody else would
//! poll its request or its wait for a permit.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use tokio::time::Instant;

use super::{client::LookupResponse, error::LookupError};

/// Maximum size of a cached body, in bytes.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// Key of a cached response: method or media type, and path.
pub(super) type CacheKey = (&'static str, String);

type PendingResponse = Shared<BoxFuture<'static, Result<LookupResponse, LookupError>>>;

/// The most recent responses of one repository.
pub(super) struct ResponseCache {
    capacity: usize,
    generations: Mutex<Generations>,
}

/// Two generations of entries. When the newer one is full it replaces the older one, which is dropped.
#[derive(Default)]
struct Generations {
    newer: HashMap<CacheKey, CacheEntry>,
    older: HashMap<CacheKey, CacheEntry>,
}

#[derive(Clone)]
struct CacheEntry {
    sent_at: Instant,
    response: PendingResponse,
    /// Reference count: one clone for each waiting caller, and one for each generation that contains the
    /// entry.
    clones: Arc<()>,
}

/// A caller that waits for a response. If the last waiter is dropped without a response, the entry is removed.
struct Waiter<'c> {
    cache: &'c ResponseCache,
    key: CacheKey,
    entry: CacheEntry,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut generations = self.cache.lock();
        let is_last = Arc::strong_count(&self.entry.clones) <= 1 + generations.count(&self.key, &self.entry);
        if is_last && self.entry.response.peek().is_none() {
            generations.forget(&self.key, &self.entry);
        }
    }
}

impl ResponseCache {
    /// Creates a cache for at most `capacity` responses.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, generations: Mutex::default() }
    }

    /// Returns the response for a message that arrived at `since`: a cached one, or the result of `send`.
    ///
    /// # Errors
    /// The errors that `send` returns.
    pub(super) async fn response_for(
        &self,
        key: CacheKey,
        since: Instant,
        send: impl FnOnce() -> BoxFuture<'static, Result<LookupResponse, LookupError>>,
    ) -> Result<LookupResponse, LookupError> {
        if self.capacity == 0 {
            return send().await;
        }
        let entry = self.lock().find_or_insert(&key, since, self.capacity, send);
        let waiter = Waiter { cache: self, key, entry };
        let response = waiter.entry.response.clone().await;
        let is_worth_it = matches!(&response, Ok(response) if response.size() <= MAX_BODY_BYTES);
        if !is_worth_it {
            self.lock().forget(&waiter.key, &waiter.entry);
        }
        response
    }

    /// Removes a response that turned out to be invalid.
    pub(super) fn forget(&self, key: &CacheKey) {
        let mut generations = self.lock();
        generations.newer.remove(key);
        generations.older.remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        // Every change is complete before the lock is released, even if a thread panics.
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn find_or_insert(
        &mut self,
        key: &CacheKey,
        since: Instant,
        capacity: usize,
        send: impl FnOnce() -> BoxFuture<'static, Result<LookupResponse, LookupError>>,
    ) -> CacheEntry {
        let found = [&self.newer, &self.older].into_iter().find_map(|generation| generation.get(key));
        if let Some(found) = found.filter(|found| found.sent_at >= since) {
            return found.clone();
        }
        if self.newer.len() >= capacity.div_ceil(2) {
            self.older = std::mem::take(&mut self.newer);
        }
        let entry = CacheEntry { sent_at: Instant::now(), response: send().shared(), clones: Arc::default() };
        self.newer.insert(key.clone(), entry.clone());
        entry
    }

    /// Returns the number of generations that contain an entry.
    fn count(&self, key: &CacheKey, entry: &CacheEntry) -> usize {
        let found = [&self.newer, &self.older].into_iter().filter_map(|generation| generation.get(key));
        found.filter(|generation| generation.response.ptr_eq(&entry.response)).count()
    }

    fn forget(&mut self, key: &CacheKey, stale: &CacheEntry) {
        for generation in [&mut self.newer, &mut self.older] {
            if generation.get(key).is_some_and(|generation| generation.response.ptr_eq(&stale.response)) {
                generation.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use axum::http::StatusCode;
    use futures_util::FutureExt;
    use tokio::sync::Semaphore;

    use super::{Instant, LookupError, LookupResponse, ResponseCache};
    use crate::lookup::Resource;

    /// Sends requests through a cache and counts the ones that reached the repository.
    struct CachedClient {
        cache: ResponseCache,
        requests: AtomicUsize,
    }

    impl CachedClient {
        fn new(capacity: usize) -> Self {
            Self { cache: ResponseCache::new(capacity), requests: AtomicUsize::new(0) }
        }

        async fn send(&self, path: &str, since: Instant, result: Result<usize, ()>) {
            let send = || {
                self.requests.fetch_add(1, Ordering::Relaxed);
                async move {
                    tokio::task::yield_now().await;
                    let resource = |bytes| Resource { headers: Default::default(), body: vec![0; bytes].into() };
                    let failed = LookupError::Status(StatusCode::INTERNAL_SERVER_ERROR);
                    result.map(|bytes| LookupResponse::Found(resource(bytes))).map_err(|()| failed)
                }
                .boxed()
            };
            let response = self.cache.response_for(("GET", path.to_owned()), since, send).await;
            assert_eq!(response.is_ok(), result.is_ok());
        }

        fn requests(&self) -> usize {
            self.requests.load(Ordering::Relaxed)
        }
    }

    #[tokio::test]
    async fn response_is_reused_only_for_messages_older_than_its_request() {
        let client = CachedClient::new(10);
        let before = Instant::now();
        client.send("/a", before, Ok(1)).await;
        client.send("/a", before, Ok(1)).await;
        assert_eq!(client.requests(), 1);
        client.send("/b", before, Ok(1)).await;
        assert_eq!(client.requests(), 2);
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        client.send("/a", Instant::now(), Ok(1)).await;
        assert_eq!(client.requests(), 3);
    }

    #[tokio::test]
    async fn concurrent_identical_lookups_share_one_request() {
        let client = CachedClient::new(10);
        let since = Instant::now();
        tokio::join!(client.send("/a", since, Ok(1)), client.send("/a", since, Ok(1)), client.send("/a", since, Ok(1)));
        assert_eq!(client.requests(), 1);
        tokio::join!(client.send("/b", since, Err(())), client.send("/b", since, Err(())));
        assert_eq!(client.requests(), 2);
    }

    /// A permit that a request holds or waits for is free again after its last caller has left.
    #[tokio::test]
    async fn abandoned_request_is_dropped_with_its_last_caller() {
        let cache = ResponseCache::new(10);
        let permits = Arc::new(Semaphore::new(1));
        let (since, key) = (Instant::now(), ("GET", "/a".to_owned()));
        let send = || {
            let permits = Arc::clone(&permits);
            move || {
                async move {
                    let _permit = permits.acquire_owned().await;
                    std::future::pending().await
                }
                .boxed()
            }
        };
        let mut first = Box::pin(cache.response_for(key.clone(), since, send()));
        let mut second = Box::pin(cache.response_for(key.clone(), since, send()));
        let mut other = Box::pin(cache.response_for(("GET", "/b".to_owned()), since, send()));
        assert!(futures_util::poll!(&mut first).is_pending());
        assert!(futures_util::poll!(&mut second).is_pending());
        assert!(futures_util::poll!(&mut other).is_pending());
        drop(first);
        assert_eq!((permits.available_permits(), cache.lock().newer.len()), (0, 2));
        // The other request waits for the permit and receives it now.
        drop(second);
        assert_eq!((permits.available_permits(), cache.lock().newer.len()), (0, 1));
        drop(other);
        assert_eq!((permits.available_permits(), cache.lock().newer.len()), (1, 0));
    }

    #[tokio::test]
    async fn failures_and_large_responses_are_not_cached() {
        let client = CachedClient::new(10);
        let since = Instant::now();
        client.send("/a", since, Err(())).await;
        client.send("/a", since, Ok(super::MAX_BODY_BYTES + 1)).await;
        client.send("/a", since, Ok(1)).await;
        client.send("/a", since, Ok(1)).await;
        assert_eq!(client.requests(), 3);
    }

    #[tokio::test]
    async fn cache_never_exceeds_its_capacity() {
        let client = CachedClient::new(4);
        let since = Instant::now();
        for path in 0..100 {
            client.send(&path.to_string(), since, Ok(1)).await;
            let generations = client.cache.lock();
            assert!(generations.newer.len() + generations.older.len() <= 4);
        }
        client.send("99", since, Ok(1)).await;
        assert_eq!(client.requests(), 100);
        let none = CachedClient::new(0);
        none.send("/a", since, Ok(1)).await;
        none.send("/a", since, Ok(1)).await;
        assert_eq!(none.requests(), 2);
    }
}
