//! Asking a repository in a walk: at a pace, and again where that may help.

use std::{sync::Mutex, time::Duration};

use tokio::time::Instant;

use super::{LeftOut, Manner, WalkError};
use crate::{
    lookup::{Answer, Body, LookupError, Repository, There},
    retry::Backoff,
};

/// First wait before a request is tried again, at most.
const BASE_WAIT: Duration = Duration::from_millis(200);

/// Longest wait before a request is tried again, at most.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How fast a walk asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// How many requests a second at the most; `None` for as many as there can be.
    pub per_second: Option<u32>,
}

/// Who asks.
pub(super) struct Asking {
    pub(super) repository: Repository,
    pub(super) manner: Manner,
    turns: Mutex<Turns>,
}

/// The turns of requests that keep to a pace.
#[derive(Debug, Default)]
struct Turns {
    next: Option<Instant>,
}

impl Turns {
    /// How long to wait for the next turn. The turns are evenly apart; what was not used is not made up for.
    fn take(&mut self, pace: Pace, now: Instant) -> Duration {
        let Some(per_second) = pace.per_second else { return Duration::ZERO };
        let turn = self.next.map_or(now, |next| next.max(now));
        self.next = Some(turn + Duration::from_secs(1) / per_second.max(1));
        turn - now
    }
}

impl Asking {
    pub(super) fn new(repository: Repository, manner: Manner) -> Self {
        Self { repository, manner, turns: Mutex::default() }
    }

    /// Gets what is at a path; `None` where there is nothing.
    pub(super) async fn get(&self, path: &str, accept: &'static str) -> Result<Option<There>, WalkError> {
        self.again(path, async || self.repository.get(path, accept).await.map(there)).await
    }

    /// Gets what is told of what is at a path.
    pub(super) async fn head(
        &self,
        path: &str,
        headers: &[(&'static str, &'static str)],
    ) -> Result<Option<There>, WalkError> {
        self.again(path, async || self.repository.head(path, headers).await.map(there)).await
    }

    /// Gets what is at a path, piece by piece.
    pub(super) async fn open(&self, path: &str, accept: &'static str) -> Result<Option<Body>, WalkError> {
        self.again(path, async || self.repository.open(path, accept).await).await
    }

    /// What the repository does not answer for: left out, if the walk is to go on without it.
    pub(super) fn left_out(&self, name: &str, error: WalkError) -> Result<LeftOut, WalkError> {
        match &error {
            WalkError::Asked { error: LookupError::Status(_) | LookupError::Nonsense(_), .. }
                if self.manner.leave_out_failing =>
            {
                Ok(LeftOut { name: name.to_owned(), why: error.to_string() })
            }
            _ => Err(error),
        }
    }

    async fn again<T>(&self, path: &str, ask: impl AsyncFn() -> Result<T, LookupError>) -> Result<T, WalkError> {
        let mut backoff = Backoff::new(BASE_WAIT, LONGEST_WAIT);
        loop {
            self.wait_for_a_turn().await;
            let error = match ask().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let pause = match &error {
                // Nothing was asked, so it is no try.
                LookupError::LeftAlone { again } => *again,
                LookupError::Crowded { .. } => Duration::ZERO,
                error if error.is_transient() && backoff.failures() < self.manner.retries => backoff.next_wait(),
                _ => return Err(WalkError::Asked { path: path.to_owned(), error }),
            };
            tracing::debug!(path, %error, "the repository is asked again");
            tokio::time::sleep(pause).await;
        }
    }

    async fn wait_for_a_turn(&self) {
        let wait = match self.turns.lock() {
            Ok(mut turns) => turns.take(self.manner.pace, Instant::now()),
            // A panic in between has left a turn as good as any.
            Err(poisoned) => poisoned.into_inner().take(self.manner.pace, Instant::now()),
        };
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
}

fn there(answer: Answer) -> Option<There> {
    match answer {
        Answer::There(there) => Some(there),
        Answer::Nothing => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant, Pace, Turns};

    #[test]
    fn turns_are_evenly_apart_and_none_is_made_up_for() {
        let pace = Pace { per_second: Some(4) };
        let began = Instant::now();
        let mut turns = Turns::default();
        let mut wait = |after_ms| {
            let now = began + Duration::from_millis(after_ms);
            turns.take(pace, now).as_millis()
        };
        assert_eq!([wait(0), wait(0), wait(0)], [0, 250, 500]);
        assert_eq!(wait(700), 50);
        // Nothing was asked for a while.
        assert_eq!([wait(5_000), wait(5_000), wait(5_001)], [0, 250, 499]);
        assert_eq!(Turns::default().take(Pace::default(), began), Duration::ZERO);
    }

    #[test]
    fn in_any_second_there_are_no_more_turns_than_the_pace_has() {
        let pace = Pace { per_second: Some(7) };
        let began = Instant::now();
        let mut turns = Turns::default();
        let mut now = began;
        let mut asked = Vec::new();
        for number in 0..200_u64 {
            now += Duration::from_millis(number * 37 % 90);
            asked.push(now + turns.take(pace, now));
        }
        for turn in &asked {
            let within = asked.iter().filter(|other| **other >= *turn && **other < *turn + Duration::from_millis(990));
            assert!(within.count() <= 7);
        }
    }
}
