//! `GET /nodes`: the nodes that share the journal, and their duties.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    cluster::{Cluster, overview::NodeOverview},
    model::{NodeName, Timestamp},
    web::problems,
};

/// All nodes.
#[derive(Serialize, ToSchema)]
#[schema(as = Nodes)]
struct NodesView<'a> {
    /// The live nodes, ordered by name.
    nodes: Vec<NodeView<'a>>,
}

/// A gateway that shares the journal.
#[derive(Serialize, ToSchema)]
#[schema(as = Node)]
struct NodeView<'a> {
    /// Name of the node.
    name: &'a NodeName,
    /// URL at which the node is reached, if it is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    address: Option<&'a str>,
    /// Version of the program.
    version: &'a str,
    /// Whether this node has answered the request.
    answering: bool,
    /// Whether the node is stopping and hands its duties over.
    leaving: bool,
    /// Time at which the node joined.
    started: Timestamp,
    /// Time of the last renewal of the lease; absent if the journal is for one node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    renewed: Option<Timestamp>,
    /// Number of changes that the node did not know yet at its last renewal.
    lag: u64,
    /// Its duties, ordered by name.
    duties: Vec<DutyView<'a>>,
}

/// Work that exactly one node does at a time.
#[derive(Serialize, ToSchema)]
#[schema(as = Duty)]
struct DutyView<'a> {
    /// `source/NAME`, `follow-ups/NAME`, `subscription/NAME`, `retention`, `due` or `hub`.
    name: &'a str,
    /// Time at which the node took the duty.
    since: Timestamp,
}

problems!(Problems:);

/// The nodes that share the journal, with their duties, as of at most a few seconds ago. A gateway without other nodes
/// has all duties.
#[utoipa::path(
    get,
    path = "/nodes",
    operation_id = "listNodes",
    tag = "administration",
    responses((status = 200, description = "All nodes.", body = NodesView), Problems),
)]
pub async fn list(State(cluster): State<Cluster>) -> Response {
    let overview = cluster.overview();
    Json(NodesView { nodes: overview.nodes.iter().map(view).collect() }).into_response()
}

fn view(node: &NodeOverview) -> NodeView<'_> {
    NodeView {
        name: &node.name,
        address: node.address.as_deref(),
        version: &node.version,
        answering: node.is_this,
        leaving: node.is_leaving,
        started: node.started,
        renewed: node.renewed,
        lag: node.lag,
        duties: node.duties.iter().map(|(name, since)| DutyView { name: name.as_str(), since: *since }).collect(),
    }
}
