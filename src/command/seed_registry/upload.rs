//! Upload of crawled objects to the gateway, which stores each part together with the position of the crawl.

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tidings::{
    lookup::crawl::CrawlPart,
    model::{CrawledObject, SourceName},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::super::{
    gateway::{Gateway, GatewayError},
    http::backoff,
};

/// Approximate maximum size of the objects in one request, in bytes of JSON: well below the limit of a gateway.
const MAX_PIECE_BYTES: usize = 512 * 1024;

/// Sends the parts of one crawl to the gateway.
pub(super) struct Uploader<'g> {
    gateway: &'g Gateway,
    path: String,
    emit: bool,
    retries: u32,
    stop: CancellationToken,
    crawl: Uuid,
    part: u64,
    position: String,
}

/// Start of a crawl.
pub(super) enum CrawlStart {
    /// At the beginning of the repository.
    Beginning,
    /// At the position where an earlier crawl was interrupted.
    Resume { objects: u64, position: String },
    /// Nowhere, because the earlier crawl is complete.
    Finished { objects: u64, updated_at: String },
}

/// Number of uploaded objects for each outcome.
#[derive(Debug, Default, Deserialize)]
pub(super) struct UploadCounts {
    pub(super) filled: u64,
    pub(super) accepted: u64,
    pub(super) duplicate: u64,
    pub(super) unchanged: u64,
}

/// Response of the gateway about the newest crawl of the source.
#[derive(Deserialize)]
struct CrawlStatus {
    #[serde(rename = "walk")]
    newest: Option<NewestCrawl>,
}

#[derive(Deserialize)]
struct NewestCrawl {
    id: Uuid,
    part: u64,
    #[serde(rename = "place")]
    position: String,
    objects: u64,
    #[serde(rename = "moved")]
    updated_at: String,
    done: bool,
}

impl<'g> Uploader<'g> {
    pub(super) fn new(
        gateway: &'g Gateway,
        source: &SourceName,
        emit: bool,
        retries: u32,
        stop: CancellationToken,
    ) -> Self {
        let path = format!("/sources/{source}/registry");
        Self { gateway, path, emit, retries, stop, crawl: Uuid::new_v4(), part: 0, position: String::new() }
    }

    /// Asks the gateway where the crawl starts. `restart` ignores an earlier crawl.
    pub(super) async fn start(&mut self, restart: bool) -> Result<CrawlStart, GatewayError> {
        let status = self.gateway.request(Method::GET, &self.path, None).await?;
        let status: CrawlStatus =
            serde_json::from_value(status).map_err(|error| GatewayError::unexpected_body(&error))?;
        Ok(match status.newest {
            Some(NewestCrawl { objects, updated_at, done: true, .. }) if !restart => {
                CrawlStart::Finished { objects, updated_at }
            }
            Some(NewestCrawl { id, part, position, objects, .. }) if !restart => {
                self.crawl = id;
                self.part = part;
                self.position.clone_from(&position);
                CrawlStart::Resume { objects, position }
            }
            _ => CrawlStart::Beginning,
        })
    }

    /// Sends a part, in several requests if it is large.
    pub(super) async fn post(&mut self, part: CrawlPart) -> Result<UploadCounts, String> {
        let CrawlPart { objects: found, position, done, .. } = part;
        let mut counts = UploadCounts::default();
        let mut pieces = pieces(found);
        let last = pieces.pop().unwrap_or_default();
        for piece in pieces {
            // The position advances only with the last piece, so an interrupted part is crawled again.
            let position = self.position.clone();
            counts.add(&self.post_piece(&piece, &position, false).await?);
        }
        counts.add(&self.post_piece(&last, &position, done).await?);
        self.position = position;
        Ok(counts)
    }

    async fn post_piece(
        &mut self,
        objects: &[CrawledObject],
        position: &str,
        done: bool,
    ) -> Result<UploadCounts, String> {
        self.part += 1;
        let (crawl, part, emit) = (self.crawl, self.part, self.emit);
        let body = json!({
            "walk": crawl, "part": part, "objects": objects, "place": position, "done": done, "emit": emit,
        });
        let counts = self.send(body).await?;
        serde_json::from_value(counts).map_err(|error| GatewayError::unexpected_body(&error).reason)
    }

    /// Sends a request and retries transient errors. Retrying is safe, because the gateway recognizes a part that it
    /// has stored already.
    async fn send(&self, body: Value) -> Result<Value, String> {
        let mut backoff = backoff();
        loop {
            let error = match self.gateway.request(Method::POST, &self.path, Some(body.clone())).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            if !error.is_transient || backoff.failures() == self.retries {
                return Err(error.reason);
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.next_wait()) => {}
                () = self.stop.cancelled() => return Err(format!("{} (stopped before another try)", error.reason)),
            }
        }
    }
}

impl UploadCounts {
    fn add(&mut self, other: &Self) {
        self.filled += other.filled;
        self.accepted += other.accepted;
        self.duplicate += other.duplicate;
        self.unchanged += other.unchanged;
    }
}

/// Splits the objects into pieces of at most [`MAX_PIECE_BYTES`], but at least one object each. The order is kept.
fn pieces(found: Vec<CrawledObject>) -> Vec<Vec<CrawledObject>> {
    let mut pieces: Vec<Vec<CrawledObject>> = Vec::new();
    let mut size = usize::MAX;
    for object in found {
        let more = serde_json::to_vec(&object).map_or(0, |json| json.len());
        size = size.saturating_add(more);
        match pieces.last_mut() {
            Some(piece) if size <= MAX_PIECE_BYTES => piece.push(object),
            _ => {
                size = more;
                pieces.push(vec![object]);
            }
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use tidings::model::{CrawledItem, CrawledObject, NonEmpty, Timestamp, Uri};

    use super::{MAX_PIECE_BYTES, pieces};

    #[test]
    fn pieces_are_in_order_and_not_too_large() {
        let object = |number: usize| {
            let uri = Uri::parse(&format!("http://h/{number}/{}", "x".repeat(1500))).unwrap();
            let item = CrawledItem { uri: uri.clone(), at: Timestamp::EPOCH, content: None, state: None };
            CrawledObject {
                object: uri,
                at: Timestamp::EPOCH,
                parent: None,
                types: Vec::new(),
                items: NonEmpty::one(item),
            }
        };
        let all: Vec<_> = (0..1000).map(object).collect();
        let cut = pieces(all.clone());
        assert!(cut.len() > 3, "{}", cut.len());
        assert!(cut.iter().all(|piece| serde_json::to_vec(piece).unwrap().len() < MAX_PIECE_BYTES + 2000));
        assert_eq!(cut.concat(), all);
        assert!(pieces(Vec::new()).is_empty());
    }
}
