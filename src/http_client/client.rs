//! HTTP client that sends only to allowed addresses, follows no redirects, and limits the size of responses.

use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::http::{HeaderMap, Method, StatusCode};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream::BoxStream};
use reqwest::{Response, redirect::Policy};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    origin::RequestHeaders,
    outbound_url::{NotAllowed, OutboundPolicy, OutboundUrl},
    resolve::{GuardedResolver, NameResolver, SystemResolver},
    tls_roots::{self, TlsRootsError},
};
use crate::web::plain_tls_error;

/// Time after which an idle connection is closed.
const IDLE: Duration = Duration::from_secs(60);

/// Ping interval of a silent HTTP/2 connection, and timeout of a ping.
const PING: Duration = Duration::from_secs(10);

/// Settings of a client.
#[derive(Clone)]
pub struct ClientSettings {
    /// Policy for the hosts of requests.
    pub policy: OutboundPolicy,
    /// Resolver of host names.
    pub resolver: Arc<dyn NameResolver>,
    /// PEM file of the CA certificates to trust instead of those of the operating system.
    pub ca: Option<PathBuf>,
    /// Timeout of a connection attempt, from name resolution to the end of the TLS handshake.
    pub connect_timeout: Duration,
    /// Timeout of a request, until the headers of the response have arrived.
    pub response_timeout: Duration,
    /// Maximum number of bytes to read from a response body. The connection is closed after that.
    pub max_body_bytes: usize,
    /// Timeout for reading the body, after the headers.
    pub body_timeout: Duration,
    /// Mail address or URL of the operator, which requests carry in `User-Agent`. It has no parentheses.
    pub contact: Option<Arc<str>>,
}

impl ClientSettings {
    /// Creates settings with default limits: ten seconds for a connection, fifteen seconds for the headers,
    /// five seconds for the body, of which 4 KiB are read.
    #[must_use]
    pub fn new(policy: OutboundPolicy) -> Self {
        Self {
            policy,
            resolver: Arc::new(SystemResolver::default()),
            ca: None,
            connect_timeout: Duration::from_secs(10),
            response_timeout: Duration::from_secs(15),
            max_body_bytes: 4096,
            body_timeout: Duration::from_secs(5),
            contact: None,
        }
    }
}

/// Returns the header `User-Agent`, with the contact as a comment.
fn user_agent(contact: Option<&str>) -> String {
    let product = concat!("tidings/", env!("CARGO_PKG_VERSION"));
    contact.map_or_else(|| product.to_owned(), |contact| format!("{product} ({contact})"))
}

/// Begins a client of the HTTP library, for HTTPS or for unencrypted requests.
pub(super) fn library_client(
    settings: &ClientSettings,
    tls: rustls::ClientConfig,
    is_encrypted: bool,
) -> reqwest::ClientBuilder {
    let (resolver, policy) = (Arc::clone(&settings.resolver), settings.policy.clone());
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .dns_resolver(Arc::new(GuardedResolver { resolver, policy, is_encrypted }))
        .https_only(is_encrypted)
        .no_proxy()
        .redirect(Policy::none())
        .referer(false)
        .connect_timeout(settings.connect_timeout)
        .pool_idle_timeout(IDLE)
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PING)
        .user_agent(user_agent(settings.contact.as_deref()))
}

/// HTTP client. Clones share their connections.
///
/// The client ignores proxy settings in the environment, because a proxy would resolve the names itself.
#[derive(Clone)]
pub struct Client {
    /// Client for HTTPS. The error is kept, because unencrypted requests work even if certificates cannot be
    /// checked.
    encrypted: Result<reqwest::Client, Arc<TlsRootsError>>,
    plain: reqwest::Client,
    policy: OutboundPolicy,
    response_timeout: Duration,
    max_body_bytes: usize,
    body_timeout: Duration,
}

/// Response with a body of limited size.
#[derive(Clone, Debug)]
pub struct BoundedResponse {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// The body, or its beginning if it exceeds the limit.
    pub body_start: Bytes,
    /// True if `body_start` is the whole body.
    pub is_complete: bool,
}

/// Response whose body is read in chunks, because it may be too large for memory.
pub struct ResponseStream {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    response: Response,
    chunk_timeout: Duration,
}

impl ResponseStream {
    /// Returns the next chunk of the body; `None` at its end.
    ///
    /// # Errors
    /// Fails if the connection breaks, or the next chunk does not arrive in time.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, ClientError> {
        let piece = timeout(self.chunk_timeout, self.response.chunk()).await;
        piece.map_err(|_| ClientError::Timeout(self.chunk_timeout.as_secs()))?.map_err(|error| client_error(&error))
    }
}

/// Reason why a request failed. No message contains the URL.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The policy does not allow the address.
    #[error("the address is not allowed: {0}")]
    NotAllowed(#[from] NotAllowed),
    /// Certificates cannot be checked.
    #[error(transparent)]
    TlsRoots(#[from] Arc<TlsRootsError>),
    /// The response did not arrive within this number of seconds.
    #[error("no response within {0} seconds")]
    Timeout(u64),
    /// The server refused the connection: nothing listens at its port, or not yet.
    #[error("{0}")]
    Refused(String),
    /// The connection could not be opened for another reason, or broke.
    #[error("{0}")]
    Connection(String),
}

impl ClientError {
    /// Returns the reason for texts that everybody can read, such as changes and results. It does not say where a name leads;
    /// the log says that.
    #[must_use]
    pub fn for_everybody(&self) -> String {
        match self {
            Self::NotAllowed(refusal) => refusal.for_everybody(),
            other => other.to_string(),
        }
    }
}

impl Client {
    /// Creates a client. It connects when the first request is sent.
    ///
    /// # Errors
    /// Fails if the HTTP library cannot be set up.
    pub async fn new(settings: ClientSettings) -> Result<Self, ClientError> {
        let ca = settings.ca.clone();
        let tls = tokio::task::spawn_blocking(move || tls_roots::client_config(ca.as_deref()));
        let tls = tls.await.map_err(|error| ClientError::Connection(error.to_string()))?.map_err(Arc::new);
        let client = |tls, is_encrypted| {
            let client = library_client(&settings, tls, is_encrypted).build();
            client.map_err(|error| ClientError::Connection(describe_error(&error)))
        };
        Ok(Self {
            encrypted: match tls {
                Ok(tls) => Ok(client(tls, true)?),
                Err(error) => Err(error),
            },
            plain: client(tls_roots::no_roots()?, false)?,
            policy: settings.policy,
            response_timeout: settings.response_timeout,
            max_body_bytes: settings.max_body_bytes,
            body_timeout: settings.body_timeout,
        })
    }

    /// Sends a POST request and returns the response, whatever its status is. Redirects are not followed.
    ///
    /// # Errors
    /// Fails if the address is not allowed, or no response arrived.
    pub async fn post(
        &self,
        to: &OutboundUrl,
        headers: impl Into<RequestHeaders>,
        body: Bytes,
    ) -> Result<BoundedResponse, ClientError> {
        self.send(Method::POST, to, headers, body).await
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// In the cases of [`Client::post`].
    pub async fn get(
        &self,
        to: &OutboundUrl,
        headers: impl Into<RequestHeaders>,
    ) -> Result<BoundedResponse, ClientError> {
        self.send(Method::GET, to, headers, Bytes::new()).await
    }

    /// Sends a HEAD request.
    ///
    /// # Errors
    /// In the cases of [`Client::post`].
    pub async fn head(
        &self,
        to: &OutboundUrl,
        headers: impl Into<RequestHeaders>,
    ) -> Result<BoundedResponse, ClientError> {
        self.send(Method::HEAD, to, headers, Bytes::new()).await
    }

    /// Sends a GET request and streams the body. The body timeout applies to each chunk.
    ///
    /// # Errors
    /// In the cases of [`Client::post`].
    pub async fn open(
        &self,
        to: &OutboundUrl,
        headers: impl Into<RequestHeaders>,
    ) -> Result<ResponseStream, ClientError> {
        let mut response = self.begin(Method::GET, to, headers.into(), Bytes::new()).await?;
        let headers = std::mem::take(response.headers_mut());
        Ok(ResponseStream { status: response.status(), headers, response, chunk_timeout: self.body_timeout })
    }

    /// Sends a PUT request with a body that is too large for memory. `headers` have its `Content-Length`. The response
    /// timeout applies between two pieces, and after the last one.
    ///
    /// # Errors
    /// In the cases of [`Client::post`], and if a piece cannot be read.
    pub async fn put(
        &self,
        to: &OutboundUrl,
        headers: impl Into<RequestHeaders>,
        pieces: BoxStream<'static, io::Result<Bytes>>,
    ) -> Result<BoundedResponse, ClientError> {
        let sent = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&sent);
        let pieces = pieces.inspect(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let sending = self.request(Method::PUT, to, headers.into())?.body(reqwest::Body::wrap_stream(pieces)).send();
        tokio::pin!(sending);
        loop {
            let before = sent.load(Ordering::Relaxed);
            match timeout(self.response_timeout, &mut sending).await {
                Ok(response) => return Ok(self.bounded(response.map_err(|error| client_error(&error))?).await),
                Err(_) if sent.load(Ordering::Relaxed) == before => {
                    return Err(ClientError::Timeout(self.response_timeout.as_secs()));
                }
                Err(_) => {}
            }
        }
    }

    /// Sends a request with any method.
    ///
    /// # Errors
    /// In the cases of [`Client::post`].
    pub async fn send(
        &self,
        method: Method,
        to: &OutboundUrl,
        headers: impl Into<RequestHeaders>,
        body: Bytes,
    ) -> Result<BoundedResponse, ClientError> {
        Ok(self.bounded(self.begin(method, to, headers.into(), body).await?).await)
    }

    /// Reads the beginning of the body of a response.
    async fn bounded(&self, mut response: Response) -> BoundedResponse {
        let (body_start, is_complete) = read_body_start(&mut response, self.max_body_bytes, self.body_timeout).await;
        let headers = std::mem::take(response.headers_mut());
        BoundedResponse { status: response.status(), headers, body_start, is_complete }
    }

    async fn begin(
        &self,
        method: Method,
        to: &OutboundUrl,
        headers: RequestHeaders,
        body: Bytes,
    ) -> Result<Response, ClientError> {
        let sending = self.request(method, to, headers)?.body(body).send();
        let response = timeout(self.response_timeout, sending)
            .await
            .map_err(|_| ClientError::Timeout(self.response_timeout.as_secs()))?;
        response.map_err(|error| client_error(&error))
    }

    /// Begins a request to an address that the policy allows.
    fn request(
        &self,
        method: Method,
        to: &OutboundUrl,
        headers: RequestHeaders,
    ) -> Result<reqwest::RequestBuilder, ClientError> {
        let url = to.expose();
        // The resolver is not called for a URL with an IP address, so check it here.
        self.policy.check(url)?;
        let client = if url.scheme() == "https" { self.encrypted.as_ref().map_err(Arc::clone)? } else { &self.plain };
        Ok(client.request(method, url.clone()).headers(headers.of_request(url)))
    }
}

/// Reads the beginning of a body, and returns true if it is the whole body. Errors are ignored, because the
/// status is already known.
async fn read_body_start(response: &mut Response, max_bytes: usize, time: Duration) -> (Bytes, bool) {
    let until = Instant::now() + time;
    let mut read = BytesMut::new();
    let mut is_complete = false;
    while read.len() <= max_bytes {
        match timeout_at(until, response.chunk()).await {
            Ok(Ok(Some(chunk))) => read.extend_from_slice(&chunk[..chunk.len().min(max_bytes + 1 - read.len())]),
            Ok(Ok(None)) => {
                is_complete = true;
                break;
            }
            Ok(Err(_)) | Err(_) => break,
        }
    }
    read.truncate(max_bytes);
    (read.freeze(), is_complete)
}

pub(super) fn client_error(error: &reqwest::Error) -> ClientError {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(cause) = next {
        if let Some(not_allowed) = cause.downcast_ref::<NotAllowed>() {
            return ClientError::NotAllowed(not_allowed.clone());
        }
        if cause.downcast_ref().is_some_and(|cause: &io::Error| cause.kind() == io::ErrorKind::ConnectionRefused) {
            return ClientError::Refused(describe_error(error));
        }
        next = cause.source();
    }
    ClientError::Connection(describe_error(error))
}

/// Returns a client of the HTTP library for a server that the operator has configured, for libraries that need one. It
/// follows no redirects. `silence` limits the wait for a response, and for the next piece of its body.
///
/// # Errors
/// Fails if the certificates cannot be read, or the HTTP library cannot be set up. The call reads files.
pub fn unrestricted_client(
    ca: Option<&Path>,
    is_encrypted: bool,
    connect_timeout: Duration,
    silence: Duration,
) -> Result<reqwest::Client, ClientError> {
    let tls = if is_encrypted { tls_roots::client_config(ca).map_err(Arc::new)? } else { tls_roots::no_roots()? };
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .https_only(is_encrypted)
        .no_proxy()
        .redirect(Policy::none())
        .referer(false)
        .connect_timeout(connect_timeout)
        .read_timeout(silence)
        .pool_idle_timeout(IDLE)
        .user_agent(concat!("tidings/", env!("CARGO_PKG_VERSION")));
    client.build().map_err(|error| ClientError::Connection(describe_error(&error)))
}

/// Describes the error of a request and its causes, without the URL, which may contain a password.
#[must_use]
pub fn describe_error(error: &reqwest::Error) -> String {
    let mut line = if error.is_timeout() {
        "no response in time".to_owned()
    } else if error.is_connect() {
        "no connection".to_owned()
    } else {
        "the request was interrupted".to_owned()
    };
    let mut next = error.source();
    while let Some(cause) = next {
        // These layers of the client add nothing to the cause.
        if !["client error (Connect)", "tcp connect error"].contains(&cause.to_string().as_str()) {
            line = match plain_tls_error(cause) {
                Some(plain) => format!("{line}: {plain}"),
                None => format!("{line}: {cause}"),
            };
        }
        next = cause.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::user_agent;

    #[test]
    fn user_agent_names_the_operator() {
        assert!(user_agent(None).starts_with("tidings/") && !user_agent(None).contains('('));
        assert!(user_agent(Some("library@example.org")).ends_with(" (library@example.org)"));
    }
}
