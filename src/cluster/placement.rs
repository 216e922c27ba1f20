//! Placement of duties: each duty belongs to the live node with the highest score for it (rendezvous hashing).
//!
//! All nodes compute the same placement without talking to each other. When a node joins or leaves, only the duties
//! move that the node gets or had. Scores depend on the name of a node, so a restarted node gets its duties back.

use std::collections::HashSet;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::journal::nodes::{DutyName, NodeRecord};

/// Nodes that can have duties.
#[derive(Debug, Default)]
pub(super) struct Placement {
    candidates: Vec<Candidate>,
    /// Duties that some candidate has in its configuration. Only these candidates get them.
    offered: HashSet<DutyName>,
}

#[derive(Debug)]
struct Candidate {
    instance: Uuid,
    hash: u64,
    offers: HashSet<DutyName>,
}

impl Placement {
    /// Creates the placement over live nodes. A node that is leaving gets no duties.
    pub(super) fn new(nodes: &[NodeRecord]) -> Self {
        let staying = nodes.iter().filter(|node| !node.is_leaving);
        let candidates: Vec<_> = staying
            .map(|node| Candidate {
                instance: node.instance,
                hash: hash(node.name.as_str()),
                offers: node.offers.iter().cloned().collect(),
            })
            .collect();
        let offered = candidates.iter().flat_map(|candidate| candidate.offers.iter().cloned()).collect();
        Self { candidates, offered }
    }

    /// Returns the node that the duty belongs to; `None` if no node can have it. `hash` is that of the duty's name.
    pub(super) fn owner(&self, duty: &DutyName, hash: u64) -> Option<Uuid> {
        let is_offered = self.offered.contains(duty);
        let able = self.candidates.iter().filter(|candidate| !is_offered || candidate.offers.contains(duty));
        able.max_by_key(|candidate| (mix(candidate.hash ^ hash), candidate.instance)).map(|owner| owner.instance)
    }
}

/// Returns the hash of a name. It is the same in every version, because nodes of two versions must agree.
pub(super) fn hash(name: &str) -> u64 {
    let digest = Sha256::digest(name.as_bytes());
    digest.iter().take(8).fold(0, |hash, byte| (hash << 8) | u64::from(*byte))
}

/// Mixes the bits of two combined hashes (the finalizer of `SplitMix64`).
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{DutyName, NodeRecord, Placement, Uuid, hash};
    use crate::model::{NodeName, Seq, Timestamp};

    fn node(name: &str, offers: &[&str]) -> NodeRecord {
        let time = Timestamp::from_millis(0).unwrap();
        NodeRecord {
            instance: Uuid::from_u64_pair(0, hash(name)),
            name: NodeName::parse(name).unwrap(),
            address: None,
            version: String::new(),
            started: time,
            renewed: time,
            lease: std::time::Duration::from_secs(10),
            age: std::time::Duration::ZERO,
            head: Seq::ZERO,
            is_leaving: false,
            offers: offers.iter().map(|name| DutyName::stored(name)).collect(),
        }
    }

    fn owners(nodes: &[NodeRecord], duties: usize) -> BTreeMap<usize, Option<Uuid>> {
        let placement = Placement::new(nodes);
        let owner = |number: usize| {
            let name = DutyName::stored(&format!("subscription/s{number}"));
            (number, placement.owner(&name, hash(name.as_str())))
        };
        (0..duties).map(owner).collect()
    }

    proptest! {
        #[test]
        fn only_duties_of_a_node_that_comes_or_goes_move(names in proptest::collection::btree_set("[a-z]{1,8}", 1..8), which in any::<prop::sample::Index>()) {
            let all: Vec<_> = names.iter().map(|name| node(name, &[])).collect();
            let gone = which.index(all.len());
            let mut rest = all.clone();
            let gone = rest.remove(gone).instance;
            let (before, after) = (owners(&all, 200), owners(&rest, 200));
            for (duty, owner) in before {
                prop_assert!(owner.is_some_and(|owner| all.iter().any(|node| node.instance == owner)));
                if owner != Some(gone) {
                    prop_assert_eq!(owner, after[&duty]);
                } else {
                    prop_assert_eq!(after[&duty].is_some(), !rest.is_empty());
                }
            }
        }

        #[test]
        fn every_node_computes_the_same_owner(names in proptest::collection::btree_set("[a-z]{1,8}", 1..8)) {
            let mut nodes: Vec<_> = names.iter().map(|name| node(name, &[])).collect();
            let first = owners(&nodes, 100);
            nodes.reverse();
            prop_assert_eq!(first, owners(&nodes, 100));
        }
    }

    #[test]
    fn duties_are_spread_evenly() {
        let nodes: Vec<_> = ["a", "b", "c"].map(|name| node(name, &[])).into();
        let owners = owners(&nodes, 3000);
        for node in nodes {
            let count = owners.values().filter(|owner| **owner == Some(node.instance)).count();
            assert!((850..1150).contains(&count), "{count} of 3000");
        }
    }

    #[test]
    fn leaving_nodes_and_nodes_without_the_source_get_no_duty() {
        let duty = DutyName::stored("source/new");
        let owner = |nodes: &[NodeRecord]| Placement::new(nodes).owner(&duty, hash(duty.as_str()));
        let (old, new) = (node("old", &["source/other"]), node("new", &["source/other", "source/new"]));
        assert_eq!(owner(&[old.clone(), new.clone()]), Some(new.instance));
        let leaving = NodeRecord { is_leaving: true, ..new };
        assert_eq!(owner(&[leaving.clone(), node("newer", &["source/new"]), old]), Some(node("newer", &[]).instance));
        assert_eq!(owner(&[leaving]), None);
    }
}
