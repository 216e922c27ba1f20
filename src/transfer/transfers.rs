//! Transfers of files into the file store: redirections, interrupted transfers, and the classification of failures.

use std::time::Duration;

use axum::http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT_ENCODING, CONTENT_RANGE, IF_RANGE, RANGE},
};
use bytes::Bytes;
use chrono::Utc;
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    HostPermit, Hosts, PartPlace, ResponseHead, TransferError,
    decoder::{Decoder, is_encoded},
    head::{Continuation, Way},
    rate::RateWindow,
};
use crate::{
    files::{FileFacts, FileStore, NewFile, StoredFile},
    http_client::{
        Client, OutboundPolicy, OutboundUrl, RequestHeaders, ResponseStream, rate_limit_reset, redirection_target,
    },
};

/// Maximum number of redirections of a request.
const MAX_REDIRECTS: usize = 10;

/// Maximum number of times that an interrupted transfer is continued.
const MAX_CONTINUATIONS: usize = 5;

/// Maximum duration of a transfer.
const LONGEST_TRANSFER: Duration = Duration::from_secs(6 * 60 * 60);

/// Wait if a busy server does not say for how long.
const BUSY: Duration = Duration::from_secs(120);

/// Maximum size of the body of an error that is kept for its reason, in bytes.
const MAX_REASON_BYTES: usize = 16 << 10;

/// Time for the body of an error.
const REASON_TIMEOUT: Duration = Duration::from_secs(10);

/// Requests files and stores them.
pub(crate) struct Transfers {
    pub(crate) client: Client,
    pub(crate) policy: OutboundPolicy,
    pub(crate) hosts: Hosts,
    pub(crate) files: FileStore,
}

/// Checks a file while it is transferred.
pub(crate) trait Receiver: Send {
    /// Checks the headers of the response with the whole file.
    fn check_headers(&mut self, headers: &HeaderMap) -> Result<(), TransferError>;

    /// Checks the next piece, before it is written. `size` is the number of bytes with it.
    fn receive(&mut self, piece: &[u8], size: u64) -> Result<(), TransferError>;

    /// Checks the whole file, before it gets its name in the store.
    fn check_content(&mut self, facts: &FileFacts) -> Result<(), TransferError>;

    /// Forgets the pieces, because the transfer begins again.
    fn restart(&mut self);

    /// Returns whether the body of a response with an encoding is decoded. Otherwise the encoded bytes are the file.
    fn decodes(&self) -> bool {
        false
    }

    /// Changes what [`Receiver::decodes`] returns, after a body was not the file; returns false if both were tried.
    fn decode_otherwise(&mut self) -> bool {
        false
    }

    /// Returns whether the content of the whole file is known, so that a wrong continuation is found.
    fn can_verify(&self) -> bool {
        false
    }

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

/// A file that was stored.
pub(crate) struct TransferredFile {
    pub(crate) stored: StoredFile,
    /// The first response.
    pub(crate) head: ResponseHead,
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
    continuation: Continuation,
    /// Whether bytes of several responses were joined.
    is_joined: bool,
    decoder: Option<Decoder>,
    rate: RateWindow,
}

/// Failure of a transfer.
struct Failure {
    error: TransferError,
    /// Whether the transfer can begin again with another outcome, because the file was joined or decoded wrongly.
    begins_again: bool,
}

impl<E: Into<TransferError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { error: error.into(), begins_again: false }
    }
}

/// A request for a file, and the place of its bytes.
#[derive(Clone, Copy)]
struct FileRequest<'a> {
    url: &'a OutboundUrl,
    headers: &'a RequestHeaders,
    place: Option<PartPlace<'a>>,
}

impl Transfers {
    /// Stores the file at a URL. `headers` are sent with each request. With a place, the transfer continues what an earlier one has left there, and leaves its own bytes if it is
    /// interrupted.
    pub(crate) async fn store(
        &self,
        url: &OutboundUrl,
        headers: &RequestHeaders,
        receiver: &mut dyn Receiver,
        permit: &mut HostPermit,
        place: Option<PartPlace<'_>>,
    ) -> Result<TransferredFile, TransferError> {
        let until = Instant::now() + LONGEST_TRANSFER;
        let request = FileRequest { url, headers, place };
        let stored = timeout_at(until, self.transfer(request, receiver, permit)).await;
        stored.unwrap_or_else(|_| Err(TransferError::Transient("the transfer takes more than six hours".to_owned())))
    }

    async fn transfer(
        &self,
        request: FileRequest<'_>,
        receiver: &mut dyn Receiver,
        permit: &mut HostPermit,
    ) -> Result<TransferredFile, TransferError> {
        if let Some(place) = request.place {
            match self.continue_part(request, receiver, permit, place).await {
                Ok(Some(file)) => return Ok(file),
                Ok(None) | Err(Failure { begins_again: true, .. }) => receiver.restart(),
                Err(Failure { error, .. }) => return Err(error),
            }
        }
        match self.begin(request, receiver, permit).await {
            Err(Failure { begins_again: true, .. }) => {
                receiver.restart();
                self.begin(request, receiver, permit).await.map_err(|failure| failure.error)
            }
            ended => ended.map_err(|failure| failure.error),
        }
    }

    /// Transfers a file from its first byte.
    async fn begin(
        &self,
        request: FileRequest<'_>,
        receiver: &mut dyn Receiver,
        permit: &mut HostPermit,
    ) -> Result<TransferredFile, Failure> {
        let FileRequest { url, headers: request_headers, place } = request;
        let (response, last_url, way) = self.open_way(url, request_headers, permit).await?;
        if response.status != StatusCode::OK {
            return Err(refusal(response).await.into());
        }
        receiver.check_headers(&response.headers)?;
        let is_decoded = is_encoded(&response.headers) && receiver.decodes();
        let decoder = if is_decoded { Some(Decoder::of(&response.headers)?) } else { None };
        let head = ResponseHead::new(way, &last_url, &response.headers, is_decoded);
        let file = match place {
            None => self.files.create().await?,
            Some(place) => {
                let record = serde_json::to_vec(&head).unwrap_or_default().into();
                place.workspace.write_record(&place.head_name(), record).await?;
                place.workspace.open(place.name, |_| {}).await?.restart().await?
            }
        };
        let continuation = if is_decoded { Continuation::Never } else { head.continuation(receiver.can_verify()) };
        let (response, rate) = (Some(response), RateWindow::default());
        let transfer = Transfer { url, request_headers, file, response, continuation, is_joined: false, decoder, rate };
        self.receive_file(transfer, receiver, permit, place, head).await
    }

    /// Continues the unfinished file of an earlier transfer; returns `None` if there is none, or the server cannot continue.
    async fn continue_part(
        &self,
        FileRequest { url, headers: request_headers, .. }: FileRequest<'_>,
        receiver: &mut dyn Receiver,
        permit: &mut HostPermit,
        place: PartPlace<'_>,
    ) -> Result<Option<TransferredFile>, Failure> {
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
        let continuation = head.continuation(receiver.can_verify());
        let (response, decoder, rate) = (None, None, RateWindow::default());
        let mut transfer =
            Transfer { url, request_headers, file, response, continuation, is_joined: true, decoder, rate };
        if is_whole {
            return self.complete(transfer.file, receiver, Some(place), head).await.map(Some).map_err(Failure::from);
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
    ) -> Result<TransferredFile, Failure> {
        let received = self.receive_all(&mut transfer, receiver, permit).await;
        let checked = received.and_then(|()| receiver.check_content(&transfer.file.facts()));
        if let Err(error) = checked {
            let is_wrong = matches!(error, TransferError::Permanent(_));
            let is_encoded = transfer.decoder.is_some() || is_encoded(&head.headers());
            let begins_again = is_wrong && (transfer.is_joined || (is_encoded && receiver.decode_otherwise()));
            // A bucket would keep the parts of the file.
            let is_interrupted = !is_wrong && !matches!(error, TransferError::Store(_)) && place.is_some();
            let ended = if is_interrupted { transfer.file.suspend().await } else { transfer.file.abort().await };
            if let Err(error) = ended {
                tracing::debug!(%error, "cannot remove an unfinished file");
            }
            return Err(Failure { error, begins_again });
        }
        Ok(self.complete(transfer.file, receiver, place, head).await?)
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
        let Ok(range) = HeaderValue::try_from(format!("bytes={size}-")) else { return Ok(false) };
        let mut headers = transfer.request_headers.clone();
        headers.insert(RANGE, range);
        match &transfer.continuation {
            _ if size == 0 => return Ok(false),
            Continuation::Never => return Ok(false),
            Continuation::IfUnchanged(validator) => headers.insert(IF_RANGE, validator.clone()),
            Continuation::Unchecked => {}
        }
        let (response, ..) = self.open_way(transfer.url, &headers, permit).await?;
        let range = response.headers.get(CONTENT_RANGE).and_then(|range| range.to_str().ok()).unwrap_or_default();
        let continues = response.status == StatusCode::PARTIAL_CONTENT && range.starts_with(&format!("bytes {size}-"));
        transfer.is_joined = true;
        transfer.response = Some(response);
        Ok(continues)
    }

    /// Sends a request and follows redirections; returns the response with its URL.
    pub(crate) async fn open(
        &self,
        url: &OutboundUrl,
        headers: &RequestHeaders,
        permit: &mut HostPermit,
    ) -> Result<(ResponseStream, OutboundUrl), TransferError> {
        let (response, url, _) = self.open_way(url, headers, permit).await?;
        Ok((response, url))
    }

    /// Sends a request and follows redirections; returns the response with its URL and the way to it.
    async fn open_way(
        &self,
        url: &OutboundUrl,
        headers: &RequestHeaders,
        permit: &mut HostPermit,
    ) -> Result<(ResponseStream, OutboundUrl, Way), TransferError> {
        let mut headers = headers.clone();
        // The digest is that of the file itself.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let (mut url, mut way) = (url.clone(), Way::new(url.expose()));
        for _ in 0..=MAX_REDIRECTS {
            let response = self.client.open(&url, &headers).await?;
            let status = response.status;
            if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
                let wait = rate_limit_reset(&response.headers, Utc::now());
                permit.pause(wait.unwrap_or(BUSY));
                return Err(TransferError::Busy { status, wait });
            }
            if !status.is_redirection() {
                return Ok((response, url, way));
            }
            let Some(mut next) = redirection_target(&response.headers, url.expose()) else {
                return Err(TransferError::Permanent(format!("the server redirects ({status}) to no valid URL")));
            };
            next.set_fragment(None);
            way.add(url.expose(), &next, status);
            url = OutboundUrl::of_server(next.as_str(), &self.policy)?;
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
            let is_end = piece.is_none();
            let piece = match (&mut self.decoder, piece) {
                (Some(decoder), Some(piece)) => decoder.decode(&piece)?,
                (Some(decoder), None) => decoder.finish()?,
                (None, piece) => piece.unwrap_or_default(),
            };
            if !piece.is_empty() {
                receiver.receive(&piece, self.file.size() + piece.len() as u64)?;
                self.file.write(piece).await?;
            }
            if is_end {
                return Ok(());
            }
        }
    }
}

/// Returns the error for a response with another status, with the beginning of its body.
async fn refusal(mut response: ResponseStream) -> TransferError {
    let status = response.status;
    let mut body = Vec::new();
    let reading = async {
        while let Ok(Some(piece)) = response.piece().await
            && body.len() < MAX_REASON_BYTES
        {
            body.extend_from_slice(&piece);
        }
    };
    // The bytes that have arrived may be enough.
    let _ = timeout(REASON_TIMEOUT, reading).await;
    body.truncate(MAX_REASON_BYTES);
    TransferError::Refused { status, body: body.into() }
}
