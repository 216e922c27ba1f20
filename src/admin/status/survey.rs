//! The survey: the one place that finds problems, from the states that the parts of the gateway publish. It waits for
//! nothing, and asks neither a disk nor a database.

use chrono::{DateTime, Utc};

use super::{
    StatusParts,
    archive::JobFailures,
    problem::{ProblemKind, Thing},
    soundings::Soundings,
};
use crate::{
    admin::sources::ConfiguredSource,
    audit::AuditResult,
    broker::{ConnectionState, ConnectionView},
    delivery::{SubscriptionHealth, SubscriptionState},
    harvest::{Harvest, status::HarvestState},
    intake::EnrichmentStatus,
    journal::{due::DeniedItems, sources::SourceRecord, subscriptions::MadeBy},
    model::{SourceName, Timestamp},
    publish::PublicationState,
    text,
    web::EXPIRES_SOON,
};

/// Number of changes that a node does not know yet at which it is late. A busy node renews its lease after hundreds.
const LATE_CHANGES: u64 = 10_000;

/// Maximum length of the facts about a problem, in characters.
const MAX_FACTS: usize = 500;

/// A problem before it is known since when it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) kind: ProblemKind,
    pub(super) thing: Thing,
    pub(super) facts: String,
}

impl Finding {
    /// Creates a finding. Facts can come from partners, so they are one line of a bounded length.
    fn new(kind: ProblemKind, thing: Thing, facts: impl AsRef<str>) -> Self {
        Self { kind, thing, facts: text::line(facts.as_ref(), MAX_FACTS).to_string() }
    }
}

/// Finds all present problems.
pub(super) fn findings(parts: &StatusParts, soundings: &Soundings, now: DateTime<Utc>) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(
        parts.journal.outage().map(|reason| Finding::new(ProblemKind::JournalUnavailable, Thing::Gateway, reason)),
    );
    found.extend(disk(parts, soundings));
    found.extend(certificate(parts, now));
    found.extend(tokens(parts, now));
    for (name, configured) in &parts.sources.all() {
        found.extend(source(name, configured));
        let record = parts.sources.records().get(configured.source.name()).cloned();
        found.extend(silence(parts.started, record.as_ref(), configured, now));
    }
    found.extend(quarantine(soundings));
    found.extend(
        (soundings.lost > 0)
            .then(|| Finding::new(ProblemKind::QuarantineFull, Thing::Gateway, number(soundings.lost, "message"))),
    );
    found.extend(parts.sources.harvests.list().iter().flat_map(|listed| harvest(listed, now)));
    found.extend(parts.audits.results().into_iter().map(audit));
    found.extend(denied(soundings));
    found.extend(datasets(soundings));
    found.extend(parts.publication.as_ref().and_then(|publication| published_copy(&publication.state())));
    found.extend(nodes(parts));
    found.extend(parts.subscriptions.health().iter().flat_map(subscription));
    if let Some(crawlers) = &parts.crawlers {
        let connection = crawlers.connection();
        let facts = reason(&connection);
        found.extend(
            (!connection.state.is_healthy())
                .then(|| Finding::new(ProblemKind::DbusDisconnected, Thing::Gateway, facts)),
        );
    }
    found
}

/// Finds the disks with little room. The journal and the files are usually on the same one.
fn disk(parts: &StatusParts, soundings: &Soundings) -> Option<Finding> {
    let journal = soundings.disk.map(|room| (room, &parts.folder));
    let files =
        soundings.files_disk.filter(|disk| disk.is_other).map(|disk| disk.room).zip(parts.files.folder.as_ref());
    let scarce = journal.into_iter().chain(files).filter(|(room, _)| room.is_scarce());
    let facts = scarce.map(|(room, folder)| format!("{} MB are free for {}", room.free / 1_000_000, folder.display()));
    let facts: Vec<_> = facts.collect();
    (!facts.is_empty()).then(|| Finding::new(ProblemKind::DiskNearlyFull, Thing::Gateway, facts.join(", ")))
}

fn certificate(parts: &StatusParts, now: DateTime<Utc>) -> Option<Finding> {
    let end = parts.tls.as_ref()?.expires()?;
    let kind = expiry(end, now, ProblemKind::CertificateExpired, ProblemKind::CertificateExpires)?;
    Some(Finding::new(kind, Thing::Gateway, format!("it ends on {}", end.format("%F at %R UTC"))))
}

fn tokens(parts: &StatusParts, now: DateTime<Utc>) -> Vec<Finding> {
    let ending = parts.access.expiries().filter_map(|(name, end)| {
        let kind = expiry(end, now, ProblemKind::TokenExpired, ProblemKind::TokenExpires)?;
        Some(Finding::new(kind, Thing::Token(name.to_owned()), format!("it ends on {}", end.format("%F at %R UTC"))))
    });
    ending.collect()
}

/// Returns the kind of problem of something that ends at a time, if it is one.
fn expiry(end: DateTime<Utc>, now: DateTime<Utc>, expired: ProblemKind, expires: ProblemKind) -> Option<ProblemKind> {
    if end <= now { Some(expired) } else { (end - now <= EXPIRES_SOON).then_some(expires) }
}

/// Finds the sources with messages in the quarantine, also those that are no longer configured.
fn quarantine(soundings: &Soundings) -> impl Iterator<Item = Finding> {
    soundings.quarantine.iter().map(|(source, share)| {
        let facts = format!("{}, the newest from {}", number(share.size.messages, "message"), share.newest);
        Finding::new(ProblemKind::Quarantine, Thing::Source(source.clone()), facts)
    })
}

fn source(name: &str, configured: &ConfiguredSource) -> Vec<Finding> {
    let thing = || Thing::Source(name.to_owned());
    let mut found = Vec::new();
    if let Some(connection) = configured.connection.as_ref().map(|connection| connection.view()) {
        if !connection.state.is_healthy() {
            found.push(Finding::new(ProblemKind::SourceNotRead, thing(), reason(&connection)));
        }
        let warning = connection.warning.or_else(|| configured.warning.map(str::to_owned));
        found.extend(warning.map(|warning| Finding::new(ProblemKind::SourceWarning, thing(), warning)));
    }
    if let Some(lookup) = configured.source.enrichment_status() {
        found.extend(lookup_problem(&lookup).map(|(kind, facts)| Finding::new(kind, thing(), facts)));
    }
    found
}

/// Finds out whether a source is silent for longer than configured, or else than usual. A source that never made a change is
/// silent since the start of the gateway, if a time is configured.
fn silence(
    started: Timestamp,
    record: Option<&SourceRecord>,
    configured: &ConfiguredSource,
    now: DateTime<Utc>,
) -> Option<Finding> {
    let state = configured.connection.as_ref().map(|connection| connection.view().state);
    // Harvests are overdue instead, and a source that is not read is a problem by itself.
    if state
        .map_or(!configured.has_hook, |state| !matches!(state, ConnectionState::Connected | ConnectionState::Elsewhere))
    {
        return None;
    }
    let limit = configured.silent_after.or_else(|| record?.unusual_silence())?;
    let last = record.map_or(started, |record| record.last_event);
    let silent = Timestamp::from_datetime(now).millis().saturating_sub(last.millis());
    let is_silent = u128::try_from(silent).is_ok_and(|silent| silent > limit.as_millis());
    let facts = match record {
        Some(_) => format!("the last one was at {last}"),
        None => "it has never made one".to_owned(),
    };
    is_silent
        .then(|| Finding::new(ProblemKind::SourceSilent, Thing::Source(configured.source.name().to_string()), facts))
}

/// Returns the last error of a connection, or its state.
fn reason(connection: &ConnectionView) -> String {
    match &connection.last_error {
        Some(failure) => failure.reason.clone(),
        None => connection.state.name().to_owned(),
    }
}

fn lookup_problem(lookup: &EnrichmentStatus) -> Option<(ProblemKind, String)> {
    let EnrichmentStatus { url, incomplete, health, .. } = lookup;
    let reason = health.last_error.as_ref().map_or("", |(reason, _)| reason.as_str());
    if health.circuit_open_for.is_some() {
        return Some((ProblemKind::LookupUnanswered, format!("{url}: {reason}")));
    }
    if *incomplete > 0 {
        // After a start, nobody has asked yet.
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        return Some((ProblemKind::LookupIncomplete, format!("{}, {url}{reason}", number(*incomplete, "change"))));
    }
    let foreign = health.foreign.as_ref().filter(|_| !health.has_asked)?;
    Some((
        ProblemKind::LookupForeign,
        format!("{} such as {}, and the repository is {url}", number(foreign.number, "object"), foreign.example),
    ))
}

fn harvest(harvest: &Harvest, now: DateTime<Utc>) -> Vec<Finding> {
    let thing = || Thing::Source(harvest.source.name().to_string());
    let view = harvest.status.view();
    let mut found = Vec::new();
    // The node that harvests shows its problems, and a pause is what an administrator wants.
    if matches!(view.state, HarvestState::Elsewhere | HarvestState::Stopped | HarvestState::Paused) {
        return found;
    }
    found.extend(view.failure.map(|(reason, _)| Finding::new(ProblemKind::HarvestFails, thing(), reason.as_str())));
    if let Some(since) = harvest.overdue_since(Timestamp::from_datetime(now)) {
        found.push(Finding::new(
            ProblemKind::HarvestOverdue,
            thing(),
            format!("no run has been complete since {since}"),
        ));
    }
    if let Some(records) = harvest.difference().filter(|records| *records > 0) {
        found.push(Finding::new(ProblemKind::CountDiffers, thing(), format!("the numbers differ by {records}")));
    }
    found
}

fn audit((source, result): (SourceName, AuditResult)) -> Finding {
    let AuditResult { at, missing, different, extra, .. } = result;
    let facts = format!("{missing} missing, {different} different and {extra} extra items at {at}");
    Finding::new(ProblemKind::AuditDiffers, Thing::Source(source.to_string()), facts)
}

/// Finds the sources that report another date for a change that came at the announced one.
fn denied(soundings: &Soundings) -> impl Iterator<Item = Finding> {
    soundings.denied.iter().map(|DeniedItems { source, items, example }| {
        let facts = format!("{}, such as {example}", number(*items, "item"));
        Finding::new(ProblemKind::DueDenied, Thing::Source(source.to_string()), facts)
    })
}

/// Finds the sources with jobs that an administrator should see. The jobs are in the journal, so each node finds them.
fn datasets(soundings: &Soundings) -> impl Iterator<Item = Finding> {
    soundings.archive.failures.iter().map(|(source, JobFailures { jobs, last })| {
        let last = last.as_ref().map(|last| format!(", the last one {last}")).unwrap_or_default();
        let facts = format!("{}{last}", number(*jobs, "dataset"));
        Finding::new(ProblemKind::DatasetFails, Thing::Source(source.to_string()), facts)
    })
}

/// Finds out whether the node that writes the published copy fails to do so.
fn published_copy(state: &PublicationState) -> Option<Finding> {
    let error = state.last.as_ref().filter(|_| state.here)?.error.as_ref()?;
    let kind = if state.former_view { ProblemKind::PublicationExposes } else { ProblemKind::PublicationFails };
    Some(Finding::new(kind, Thing::Gateway, error))
}

/// Finds nodes that are missing or late, and duties that no node has.
fn nodes(parts: &StatusParts) -> Vec<Finding> {
    let overview = parts.nodes.overview();
    let mut found = Vec::new();
    for (name, renewed) in &overview.lost {
        let facts = format!("it renewed its lease last at {renewed}");
        found.push(Finding::new(ProblemKind::NodeLost, Thing::Node(name.to_string()), facts));
    }
    for node in overview.nodes.iter().filter(|node| node.lag >= LATE_CHANGES) {
        let facts = format!("{} are missing", number(node.lag, "change"));
        found.push(Finding::new(ProblemKind::NodeLate, Thing::Node(node.name.to_string()), facts));
    }
    for (duty, owner) in &overview.without_node {
        let facts = format!("it is the turn of the node {owner}");
        found.push(Finding::new(ProblemKind::DutyWithoutNode, Thing::Duty(duty.to_string()), facts));
    }
    found
}

/// Returns a number with its noun, in the plural if needed.
fn number(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

fn subscription(health: &SubscriptionHealth) -> Vec<Finding> {
    // The operator is not responsible for the subscribers of the hub.
    if health.made_by == MadeBy::Hub {
        return Vec::new();
    }
    let thing = || Thing::Subscription(health.name.to_string());
    let mut reason = health.last_error.clone().unwrap_or_default();
    let mut found = Vec::new();
    if health.is_failing {
        if let Some(seq) = health.stuck_at {
            reason = format!("change {seq}: {reason}");
        }
        found.push(Finding::new(ProblemKind::SubscriptionFails, thing(), reason));
    } else if health.state == SubscriptionState::Ended || (health.state == SubscriptionState::Paused && health.is_ended)
    {
        found.push(Finding::new(ProblemKind::SubscriptionEnded, thing(), reason));
    }
    if health.state == SubscriptionState::Orphaned {
        found.push(Finding::new(ProblemKind::SubscriptionOrphaned, thing(), ""));
    }
    if health.dead_letters > 0 {
        found.push(Finding::new(ProblemKind::DeadLetters, thing(), number(health.dead_letters, "message")));
    }
    found
}
