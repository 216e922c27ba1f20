//! The loop of a harvest: waits for the next run, requests page after page, and writes each page with the position
//! after it.
//!
//! A page is written in parts of some hundred records, each a transaction, so that others need not wait for the page. The
//! last part carries the position after the page and its counts, and all others the position before it. After a crash in
//! between, the page is requested again: records that are on disk are unchanged then, or duplicates, and their changes are
//! counted once. Records that cannot be read are in the quarantine again, unless their identifiers are noted as unreadable.

mod part;

use std::{sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, ready, try_join};
use tokio_util::sync::CancellationToken;

use self::part::ReadPart;
use super::{
    HarvestError, Harvester, Page, PageEnd, Schedule, metrics,
    oddities::Oddities,
    page::{PageRest, PageResult},
    pauses::Pauses,
    status::{HarvestState, HarvestStatus},
    waits::RunStart,
};
use crate::{
    intake::{Batch, Intake, Source},
    journal::{
        Journal, JournalError,
        harvest::{HarvestProgress, HarvestRun, KEPT_RUNS, ListedRecords, RunCounts, RunId, RunState},
    },
    model::{Text, Timestamp},
    retry::Backoff,
    transfer::{BudgetShare, HarvestBudget},
};

/// Number of failed attempts after which a run fails, whatever the kind of harvest decides.
const MAX_ATTEMPTS: u32 = 10;

/// Maximum number of successive changes of the position without a page.
const MAX_DETOURS: u32 = 200;

/// Maximum wait that a server can ask for.
const LONGEST_ASKED_WAIT: Duration = Duration::from_secs(60 * 60);

/// Number of newest runs that decide about the next one, and that have the time of the last complete one: all of them.
const RECENT_RUNS: usize = KEPT_RUNS;

/// Waits of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// First wait before a failed request is repeated.
    pub first_retry: Duration,
    /// Maximum wait before a failed request is repeated, unless the server asks for a longer one.
    pub longest_retry: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self { first_retry: Duration::from_secs(2), longest_retry: Duration::from_secs(5 * 60) }
    }
}

/// The harvest of one source.
pub struct Engine {
    /// The journal, for the duty of the source.
    pub journal: Journal,
    /// The source.
    pub source: Arc<Source>,
    /// The kind of harvest.
    pub harvester: Arc<dyn Harvester>,
    /// Memory for the answers of other servers.
    pub budget: HarvestBudget,
    /// Times of the runs.
    pub schedule: Schedule,
    /// Waits between attempts.
    pub waits: Waits,
    /// State for people.
    pub status: Arc<HarvestStatus>,
}

/// A run and its position.
struct Progress {
    run: HarvestRun,
    position: Arc<str>,
    /// True if the run has found records that cannot be read, and that were not known before.
    has_new_unreadable: bool,
    /// Oddities of the records that this gateway has read since its start.
    oddities: Oddities,
}

/// Reason why a run does not continue at present.
pub(super) enum Interruption {
    /// The harvest was asked to stop.
    Stopped,
    /// The journal could not be read or written.
    Journal(JournalError),
    /// The file store could not be read or written.
    Files(HarvestError),
}

impl Interruption {
    /// Returns the reason why the harvest continues later; `None` if it was asked to stop.
    pub(super) fn failure(self) -> Option<String> {
        match self {
            Self::Stopped => None,
            Self::Journal(error) => Some(error.to_string()),
            Self::Files(error) => Some(error.to_string()),
        }
    }
}

impl From<JournalError> for Interruption {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

impl Engine {
    pub(super) fn pauses(&self) -> Pauses<'_> {
        Pauses { journal: &self.journal, source: self.source.name(), status: &self.status }
    }

    /// Harvests until `stop` is cancelled. The part of a page that is being written is then still written.
    pub async fn run(self, stop: CancellationToken) {
        metrics::register(self.source.name());
        let mut backoff = Backoff::new(self.waits.first_retry, self.waits.longest_retry);
        while !stop.is_cancelled() {
            let result = self.run_once(&stop).await;
            self.harvester.rest();
            let Err(interruption) = result else {
                backoff.reset();
                continue;
            };
            let Some(error) = interruption.failure() else { break };
            let wait = backoff.next_wait();
            let again_ms = wait.as_millis();
            tracing::warn!(source = %self.source.name(), error, again_ms, "cannot harvest the source; retrying");
            self.status.fail(error.as_str().into());
            self.status.set(HarvestState::Retrying, Some(in_future(wait)));
            let _ = stop.run_until_cancelled(tokio::time::sleep(wait)).await;
        }
        self.status.set(HarvestState::Stopped, None);
    }

    /// Waits for the next run, or continues an interrupted one, and executes it to its end.
    async fn run_once(&self, stop: &CancellationToken) -> Result<(), Interruption> {
        let name = self.source.name();
        self.pauses().wait_until_resumed(stop).await?;
        let newest = self.journal.harvest_runs(name.clone(), None, RECENT_RUNS).await?;
        metrics::last_complete(name, &newest);
        self.status.learn(&newest);
        let interrupted = newest.first().filter(|run| run.state == RunState::Running);
        if interrupted.is_none() && self.wait_for_run(&newest, stop).await? == RunStart::Paused {
            return Ok(());
        }
        let stored = self.journal.harvest(name.clone()).await?;
        let position = stored.map_or_else(|| "".into(), |stored| stored.position);
        self.status.begin_run();
        let run = match interrupted {
            Some(run) => {
                tracing::info!(source = %name, run = %run.id, pages = run.counts.pages, "continuing an interrupted harvest");
                run.clone()
            }
            None => {
                let now = Timestamp::now();
                tracing::info!(source = %name, place = %self.harvester.describe(), "harvest has begun");
                HarvestRun {
                    id: RunId::mint(),
                    source: name.clone(),
                    started: now,
                    updated: now,
                    state: RunState::Running,
                    reason: None,
                    counts: RunCounts::default(),
                }
            }
        };
        let Some(ended) = self
            .pages(Progress { run, position, has_new_unreadable: false, oddities: Oddities::default() }, stop)
            .await?
        else {
            return Ok(());
        };
        self.log_end(&ended);
        metrics::ended(&ended);
        if ended.state == RunState::Completed {
            self.status.complete(ended.updated);
        }
        Ok(())
    }

    /// Requests and writes pages until the run ends; returns the run, or `None` if the harvest was paused meanwhile.
    async fn pages(
        &self,
        mut progress: Progress,
        stop: &CancellationToken,
    ) -> Result<Option<HarvestRun>, Interruption> {
        let mut backoff = Backoff::new(self.waits.first_retry, self.waits.longest_retry);
        let pauses = self.pauses();
        let mut detours = 0;
        // The request of the next page, which has begun while the page before it was written.
        let mut ahead: Option<BoxFuture<'static, PageResult>> = None;
        loop {
            if self.pauses().is_paused().await? {
                tracing::info!(source = %self.source.name(), pages = progress.run.counts.pages, "the harvest is paused");
                return Ok(None);
            }
            self.status.set(HarvestState::Running, None);
            let request = ahead.take();
            let request = request.unwrap_or_else(|| self.request(Arc::clone(&progress.position), backoff.failures()));
            let result = tokio::select! {
                biased;
                () = stop.cancelled() => return Err(Interruption::Stopped),
                result = request => result,
                // A server that sends slowly does not keep a paused harvest.
                paused = pauses.wait_until_paused(stop) => {
                    paused?;
                    continue;
                }
            };
            match result {
                Ok(page) => {
                    backoff.reset();
                    detours = 0;
                    (progress, ahead) = self.write_and_request(progress, page, stop).await?;
                    if progress.run.state != RunState::Running {
                        return Ok(Some(progress.run));
                    }
                }
                Err(HarvestError::Retry { reason, after }) if backoff.failures() < MAX_ATTEMPTS => {
                    let reason = Text::new(&reason);
                    let wait = backoff.next_wait().max(after.unwrap_or_default().min(LONGEST_ASKED_WAIT));
                    let again_ms = wait.as_millis();
                    tracing::warn!(source = %self.source.name(), reason = reason.as_str(), again_ms, "a page of a harvest is not available; retrying");
                    self.status.fail(reason);
                    self.status.set(HarvestState::Retrying, Some(in_future(wait)));
                    if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                        return Err(Interruption::Stopped);
                    }
                }
                Err(HarvestError::Continue { reason, position }) if detours < MAX_DETOURS => {
                    backoff.reset();
                    detours += 1;
                    let reason = Text::new(&reason);
                    tracing::info!(source = %self.source.name(), reason = reason.as_str(), "a harvest continues in another way");
                    progress.position = position.into();
                }
                Err(HarvestError::Retry { reason, .. } | HarvestError::Continue { reason, .. }) => {
                    return self.fail(progress, reason, None, stop).await.map(Some);
                }
                Err(HarvestError::Fail { reason, position }) => {
                    return self.fail(progress, reason, position, stop).await.map(Some);
                }
            }
        }
    }

    /// Ends a run that has failed.
    async fn fail(
        &self,
        mut progress: Progress,
        reason: String,
        position: Option<String>,
        stop: &CancellationToken,
    ) -> Result<HarvestRun, Interruption> {
        progress.run.state = RunState::Failed;
        progress.run.reason = Some(Text::new(&reason));
        progress.run.updated = Timestamp::now();
        if let Some(position) = position {
            progress.position = position.into();
        }
        self.status.fail(Text::new(&reason));
        let batch = Batch::read(&self.source, Vec::new());
        Ok(self.write_batch(batch, progress, ListedRecords::default(), stop).await?.run)
    }

    /// Requests the page after a position.
    fn request(&self, position: Arc<str>, attempt: u32) -> BoxFuture<'static, PageResult> {
        let harvester = Arc::clone(&self.harvester);
        Box::pin(async move { harvester.page(&position, attempt).await })
    }

    /// Writes a page, and meanwhile requests the next one if its kind allows that. Returns that request, which may not have
    /// ended.
    async fn write_and_request(
        &self,
        before: Progress,
        page: Page,
        stop: &CancellationToken,
    ) -> Result<(Progress, Option<BoxFuture<'static, PageResult>>), Interruption> {
        if page.end != PageEnd::More || !self.harvester.may_request_ahead(&page.position) {
            return Ok((self.write(before, page, stop).await?, None));
        }
        let mut request = self.request(page.position.as_str().into(), 0);
        let write = self.write(before, page, stop);
        tokio::pin!(write);
        tokio::select! {
            biased;
            written = &mut write => Ok((written?, Some(request))),
            result = &mut request => Ok((write.await?, Some(Box::pin(ready(result))))),
        }
    }

    /// Writes a page and the position after it.
    async fn write(&self, before: Progress, page: Page, stop: &CancellationToken) -> Result<Progress, Interruption> {
        let Page { records, position, end, is_listed, is_repaired, remarks, listed } = page;
        self.remark(&remarks);
        let run_before = before.run.clone();
        let mut written = before;
        let (mut part, mut rest) = self.next_part(PageRest::new(records, listed)).await?;
        let mut number = part.records;
        while !rest.is_empty() {
            written.oddities.add(&part.oddities);
            written.run.updated = Timestamp::now();
            // The records count when the page is complete, because they are requested again after a crash.
            let write = self.write_part(part, written, stop);
            (written, (part, rest)) = try_join(write, self.next_part(rest)).await?;
            number += part.records;
            if stop.is_cancelled() {
                return Err(Interruption::Stopped);
            }
        }
        written.position = position.into();
        written.run.counts.pages += u64::from(is_listed);
        written.run.counts.records += number;
        written.run.counts.repaired += u64::from(is_repaired);
        written.oddities.add(&part.oddities);
        if end == PageEnd::Complete {
            self.remark(&written.oddities.remarks());
        }
        let end = self.judged(&written, &part, end).await?;
        self.end_page(&mut written.run, end);
        let written = self.write_part(part, written, stop).await?;
        if written.run.state != RunState::Failed {
            self.status.recover();
        }
        let HarvestRun { counts, .. } = &written.run;
        tracing::debug!(
            source = %self.source.name(), pages = counts.pages, records = counts.records, changes = counts.changes,
            "page of a harvest is on disk"
        );
        metrics::page(&run_before, &written.run);
        Ok(written)
    }

    fn remark(&self, remarks: &[String]) {
        for remark in remarks.iter().map(|remark| Text::new(remark)) {
            if self.status.remark(&remark) {
                tracing::warn!(source = %self.source.name(), remark = remark.as_str(), "remark about a harvested repository");
            }
        }
    }

    /// Notes in a run how it continues after a page.
    fn end_page(&self, run: &mut HarvestRun, end: PageEnd) {
        run.updated = Timestamp::now();
        match end {
            PageEnd::More => {}
            PageEnd::Complete => {
                run.state = RunState::Completed;
                let remarks = self.status.view().remarks;
                let remarks: Vec<_> = remarks.iter().map(Text::as_str).collect();
                run.reason = (!remarks.is_empty()).then(|| Text::new(&remarks.join("; ")));
            }
            PageEnd::Failed(reason) => {
                let reason = Text::new(&reason);
                self.status.fail(reason.clone());
                (run.state, run.reason) = (RunState::Failed, Some(reason));
            }
        }
    }

    async fn write_part(
        &self,
        part: ReadPart,
        mut progress: Progress,
        stop: &CancellationToken,
    ) -> Result<Progress, Interruption> {
        let ReadPart { unreadable, known, batch, listed, .. } = part;
        progress.run.counts.quarantined += known;
        progress.has_new_unreadable |= unreadable > known;
        self.write_batch(batch, progress, listed, stop).await
    }

    /// Writes a batch of records with the progress of the run, and repeats a failed write until it succeeds.
    async fn write_batch(
        &self,
        mut batch: Batch,
        mut progress: Progress,
        listed: ListedRecords,
        stop: &CancellationToken,
    ) -> Result<Progress, Interruption> {
        let intake = Intake::new(self.journal.clone());
        let mut backoff = Backoff::new(self.waits.first_retry, self.waits.longest_retry);
        loop {
            let (position, run) = (Arc::clone(&progress.position), progress.run.clone());
            let stored = HarvestProgress { position, run, listed: listed.clone() };
            let turn = self.budget.turn(batch.len()).await;
            let written = intake.accept_page(&self.source, &mut batch, stored).await;
            drop(turn);
            match written {
                Ok(counts) => {
                    progress.run.counts = counts;
                    return Ok(progress);
                }
                Err(error) if stop.is_cancelled() || !error.is_transient() => return Err(error.into()),
                Err(error) => {
                    let wait = backoff.next_wait();
                    let again_ms = wait.as_millis();
                    tracing::warn!(source = %self.source.name(), %error, again_ms, "cannot write a page of a harvest; retrying");
                    self.status.fail(error.to_string().into());
                    if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                        return Err(Interruption::Stopped);
                    }
                }
            }
        }
    }

    fn log_end(&self, run: &HarvestRun) {
        let RunCounts { pages, records, changes, quarantined, .. } = run.counts;
        let source = self.source.name();
        match run.state {
            RunState::Failed => {
                let reason = run.reason.as_ref().map_or("", Text::as_str);
                tracing::error!(%source, reason, pages, records, changes, quarantined, "harvest has failed");
            }
            RunState::Running | RunState::Completed => {
                tracing::info!(%source, pages, records, changes, quarantined, "harvest is complete");
            }
        }
    }
}

/// Returns the time after a wait.
fn in_future(wait: Duration) -> Timestamp {
    Timestamp::from_datetime(chrono::Utc::now() + wait)
}
