//! An audit of a repository: walks its list, and then the registry.

use std::{ops::ControlFlow, pin::pin, time::Duration};

use futures_util::future::join_all;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    compare,
    deletions::implausible_deletions,
    progress::{Progress, SAVE_EVERY, WalkError},
    report::{AuditRequest, Phase},
    sample,
    seen::SeenObjects,
};
use crate::{
    journal::{harvest::ListedCounts, registry::ObjectState},
    lookup::{
        Repository, RepositorySettings,
        crawl::{CrawlOptions, CrawlPart, Crawler, Look},
    },
    model::{CrawledObject, Draft, Uri},
};

/// Number of objects with a difference that are looked at again together.
const PENDING: usize = 100;

/// Number of objects of the registry that are read at a time.
const REGISTRY_PAGE: usize = 500;

/// Number of objects that are requested at a time. The repository's `in_flight` limits the requests.
const LOOKS: usize = 16;

/// Number of retries of a request.
const RETRIES: u32 = 5;

/// A running audit of a repository.
pub(super) struct Walk {
    progress: Progress,
    max_deleted_percent: u64,
    pause: Duration,
    crawler: Crawler,
    seen: SeenObjects,
    /// Number of listed objects that are not remembered. The registry phase requests them again, and they count once.
    forgotten: u64,
}

/// Signals that end an audit.
#[derive(Clone)]
pub(super) struct AuditStop {
    /// Cancelled if the gateway stops or loses the duty: the audit continues later by itself.
    pub(super) duty: CancellationToken,
    /// Cancelled also if an administrator stops the audit.
    pub(super) audit: CancellationToken,
}

/// Result of the look at an object.
enum LookResult {
    Present(Box<CrawledObject>),
    Gone,
    Outside,
    Unanswered,
}

impl Walk {
    /// Prepares an audit, which continues at its position.
    pub(super) async fn new(
        settings: &RepositorySettings,
        progress: Progress,
        request: &AuditRequest,
    ) -> Result<Self, WalkError> {
        let mut settings = settings.clone();
        // The other requests of the source have their own limit, and go first.
        settings.in_flight = (settings.in_flight / 4).max(1);
        let repository = Repository::new(progress.source.name(), settings).await?;
        let options = CrawlOptions { retries: RETRIES, skip_failing: true, ..CrawlOptions::default() };
        let is_listing = progress.audit.report.phase == Phase::Repository;
        let position = is_listing.then_some(progress.audit.position.as_str());
        let crawler = Crawler::new(repository, options, position)?;
        let (max_deleted_percent, pause) = (request.max_deleted_percent, Duration::from_secs(request.pause));
        // An audit that continues remembers none of its list.
        let (seen, forgotten) = (SeenObjects::new(), progress.audit.listed);
        Ok(Self { progress, max_deleted_percent, pause, crawler, seen, forgotten })
    }

    /// Compares everything that is left.
    pub(super) async fn run(mut self, stop: &AuditStop) -> Result<(), WalkError> {
        self.progress.begin().await?;
        let walked = stop.audit.run_until_cancelled(self.phases()).await.unwrap_or(Err(WalkError::Stopped));
        self.progress.end(walked, stop.duty.is_cancelled()).await
    }

    async fn phases(&mut self) -> Result<(), WalkError> {
        if self.progress.audit.report.phase == Phase::Repository {
            self.list_repository().await?;
        }
        if self.progress.audit.report.phase == Phase::Registry {
            match self.progress.audit.report.sample {
                Some(number) => self.look_at_sample(number).await?,
                None => self.read_registry().await?,
            }
        }
        if self.progress.audit.report.phase == Phase::Deletions {
            self.read_registry().await?;
        }
        Ok(())
    }

    /// Compares the objects that the repository lists.
    async fn list_repository(&mut self) -> Result<(), WalkError> {
        loop {
            let part = self.next_part().await?;
            self.progress.audit.report.unanswered += part.skipped.len() as u64;
            for object in part.objects {
                self.progress.audit.listed += 1;
                self.forgotten += u64::from(!self.seen.insert(&object.object));
                self.progress.audit.report.objects += 1;
                self.compare(object).await?;
            }
            self.progress.audit.position = part.position;
            let is_time = self.progress.audit.pending.len() >= PENDING || part.done;
            if is_time && self.look_again().await?.is_break() {
                return Ok(());
            }
            if part.done {
                return self.begin(Phase::Registry).await;
            }
            self.progress.save_sometimes().await?;
        }
    }

    /// Returns the next part of the list. The report is written while the repository is slow.
    async fn next_part(&mut self) -> Result<CrawlPart, WalkError> {
        let Self { crawler, progress, .. } = self;
        let mut next = pin!(crawler.next());
        loop {
            tokio::select! {
                part = &mut next => return Ok(part?),
                () = sleep(SAVE_EVERY) => progress.save_sometimes().await?,
            }
        }
    }

    /// Begins the next phase. A correction deletes objects only after all others are known.
    async fn begin(&mut self, phase: Phase) -> Result<(), WalkError> {
        self.progress.audit.report.phase = phase;
        self.progress.audit.position = String::new();
        self.progress.save().await
    }

    /// Requests the objects of the registry that the list did not have.
    async fn read_registry(&mut self) -> Result<(), WalkError> {
        loop {
            let after = Uri::parse(&self.progress.audit.position).ok();
            let page = self.progress.journal.registry(after, REGISTRY_PAGE).await?;
            let Some((last, _)) = page.last() else { break };
            let last = last.to_string();
            let is_deleting = self.progress.audit.report.phase == Phase::Deletions;
            let own = page.into_iter().filter(|(_, state)| self.progress.is_own(state)).map(|(uri, _)| uri);
            let own: Vec<_> = own.collect();
            let all = own.len() as u64;
            let unseen: Vec<_> = own.into_iter().filter(|uri| !self.seen.contains(uri)).collect();
            if !is_deleting {
                let audit = &mut self.progress.audit;
                audit.report.registered += all;
                audit.listed = audit.listed.saturating_sub(all - unseen.len() as u64);
            }
            self.look_at(unseen).await?;
            self.progress.audit.position = last;
            if self.progress.audit.pending.len() >= PENDING && self.look_again().await?.is_break() {
                return Ok(());
            }
            self.progress.save_sometimes().await?;
        }
        if self.look_again().await?.is_break() {
            return Ok(());
        }
        if self.progress.audit.report.repair
            && self.progress.audit.report.phase == Phase::Registry
            && self.progress.audit.gone > 0
        {
            let counts = ListedCounts { all: self.progress.audit.report.registered, missing: self.progress.audit.gone };
            match implausible_deletions(counts, self.max_deleted_percent, 0) {
                Some(reason) => self.progress.audit.report.reason = Some(reason),
                None => self.begin(Phase::Deletions).await?,
            }
        }
        Ok(())
    }

    /// Compares random objects of the registry.
    async fn look_at_sample(&mut self, number: u32) -> Result<(), WalkError> {
        let sample = sample::choose(&mut self.progress, number).await?;
        for part in sample.chunks(PENDING) {
            self.look_at(part.to_vec()).await?;
            if self.look_again().await?.is_break() {
                return Ok(());
            }
            self.progress.save_sometimes().await?;
        }
        Ok(())
    }

    /// Requests objects and compares them.
    async fn look_at(&mut self, objects: Vec<Uri>) -> Result<(), WalkError> {
        // The phase of deletions looks at the same objects again.
        let is_first = u64::from(self.progress.audit.report.phase != Phase::Deletions);
        for (object, found) in self.request(objects).await? {
            match found {
                LookResult::Present(found) => {
                    if self.forgotten > 0 {
                        // The list has had it.
                        self.forgotten -= 1;
                        self.progress.audit.listed = self.progress.audit.listed.saturating_sub(1);
                    } else {
                        self.progress.audit.report.objects += is_first;
                    }
                    self.compare(*found).await?;
                }
                LookResult::Gone => {
                    self.progress.audit.report.objects += is_first;
                    self.progress.audit.pending.push(object);
                }
                LookResult::Outside => self.progress.audit.report.outside += is_first,
                LookResult::Unanswered => self.progress.audit.report.unanswered += is_first,
            }
        }
        Ok(())
    }

    async fn request(&self, objects: Vec<Uri>) -> Result<Vec<(Uri, LookResult)>, WalkError> {
        let mut all = Vec::with_capacity(objects.len());
        for part in objects.chunks(LOOKS) {
            for (object, look) in part.iter().zip(join_all(part.iter().map(|object| self.crawler.look(object))).await) {
                let found = match look {
                    Ok(Look::Present(found)) => LookResult::Present(found),
                    Ok(Look::Gone) => LookResult::Gone,
                    Ok(Look::Outside) => LookResult::Outside,
                    Err(error) if error.is_of_one_resource() => {
                        tracing::debug!(source = %self.progress.source.name(), %object, %error, "an audit has no answer about an object");
                        LookResult::Unanswered
                    }
                    Err(error) => return Err(error.into()),
                };
                all.push((object.clone(), found));
            }
        }
        Ok(all)
    }

    /// Compares an object, and notes it if it differs.
    async fn compare(&mut self, found: CrawledObject) -> Result<(), WalkError> {
        let object = found.object.clone();
        let registered = self.progress.registered(&object).await?;
        if self.draft(found, &registered).is_some() {
            self.progress.audit.pending.push(object);
        }
        Ok(())
    }

    /// Returns the draft of an object that exists, if it would change the registry.
    fn draft(&self, found: CrawledObject, registered: &ObjectState) -> Option<Draft> {
        let draft = compare::draft_of_present(self.progress.audit.report.id, found, registered)?;
        self.progress.source.preview(draft.clone(), registered).map(|_| draft)
    }

    /// Looks at the noted objects a second time. The differences that are still there count. Ends the audit if too many objects
    /// would be deleted.
    async fn look_again(&mut self) -> Result<ControlFlow<()>, WalkError> {
        if self.progress.audit.pending.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        sleep(self.pause).await;
        let mut corrections = Vec::new();
        for (object, found) in self.request(self.progress.audit.pending.clone()).await? {
            let registered = self.progress.registered(&object).await?;
            let id = self.progress.audit.report.id;
            let (draft, is_gone) = match found {
                LookResult::Present(found) => (compare::draft_of_present(id, *found, &registered), false),
                // It was deleted after it had been listed, and its message is on its way.
                LookResult::Gone if self.progress.audit.report.phase == Phase::Repository => (None, true),
                LookResult::Gone => (compare::draft_of_absent(id, &object, &registered), true),
                LookResult::Outside => (None, false),
                LookResult::Unanswered => {
                    self.progress.audit.report.unanswered += 1;
                    (None, false)
                }
            };
            let Some(draft) = draft else { continue };
            let Some(change) = self.progress.source.preview(draft.clone(), &registered) else { continue };
            let is_deleting = self.progress.audit.report.phase == Phase::Deletions;
            if is_gone && !is_deleting {
                self.progress.audit.gone += 1;
            }
            // The phase of deletions finds the extra objects once more.
            if !(is_gone && is_deleting) {
                self.progress.audit.add(&object, compare::differences(&change, &registered, |_| true));
            }
            if self.progress.audit.report.repair && (!is_gone || is_deleting) {
                corrections.push(draft);
            }
        }
        if self.progress.audit.report.phase == Phase::Deletions {
            let audit = &mut self.progress.audit;
            let deletions = corrections.len() as u64;
            let counts = ListedCounts { all: audit.report.registered, missing: audit.deleted + deletions };
            // The repository may have lost its objects since the number was judged.
            if let Some(reason) = implausible_deletions(counts, self.max_deleted_percent, audit.deleted) {
                audit.report.reason = Some(reason);
                audit.pending.clear();
                self.progress.save().await?;
                return Ok(ControlFlow::Break(()));
            }
            audit.deleted += deletions;
        }
        if !corrections.is_empty() {
            self.progress.correct(corrections).await?;
        }
        self.progress.audit.pending.clear();
        self.progress.save().await?;
        Ok(ControlFlow::Continue(()))
    }
}
