//! The status of the gateway: what it does, and one list of what is wrong with it. `GET /status` shows it; `/readyz`, `/`,
//! the log and the metrics read the same list.
//!
//! * [`problem`] has the codes, and what people read about each;
//! * `survey` finds the problems in the states that the parts publish;
//! * [`gauges`] are the metrics of what the status shows besides the problems;
//! * `soundings` are the facts that a disk or the journal must be asked for, `archive` those about datasets and files;
//! * [`view`] is the document.

mod archive;
pub mod gauges;
pub mod problem;
mod soundings;
mod survey;
pub mod view;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::Utc;
use tokio_util::sync::CancellationToken;

use self::{
    problem::{ProblemKind, StatusProblem, Thing},
    soundings::Soundings,
};
use super::sources::Sources;
use crate::{
    audit::Audits,
    cluster::Cluster,
    delivery::{Subscriptions, xesam::Crawlers},
    journal::{Journal, retention::Retention},
    model::Timestamp,
    publish::Publication,
    web::{Access, Tls},
};

pub use self::view::ProblemView;

/// Metric name: number of present problems by code.
pub const PROBLEMS: &str = "tidings_problems";

/// Interval at which problems are looked for, so that the log and the metrics have them although nobody asks.
const SURVEY_INTERVAL: Duration = Duration::from_secs(1);

/// Wait between two soundings.
const SOUNDING_WAIT: Duration = Duration::from_secs(3);

/// Age at which a problem is logged, because a connection that opens is none for long.
const LOG_AFTER_MILLIS: i64 = 2000;

/// Parts of the gateway whose states the status shows.
pub struct StatusParts {
    /// The journal.
    pub journal: Journal,
    /// The sources and the harvests.
    pub sources: Sources,
    /// The audits.
    pub audits: Audits,
    /// The subscriptions.
    pub subscriptions: Subscriptions,
    /// The nodes that share the journal.
    pub nodes: Cluster,
    /// The crawlers on D-Bus, if enabled.
    pub crawlers: Option<Crawlers>,
    /// The published copy, if there is one.
    pub publication: Option<Publication>,
    /// The tokens.
    pub access: Arc<Access>,
    /// The certificate, if the gateway has one.
    pub tls: Option<Tls>,
    /// Folder whose disk needs room.
    pub folder: PathBuf,
    /// The file store.
    pub files: FilesPlace,
    /// URL of the gateway for readers.
    pub public_url: String,
    /// When changes are removed.
    pub retention: Retention,
    /// Time of the start of this process.
    pub started: Timestamp,
}

/// Place of the file store.
#[derive(Clone, Debug)]
pub struct FilesPlace {
    /// The folder or the bucket, without credentials.
    pub location: String,
    /// The folder, whose disk needs room, if it is one.
    pub folder: Option<PathBuf>,
}

/// The status. Clones share it.
#[derive(Clone)]
pub struct Status(Arc<Inner>);

struct Inner {
    parts: StatusParts,
    soundings: Mutex<Soundings>,
    known: Mutex<BTreeMap<(ProblemKind, Thing), KnownProblem>>,
}

/// A problem of the last survey.
#[derive(Clone, Copy)]
struct KnownProblem {
    since: Timestamp,
    is_logged: bool,
}

impl Status {
    /// Creates the status of these parts.
    #[must_use]
    pub fn new(parts: StatusParts) -> Self {
        let (soundings, known) = (Mutex::default(), Mutex::default());
        // An alert that compares with an earlier value needs the initial zero.
        ProblemKind::ALL.into_iter().for_each(|kind| set_gauge(kind, 0));
        Self(Arc::new(Inner { parts, soundings, known }))
    }

    /// Returns the present problems, the worst kinds first.
    #[must_use]
    pub fn problems(&self) -> Vec<StatusProblem> {
        let now = Utc::now();
        let soundings = lock(&self.0.soundings).clone();
        // Before the survey, so that no older one follows and ends a problem that exists.
        let mut known = lock(&self.0.known);
        let found = survey::findings(&self.0.parts, &soundings, now);
        let now = Timestamp::from_datetime(now);
        let former = std::mem::take(&mut *known);
        let mut problems: Vec<_> = found
            .into_iter()
            .map(|survey::Finding { kind, thing, facts }| {
                let since = former.get(&(kind, thing.clone())).map_or(now, |known| known.since);
                StatusProblem { kind, thing, facts, since }
            })
            .collect();
        for problem in &problems {
            let key = (problem.kind, problem.thing.clone());
            let was_logged = former.get(&key).is_some_and(|known| known.is_logged);
            let is_logged = was_logged || now.millis().saturating_sub(problem.since.millis()) >= LOG_AFTER_MILLIS;
            if is_logged && !was_logged {
                log_begin(problem);
            }
            known.insert(key, KnownProblem { since: problem.since, is_logged });
        }
        let ended = former.into_iter().filter(|(key, former)| former.is_logged && !known.contains_key(key));
        ended.for_each(|((kind, thing), former)| log_end(kind, &thing, former.since, now));
        for kind in ProblemKind::ALL {
            set_gauge(kind, problems.iter().filter(|problem| problem.kind == kind).count());
        }
        problems.sort_by(|a, b| (a.kind.level(), a.kind, &a.thing).cmp(&(b.kind.level(), b.kind, &b.thing)));
        problems
    }

    /// Looks for problems, and asks the disk and the journal, until `stop` is cancelled.
    pub async fn watch(self, stop: CancellationToken) {
        // Side by side, because a disk or a database that does not answer holds up no survey.
        let both = async { tokio::join!(self.survey_at_intervals(), self.sound_at_intervals()) };
        let _ = stop.run_until_cancelled(both).await;
        gauges::end(&self.0.parts);
    }

    async fn survey_at_intervals(&self) {
        let mut ticks = tokio::time::interval(SURVEY_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // For the log and the metrics.
            drop(self.problems());
            gauges::set(&self.0.parts, &lock(&self.0.soundings));
        }
    }

    async fn sound_at_intervals(&self) {
        let mut soundings = Soundings::default();
        loop {
            let StatusParts { journal, sources, .. } = &self.0.parts;
            soundings.take(&self.0.parts).await;
            sources.refresh(journal).await;
            lock(&self.0.soundings).clone_from(&soundings);
            tokio::time::sleep(SOUNDING_WAIT).await;
        }
    }
}

/// Returns `degraded` if something does not work, and otherwise `ready`.
pub(super) fn state(problems: &[ProblemView]) -> &'static str {
    if problems.iter().any(ProblemView::is_error) { "degraded" } else { "ready" }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is complete before the lock is released, even if a thread panics.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn log_begin(problem: &StatusProblem) {
    let (code, text, action) = (problem.kind.name(), problem.text(), problem.action());
    tracing::warn!(code, action, "problem: {text}");
}

fn log_end(kind: ProblemKind, thing: &Thing, since: Timestamp, now: Timestamp) {
    let seconds = now.millis().saturating_sub(since.millis()) / 1000;
    tracing::info!(code = kind.name(), %thing, seconds, "a problem has ended");
}

#[expect(clippy::cast_precision_loss, reason = "there are never that many problems")]
fn set_gauge(kind: ProblemKind, number: usize) {
    metrics::gauge!(PROBLEMS, "code" => kind.name(), "level" => kind.level().name()).set(number as f64);
}
