//! Times of the events of each source.

use std::time::Duration;

use super::{Journal, JournalError, store::SourceStore};
use crate::model::{SourceName, Timestamp};

/// Time without an event that is usual for every source.
const USUAL_FOR_ALL: Duration = Duration::from_secs(60 * 60);

/// Time over which the events of a source are observed before a pause can be called unusual. It contains a weekend.
const OBSERVED: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Times of the events of a source that made changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRecord {
    /// Name of the source.
    pub source: SourceName,
    /// Time of the first such event. For a journal of an older version, it is the last one before its conversion.
    pub first_event: Timestamp,
    /// Time of the last such event.
    pub last_event: Timestamp,
    /// Longest time between two such events, in the week of the last one and the week before.
    pub longest_pause: Duration,
}

impl SourceRecord {
    /// Returns the time without an event after which the source is silent for longer than usual: twice the longest pause
    /// of about two weeks, and at least an hour. `None` before its events were observed for a week.
    #[must_use]
    pub fn unusual_silence(&self) -> Option<Duration> {
        let observed = self.last_event.millis().saturating_sub(self.first_event.millis());
        let is_known = u128::try_from(observed).is_ok_and(|observed| observed >= OBSERVED.as_millis());
        is_known.then(|| self.longest_pause.saturating_mul(2).max(USUAL_FOR_ALL))
    }
}

impl Journal {
    /// Returns the times of the events of all sources that have made a change, by name.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn sources(&self) -> Result<Vec<SourceRecord>, JournalError> {
        self.read(SourceStore::sources).await
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, SourceName, SourceRecord, Timestamp};

    #[test]
    fn silence_is_unusual_after_twice_the_longest_pause_and_a_week_of_observation() {
        let hours = |hours: u64| Duration::from_secs(hours * 60 * 60);
        let unusual_silence = |observed: Duration, longest_pause| {
            let record = SourceRecord {
                source: SourceName::parse("s").unwrap(),
                first_event: Timestamp::EPOCH,
                last_event: Timestamp::from_millis(i64::try_from(observed.as_millis()).unwrap()).unwrap(),
                longest_pause,
            };
            record.unusual_silence()
        };
        assert_eq!(unusual_silence(hours(167), hours(5)), None);
        assert_eq!(unusual_silence(hours(168), hours(5)), Some(hours(10)));
        assert_eq!(unusual_silence(hours(168), Duration::from_secs(2)), Some(hours(1)));
    }
}
