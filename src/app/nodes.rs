//! Wiring of the node: joins the other nodes of the journal, runs retention and the changes that come due on one of them,
//! and leaves.

use std::{collections::BTreeMap, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{ServeError, SharedJournal, retention};
use crate::{
    admin::sources::ConfiguredSource,
    cluster::{Cluster, JoinError, MembershipThread, Tenure},
    config::Config,
    intake::due::append_due_changes,
    journal::{Journal, nodes::DutyName, retention::Retention},
    segments::{Segments, seal_spans},
    supervision::Supervisor,
};

/// Maximum time to leave the other nodes. The lease of the node ends by itself otherwise.
const LEAVE_TIME: Duration = Duration::from_secs(1);

/// Joins the other nodes of the journal, if its store can be shared.
pub(super) async fn join(
    config: &Config,
    journal: &Journal,
    sources: &BTreeMap<String, ConfiguredSource>,
    supervisor: &Supervisor,
) -> Result<(Cluster, Option<MembershipThread>), ServeError> {
    let (settings, offers) = (config.node.settings(), offers(config, sources));
    let (journal, supervisor) = (journal.clone(), supervisor.clone());
    let joined = tokio::task::spawn_blocking(move || {
        // The thread must not keep the journal open.
        let head = journal.watch();
        let open = |lease, wake| journal.node_table(lease, wake);
        Cluster::join(settings, offers, move || *head.borrow(), open, &supervisor)
    });
    Ok(joined.await.map_err(|error| JoinError::Thread(error.into()))??)
}

/// Returns the duties of the configuration.
fn offers(config: &Config, sources: &BTreeMap<String, ConfiguredSource>) -> Vec<DutyName> {
    let read = sources.values().filter(|listed| !listed.has_hook);
    let looked_up = sources.values().filter(|listed| listed.source.enrichment_status().is_some());
    let mut duties: Vec<_> = read.map(|listed| DutyName::source(listed.source.name())).collect();
    duties.extend(looked_up.map(|listed| DutyName::follow_ups(listed.source.name())));
    duties.push(DutyName::audits());
    duties.extend(config.subscriptions.keys().map(DutyName::subscription));
    duties.extend((retention(config) != Retention::default()).then(DutyName::retention));
    duties.push(DutyName::segments());
    duties.push(DutyName::due());
    duties.extend(config.hub.enabled.then(DutyName::hub));
    duties.extend(config.publish.is_some().then(DutyName::publication));
    duties.extend(config.dbus.enabled.then(DutyName::dbus));
    duties
}

/// Removes old changes whenever this node has that duty.
pub(super) async fn run_retention(retention: Retention, journal: Journal, cluster: Cluster, stop: CancellationToken) {
    let work = |tenure: Tenure| {
        let removal = retention.run(journal.under(tenure.term()));
        async move {
            let _ = tenure.stop().run_until_cancelled(removal).await;
        }
    };
    cluster.run_duty(DutyName::retention(), &stop, work).await;
}

/// Appends the changes that come due whenever this node has that duty.
pub(super) async fn run_due(SharedJournal { journal, cluster }: SharedJournal, stop: CancellationToken) {
    let work = |tenure: Tenure| append_due_changes(journal.under(tenure.term()), tenure.stop().clone());
    cluster.run_duty(DutyName::due(), &stop, work).await;
}

/// Seals the closed spans of the journal whenever this node has that duty.
pub(super) async fn run_sealing(
    SharedJournal { journal, cluster }: SharedJournal,
    segments: Option<Segments>,
    stop: CancellationToken,
) {
    let work = |tenure: Tenure| seal_spans(journal.under(tenure.term()), segments.clone(), tenure.stop().clone());
    cluster.run_duty(DutyName::segments(), &stop, work).await;
}

/// Leaves the other nodes. All duties of this node have ended.
pub(super) async fn leave(membership: MembershipThread) {
    let left = tokio::task::spawn_blocking(move || membership.join());
    if tokio::time::timeout(LEAVE_TIME, left).await.is_err() {
        tracing::warn!("stopped before the node has left; its lease ends by itself");
    }
}
