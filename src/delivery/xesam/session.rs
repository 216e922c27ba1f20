//! The session of a crawler: from the response to its request until it gets no more records.
//!
//! A crawler has one call without an answer at a time, for as long as it likes: not answering is how it pauses. Meanwhile
//! its session keeps a position and no records.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Semaphore, SemaphorePermit, watch},
    time::timeout,
};

use tokio_util::task::AbortOnDropHandle;

use super::{
    CRAWLER_INTERFACE,
    batch::{Batch, DumpPosition},
    crawler::{Crawler, CrawlerState, End},
    crawlers::{InstalledCrawler, Launch},
    install::Plan,
    metrics,
    pages::{Pages, Position},
    timestamps::WireTime,
};
use crate::{
    dbus::{self, CallError, Connection},
    journal::JournalError,
    model::{Seq, Timestamp},
    retry::{Backoff, jittered},
};

/// Maximum time for a crawler to answer its invalidation, which has no consequences.
const INVALIDATION_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum pause while the bus allows no more calls.
const BUSY_WAIT: Duration = Duration::from_secs(1);

/// Waits after a failed read of the journal.
const WAITS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The answer to a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// The crawler has carried the call out.
    Accepted,
    /// The bus did not carry the call. It must be sent again.
    Busy,
}

/// The session of one crawler.
struct Session<'s> {
    crawler: &'s Crawler,
    pages: &'s Arc<Pages>,
    connection: &'s Connection,
    /// Head of the journal, as the target shows it to crawlers.
    head: watch::Receiver<Seq>,
    max_bytes: usize,
    /// Permits to have a batch that is not sent yet.
    permits: &'s Semaphore,
    /// Read of the next pages.
    prefetch: Option<AbortOnDropHandle<()>>,
}

/// Runs a crawler until it ends, and invalidates it if the target has ended it.
pub(super) async fn run(
    launch: Launch,
    pages: &Arc<Pages>,
    connection: &Connection,
    head: watch::Receiver<Seq>,
    (max_bytes, permits): (usize, &Semaphore),
) {
    let Launch { crawler: installed, plan, answered } = launch;
    let crawler = Arc::clone(&installed.crawler);
    let mut session = Session { crawler: &crawler, pages, connection, head, max_bytes, permits, prefetch: None };
    let end = tokio::select! {
        biased;
        end = crawler.ended() => end,
        end = async {
            answered.await;
            match session.serve(plan).await {
                Ok(never) => match never {},
                Err(end) => end,
            }
        } => end,
    };
    let (key, id) = (&crawler.key, crawler.id);
    tracing::info!(crawler = id, owner = &*key.owner, path = key.path.as_str(), ?end, "a crawler has ended");
    // Its place is free before it may install a new crawler.
    drop::<InstalledCrawler>(installed);
    if let End::ByTarget(reason) = end {
        invalidate(&crawler, connection, &reason).await;
    }
}

/// Sends a crawler the reason for which it gets no more records.
async fn invalidate(crawler: &Crawler, connection: &Connection, reason: &str) {
    let key = &crawler.key;
    let call = dbus::message((&key.owner, &key.path), (CRAWLER_INTERFACE, "Invalidate"), &reason);
    let sent = async {
        if let Ok(call) = call
            && let Ok(reply) = connection.call(&call).await
        {
            let _ = reply.receive().await;
        }
    };
    let _ = timeout(INVALIDATION_TIMEOUT, sent).await;
}

impl Session<'_> {
    /// Sends everything that the plan says, and then all new changes.
    async fn serve(&mut self, plan: Plan) -> Result<std::convert::Infallible, End> {
        self.check_presence().await?;
        match plan {
            Plan::Changes { from, not_before } => self.send_changes(from, not_before).await,
            Plan::Full { head } => {
                self.crawler.set_position(CrawlerState::CleaningUp, Seq::ZERO);
                while self.answer(self.message("CleanUp", &())?, None).await? == Answer::Busy {}
                let from = self.position_at(head).await?;
                self.crawler.set_position(CrawlerState::FullDump, Seq::ZERO);
                self.send_registry(head, from.time).await?;
                self.send_changes(from, Timestamp::EPOCH).await
            }
        }
    }

    /// Ends if the crawler left the bus before the target could notice it.
    async fn check_presence(&self) -> Result<(), End> {
        match self.connection.has_owner(&self.crawler.key.owner).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(End::Left("it has left the bus".to_owned())),
            Err(_) => Err(End::Disconnected),
        }
    }

    /// Returns the position after a change, with the timestamp of its last record.
    async fn position_at(&self, head: Seq) -> Result<Position, End> {
        let mut position = self.read(|| self.pages.second_of(head)).await?;
        while position.after < head {
            let Some(page) = self.read(|| self.pages.changes_after(position.after)).await? else { break };
            let changes = page.after(position.after).iter().take_while(|change| change.seq <= head);
            position = changes.fold(position, |position, change| change.end(position));
        }
        Ok(position)
    }

    /// Sends the registry with all changes up to `head`. Only the last record has a timestamp by which the crawler can
    /// continue, because it has everything only then.
    async fn send_registry(&self, head: Seq, last_time: WireTime) -> Result<(), End> {
        let mut position = Some(DumpPosition::default());
        while let Some(from) = position {
            let page = self.read(|| self.pages.registry_after(from.page.as_ref(), head)).await?;
            let permit = self.permit().await;
            let mut batch = Batch::new(&self.crawler.request, self.max_bytes);
            let mut next = batch.add_dump(&page, from.clone());
            if !batch.is_empty() {
                next = self.skip_unwanted(next, head).await?;
                if next.is_none() {
                    batch.set_last_time(last_time);
                }
                let (call, records) = self.update(batch)?;
                drop(page);
                if !self.send(call, records, permit).await? {
                    next = Some(from);
                }
            }
            position = next;
        }
        Ok(())
    }

    /// Returns the position at which the next record for the crawler is; `None` if there is none.
    async fn skip_unwanted(&self, mut position: Option<DumpPosition>, head: Seq) -> Result<Option<DumpPosition>, End> {
        while let Some(at) = position {
            let page = self.read(|| self.pages.registry_after(at.page.as_ref(), head)).await?;
            if at.rest_of(&page).any(|(_, record)| self.crawler.request.dumped(record).is_some()) {
                return Ok(Some(at));
            }
            position = at.on_page_after(&page);
        }
        Ok(None)
    }

    /// Sends the changes after a position, and waits for new ones.
    async fn send_changes(
        &mut self,
        mut position: Position,
        not_before: Timestamp,
    ) -> Result<std::convert::Infallible, End> {
        loop {
            let head = *self.head.borrow_and_update();
            let state = if position.after < head { CrawlerState::Behind } else { CrawlerState::Current };
            self.crawler.set_position(state, position.after);
            let Some(page) = self.read(|| self.pages.changes_after(position.after)).await? else {
                self.head.changed().await.map_err(|_| End::Disconnected)?;
                continue;
            };
            self.prefetch_after(page.last());
            let permit = self.permit().await;
            let mut batch = Batch::new(&self.crawler.request, self.max_bytes);
            let next = batch.add_changes(&page, position, not_before);
            if !batch.is_empty() {
                let (call, records) = self.update(batch)?;
                drop(page);
                let is_accepted = self.send(call, records, permit).await;
                if !is_accepted? {
                    continue;
                }
            }
            position = next;
        }
    }

    /// Begins to read the pages after a number while the crawler is busy, unless an earlier read goes on.
    fn prefetch_after(&mut self, after: Seq) {
        let is_reading = self.prefetch.as_ref().is_some_and(|prefetch| !prefetch.is_finished());
        if is_reading || after >= self.pages.journal().head() {
            return;
        }
        let pages = Arc::clone(self.pages);
        let prefetch = async move { pages.prefetch_after(after).await };
        self.prefetch = Some(AbortOnDropHandle::new(tokio::spawn(prefetch)));
    }

    /// Returns the call with a batch, and the number of its records.
    fn update(&self, batch: Batch<'_>) -> Result<(zbus::Message, usize), End> {
        let records = batch.payloads.len();
        Ok((self.message("UpdateRecords", &(batch.payloads,))?, records))
    }

    /// Waits until the crawler may have a batch that is not sent yet. Otherwise, many crawlers that wait for the socket at
    /// once would have one each.
    async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.permits.acquire().await.ok()
    }

    fn message(
        &self,
        member: &str,
        arguments: &(impl serde::Serialize + zbus::wire::DynamicType),
    ) -> Result<zbus::Message, End> {
        let key = &self.crawler.key;
        let call = dbus::message((&key.owner, &key.path), (CRAWLER_INTERFACE, member), arguments);
        call.map_err(|error| End::ByTarget(format!("a record cannot be sent: {error}")))
    }

    /// Sends a batch; returns whether the crawler has accepted it.
    async fn send(
        &self,
        call: zbus::Message,
        records: usize,
        permit: Option<SemaphorePermit<'_>>,
    ) -> Result<bool, End> {
        let is_accepted = self.answer(call, permit).await? == Answer::Accepted;
        if is_accepted {
            self.crawler.count_batch(records);
            metrics::count_batch(records);
        }
        Ok(is_accepted)
    }

    /// Sends a call, and waits for the answer without a time limit. Keeps nothing of the call meanwhile.
    async fn answer(&self, call: zbus::Message, permit: Option<SemaphorePermit<'_>>) -> Result<Answer, End> {
        let _unanswered = self.crawler.begin_call();
        let reply = self.connection.call(&call).await;
        drop((call, permit));
        let answer = match reply {
            Ok(reply) => reply.receive().await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(_) => Ok(Answer::Accepted),
            Err(CallError::Busy(reason)) => {
                tracing::debug!(crawler = self.crawler.id, reason, "the bus allows no more calls; retrying");
                tokio::time::sleep(jittered(BUSY_WAIT)).await;
                Ok(Answer::Busy)
            }
            Err(CallError::Disconnected) => Err(End::Disconnected),
            Err(error @ CallError::Gone { .. }) => Err(End::Left(error.to_string())),
            Err(error @ (CallError::Refused { .. } | CallError::Invalid(_))) => {
                Err(End::ByTarget(format!("the crawler has answered with an error: {error}")))
            }
        }
    }

    /// Reads from the journal until it succeeds.
    async fn read<T, R: Future<Output = Result<T, JournalError>>>(&self, read: impl Fn() -> R) -> Result<T, End> {
        let mut backoff = Backoff::new(WAITS.0, WAITS.1);
        loop {
            match read().await {
                Ok(read) => return Ok(read),
                Err(error @ JournalError::Gone { .. }) => {
                    let advice = "install a new crawler, and it will get everything";
                    return Err(End::ByTarget(format!("the crawler is too far behind: {error}; {advice}")));
                }
                Err(error) => {
                    tracing::warn!(crawler = self.crawler.id, %error, "cannot read records for a crawler; retrying");
                    tokio::time::sleep(backoff.next_wait()).await;
                }
            }
        }
    }
}
