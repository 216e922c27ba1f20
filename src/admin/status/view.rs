//! `GET /status`: the document about the whole gateway.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    Status, lock,
    problem::{Level, ProblemKind, StatusProblem},
    state,
};
use crate::{
    cluster::overview::NodeOverview,
    journal::{quarantine::QuarantineReason, subscriptions::MadeBy},
    model::{NodeName, Seq, SourceName, Text, Timestamp},
    web::{Tls, problems},
};

/// Status of the gateway and of its parts.
#[derive(Serialize, ToSchema)]
#[schema(as = Status)]
#[serde(rename_all = "camelCase")]
struct StatusView {
    /// `ready`, or `degraded` while there is a problem of the level `error`.
    status: &'static str,
    /// Problems, the worst first.
    problems: Vec<ProblemView>,
    /// Version of the program.
    version: &'static str,
    /// Commit of the program, if its build knew it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    commit: Option<&'static str>,
    /// Time of the start of this process.
    started: Timestamp,
    /// URL of the gateway for readers.
    url: String,
    /// Whether everybody may read, post and administer.
    open: bool,
    /// End of the certificate, if the gateway has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Timestamp, required = false)]
    certificate_expires: Option<Timestamp>,
    /// Tokens that expire.
    tokens: Vec<TokenView>,
    /// The journal.
    journal: JournalView,
    /// Sources with messages in the quarantine.
    quarantine: Vec<QuarantineShareView>,
    /// The most frequent reasons of the quarantine.
    quarantine_reasons: Vec<QuarantineReasonView>,
    /// Number of sources with a broker, by the state of their connection.
    connections: BTreeMap<&'static str, u64>,
    /// Number of sources with lookups, by the state of their repository: `asked` or `circuit-open`.
    lookups: BTreeMap<&'static str, u64>,
    /// Number of harvests, with those of datasets, by state.
    harvests: BTreeMap<&'static str, u64>,
    /// Number of jobs that archive datasets, by state, as of a few seconds ago. Those of archived datasets and cancelled ones
    /// are not counted.
    datasets: BTreeMap<&'static str, u64>,
    /// The store of downloaded files.
    files: FilesView,
    /// Number of subscriptions, those of WebSub subscribers excluded, by state.
    subscriptions: BTreeMap<&'static str, u64>,
    /// Number of WebSub subscribers, by state.
    subscribers: BTreeMap<&'static str, u64>,
    /// Number of crawlers on D-Bus, if they are enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    crawlers: Option<u64>,
    /// The live nodes, by name.
    nodes: Vec<NodeStatusView>,
}

/// Something that an administrator should mend.
#[derive(Serialize, ToSchema)]
#[schema(as = StatusProblem)]
pub struct ProblemView {
    /// `error` if something does not work, or `warning`.
    level: Level,
    /// Code; docs/status.md lists them.
    code: ProblemKind,
    /// The thing that has the problem: `gateway`, `source/NAME`, `subscription/NAME`, `token/NAME`, `node/NAME`
    /// or `duty/NAME`.
    thing: String,
    /// Time at which this node has noticed it.
    since: Timestamp,
    /// One sentence about the problem.
    text: String,
    /// Remedy.
    action: String,
}

/// Token that expires.
#[derive(Serialize, ToSchema)]
#[schema(as = ExpiringToken)]
struct TokenView {
    /// Name of the token.
    name: String,
    /// Its end.
    expires: Timestamp,
}

/// State of the journal.
#[derive(Serialize, ToSchema)]
#[schema(as = JournalStatus)]
#[serde(rename_all = "camelCase")]
struct JournalView {
    /// Number of the oldest change.
    first: Seq,
    /// Number of the newest change.
    head: Seq,
    /// Size of the files of the journal, in bytes, if they are in the data folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    bytes: Option<u64>,
    /// Time of the last backup of the journal in the data folder, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_backup: Option<Timestamp>,
    /// Number of days after which changes are removed, if there is a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    keep_days: Option<u32>,
    /// Number of changes that are kept, if there is a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    keep_changes: Option<u64>,
    /// Room on the disk of the data folder, in bytes, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    free_bytes: Option<u64>,
}

/// State of the file store, as of a few seconds ago.
#[derive(Serialize, ToSchema)]
#[schema(as = FilesStatus)]
#[serde(rename_all = "camelCase")]
struct FilesView {
    /// The folder or the bucket, without credentials.
    location: String,
    /// Room on the disk of the folder, in bytes, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    free_bytes: Option<u64>,
    /// Size of the files that were stored for all sources, in bytes. Files that were removed since are counted.
    bytes: u64,
    /// Shares of the sources that have stored files.
    sources: Vec<FilesShareView>,
}

/// Files of a source.
#[derive(Serialize, ToSchema)]
#[schema(as = FilesShare)]
struct FilesShareView {
    /// Name of the source.
    #[schema(value_type = SourceName)]
    source: SourceName,
    /// Size of the files that were stored for it, in bytes, which its limit counts.
    bytes: u64,
}

/// Messages of a source in the quarantine that have the same reason.
#[derive(Serialize, ToSchema)]
#[schema(as = QuarantineReason)]
struct QuarantineReasonView {
    /// Name of the source.
    #[schema(value_type = SourceName)]
    source: SourceName,
    /// The reason.
    #[schema(value_type = String)]
    reason: Text,
    /// Number of messages.
    messages: u64,
}

/// A live node.
#[derive(Serialize, ToSchema)]
#[schema(as = NodeStatus)]
struct NodeStatusView {
    /// Name of the node.
    name: NodeName,
    /// Number of its duties.
    duties: u64,
    /// Number of changes that it does not know yet.
    lag: u64,
    /// Whether it has answered this request.
    answering: bool,
}

/// Messages of a source in the quarantine.
#[derive(Serialize, ToSchema)]
#[schema(as = QuarantineShare)]
struct QuarantineShareView {
    /// Name of the source.
    source: String,
    /// Number of messages.
    messages: u64,
    /// Size of their bodies, in bytes.
    bytes: u64,
    /// Time of receipt of the newest message.
    newest: Timestamp,
}

impl From<(SourceName, u64)> for FilesShareView {
    fn from((source, bytes): (SourceName, u64)) -> Self {
        Self { source, bytes }
    }
}

impl From<QuarantineReason> for QuarantineReasonView {
    fn from(QuarantineReason { source, reason, messages }: QuarantineReason) -> Self {
        Self { source, reason, messages }
    }
}

impl From<&NodeOverview> for NodeStatusView {
    fn from(node: &NodeOverview) -> Self {
        Self { name: node.name.clone(), duties: node.duties.len() as u64, lag: node.lag, answering: node.is_this }
    }
}

impl From<StatusProblem> for ProblemView {
    fn from(problem: StatusProblem) -> Self {
        let (text, action) = (problem.text(), problem.action());
        let StatusProblem { kind, thing, since, .. } = problem;
        Self { level: kind.level(), code: kind, thing: thing.to_string(), since, text, action }
    }
}

impl ProblemView {
    /// Returns whether something does not work because of the problem.
    pub(in crate::admin) fn is_error(&self) -> bool {
        self.level == Level::Error
    }

    /// Returns one sentence about the problem.
    pub(in crate::admin) fn text(&self) -> &str {
        &self.text
    }
}

impl Status {
    fn view(&self) -> StatusView {
        let problems: Vec<ProblemView> = self.problems().into_iter().map(ProblemView::from).collect();
        let super::Inner { parts, soundings, .. } = &*self.0;
        let soundings = lock(soundings).clone();
        let quarantine = soundings.quarantine.into_iter().map(|(source, share)| QuarantineShareView {
            source,
            messages: share.size.messages,
            bytes: share.size.bytes,
            newest: share.newest,
        });
        let connections = parts.sources.configured.values().filter_map(|listed| listed.connection.as_ref());
        let (harvests, sources) = (parts.sources.harvests.list(), parts.sources.all());
        let (subscribers, subscriptions): (Vec<_>, Vec<_>) =
            parts.subscriptions.health().into_iter().partition(|health| health.made_by == MadeBy::Hub);
        StatusView {
            status: state(&problems),
            problems,
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("TIDINGS_COMMIT").filter(|commit| !commit.is_empty()),
            started: parts.started,
            url: parts.public_url.clone(),
            open: parts.access.is_open(),
            certificate_expires: parts.tls.as_ref().and_then(Tls::expires).map(Timestamp::from_datetime),
            tokens: parts
                .access
                .expiries()
                .map(|(name, end)| TokenView { name: name.to_owned(), expires: Timestamp::from_datetime(end) })
                .collect(),
            journal: JournalView {
                first: parts.journal.first(),
                head: parts.journal.head(),
                bytes: soundings.journal_bytes,
                last_backup: soundings.last_backup,
                keep_days: parts.retention.days,
                keep_changes: parts.retention.changes,
                free_bytes: soundings.disk.map(|disk| disk.free),
            },
            quarantine: quarantine.collect(),
            quarantine_reasons: soundings.reasons.into_iter().map(QuarantineReasonView::from).collect(),
            connections: numbers(connections.map(|connection| connection.view().state.name())),
            harvests: numbers(harvests.iter().map(|harvest| harvest.status.view().state.name())),
            datasets: soundings.archive.jobs,
            files: FilesView {
                location: parts.files.location.clone(),
                free_bytes: soundings.files_disk.map(|disk| disk.room.free),
                bytes: soundings.archive.stored.values().fold(0, |sum, bytes| sum.saturating_add(*bytes)),
                sources: soundings.archive.stored.into_iter().map(FilesShareView::from).collect(),
            },
            lookups: numbers(sources.values().filter_map(|listed| Some(listed.source.enrichment_status()?.state()))),
            subscriptions: numbers(subscriptions.iter().map(|health| health.state.name())),
            subscribers: numbers(subscribers.iter().map(|health| health.state.name())),
            crawlers: parts.crawlers.as_ref().map(|crawlers| crawlers.list().len() as u64),
            nodes: parts.nodes.overview().nodes.iter().map(NodeStatusView::from).collect(),
        }
    }
}

/// Counts equal names.
fn numbers<N: Ord>(names: impl Iterator<Item = N>) -> BTreeMap<N, u64> {
    let mut numbers = BTreeMap::new();
    names.for_each(|name| *numbers.entry(name).or_default() += 1);
    numbers
}

problems!(Problems:);

/// The status of the gateway: what it does, and a list of all problems.
#[utoipa::path(
    get,
    path = "/status",
    operation_id = "getStatus",
    tag = "administration",
    responses((status = 200, description = "The status.", body = StatusView), Problems),
)]
pub async fn show(State(status): State<Status>) -> Response {
    Json(status.view()).into_response()
}
