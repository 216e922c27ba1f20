//! Transfers of files into the file store: redirections, interrupted transfers, and the classification of failures.

mod rate;

use std::time::Duration;

use axum::http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{ACCEPT_ENCODING, CONTENT_RANGE, ETAG, IF_RANGE, LOCATION, RANGE, SET_COOKIE},
};
use bytes::Bytes;
use chrono::Utc;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout, timeout_at};
use url::Url;

use self::rate::RateWindow;
use super::{HostPermit, Hosts};
use crate::{
    files::{FileFacts, FileStore, FileStoreError, NewFile, StoredFile, Workspace},
    format::fileset::message::is_signed,
    http_client::{
        Client, ClientError, InvalidOutboundUrl, OutboundPolicy, OutboundUrl, RequestHeaders, ResponseStream,
        retry_after,
    },
    model::Timestamp,
};

/// Maximum number of redirections of a request.
const MAX_REDIRECTS: usize = 5;

/// Maximum number of times that an interrupted transfer is continued.
const MAX_CONTINUATIONS: usize = 5;

/// Maximum duration of a transfer.
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
    /// The server does not send, or sends too slowly. A later attempt may succeed.
    #[error("{0}")]
    TooSlow(String),
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
            ClientError::NotAllowed(_) | ClientError::TlsRoots(_) => Self::Permanent(error.for_everybody()),
            ClientError::Timeout(_) => Self::TooSlow(error.to_string()),
            ClientError::Connection(_) => Self::Transient(error.to_string()),
        }
    }
}

impl From<InvalidOutboundUrl> for TransferError {
    fn from(error: InvalidOutboundUrl) -> Self {
        Self::Permanent(error.for_everybody())
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

    /// Forgets the pieces, because the transfer begins again.
    fn restart(&mut self);

    /// Returns whether the pieces so far are the whole file, so that nothing is left to request.
    fn is_whole(&self, facts: &FileFacts) -> bool {
        let _ = facts;
        false
    }

    /// Returns the record of a file that is complete, which is written to the workspace before the file gets its name.
    fn record(&self, facts: &FileFacts, head: &ResponseHead) -> Option<Bytes> {
        let _ = (facts, head);
        None
    }
}

/// Place of a file in a workspace, in which an interrupted transfer continues after a restart of the program.
#[derive(Clone, Copy)]
pub(super) struct PartPlace<'a> {
    pub(super) workspace: &'a Workspace,
    /// Name of the file.
    pub(super) name: &'a str,
}

impl PartPlace<'_> {
    /// Returns the name of the record about the response.
    fn head_name(self) -> String {
        format!("{}.head", self.name)
    }

    /// Returns the name of the record about the complete file.
    pub(super) fn record_name(self) -> String {
        format!("{}.done", self.name)
    }

    async fn head(self) -> Result<Option<ResponseHead>, FileStoreError> {
        let record = self.workspace.record(&self.head_name()).await?;
        Ok(record.and_then(|record| serde_json::from_slice(&record).ok()))
    }
}

/// Facts about the first response with a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ResponseHead {
    /// URL after all redirections, without a signature.
    pub(super) url: String,
    /// Time of the response.
    pub(super) time: Timestamp,
    /// Headers, without cookies.
    headers: Vec<(String, String)>,
}

impl ResponseHead {
    fn new(url: &OutboundUrl, headers: &HeaderMap) -> Self {
        let is_public = |name: &HeaderName| *name != SET_COOKIE;
        let headers = headers.iter().filter(|(name, _)| is_public(name));
        let text = |(name, value): (&HeaderName, &HeaderValue)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        };
        Self {
            url: without_signature(url.expose().clone()),
            time: Timestamp::now(),
            headers: headers.filter_map(text).collect(),
        }
    }

    /// Returns the headers.
    pub(super) fn headers(&self) -> HeaderMap {
        let header = |(name, value): &(String, String)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        };
        self.headers.iter().filter_map(header).collect()
    }

    /// Returns the strong validator of the content.
    fn etag(&self) -> Option<HeaderValue> {
        self.headers().get(ETAG).filter(|etag| etag.as_bytes().starts_with(b"\"")).cloned()
    }
}

/// Returns a URL without its query if the query is a signature.
pub(super) fn without_signature(mut url: Url) -> String {
    if is_signed(url.as_str()) {
        url.set_query(None);
    }
    url.into()
}

/// A file that was stored.
pub(super) struct TransferredFile {
    pub(super) stored: StoredFile,
    /// The first response.
    pub(super) head: ResponseHead,
}

/// A transfer in progress.
struct Transfer<'a> {
    /// URL of the request.
    url: &'a OutboundUrl,
    /// Headers of the request.
    request_headers: &'a RequestHeaders,
    file: NewFile,
    /// `None` if the transfer was interrupted.
    response: Option<ResponseStream>,
    /// Strong validator of the content, with which the transfer can be continued.
    etag: Option<HeaderValue>,
    rate: RateWindow,
}

impl Transfers {
    /// Stores the file at a URL. `headers` are sent with each request. With a place, the transfer continues what an earlier one has left there, and leaves its own bytes if it is
    /// interrupted.
    pub(super) async fn store(
        &self,
        url: &OutboundUrl,
        headers: &RequestHeaders,
        receiver: &mut dyn Receiver,
        permit: &mut HostPermit,
        place: Option<PartPlace<'_>>,
    ) -> Result<TransferredFile, TransferError> {
        let until = Instant::now() + LONGEST_TRANSFER;
        let stored = timeout_at(until, self.transfer(url, headers, receiver, permit, place)).await;
        stored.unwrap_or_else(|_| Err(TransferError::Transient("the transfer takes more than six hours".to_owned())))
    }

    async fn transfer(
        &self,
        url: &OutboundUrl,
        request_headers: &RequestHeaders,
        receiver: &mut dyn Receiver,
        permit: &mut HostPermit,
        place: Option<PartPlace<'_>>,
    ) -> Result<TransferredFile, TransferError> {
        if let Some(place) = place {
            if let Some(file) = self.continue_part(url, request_headers, receiver, permit, place).await? {
                return Ok(file);
            }
            receiver.restart();
        }
        let (response, last_url) = self.open(url, request_headers, permit).await?;
        if response.status != StatusCode::OK {
            return Err(status_error(response.status));
        }
        receiver.check_headers(&response.headers)?;
        let head = ResponseHead::new(&last_url, &response.headers);
        let file = match place {
            None => self.files.create().await?,
            Some(place) => {
                let record = serde_json::to_vec(&head).unwrap_or_default().into();
                place.workspace.write_record(&place.head_name(), record).await?;
                place.workspace.open(place.name, |_| {}).await?.restart().await?
            }
        };
        let etag = head.etag();
        let transfer =
            Transfer { url, request_headers, file, response: Some(response), etag, rate: RateWindow::default() };
        self.receive_file(transfer, receiver, permit, place, head).await
    }

    /// Continues the unfinished file of an earlier transfer; returns `None` if there is none, or the server cannot continue.
    async fn continue_part(
        &self,
        url: &OutboundUrl,
        request_headers: &RequestHeaders,
        receiver: &mut dyn Receiver,
        permit: &mut HostPermit,
        place: PartPlace<'_>,
    ) -> Result<Option<TransferredFile>, TransferError> {
        let Some(head) = place.head().await? else { return Ok(None) };
        let (mut size, mut is_refused) = (0, false);
        let file = place.workspace.open(place.name, |piece| {
            size += piece.len() as u64;
            is_refused = is_refused || receiver.receive(piece, size).is_err();
        });
        let file = file.await?;
        if is_refused || size == 0 {
            return Ok(None);
        }
        let is_whole = receiver.is_whole(&file.facts());
        let mut transfer =
            Transfer { url, request_headers, file, response: None, etag: head.etag(), rate: RateWindow::default() };
        if is_whole {
            return self.complete(transfer.file, receiver, Some(place), head).await.map(Some);
        }
        if !self.resume(&mut transfer, permit).await? {
            return Ok(None);
        }
        self.receive_file(transfer, receiver, permit, Some(place), head).await.map(Some)
    }

    /// Receives the rest of a file, checks it, and moves it to its name.
    async fn receive_file(
        &self,
        mut transfer: Transfer<'_>,
        receiver: &mut dyn Receiver,
        permit: &mut HostPermit,
        place: Option<PartPlace<'_>>,
        head: ResponseHead,
    ) -> Result<TransferredFile, TransferError> {
        let received = self.receive_all(&mut transfer, receiver, permit).await;
        let checked = received.and_then(|()| receiver.check_content(&transfer.file.facts()));
        if let Err(error) = checked {
            // A bucket would keep the parts of the file.
            let is_interrupted = matches!(error, TransferError::Transient(_) | TransferError::TooSlow(_));
            let is_interrupted = is_interrupted && place.is_some();
            let ended = if is_interrupted { transfer.file.suspend().await } else { transfer.file.abort().await };
            if let Err(error) = ended {
                tracing::debug!(%error, "cannot remove an unfinished file");
            }
            return Err(error);
        }
        self.complete(transfer.file, receiver, place, head).await
    }

    async fn complete(
        &self,
        file: NewFile,
        receiver: &mut dyn Receiver,
        place: Option<PartPlace<'_>>,
        head: ResponseHead,
    ) -> Result<TransferredFile, TransferError> {
        if let Some(place) = place
            && let Some(record) = receiver.record(&file.facts(), &head)
        {
            place.workspace.write_record(&place.record_name(), record).await?;
        }
        // The ingest writes all files to the disk at its end.
        let stored = if place.is_some() { file.finish_unsynced().await? } else { file.finish().await? };
        Ok(TransferredFile { stored, head })
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
        headers.insert(RANGE, range);
        headers.insert(IF_RANGE, etag);
        let (response, _) = self.open(transfer.url, &headers, permit).await?;
        let range = response.headers.get(CONTENT_RANGE).and_then(|range| range.to_str().ok()).unwrap_or_default();
        let continues = response.status == StatusCode::PARTIAL_CONTENT && range.starts_with(&format!("bytes {size}-"));
        transfer.response = Some(response);
        Ok(continues)
    }

    /// Sends a request and follows redirections; returns the response with its URL.
    pub(super) async fn open(
        &self,
        url: &OutboundUrl,
        headers: &RequestHeaders,
        permit: &mut HostPermit,
    ) -> Result<(ResponseStream, OutboundUrl), TransferError> {
        let mut headers = headers.clone();
        // The digest is that of the file itself.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let mut url = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.client.open(&url, &headers).await?;
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
            url = OutboundUrl::parse(next.as_str(), &self.policy)?;
        }
        Err(TransferError::Permanent(format!("the server redirects more than {MAX_REDIRECTS} times")))
    }
}

impl Transfer<'_> {
    /// Writes the body of the response up to its end.
    async fn receive(&mut self, receiver: &mut dyn Receiver) -> Result<(), TransferError> {
        let interrupted = || TransferError::Transient("the transfer was interrupted".to_owned());
        let response = self.response.as_mut().ok_or_else(interrupted)?;
        loop {
            let began = Instant::now();
            let piece = timeout(self.rate.left(), response.piece()).await;
            let bytes = piece.as_ref().ok().and_then(|piece| piece.as_ref().ok()?.as_ref()).map_or(0, Bytes::len);
            self.rate.add(began.elapsed(), bytes)?;
            // The end of a window is none of the body.
            let Ok(piece) = piece else { continue };
            // A connection that is silent may be broken, so the transfer continues with another one.
            let piece = piece.map_err(|error| TransferError::Transient(error.to_string()))?;
            let Some(piece) = piece else { return Ok(()) };
            receiver.receive(&piece, self.file.size() + piece.len() as u64)?;
            self.file.write(piece).await?;
        }
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
