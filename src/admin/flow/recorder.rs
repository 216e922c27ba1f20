//! The task that records the flow: it follows the journal, samples the subscriptions, and writes the file.
//!
//! Changes are counted by the time of their receipt, which each change contains. So the recorder may read them late, and
//! after a kill it counts those that the file lacks. In a cluster, every node counts the changes of all nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Flow, file::FlowFile};
use crate::{
    delivery::SubscriptionProgress,
    journal::{BlockingQueries, ChangeArrival, JournalError, store::StoreError},
    model::{Seq, SubscriptionName, Timestamp},
};

/// Interval at which the subscriptions are sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which the subscriptions are sampled if other nodes deliver some of them, because it takes a query.
const SHARED_INTERVAL: Duration = Duration::from_secs(10);

/// Wait after a change until the next ones are read, so that many are read at once and most are still in memory.
const READ_WAIT: Duration = Duration::from_millis(100);

/// Interval at which the file is written.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number and size of the changes that are read at once.
const READ_CHANGES: usize = 1000;
const READ_BYTES: usize = 1 << 20;

/// Maximum number of changes that are counted after a start, because nobody has counted them. Of more, none is counted.
const MAX_UNCOUNTED: u64 = 100_000;

/// State of the task.
pub(super) struct Recorder {
    flow: Flow,
    /// Number of the last change that is counted.
    counted: Seq,
    /// Number of changes that each subscription had delivered at the last sample.
    delivered: BTreeMap<SubscriptionName, u64>,
    sampled: Option<Instant>,
    saved: Instant,
    /// Whether the last attempt to write the file has failed.
    has_failed: bool,
}

impl Recorder {
    /// Reads the file of the flow.
    pub(super) async fn open(flow: Flow) -> Self {
        let journal = &flow.0.journal;
        let (path, identity, head) = (flow.0.path.clone(), journal.identity(), journal.head());
        let read = tokio::task::spawn_blocking(move || FlowFile::read(&path, identity)).await;
        let mut counted = head;
        match read {
            Ok(Ok(Some(file))) => {
                if file.counted <= head && journal.count_after(file.counted) <= MAX_UNCOUNTED {
                    counted = file.counted;
                }
                *flow.rings() = file.rings;
            }
            Ok(Ok(None)) | Err(_) => {}
            Ok(Err(error)) => {
                let file = flow.0.path.display();
                tracing::warn!(%file, %error, "the record of the flow is not used; it begins anew");
            }
        }
        Self { flow, counted, delivered: BTreeMap::new(), sampled: None, saved: Instant::now(), has_failed: false }
    }

    /// Records until `stop` is cancelled.
    pub(super) async fn run(mut self, stop: &CancellationToken) {
        // Nothing cancels the writing of the file, because the next writer would meet it.
        while stop.run_until_cancelled(self.record()).await.is_some() {
            self.save().await;
        }
        // The journal can be slow. The rest is counted after the next start.
        if !self.flow.0.subscriptions.are_shared() {
            self.sample(Timestamp::now());
        }
        self.save().await;
    }

    /// Records until the file is to be written.
    async fn record(&mut self) {
        let mut head = self.flow.0.journal.watch();
        loop {
            self.flow.rings().each().for_each(|ring| ring.advance(Timestamp::now()));
            self.count_changes().await;
            self.sample_if_due().await;
            if self.saved.elapsed() >= SAVE_INTERVAL {
                return;
            }
            let change = async {
                // Without a writer, the journal is closed and the gateway stops.
                if head.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                sleep(READ_WAIT).await;
            };
            tokio::select! {
                () = sleep(SAMPLE_INTERVAL) => {}
                () = change => {}
            }
        }
    }

    /// Counts the changes up to the head.
    async fn count_changes(&mut self) {
        let journal = self.flow.0.journal.clone();
        while self.counted < journal.head() {
            let after = self.counted;
            match journal.query_in_a_row(move |journal| arrivals_after(journal, after)).await {
                Ok((arrivals, last)) => {
                    let mut rings = self.flow.rings();
                    for ring in rings.each() {
                        arrivals.iter().for_each(|ChangeArrival { source, received }| ring.count(source, *received));
                    }
                    self.counted = last;
                }
                Err(JournalError::Store(StoreError::DamagedChange { seq, .. })) => self.counted = seq,
                // Retention has removed changes, or a failover has lost them.
                Err(JournalError::Gone { .. }) => self.counted = journal.head(),
                // The journal notes a failure as its outage.
                Err(_) => return,
            }
        }
        // A failover has lost changes.
        self.counted = self.counted.min(journal.head());
    }

    async fn sample_if_due(&mut self) {
        let Flow(flow) = &self.flow;
        let interval = if flow.subscriptions.are_shared() { SHARED_INTERVAL } else { SAMPLE_INTERVAL };
        if self.sampled.is_some_and(|sampled| sampled.elapsed() < interval) {
            return;
        }
        let began = Timestamp::now();
        // The journal notes a failure as its outage.
        if flow.subscriptions.refresh().await.is_ok() {
            self.sample(began);
            self.sampled = Some(Instant::now());
        }
    }

    /// Records the progress of the subscriptions, whose reading began at `began`.
    fn sample(&mut self, began: Timestamp) {
        let Flow(flow) = &self.flow;
        let sources: BTreeSet<_> = flow.sources.all().values().map(|listed| listed.source.name().clone()).collect();
        let progress = flow.subscriptions.progress();
        let former = std::mem::take(&mut self.delivered);
        let since = |progress: SubscriptionProgress| {
            let former = former.get(&progress.name).copied().unwrap_or(0);
            // The number of a subscription that was replaced begins anew.
            let delivered = progress.delivered.checked_sub(former).unwrap_or(progress.delivered);
            (progress, delivered)
        };
        let progress: Vec<_> = progress.into_iter().map(since).collect();
        self.delivered = progress.iter().map(|(progress, _)| (progress.name.clone(), progress.delivered)).collect();
        let now = Timestamp::now();
        for ring in self.flow.rings().each() {
            ring.advance(now);
            ring.keep_sources(&sources);
            ring.sample(&progress, began);
        }
    }

    async fn save(&mut self) {
        let flow = &self.flow;
        let file = FlowFile::new(flow.0.journal.identity(), self.counted, flow.rings().clone());
        let path = flow.0.path.clone();
        let written = tokio::task::spawn_blocking(move || file.write(&path)).await;
        let written = written.unwrap_or_else(|panic| Err(std::io::Error::other(panic)));
        if let Err(error) = &written
            && !self.has_failed
        {
            let file = flow.0.path.display();
            tracing::warn!(%file, %error, "cannot write the record of the flow, which a restart would shorten; retrying");
        }
        (self.has_failed, self.saved) = (written.is_err(), Instant::now());
    }
}

/// Reads which sources have reported the changes after a number, and when. Also returns the number of the last of them.
fn arrivals_after(journal: &BlockingQueries, after: Seq) -> Result<(Vec<ChangeArrival>, Seq), JournalError> {
    let changes = journal.after_within(after, READ_CHANGES, READ_BYTES)?;
    // A change without a readable source counts nowhere, and is reported by the readers of the journal.
    let arrivals = changes.iter().filter_map(|change| change.arrival().ok()).collect();
    // Without changes after it, the number is that of the head.
    Ok((arrivals, changes.last().map_or(after.next(), |last| last.seq())))
}
