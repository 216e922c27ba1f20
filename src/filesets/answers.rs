//! Answers of platforms and landing pages: received without a share of the budget, and read with one.
//!
//! Each body of a dataset goes through [`PlatformClient::read`]. It waits for a share of the budget of all harvests, and
//! parses on a blocking thread, so that no answer holds up other tasks or fills the memory.

use super::{
    PlatformClient,
    json::{self, NoDocument},
};
use crate::{
    http_client::{ClientError, ResponseStream},
    transfer::{
        body::{self, HeldBody, OpenError, ReceiveError, ReceivedBody},
        budget::Cancelled,
    },
};

/// Maximum size of a body that is parsed on an asynchronous thread, in bytes. It takes less than a millisecond.
const SMALL_BYTES: usize = 16 << 10;

/// Maximum number of entries of a list that are converted on an asynchronous thread.
const SMALL_ENTRIES: usize = 100;

/// Maximum size of the body of an error that is read for its reason, in bytes.
pub(super) const MAX_REASON_BYTES: usize = 64 << 10;

/// Reason why an answer cannot be read.
#[derive(Debug)]
pub(super) enum BodyError {
    /// It has more bytes than this, perhaps after decompression.
    TooLarge(usize),
    /// The connection broke.
    Broken(ClientError),
    /// It does not have the encoding that it announces. The text says why.
    Encoding(String),
    /// The disk has no space, or the parser has failed. The text says why.
    Failed(String),
}

impl PlatformClient {
    /// Receives a body of at most `max_bytes`.
    pub(super) async fn receive(
        &self,
        mut response: ResponseStream,
        max_bytes: usize,
    ) -> Result<ReceivedBody, BodyError> {
        body::receive(&mut response, max_bytes, &self.budget).await.map_err(|error| match error {
            ReceiveError::TooLarge => BodyError::TooLarge(max_bytes),
            ReceiveError::Client(error) => BodyError::Broken(error),
            ReceiveError::Disk(reason) => BodyError::Failed(reason),
        })
    }

    /// Makes something of a body: with a share of the budget, and on a blocking thread unless the body is small.
    ///
    /// The budget does not count the value that `read` returns, so this value must have a bound of its own.
    ///
    /// # Errors
    /// Fails if the body has more than `max_bytes` when it is decompressed, or cannot be decompressed.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        body: ReceivedBody,
        max_bytes: usize,
        read: impl FnOnce(Vec<u8>, &Cancelled) -> T + Send + 'static,
    ) -> Result<T, BodyError> {
        let opened = body.open(max_bytes, &self.budget).await.map_err(|error| match error {
            OpenError::TooLarge => BodyError::TooLarge(max_bytes),
            OpenError::Corrupt { encoding, reason } => BodyError::Encoding(format!("it is no {encoding}: {reason}")),
            OpenError::Disk(reason) => BodyError::Failed(reason),
        });
        let HeldBody { bytes, share } = opened?;
        if bytes.len() <= SMALL_BYTES {
            return Ok(read(bytes, &Cancelled::default()));
        }
        let work = self.budget.work(move |cancelled| {
            let made = read(bytes, cancelled);
            drop(share);
            made
        });
        work.await.map_err(|error| BodyError::Failed(error.to_string()))
    }

    /// Converts a list with so many entries, on a blocking thread unless there are few.
    pub(super) async fn convert<T: Send + 'static>(
        &self,
        entries: usize,
        convert: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        if entries <= SMALL_ENTRIES {
            return convert();
        }
        match self.budget.work(move |_| convert()).await {
            Ok(converted) => converted,
            // A bug ends the whole ingest, as it would without the thread.
            Err(error) => std::panic::resume_unwind(Box::new(error.to_string())),
        }
    }

    /// Reads a JSON document, and makes something of it. This is the only way in which an answer becomes JSON.
    ///
    /// # Errors
    /// Fails in the cases of [`PlatformClient::read`]. The inner error says why the document has not the expected form.
    pub(super) async fn read_json<D: serde::de::DeserializeOwned, T: Send + 'static>(
        &self,
        body: ReceivedBody,
        max_bytes: usize,
        make: impl FnOnce(D) -> T + Send + 'static,
    ) -> Result<Result<T, NoDocument>, BodyError> {
        self.read(body, max_bytes, move |body, _| json::document(&body).map(make)).await
    }
}
