//! Waits between the attempts of an ingest that has no job. A job gives its place to others instead.

use std::sync::{Arc, atomic::Ordering};

use tokio::time::{Instant, sleep};

use super::{IngestContext, IngestProgress, Ingested, Ingester, RetryRule};
use crate::format::fileset::FilesetRequest;

/// Maximum number of successive attempts that gain no file.
const MAX_FRUITLESS: u32 = 10;

impl Ingester {
    /// Archives a dataset, and waits when a server asks for that, as long as an ingest may take. For callers without jobs.
    pub async fn ingest_patiently(
        &self,
        request: &FilesetRequest,
        context: &IngestContext,
        progress: &Arc<IngestProgress>,
    ) -> Ingested {
        let until = Instant::now() + self.settings.max_time;
        let mut fruitless = 0;
        loop {
            let ingested = self.ingest(request, context, progress).await;
            let gained = progress.gained_files.swap(0, Ordering::Relaxed);
            fruitless = if gained > 0 { 0 } else { fruitless + 1 };
            match ingested.retry {
                Some(RetryRule::Backoff(Some(wait))) if fruitless < MAX_FRUITLESS && Instant::now() + wait < until => {
                    tracing::info!(dataset = %request.base_url, seconds = wait.as_secs(), "the server asks to wait");
                    sleep(wait).await;
                    [&progress.done_files, &progress.done_bytes, &progress.known_bytes]
                        .into_iter()
                        .for_each(|count| count.store(0, Ordering::Relaxed));
                }
                _ => return ingested,
            }
        }
    }
}
