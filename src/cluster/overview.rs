//! The nodes of a journal and their duties, for people.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::{
    journal::nodes::{DutyName, HeldDuty, NodeRecord, Survey},
    model::{NodeName, Timestamp},
};

/// Nodes and duties, as of the last look at the store.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// Live nodes, in order of their names.
    pub nodes: Vec<NodeOverview>,
    /// Nodes that have gone without leaving, each with the time of its last renewal, in order of their names.
    pub lost: Vec<(NodeName, Timestamp)>,
    /// Duties that no node has, although this node knows them, each with the node that should have it.
    pub without_node: Vec<(DutyName, NodeName)>,
}

/// A live node.
#[derive(Clone, Debug)]
pub struct NodeOverview {
    /// Name of the node.
    pub name: NodeName,
    /// URL at which the node is reached.
    pub address: Option<String>,
    /// Version of the program.
    pub version: String,
    /// Whether this is the node that reports.
    pub is_this: bool,
    /// Whether the node is stopping and hands its duties over.
    pub is_leaving: bool,
    /// Time of its registration.
    pub started: Timestamp,
    /// Time of the last renewal of its lease; `None` for the only node of a journal, which needs no lease.
    pub renewed: Option<Timestamp>,
    /// Number of changes that the node did not know yet at its last renewal.
    pub lag: u64,
    /// Its duties, each with the time of the takeover, in order of their names.
    pub duties: Vec<(DutyName, Timestamp)>,
}

impl Overview {
    /// Returns the overview of the only node of a journal.
    pub(super) fn of_single(
        name: &NodeName,
        address: Option<&str>,
        started: Timestamp,
        duties: BTreeMap<DutyName, Timestamp>,
    ) -> Self {
        Self {
            nodes: vec![NodeOverview {
                name: name.clone(),
                address: address.map(str::to_owned),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                is_this: true,
                is_leaving: false,
                started,
                renewed: None,
                lag: 0,
                duties: duties.into_iter().collect(),
            }],
            ..Self::default()
        }
    }

    /// Returns the overview of several nodes, of which `this` reports.
    pub(super) fn of_nodes(survey: &Survey, duties: &[HeldDuty], this: Uuid) -> Self {
        let node = |node: &NodeRecord| NodeOverview {
            name: node.name.clone(),
            address: node.address.clone(),
            version: node.version.clone(),
            is_this: node.instance == this,
            is_leaving: node.is_leaving,
            started: node.started,
            renewed: Some(node.renewed),
            lag: survey.head.0.saturating_sub(node.head.0),
            duties: duties
                .iter()
                .filter(|duty| duty.holder == node.instance)
                .map(|duty| (duty.name.clone(), duty.since))
                .collect(),
        };
        Self { nodes: survey.nodes.iter().map(node).collect(), ..Self::default() }
    }
}
