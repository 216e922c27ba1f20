//! A client that sends to allowed addresses alone, follows nobody elsewhere, and reads no more of an answer than
//! is wanted.

use std::{error::Error, path::PathBuf, sync::Arc, time::Duration};

use axum::http::{HeaderMap, Method, StatusCode};
use bytes::{Bytes, BytesMut};
use reqwest::{Response, redirect::Policy};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    destination::{Destination, Guard, NotAllowed},
    resolve::{Guarded, Names, SystemNames},
    trust::{self, UntrustedError},
};

/// How long a connection is kept that nothing is sent on.
const IDLE: Duration = Duration::from_secs(60);

/// How often a silent HTTP/2 connection is asked whether it is there, and how long it may think about it.
const PING: Duration = Duration::from_secs(10);

/// How a client sends.
#[derive(Clone)]
pub struct Settings {
    /// Where requests may go.
    pub guard: Guard,
    /// What looks names up.
    pub names: Arc<dyn Names>,
    /// The authority, in a PEM file, that certificates are checked against, and not those of the operating system.
    pub ca: Option<PathBuf>,
    /// How long a connection may take to be made, from the look-up of the name to the end of the handshake.
    pub connect: Duration,
    /// How long a request may take until the head of its answer is there.
    pub answer: Duration,
    /// How much of an answer is read, in bytes. Behind that the connection is dropped.
    pub answer_bytes: usize,
    /// How long that much may take to come after the head.
    pub body: Duration,
}

impl Settings {
    /// With usual bounds: ten seconds for a connection, fifteen for an answer, of which 4 KiB are read for five.
    #[must_use]
    pub fn new(guard: Guard) -> Self {
        Self {
            guard,
            names: Arc::new(SystemNames::default()),
            ca: None,
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(15),
            answer_bytes: 4096,
            body: Duration::from_secs(5),
        }
    }
}

/// Sends requests. Clones share their connections.
///
/// It takes no proxy from the environment, since that would look the names up itself.
#[derive(Clone)]
pub struct Client {
    /// There is none where certificates cannot be checked: that is no reason to send nothing unencrypted either.
    encrypted: Result<reqwest::Client, Arc<UntrustedError>>,
    plain: reqwest::Client,
    guard: Guard,
    answer: Duration,
    answer_bytes: usize,
    body: Duration,
}

/// What a server answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// The beginning of its body.
    pub beginning: Bytes,
    /// Whether that is all of it.
    pub is_whole: bool,
}

/// An answer whose body is read piece by piece, since it may be larger than is to be held.
pub struct Opened {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    response: Response,
    patience: Duration,
}

impl Opened {
    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// When it breaks off, or does not go on in time.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, ClientError> {
        let piece = timeout(self.patience, self.response.chunk()).await;
        piece.map_err(|_| ClientError::Late(self.patience.as_secs()))?.map_err(|error| broken(&error))
    }
}

/// Why there is no answer. None repeats the address.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The request may not go there.
    #[error("the address is not allowed: {0}")]
    NotAllowed(#[from] NotAllowed),
    /// Certificates cannot be checked.
    #[error(transparent)]
    Untrusted(#[from] Arc<UntrustedError>),
    /// There was no answer in time, in seconds.
    #[error("no answer within {0} seconds")]
    Late(u64),
    /// There is no connection, or it broke.
    #[error("{0}")]
    Broken(String),
}

impl Client {
    /// Sets a client up. It connects to nothing until something is sent.
    ///
    /// # Errors
    /// When the library cannot be set up.
    pub async fn new(settings: Settings) -> Result<Self, ClientError> {
        let ca = settings.ca.clone();
        let tls = tokio::task::spawn_blocking(move || trust::tls(ca.as_deref()));
        let tls = tls.await.map_err(|error| ClientError::Broken(error.to_string()))?.map_err(Arc::new);
        let client = |tls, is_encrypted| {
            let (names, guard) = (Arc::clone(&settings.names), settings.guard.clone());
            reqwest::Client::builder()
                .tls_backend_preconfigured(tls)
                .dns_resolver(Arc::new(Guarded { names, guard, is_encrypted }))
                .https_only(is_encrypted)
                .no_proxy()
                .redirect(Policy::none())
                .referer(false)
                .connect_timeout(settings.connect)
                .pool_idle_timeout(IDLE)
                .http2_keep_alive_interval(PING)
                .http2_keep_alive_timeout(PING)
                .user_agent(concat!("tidings/", env!("CARGO_PKG_VERSION")))
                .build()
                .map_err(|error| ClientError::Broken(trouble(&error)))
        };
        Ok(Self {
            encrypted: match tls {
                Ok(tls) => Ok(client(tls, true)?),
                Err(untrusted) => Err(untrusted),
            },
            plain: client(trust::nobody()?, false)?,
            guard: settings.guard,
            answer: settings.answer,
            answer_bytes: settings.answer_bytes,
            body: settings.body,
        })
    }

    /// Posts a body, and gives back the answer, whatever its status: one that points elsewhere too.
    ///
    /// # Errors
    /// When the address is not allowed, or there is no answer.
    pub async fn post(&self, to: &Destination, headers: HeaderMap, body: Bytes) -> Result<Answer, ClientError> {
        self.send(Method::POST, to, headers, body).await
    }

    /// Gets what is at an address.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub async fn get(&self, to: &Destination, headers: HeaderMap) -> Result<Answer, ClientError> {
        self.send(Method::GET, to, headers, Bytes::new()).await
    }

    /// Gets what would be told of what is at an address, without it.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub async fn head(&self, to: &Destination, headers: HeaderMap) -> Result<Answer, ClientError> {
        self.send(Method::HEAD, to, headers, Bytes::new()).await
    }

    /// Gets what is at an address, piece by piece, each of which may take as long as a body of another answer.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub async fn open(&self, to: &Destination, headers: HeaderMap) -> Result<Opened, ClientError> {
        let mut response = self.begin(Method::GET, to, headers, Bytes::new()).await?;
        let headers = std::mem::take(response.headers_mut());
        Ok(Opened { status: response.status(), headers, response, patience: self.body })
    }

    async fn send(
        &self,
        method: Method,
        to: &Destination,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer, ClientError> {
        let mut response = self.begin(method, to, headers, body).await?;
        let (beginning, is_whole) = beginning(&mut response, self.answer_bytes, self.body).await;
        let headers = std::mem::take(response.headers_mut());
        Ok(Answer { status: response.status(), headers, beginning, is_whole })
    }

    async fn begin(
        &self,
        method: Method,
        to: &Destination,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, ClientError> {
        let url = to.expose();
        // One with an IP address in it is not looked up.
        self.guard.check(url)?;
        let client = if url.scheme() == "https" { self.encrypted.as_ref().map_err(Arc::clone)? } else { &self.plain };
        let sending = client.request(method, url.clone()).headers(headers).body(body).send();
        let response = timeout(self.answer, sending).await.map_err(|_| ClientError::Late(self.answer.as_secs()))?;
        response.map_err(|error| broken(&error))
    }
}

/// The beginning of a body, and whether that is all of it. How it goes on, or breaks, changes nothing about what its
/// status has said.
async fn beginning(response: &mut Response, most: usize, time: Duration) -> (Bytes, bool) {
    let until = Instant::now() + time;
    let mut read = BytesMut::new();
    let mut is_whole = false;
    while read.len() <= most {
        match timeout_at(until, response.chunk()).await {
            Ok(Ok(Some(chunk))) => read.extend_from_slice(&chunk[..chunk.len().min(most + 1 - read.len())]),
            Ok(Ok(None)) => {
                is_whole = true;
                break;
            }
            Ok(Err(_)) | Err(_) => break,
        }
    }
    read.truncate(most);
    (read.freeze(), is_whole)
}

fn broken(error: &reqwest::Error) -> ClientError {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(cause) = next {
        if let Some(refused) = cause.downcast_ref::<NotAllowed>() {
            return ClientError::NotAllowed(refused.clone());
        }
        next = cause.source();
    }
    ClientError::Broken(trouble(error))
}

/// What went wrong with a request, and what caused it, without the URL, which may hold a password.
#[must_use]
pub fn trouble(error: &reqwest::Error) -> String {
    let mut line = if error.is_timeout() {
        "no answer in time".to_owned()
    } else if error.is_connect() {
        "no connection".to_owned()
    } else {
        "the request broke off".to_owned()
    };
    let mut next = error.source();
    while let Some(cause) = next {
        line = format!("{line}: {cause}");
        next = cause.source();
    }
    line
}
