//! A repository as it is asked for one message: from the cache where that holds for the message, and else itself.

use futures_util::FutureExt;
use tokio::time::Instant;

use super::{
    cache::AnswerCache,
    client::{Answer, Repository, There},
    error::LookupError,
};
use crate::format::{Limits, Rejection};

/// What is asked of a repository for a message that came at `since`.
#[derive(Clone, Copy)]
pub(super) struct Asking<'a> {
    pub(super) repository: &'a Repository,
    pub(super) cache: &'a AnswerCache,
    pub(super) limits: Limits,
    pub(super) since: Instant,
}

impl Asking<'_> {
    /// What is at a path; `None` where there is nothing.
    pub(super) async fn get(&self, path: &str, accept: &'static str) -> Result<Option<There>, LookupError> {
        let (repository, owned) = (self.repository.clone(), path.to_owned());
        let ask = move || async move { repository.get(&owned, accept).await }.boxed();
        let answer = self.cache.answer((accept, path.to_owned()), self.since, ask).await?;
        Ok(there(answer))
    }

    /// What is told of what is at a path, with these headers, if it fits; `None` where there is nothing.
    pub(super) async fn head(
        &self,
        path: &str,
        headers: &'static [(&'static str, &'static str)],
        fits: impl FnOnce(&There) -> Result<(), &'static str>,
    ) -> Result<Option<There>, LookupError> {
        let (repository, owned) = (self.repository.clone(), path.to_owned());
        let ask = move || async move { repository.head(&owned, headers).await }.boxed();
        let what = if headers.is_empty() { "HEAD" } else { "HEAD with more" };
        let question = (what, path.to_owned());
        let Some(there) = there(self.cache.answer(question.clone(), self.since, ask).await?) else { return Ok(None) };
        fits(&there).map(|()| Some(there)).map_err(|reason| {
            self.cache.forget(&question);
            LookupError::Nonsense(reason.to_owned())
        })
    }

    /// What is at a path, as `read` reads it.
    pub(super) async fn read<T>(
        &self,
        path: &str,
        accept: &'static str,
        read: impl FnOnce(&[u8], Limits) -> Result<T, Rejection>,
    ) -> Result<Option<T>, LookupError> {
        let Some(there) = self.get(path, accept).await? else { return Ok(None) };
        read(&there.body, self.limits).map(Some).map_err(|rejection| {
            // The next who asks may be lucky.
            self.cache.forget(&(accept, path.to_owned()));
            LookupError::Nonsense(rejection.to_string())
        })
    }
}

fn there(answer: Answer) -> Option<There> {
    match answer {
        Answer::There(there) => Some(there),
        Answer::Nothing => None,
    }
}
