//! Lookup requests for one message, answered from the cache where possible.

use futures_util::FutureExt;
use tokio::time::Instant;

use super::{
    cache::ResponseCache,
    client::{Repository, Resource},
    error::LookupError,
};
use crate::format::{Limits, Rejection};

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

    /// Sends a GET request and parses the body with `parse`; `None` if the repository has no such resource.
    pub(super) async fn read<T>(
        &self,
        path: &str,
        accept: &'static str,
        parse: impl FnOnce(&[u8], Limits) -> Result<T, Rejection>,
    ) -> Result<Option<T>, LookupError> {
        let Some(resource) = self.get(path, accept).await? else { return Ok(None) };
        parse(&resource.body, self.limits).map(Some).map_err(|rejection| {
            // Do not serve the invalid response to the next caller.
            self.cache.forget(&(accept, path.to_owned()));
            LookupError::InvalidResponse(rejection.to_string())
        })
    }
}
