//! Answers that are kept for a while, since messages of one object ask much the same.
//!
//! An answer holds for a message if the question was asked after the message had come: what the message speaks of had
//! happened then. So nothing is told that is older than the event, however long an answer is kept. Who asks what is just
//! being asked waits for the same answer. A failure is shared by those who wait for it, and not kept. An entry without an
//! answer lives as long as a caller waits for it: nobody else would poll its request, nor its wait for a permit.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use tokio::time::Instant;

use super::{client::Answer, error::LookupError};

/// The largest body that is kept, in bytes.
const LARGEST: usize = 64 * 1024;

/// What is asked: how, where, and what for.
pub(super) type Question = (&'static str, String);

type Answering = Shared<BoxFuture<'static, Result<Answer, LookupError>>>;

/// The newest answers of one repository.
pub(super) struct AnswerCache {
    most: usize,
    kept: Mutex<Generations>,
}

/// When the newer half is full it becomes the older one, and what was that goes.
#[derive(Default)]
struct Generations {
    newer: HashMap<Question, Kept>,
    older: HashMap<Question, Kept>,
}

#[derive(Clone)]
struct Kept {
    asked: Instant,
    answering: Answering,
    /// One clone for each caller that waits, and one for each generation that has the entry.
    clones: Arc<()>,
}

/// A caller that waits for an answer. The last one that leaves without it takes the entry along.
struct Waiter<'c> {
    cache: &'c AnswerCache,
    question: Question,
    kept: Kept,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut generations = self.cache.lock();
        let is_last = Arc::strong_count(&self.kept.clones) <= 1 + generations.count(&self.question, &self.kept);
        if is_last && self.kept.answering.peek().is_none() {
            generations.forget(&self.question, &self.kept);
        }
    }
}

impl AnswerCache {
    /// For at most so many answers.
    pub(super) fn new(most: usize) -> Self {
        Self { most, kept: Mutex::default() }
    }

    /// The answer to a question for a message that came at `since`: one that is kept, or what `ask` gives.
    ///
    /// # Errors
    /// Those of `ask`.
    pub(super) async fn answer(
        &self,
        question: Question,
        since: Instant,
        ask: impl FnOnce() -> BoxFuture<'static, Result<Answer, LookupError>>,
    ) -> Result<Answer, LookupError> {
        if self.most == 0 {
            return ask().await;
        }
        let kept = self.lock().find_or_keep(&question, since, self.most, ask);
        let waiter = Waiter { cache: self, question, kept };
        let answer = waiter.kept.answering.clone().await;
        let is_worth_it = matches!(&answer, Ok(answer) if answer.size() <= LARGEST);
        if !is_worth_it {
            self.lock().forget(&waiter.question, &waiter.kept);
        }
        answer
    }

    /// An answer that is none is not kept.
    pub(super) fn forget(&self, question: &Question) {
        let mut kept = self.lock();
        kept.newer.remove(question);
        kept.older.remove(question);
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        // What is held is whole whenever the lock is free.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn find_or_keep(
        &mut self,
        question: &Question,
        since: Instant,
        most: usize,
        ask: impl FnOnce() -> BoxFuture<'static, Result<Answer, LookupError>>,
    ) -> Kept {
        let found = [&self.newer, &self.older].into_iter().find_map(|held| held.get(question));
        if let Some(found) = found.filter(|found| found.asked >= since) {
            return found.clone();
        }
        if self.newer.len() >= most.div_ceil(2) {
            self.older = std::mem::take(&mut self.newer);
        }
        let kept = Kept { asked: Instant::now(), answering: ask().shared(), clones: Arc::default() };
        self.newer.insert(question.clone(), kept.clone());
        kept
    }

    /// In how many generations an entry is.
    fn count(&self, question: &Question, kept: &Kept) -> usize {
        let found = [&self.newer, &self.older].into_iter().filter_map(|held| held.get(question));
        found.filter(|held| held.answering.ptr_eq(&kept.answering)).count()
    }

    fn forget(&mut self, question: &Question, gone: &Kept) {
        for held in [&mut self.newer, &mut self.older] {
            if held.get(question).is_some_and(|held| held.answering.ptr_eq(&gone.answering)) {
                held.remove(question);
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

    use super::{Answer, AnswerCache, Instant, LookupError};
    use crate::lookup::There;

    /// Asks with a cache, and counts how often it came to that.
    struct Asker {
        cache: AnswerCache,
        asked: AtomicUsize,
    }

    impl Asker {
        fn new(most: usize) -> Self {
            Self { cache: AnswerCache::new(most), asked: AtomicUsize::new(0) }
        }

        async fn ask(&self, path: &str, since: Instant, answer: Result<usize, ()>) {
            let ask = || {
                self.asked.fetch_add(1, Ordering::Relaxed);
                async move {
                    tokio::task::yield_now().await;
                    let there = |bytes| There { headers: Default::default(), body: vec![0; bytes].into() };
                    let failed = LookupError::Status(StatusCode::INTERNAL_SERVER_ERROR);
                    answer.map(|bytes| Answer::There(there(bytes))).map_err(|()| failed)
                }
                .boxed()
            };
            let told = self.cache.answer(("GET", path.to_owned()), since, ask).await;
            assert_eq!(told.is_ok(), answer.is_ok());
        }

        fn asked(&self) -> usize {
            self.asked.load(Ordering::Relaxed)
        }
    }

    #[tokio::test]
    async fn an_answer_holds_for_what_came_before_it_was_asked_for() {
        let asker = Asker::new(10);
        let before = Instant::now();
        asker.ask("/a", before, Ok(1)).await;
        asker.ask("/a", before, Ok(1)).await;
        assert_eq!(asker.asked(), 1);
        asker.ask("/b", before, Ok(1)).await;
        assert_eq!(asker.asked(), 2);
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        asker.ask("/a", Instant::now(), Ok(1)).await;
        assert_eq!(asker.asked(), 3);
    }

    #[tokio::test]
    async fn who_asks_the_same_at_once_hears_the_same() {
        let asker = Asker::new(10);
        let since = Instant::now();
        tokio::join!(asker.ask("/a", since, Ok(1)), asker.ask("/a", since, Ok(1)), asker.ask("/a", since, Ok(1)));
        assert_eq!(asker.asked(), 1);
        tokio::join!(asker.ask("/b", since, Err(())), asker.ask("/b", since, Err(())));
        assert_eq!(asker.asked(), 2);
    }

    /// A permit that a request holds or waits for is free again when its last caller has left.
    #[tokio::test]
    async fn abandoned_requests_are_dropped_by_the_last_caller_alone() {
        let cache = AnswerCache::new(10);
        let permits = Arc::new(Semaphore::new(1));
        let (since, question) = (Instant::now(), ("GET", "/a".to_owned()));
        let ask = || {
            let permits = Arc::clone(&permits);
            move || {
                async move {
                    let _permit = permits.acquire_owned().await;
                    std::future::pending().await
                }
                .boxed()
            }
        };
        let mut first = Box::pin(cache.answer(question.clone(), since, ask()));
        let mut second = Box::pin(cache.answer(question.clone(), since, ask()));
        let mut other = Box::pin(cache.answer(("GET", "/b".to_owned()), since, ask()));
        assert!(futures_util::poll!(&mut first).is_pending());
        assert!(futures_util::poll!(&mut second).is_pending());
        assert!(futures_util::poll!(&mut other).is_pending());
        drop(first);
        assert_eq!((permits.available_permits(), cache.lock().newer.len()), (0, 2));
        // The other request waits for the permit, and is handed it now.
        drop(second);
        assert_eq!((permits.available_permits(), cache.lock().newer.len()), (0, 1));
        drop(other);
        assert_eq!((permits.available_permits(), cache.lock().newer.len()), (1, 0));
    }

    #[tokio::test]
    async fn neither_failures_nor_large_answers_are_kept() {
        let asker = Asker::new(10);
        let since = Instant::now();
        asker.ask("/a", since, Err(())).await;
        asker.ask("/a", since, Ok(super::LARGEST + 1)).await;
        asker.ask("/a", since, Ok(1)).await;
        asker.ask("/a", since, Ok(1)).await;
        assert_eq!(asker.asked(), 3);
    }

    #[tokio::test]
    async fn there_are_never_more_than_so_many() {
        let asker = Asker::new(4);
        let since = Instant::now();
        for path in 0..100 {
            asker.ask(&path.to_string(), since, Ok(1)).await;
            let kept = asker.cache.lock();
            assert!(kept.newer.len() + kept.older.len() <= 4);
        }
        asker.ask("99", since, Ok(1)).await;
        assert_eq!(asker.asked(), 100);
        let none = Asker::new(0);
        none.ask("/a", since, Ok(1)).await;
        none.ask("/a", since, Ok(1)).await;
        assert_eq!(none.asked(), 2);
    }
}
