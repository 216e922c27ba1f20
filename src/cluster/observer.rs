//! Decides which nodes have expired, by the monotonic clock of this node.
//!
//! The clock of the database may be set, or a promoted standby may have another one. A node has expired when this node
//! has seen its row unchanged for the whole lease. The age of a row by the clock of the database only makes this more
//! exact, and never counts for more than the time since the look before.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::absences::LostNode;
use crate::{
    journal::nodes::{ExpiredNode, NodeRecord, NodeTable, Survey},
    model::{NodeName, Timestamp},
};

/// Bounds on the lease of a row, which a clock that was set during a renewal may have made wrong.
const LEASE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(300)];

/// Time before the end of a lease at which another node may have removed the row, because it has seen it earlier.
const REMOVAL_MARGIN: Duration = Duration::from_millis(500);

/// Rows of the nodes as this node has seen them.
#[derive(Debug, Default)]
pub(super) struct Observer {
    rows: HashMap<Uuid, Sighting>,
    /// Time of the last look.
    looked: Option<Instant>,
    /// Nodes whose rows were removed at the last look because they did not renew their leases.
    gone: Vec<(NodeName, LostNode)>,
}

/// A row that has not changed since a time.
#[derive(Clone, Debug)]
struct Sighting {
    name: NodeName,
    renewed: Timestamp,
    /// Latest time at which the row can have been written.
    since: Instant,
    lease: Duration,
}

impl Sighting {
    fn expires(&self) -> Instant {
        self.since + self.lease
    }
}

impl Observer {
    /// Notes rows that were read just before `now`.
    pub(super) fn look(&mut self, rows: &[NodeRecord], now: Instant) {
        let before = self.looked.replace(now);
        let sightings = rows.iter().map(|row| {
            let known = self.rows.get(&row.instance);
            let sighting = match known.filter(|known| known.renewed == row.renewed) {
                Some(known) => known.clone(),
                None => {
                    // The row was written since the look before. Of a node that is new to this one, only the age is known.
                    let oldest = known.and(before).map_or(row.age, |before| now.saturating_duration_since(before));
                    let since = now.checked_sub(row.age.min(oldest)).unwrap_or(now);
                    let [shortest, longest] = LEASE;
                    Sighting {
                        name: row.name.clone(),
                        renewed: row.renewed,
                        since,
                        lease: row.lease.clamp(shortest, longest),
                    }
                }
            };
            (row.instance, sighting)
        });
        let sightings: HashMap<_, _> = sightings.collect();
        let removed = self.rows.iter().filter(|(instance, _)| !sightings.contains_key(instance));
        // A node that leaves removes its own row, long before its lease ends.
        let gone = removed.filter(|(_, row)| row.expires() <= now + REMOVAL_MARGIN);
        let lost = |row: &Sighting| (row.name.clone(), LostNode { renewed: row.renewed, noticed: now });
        self.gone = gone.map(|(_, row)| lost(row)).collect();
        self.rows = sightings;
    }

    /// Takes the nodes that were removed at the last look because they did not renew their leases.
    pub(super) fn take_gone(&mut self) -> Vec<(NodeName, LostNode)> {
        std::mem::take(&mut self.gone)
    }

    /// Returns the time until the lease of a node ends, unless the node renews it; `None` for an unknown node.
    pub(super) fn remaining(&self, instance: Uuid, now: Instant) -> Option<Duration> {
        self.rows.get(&instance).map(|row| row.expires().saturating_duration_since(now))
    }

    /// Returns the nodes that have expired, apart from `this`.
    fn expired(&self, this: Uuid, now: Instant) -> Vec<ExpiredNode> {
        let others = self.rows.iter().filter(|(instance, _)| **instance != this);
        let expired = others.filter(|(_, row)| row.expires() <= now);
        expired.map(|(instance, row)| ExpiredNode { instance: *instance, renewed: row.renewed }).collect()
    }

    /// Returns the time until the next node but `this` expires; `None` if there is no other.
    pub(super) fn next_expiry(&self, this: Uuid, now: Instant) -> Option<Duration> {
        let others = self.rows.iter().filter(|(instance, _)| **instance != this);
        others.map(|(_, row)| row.expires().saturating_duration_since(now)).min()
    }
}

/// The nodes as of one look.
pub(super) struct Look {
    /// The nodes that have not expired.
    pub(super) survey: Survey,
    /// Whether the table has lost, or should have lost, nodes that had expired.
    pub(super) has_expired: bool,
}

/// Reads the nodes, and removes those that have expired, with their duties. A removal that fails is repeated by the
/// next look.
pub(super) fn look(
    table: &mut dyn NodeTable,
    observer: &mut Observer,
    this: Uuid,
) -> Result<Look, crate::journal::store::StoreError> {
    let mut survey = table.survey()?;
    let now = Instant::now();
    observer.look(&survey.nodes, now);
    let expired = observer.expired(this, now);
    if !expired.is_empty() {
        if let Err(error) = table.remove(&expired) {
            // A session of such a node may still hold a lock, until the server has ended it.
            tracing::debug!(%error, "cannot remove nodes whose lease has ended; retrying");
        }
        survey.nodes.retain(|node| expired.iter().all(|expired| expired.instance != node.instance));
    }
    Ok(Look { survey, has_expired: !expired.is_empty() })
}

#[cfg(test)]
mod tests {
    use super::{Duration, ExpiredNode, Instant, NodeRecord, Observer, Timestamp, Uuid};
    use crate::model::{NodeName, Seq};

    const LEASE: Duration = Duration::from_secs(10);

    fn row(renewed_millis: i64, age: Duration) -> NodeRecord {
        let time = Timestamp::from_millis(renewed_millis).unwrap();
        NodeRecord {
            instance: Uuid::nil(),
            name: NodeName::parse("a").unwrap(),
            address: None,
            version: String::new(),
            started: time,
            renewed: time,
            lease: LEASE,
            age,
            head: Seq::ZERO,
            is_leaving: false,
            offers: Vec::new(),
        }
    }

    fn expired(observer: &Observer, now: Instant) -> Vec<ExpiredNode> {
        observer.expired(Uuid::max(), now)
    }

    #[test]
    fn row_that_does_not_change_for_a_lease_has_expired_whatever_the_clock_of_the_database_says() {
        let (mut observer, began) = (Observer::default(), Instant::now());
        // The clock was set back by an hour after the last renewal, so the row has no age.
        let stale = row(3_600_000, Duration::ZERO);
        observer.look(std::slice::from_ref(&stale), began);
        let before_end = began + LEASE - Duration::from_millis(1);
        observer.look(std::slice::from_ref(&stale), before_end);
        assert!(expired(&observer, before_end).is_empty());
        assert_eq!(observer.next_expiry(Uuid::max(), before_end), Some(Duration::from_millis(1)));
        let end = began + LEASE;
        observer.look(&[stale], end);
        assert_eq!(expired(&observer, end).len(), 1);
        assert!(observer.expired(Uuid::nil(), end).is_empty(), "a node does not remove itself");
    }

    #[test]
    fn row_that_changes_has_not_expired_although_the_clock_was_set_forward() {
        let (mut observer, began) = (Observer::default(), Instant::now());
        observer.look(&[row(0, Duration::ZERO)], began);
        for renewal in 1..20 {
            let now = began + Duration::from_secs(3) * renewal;
            // Each look sees an hour since the renewal.
            observer.look(&[row(i64::from(renewal), Duration::from_secs(3600))], now);
            assert!(expired(&observer, now + Duration::from_secs(6)).is_empty(), "{renewal}");
        }
    }

    #[test]
    fn node_whose_row_is_removed_before_the_end_of_its_lease_has_left() {
        let began = Instant::now();
        for (removed_after, is_gone) in [(LEASE / 2, false), (LEASE, true)] {
            let mut observer = Observer::default();
            observer.look(&[row(0, Duration::ZERO)], began);
            observer.look(&[], began + removed_after);
            assert_eq!(observer.take_gone().len(), usize::from(is_gone));
            observer.look(&[], began + LEASE * 2);
            assert!(observer.take_gone().is_empty(), "it is told once");
        }
    }

    #[test]
    fn age_of_an_unknown_row_counts() {
        let (mut observer, now) = (Observer::default(), Instant::now());
        observer.look(&[row(0, Duration::from_secs(8))], now);
        assert_eq!(observer.remaining(Uuid::nil(), now), Some(Duration::from_secs(2)));
        assert_eq!(expired(&observer, now + Duration::from_secs(2)).len(), 1);
    }
}
