//! Search for the end of records that cannot be decoded, so that they do not block their partition.

use std::time::Duration;

use crate::kafka::{KafkaError, OffsetAt, Partition};

/// Wait of a fetch without a result. Some brokers return no response without a wait.
const WAIT: Duration = Duration::from_millis(100);

/// Returns the first offset after `first` at which a fetch can be decoded. A fetch at any offset of a batch returns the
/// whole batch, so all offsets before the result belong to the undecodable batch.
///
/// # Errors
/// Fails if the broker does not respond.
pub(super) async fn end_of_unreadable(partition: &Partition, first: i64) -> Result<i64, KafkaError> {
    let end = partition.offset(OffsetAt::Latest).await?.max(first + 1);
    let (mut bad, mut step) = (first, 1);
    // Doubles the step until it passes the batch, and then halves the interval.
    let mut good = loop {
        let next = first.saturating_add(step).min(end);
        if next == end || is_readable(partition, next).await? {
            break next;
        }
        (bad, step) = (next, step * 2);
    };
    while good - bad > 1 {
        let middle = bad + (good - bad) / 2;
        if is_readable(partition, middle).await? {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Ok(good)
}

async fn is_readable(partition: &Partition, offset: i64) -> Result<bool, KafkaError> {
    match partition.fetch(offset, 1, WAIT).await {
        Ok(_) => Ok(true),
        Err(KafkaError::Unreadable(_)) => Ok(false),
        Err(error) => Err(error),
    }
}
