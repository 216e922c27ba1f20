//! Lookup requests for one message, answered from the cache where possible.

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::{
    sync::Semaphore,
    task::{JoinError, spawn_blocking},
    time::Instant,
};

use super::{
    cache::ResponseCache,
    client::{Repository, Resource},
    error::LookupError,
};
use crate::format::{Limits, Rejection};

/// Maximum size of a response that is parsed on an asynchronous thread, in bytes. It takes less than a millisecond.
const SMALL_BYTES: usize = 16 << 10;

/// Blocking threads for larger responses of all repositories. A response has up to 4 MiB.
static PARSERS: Semaphore = Semaphore::const_new(2);

/// Context of the lookups for a message that arrived at `since`.
#[derive(Clone, Copy)]
pub(super) struct CachedRequests<'a> {
    pub(super) repository: &'a Repository,
    pub(super) cache: &'a ResponseCache,
    pub(super) limits: Limits,
    pub(super) since: Instant,
}

impl CachedRequests<'_> {
    /// Sends a GET request; `None` if the repository has no such resource.
    pub(super) async fn get(&self, path: &str, accept: &'static str) -> Result<Option<Resource>, LookupError> {
        let (repository, owned) = (self.repository.clone(), path.to_owned());
        let send = move || async move { repository.get(&owned, accept).await }.boxed();
        let response = self.cache.response_for((accept, path.to_owned()), self.since, send).await?;
        Ok(response.into_resource())
    }

    /// Sends a HEAD request and returns the response headers if `validate` accepts them; `None` if the
    /// repository has no such resource.
    pub(super) async fn head(
        &self,
        path: &str,
        headers: &'static [(&'static str, &'static str)],
        validate: impl FnOnce(&Resource) -> Result<(), &'static str>,
    ) -> Result<Option<Resource>, LookupError> {
        let (repository, owned) = (self.repository.clone(), path.to_owned());
        let send = move || async move { repository.head(&owned, headers).await }.boxed();
        let method = if headers.is_empty() { "HEAD" } else { "HEAD with headers" };
        let key = (method, path.to_owned());
        let response = self.cache.response_for(key.clone(), self.since, send).await?;
        let Some(resource) = response.into_resource() else { return Ok(None) };
        validate(&resource).map(|()| Some(resource)).map_err(|reason| {
            self.cache.forget(&key);
            LookupError::InvalidResponse(reason.to_owned())
        })
    }

    /// Sends a GET request and parses the body with `parse`, on a blocking thread unless it is small; `None` if the
    /// repository has no such resource. What `parse` returns must have a bound.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        path: &str,
        accept: &'static str,
        parse: impl FnOnce(&[u8], Limits) -> Result<T, Rejection> + Send + 'static,
    ) -> Result<Option<T>, LookupError> {
        let Some(Resource { body, .. }) = self.get(path, accept).await? else { return Ok(None) };
        parsed(body, self.limits, parse).await.map(Some).inspect_err(|_| {
            // Do not serve the invalid response to the next caller.
            self.cache.forget(&(accept, path.to_owned()));
        })
    }
}

async fn parsed<T: Send + 'static>(
    body: Bytes,
    limits: Limits,
    parse: impl FnOnce(&[u8], Limits) -> Result<T, Rejection> + Send + 'static,
) -> Result<T, LookupError> {
    let invalid = |rejection: Rejection| LookupError::InvalidResponse(rejection.to_string());
    if body.len() <= SMALL_BYTES {
        return parse(&body, limits).map_err(invalid);
    }
    // The semaphore is never closed.
    let place = PARSERS.acquire().await;
    let parsing = spawn_blocking(move || {
        // It is free only when the thread is.
        let _place = place;
        parse(&body, limits)
    });
    let failed = |error: JoinError| LookupError::InvalidResponse(format!("the parser has failed: {error}"));
    parsing.await.map_err(failed)?.map_err(invalid)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{Limits, LookupError, SMALL_BYTES, parsed};

    #[tokio::test]
    async fn large_response_is_parsed_on_another_thread() {
        let own = thread::current().id();
        for (bytes, is_own) in [(SMALL_BYTES, true), (SMALL_BYTES + 1, false)] {
            let parse = move |_: &[u8], _| Ok(thread::current().id() == own);
            assert_eq!(parsed(vec![0; bytes].into(), Limits::default(), parse).await.unwrap(), is_own, "{bytes}");
        }
    }

    #[tokio::test]
    async fn failed_parser_is_an_error_of_its_lookup() {
        let body = || vec![0; SMALL_BYTES + 1].into();
        for _ in 0..4 {
            let failed = parsed::<()>(body(), Limits::default(), |_, _| panic!("broken")).await;
            assert!(matches!(failed, Err(LookupError::InvalidResponse(reason)) if reason.contains("has failed")));
        }
    }
}
