//! Absences: nodes that have gone without leaving, and duties that no node has.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::{
    journal::nodes::{DutyName, NodeRecord},
    model::{NodeName, Timestamp},
};

/// Time for which a lost node is remembered. A node that was given up for good is forgotten then.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// Maximum number of lost nodes that are remembered.
const MAX_LOST: usize = 100;

/// Absences, as this node has noticed them.
#[derive(Debug, Default)]
pub(super) struct Absences {
    lost: BTreeMap<NodeName, LostNode>,
    /// Duties that this node knows and no node has.
    without_node: BTreeMap<DutyName, Vacancy>,
}

/// Absence of a node for a duty.
#[derive(Clone, Debug)]
struct Vacancy {
    since: Instant,
    /// The node that the duty belongs to.
    owner: NodeName,
}

/// A node whose lease has ended although it did not leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct LostNode {
    /// Time of its last renewal, by the clock of the store.
    pub(super) renewed: Timestamp,
    /// Time at which this node noticed.
    pub(super) noticed: Instant,
}

impl Absences {
    /// Notes nodes that have gone without leaving, and that others are there (again).
    pub(super) fn note_nodes(
        &mut self,
        gone: impl IntoIterator<Item = (NodeName, LostNode)>,
        nodes: &[NodeRecord],
        now: Instant,
    ) {
        self.lost.extend(gone);
        let is_there = |name: &NodeName| nodes.iter().any(|node| node.name == *name);
        self.lost.retain(|name, lost| !is_there(name) && now.duration_since(lost.noticed) < REMEMBERED);
        while self.lost.len() > MAX_LOST {
            self.lost.pop_first();
        }
    }

    /// Notes which duties have no node at present, each with the node that it belongs to.
    pub(super) fn note_duties(&mut self, without_node: impl IntoIterator<Item = (DutyName, NodeName)>, now: Instant) {
        let before = std::mem::take(&mut self.without_node);
        let vacancy = |(name, owner): (DutyName, NodeName)| {
            let since = before.get(&name).map_or(now, |before| before.since);
            (name, Vacancy { since, owner })
        };
        self.without_node = without_node.into_iter().map(vacancy).collect();
    }

    /// Returns the lost nodes, each with the time of its last renewal, in order of their names.
    pub(super) fn lost(&self) -> Vec<(NodeName, Timestamp)> {
        self.lost.iter().map(|(name, lost)| (name.clone(), lost.renewed)).collect()
    }

    /// Returns the duties that no node has had for `patience`, in which another node usually takes them, each with the
    /// node that it belongs to.
    pub(super) fn duties(&self, patience: Duration, now: Instant) -> Vec<(DutyName, NodeName)> {
        let vacancies = self.without_node.iter();
        let lasting = vacancies.filter(|(_, vacancy)| now.duration_since(vacancy.since) >= patience);
        lasting.map(|(name, vacancy)| (name.clone(), vacancy.owner.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Absences, Duration, DutyName, Instant, NodeName};

    #[test]
    fn duty_is_without_a_node_after_a_while_and_until_a_node_has_it() {
        let (mut absences, began) = (Absences::default(), Instant::now());
        let patience = Duration::from_secs(10);
        let duty = |owner| (DutyName::stored("subscription/index"), NodeName::parse(owner).unwrap());
        absences.note_duties([duty("a")], began);
        assert!(absences.duties(patience, began).is_empty());
        let later = began + patience;
        absences.note_duties([duty("b")], later);
        assert_eq!(absences.duties(patience, later), [duty("b")], "the nodes have changed, and the vacancy has not");
        absences.note_duties([], later);
        absences.note_duties([duty("a")], later);
        assert!(absences.duties(patience, later).is_empty(), "a node had it meanwhile");
    }
}
