//! Transfers of files into the file store: redirections, interrupted transfers, and the classification of failures.

use std::time::Duration;

use axum::http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_RANGE, ETAG, IF_RANGE, LOCATION, RANGE},
};
use chrono::Utc;
use tokio::time::{Instant, timeout_at};

use super::{HostPermit, Hosts};
use crate::{
    files::{FileFacts, FileStore, FileStoreError, NewFile, StoredFile},
    http_client::{Client, ClientError, InvalidOutboundUrl, OutboundPolicy, OutboundUrl, ResponseStream, retry_after},
};

/// Maximum number of redirections of a request.
const MAX_REDIRECTS: usize = 5;

/// Maximum number of times that an interrupted transfer is continued.
const MAX_CONTINUATIONS: usize = 5;

/// Maximum duration of a transfer, so that a server that sends a byte a minute does not hold it for ever.
const LONGEST_TRANSFER: Duration = Duration::from_secs(6 * 60 * 60);

/// Wait if a busy server does not say for how long, and the maximum time that it can ask for.
const BUSY: Duration = Duration::from_secs(120);
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

/// Requests files and stores them.
pub(super) struct Transfers {
    pub(super) client: Client,
    pub(super) policy: OutboundPolicy,
    pub(super) hosts: Hosts,
    pub(super) files: FileStore,
}

/// Reason why a file could not be stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum TransferError {
    /// A later attempt may succeed.
    #[error("{0}")]
    Transient(String),
    /// Somebody must act: the publisher, or the administrator of the gateway.
    #[error("{0}")]
    Permanent(String),
    /// The file store cannot be written, so no other file can be stored either.
    #[error(transparent)]
    Store(FileStoreError),
}

impl From<FileStoreError> for TransferError {
    fn from(error: FileStoreError) -> Self {
        match error {
            // It concerns this file alone, so it must not hold up the others.
            FileStoreError::TooLarge(_) => Self::Permanent(error.to_string()),
            other => Self::Store(other),
        }
    }
}

impl From<ClientError> for TransferError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::NotAllowed(_) | ClientError::TlsRoots(_) => Self::Permanent(error.to_string()),
            ClientError::Timeout(_) | ClientError::Connection(_) => Self::Transient(error.to_string()),
        }
    }
}

impl From<InvalidOutboundUrl> for TransferError {
    fn from(error: InvalidOutboundUrl) -> Self {
        Self::Permanent(error.to_string())
    }
}

/// Checks a file while it is transferred.
pub(super) trait Receiver: Send {
    /// Checks the headers of the response with the whole file.
    fn check_headers(&mut self, headers: &HeaderMap) -> Result<(), TransferError>;

    /// Checks the next piece, before it is written. `size` is the number of bytes with it.
    fn receive(&mut self, piece: &[u8], size: u64) -> Result<(), TransferError>;

    /// Checks the whole file, before it gets its name in the store.
    fn check_content(&mut self, facts: &FileFacts) -> Result<(), TransferError>;
}

/// A file that was stored.
pub(super) struct TransferredFile {
    pub(super) stored: StoredFile,
    /// URL after all redirections.
    pub(super) url: OutboundUrl,
    /// Headers of the response.
    pub(super) headers: HeaderMap,
}

/// A transfer in progress.
struct Transfer<'a> {
    /// URL of the request.
    url: &'a OutboundUrl,
    /// Headers of the request.
    request_headers: &'a HeaderMap,
    file: NewFile,
    response: ResponseStream,
    /// Strong validator of the content, with which the transfer can be continued.
    etag: Option<HeaderValue>,
}

impl Transfers {
    /// Stores the file at a URL. `headers` are sent with the request; `Authorization` goes to the host of the URL alone.
    pub(super) async fn store(
        &self,
        url: &OutboundUrl,
        headers: &HeaderMap,
        receiver: &mut dyn Receiver,
        permit: &mut HostPermit,
    ) -> Result<TransferredFile, TransferError> {
        let until = Instant::now() + LONGEST_TRANSFER;
        let stored = timeout_at(until, self.transfer(url, headers, receiver, permit)).await;
        stored.unwrap_or_else(|_| Err(TransferError::Transient("the transfer takes more than six hours".to_owned())))
    }

    async fn transfer(
        &self,
        url: &OutboundUrl,
        request_headers: &HeaderMap,
        receiver: &mut dyn Receiver,
        permit: &mut HostPermit,
    ) -> Result<TransferredFile, TransferError> {
        let (response, last_url) = self.open(url, request_headers, permit).await?;
        if response.status != StatusCode::OK {
            return Err(status_error(response.status));
        }
        receiver.check_headers(&response.headers)?;
        let headers = response.headers.clone();
        let etag = headers.get(ETAG).filter(|etag| etag.as_bytes().starts_with(b"\"")).cloned();
        let mut transfer = Transfer { url, request_headers, file: self.files.create().await?, response, etag };
        let received = self.receive_all(&mut transfer, receiver, permit).await;
        let checked = received.and_then(|()| receiver.check_content(&transfer.file.facts()));
        if let Err(error) = checked {
            // A bucket would keep the parts of the file.
            if let Err(error) = transfer.file.abort().await {
                tracing::debug!(%error, "cannot remove an unfinished file");
            }
            return Err(error);
        }
        Ok(TransferredFile { stored: transfer.file.finish().await?, url: last_url, headers })
    }

    /// Writes the body of a response up to its end, and continues it if it breaks off.
    async fn receive_all(
        &self,
        transfer: &mut Transfer<'_>,
        receiver: &mut dyn Receiver,
        permit: &mut HostPermit,
    ) -> Result<(), TransferError> {
        let mut continuations = 0;
        while let Err(error) = transfer.receive(receiver).await {
            let TransferError::Transient(reason) = error else { return Err(error) };
            continuations += 1;
            if continuations > MAX_CONTINUATIONS || !self.resume(transfer, permit).await? {
                let bytes = transfer.file.size();
                return Err(TransferError::Transient(format!("the transfer broke off after {bytes} bytes: {reason}")));
            }
        }
        Ok(())
    }

    /// Continues an interrupted transfer; returns false if the server cannot.
    async fn resume(&self, transfer: &mut Transfer<'_>, permit: &mut HostPermit) -> Result<bool, TransferError> {
        let size = transfer.file.size();
        let Some(etag) = transfer.etag.clone().filter(|_| size > 0) else { return Ok(false) };
        let Ok(range) = HeaderValue::try_from(format!("bytes={size}-")) else { return Ok(false) };
        let mut headers = transfer.request_headers.clone();
        headers.extend([(RANGE, range), (IF_RANGE, etag)]);
        let (response, _) = self.open(transfer.url, &headers, permit).await?;
        let range = response.headers.get(CONTENT_RANGE).and_then(|range| range.to_str().ok()).unwrap_or_default();
        let continues = response.status == StatusCode::PARTIAL_CONTENT && range.starts_with(&format!("bytes {size}-"));
        transfer.response = response;
        Ok(continues)
    }

    /// Sends a request and follows redirections; returns the response with its URL.
    pub(super) async fn open(
        &self,
        url: &OutboundUrl,
        headers: &HeaderMap,
        permit: &mut HostPermit,
    ) -> Result<(ResponseStream, OutboundUrl), TransferError> {
        let mut headers = headers.clone();
        // The digest is that of the file itself.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let mut url = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.client.open(&url, headers.clone()).await?;
            if matches!(response.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
                let wait = retry_after(&response.headers, Utc::now()).unwrap_or(BUSY).min(LONGEST_PAUSE);
                permit.pause(wait);
                return Err(TransferError::Transient(format!("the server is busy ({})", response.status)));
            }
            if !response.status.is_redirection() {
                return Ok((response, url));
            }
            let location = response.headers.get(LOCATION).and_then(|location| location.to_str().ok());
            let next = location.and_then(|location| url.expose().join(location).ok());
            let Some(mut next) = next else {
                return Err(TransferError::Permanent(format!(
                    "the server redirects ({}) to no valid URL",
                    response.status
                )));
            };
            next.set_fragment(None);
            if next.origin() != url.expose().origin() {
                headers.remove(AUTHORIZATION);
            }
            url = OutboundUrl::parse(next.as_str(), &self.policy)?;
        }
        Err(TransferError::Permanent(format!("the server redirects more than {MAX_REDIRECTS} times")))
    }
}

impl Transfer<'_> {
    /// Writes the body of the response up to its end.
    async fn receive(&mut self, receiver: &mut dyn Receiver) -> Result<(), TransferError> {
        while let Some(piece) = self.response.piece().await? {
            receiver.receive(&piece, self.file.size() + piece.len() as u64)?;
            self.file.write(piece).await?;
        }
        Ok(())
    }
}

fn status_error(status: StatusCode) -> TransferError {
    let reason = format!("the server answers {status}");
    if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT {
        TransferError::Transient(reason)
    } else {
        TransferError::Permanent(reason)
    }
}
