//! Requests to one repository: never to another place, and never without a bound on their time, their answers and
//! their number.

use std::{sync::Arc, time::Duration};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header::AUTHORIZATION};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use chrono::Utc;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};

use super::{
    breaker::{Breaker, Leave},
    error::LookupError,
    settings::{Credentials, RepositorySettings},
};
use crate::{
    http_client::{self, Client, ClientError, Destination, Guard, Opened, retry_after},
    model::SourceName,
};

/// How much of an answer is read, in bytes: a list of some ten thousand datastreams.
const ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// The metric of requests to repositories, with what came of each.
pub const LOOKUPS: &str = "tidings_lookups_total";

/// A repository that is asked. Clones are the same one: they share its connections and its bounds.
#[derive(Clone)]
pub struct Repository(Arc<Inner>);

struct Inner {
    settings: RepositorySettings,
    client: Client,
    authorization: Option<HeaderValue>,
    in_flight: Arc<Semaphore>,
    breaker: Breaker,
    /// Tells that it answers again.
    recovered: Notify,
    answered: metrics::Counter,
    failed: metrics::Counter,
}

/// What a repository answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// What is there.
    There(There),
    /// There is nothing there, or nothing any more (404, 410).
    Nothing,
}

/// What is there.
#[derive(Clone, Debug)]
pub struct There {
    /// What is told of it.
    pub headers: HeaderMap,
    /// Itself, whole; empty where only what is told of it was asked for.
    pub body: Bytes,
}

/// What is there, read piece by piece, since it may be larger than is to be held.
pub struct Body {
    /// What is told of it.
    pub headers: HeaderMap,
    opened: Opened,
}

impl Body {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// When it breaks off, or does not go on in time.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, LookupError> {
        self.opened.piece().await.map_err(|error| LookupError::Silent(error.to_string()))
    }
}

impl Answer {
    /// How much of it there is, in bytes.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::There(there) => there.body.len(),
            Self::Nothing => 0,
        }
    }
}

impl Repository {
    /// Sets up what asks the repository of a source. Nothing is sent yet.
    ///
    /// # Errors
    /// When the HTTP library cannot be set up.
    pub async fn new(source: &SourceName, settings: RepositorySettings) -> Result<Self, ClientError> {
        let client = http_client::Settings {
            ca: settings.ca.clone(),
            connect: settings.timeout,
            answer: settings.timeout,
            answer_bytes: ANSWER_BYTES,
            body: settings.timeout,
            // The operator's own word may lead inside; nobody else's is taken.
            ..http_client::Settings::new(Guard::of_the_operator())
        };
        let client = Client::new(client).await?;
        let authorization = settings.credentials.as_ref().and_then(basic);
        let in_flight = Arc::new(Semaphore::new(settings.in_flight.max(1)));
        let [answered, failed] = ["answered", "failed"].map(|outcome| {
            let counter = metrics::counter!(LOOKUPS, "source" => source.to_string(), "outcome" => outcome);
            // A rate needs to see the zero from which it rises.
            counter.increment(0);
            counter
        });
        let (breaker, recovered) = (Breaker::default(), Notify::new());
        let inner = Inner { settings, client, authorization, in_flight, breaker, recovered, answered, failed };
        Ok(Self(Arc::new(inner)))
    }

    /// What is set of it.
    #[must_use]
    pub fn settings(&self) -> &RepositorySettings {
        &self.0.settings
    }

    /// Gets what is at a path below its address, as `accept`.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn get(&self, path: &str, accept: &'static str) -> Result<Answer, LookupError> {
        self.ask(Method::GET, path, &[("accept", accept)]).await
    }

    /// Gets what is told of what is at a path below its address, without it.
    ///
    /// # Errors
    /// As [`Repository::get`].
    pub async fn head(&self, path: &str, headers: &[(&'static str, &'static str)]) -> Result<Answer, LookupError> {
        self.ask(Method::HEAD, path, headers).await
    }

    /// Gets what is at a path below its address, as `accept`, piece by piece; `None` where there is nothing.
    ///
    /// # Errors
    /// As [`Repository::get`].
    pub async fn open(&self, path: &str, accept: &'static str) -> Result<Option<Body>, LookupError> {
        let Inner { settings, client, breaker, .. } = &*self.0;
        let to = settings.url.at(path).ok_or(LookupError::Foreign)?;
        let _permit = self.permit().await?;
        let leave = breaker.leave(Instant::now()).map_err(|again| LookupError::LeftAlone { again })?;
        let (judged, wait) = match client.open(&to, self.headers(&[("accept", accept)])).await {
            Ok(opened) => {
                let wait = retry_after(&opened.headers, Utc::now());
                let is_there = judge_status(opened.status);
                let body = |is_there: bool| is_there.then(|| Body { headers: opened.headers.clone(), opened });
                (is_there.map(body), wait)
            }
            Err(error) => (Err(LookupError::Silent(error.to_string())), None),
        };
        self.learn(leave, judged.as_ref().err(), wait);
        judged
    }

    /// How long it is until it is tried again, while it is left alone since it has failed too often.
    #[must_use]
    pub fn left_alone(&self) -> Option<Duration> {
        self.0.breaker.open_for(Instant::now())
    }

    /// Waits until it answers again after it had not.
    pub async fn recovers(&self) {
        self.0.recovered.notified().await;
    }

    /// Sends a request and waits for its answer.
    ///
    /// The request runs in a task of its own, which ends by the time limit of a request. So a caller that gives up
    /// neither keeps its permit longer than that nor hides from the breaker that the repository does not answer.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &'static str)],
    ) -> Result<Answer, LookupError> {
        let to = self.0.settings.url.at(path).ok_or(LookupError::Foreign)?;
        let permit = self.permit().await?;
        let headers = self.headers(headers);
        let request = tokio::spawn(self.clone().send(permit, method, to, headers));
        request.await.unwrap_or_else(|broken| Err(LookupError::Silent(format!("the request was broken off: {broken}"))))
    }

    /// Permission for one more request in flight, for which a caller waits as long as for an answer at the most.
    async fn permit(&self) -> Result<OwnedSemaphorePermit, LookupError> {
        let Inner { settings, in_flight, .. } = &*self.0;
        let within = settings.timeout;
        match timeout(within, Arc::clone(in_flight).acquire_owned()).await {
            // It is never closed.
            Ok(permit) => permit.map_err(|closed| LookupError::Silent(closed.to_string())),
            Err(_) => Err(LookupError::Crowded { in_flight: settings.in_flight, within }),
        }
    }

    async fn send(
        self,
        _permit: OwnedSemaphorePermit,
        method: Method,
        to: Destination,
        headers: HeaderMap,
    ) -> Result<Answer, LookupError> {
        let Inner { settings, client, breaker, .. } = &*self.0;
        let leave = breaker.leave(Instant::now()).map_err(|again| LookupError::LeftAlone { again })?;
        let asking = async {
            if method == Method::HEAD { client.head(&to, headers).await } else { client.get(&to, headers).await }
        };
        let answer = match timeout(settings.timeout, asking).await {
            Ok(answer) => answer,
            Err(_) => Err(ClientError::Late(settings.timeout.as_secs())),
        };
        let (judged, wait) = match answer {
            Ok(answer) => {
                let wait = retry_after(&answer.headers, Utc::now());
                (judge(answer, &method), wait)
            }
            Err(error) => (Err(LookupError::Silent(error.to_string())), None),
        };
        self.learn(leave, judged.as_ref().err(), wait);
        judged
    }

    /// Takes over how a request went.
    fn learn(&self, leave: Leave<'_>, error: Option<&LookupError>, wait: Option<Duration>) {
        let Inner { settings, answered, failed, recovered, .. } = &*self.0;
        let Some(error) = error else {
            answered.increment(1);
            if leave.answered() {
                tracing::debug!(repository = %settings.url, "the repository answers again");
                recovered.notify_one();
            }
            return;
        };
        failed.increment(1);
        if !error.is_of_the_host() {
            // Only this question is none for it.
            leave.answered();
        } else if leave.failed(Instant::now(), wait) {
            tracing::warn!(repository = %settings.url, %error, "the repository has failed too often, and is left alone for a while");
        }
    }

    fn headers(&self, told: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in told {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        if let Some(authorization) = &self.0.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        headers
    }
}

/// What an answer comes to.
fn judge(answer: http_client::Answer, method: &Method) -> Result<Answer, LookupError> {
    // What is told of content that is kept elsewhere (RFC 9110 section 15.4.8). Nobody follows it there.
    if answer.status == StatusCode::TEMPORARY_REDIRECT && *method == Method::HEAD {
        return Ok(Answer::There(There { headers: answer.headers, body: Bytes::new() }));
    }
    match judge_status(answer.status) {
        Ok(false) => Ok(Answer::Nothing),
        Ok(true) if answer.is_whole => Ok(Answer::There(There { headers: answer.headers, body: answer.beginning })),
        Ok(true) if answer.beginning.len() >= ANSWER_BYTES => {
            Err(LookupError::Nonsense(format!("it has more than {ANSWER_BYTES} bytes")))
        }
        Ok(true) => Err(LookupError::Silent("its answer broke off".to_owned())),
        Err(error) => Err(error),
    }
}

/// Whether there is anything there, by the status.
fn judge_status(status: StatusCode) -> Result<bool, LookupError> {
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => Ok(false),
        StatusCode::OK => Ok(true),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(LookupError::Refused(status)),
        status => Err(LookupError::Status(status)),
    }
}

/// RFC 7617.
fn basic(credentials: &Credentials) -> Option<HeaderValue> {
    let Credentials { username, password } = credentials;
    let pair = [username.expose(), b":", password.expose()].concat();
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use tokio::net::TcpListener;

    use super::{
        ANSWER_BYTES, Answer, Bytes, HeaderMap, LookupError, Method, Repository, RepositorySettings, StatusCode, basic,
        http_client, judge,
    };
    use crate::{
        format::RepositoryApi,
        lookup::{BaseUrl, Credentials},
        model::SourceName,
        web::Secret,
    };

    /// A repository that accepts connections and never answers; one request may be in flight, for 50 ms.
    async fn silent() -> (TcpListener, Repository) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = BaseUrl::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let mut settings = RepositorySettings::new(RepositoryApi::Fedora3, base);
        (settings.in_flight, settings.timeout) = (1, Duration::from_millis(50));
        (listener, Repository::new(&SourceName::parse("s").unwrap(), settings).await.unwrap())
    }

    #[tokio::test]
    async fn a_crowded_repository_is_not_called_silent() {
        let (_listener, repository) = silent().await;
        let permit = Arc::clone(&repository.0.in_flight).acquire_owned().await.unwrap();
        for _ in 0..10 {
            let error = repository.get("/a", "text/xml").await.unwrap_err();
            assert!(matches!(error, LookupError::Crowded { in_flight: 1, .. }), "{error}");
            assert!(error.is_transient() && !error.is_of_the_host());
        }
        assert_eq!(repository.left_alone(), None);
        drop(permit);
        assert!(matches!(repository.get("/a", "text/xml").await, Err(LookupError::Silent(_))));
    }

    /// Their callers never see that the repository is silent, and the breaker does.
    #[tokio::test]
    async fn abandoned_requests_end_by_their_own_time_limit() {
        let (_listener, repository) = silent().await;
        while repository.left_alone().is_none() {
            let mut request = Box::pin(repository.get("/a", "text/xml"));
            while repository.0.in_flight.available_permits() == 1 {
                assert!(futures_util::poll!(&mut request).is_pending());
            }
            drop(request);
            let _free = repository.0.in_flight.acquire().await.unwrap();
        }
    }

    #[test]
    fn each_status_says_whether_there_is_an_answer() {
        let answered = |status: u16, is_whole| {
            let (status, headers) = (StatusCode::from_u16(status).unwrap(), HeaderMap::new());
            judge(http_client::Answer { status, headers, beginning: Bytes::from_static(b"x"), is_whole }, &Method::GET)
        };
        assert!(matches!(answered(200, true), Ok(Answer::There(there)) if there.body == "x"));
        for status in [404, 410] {
            assert!(matches!(answered(status, true), Ok(Answer::Nothing)));
        }
        for (status, is_whole, is_transient) in [
            (200, false, true),
            (401, true, false),
            (403, true, false),
            (302, true, false),
            (400, true, false),
            (429, true, true),
            (500, true, true),
            (503, true, true),
        ] {
            let error = answered(status, is_whole).unwrap_err();
            assert_eq!(error.is_transient(), is_transient, "{status}");
            assert_eq!(error.is_of_the_host(), is_transient || matches!(status, 401 | 403), "{status}");
        }
        let (status, headers, beginning) = (StatusCode::OK, HeaderMap::new(), vec![b'x'; ANSWER_BYTES].into());
        let endless = judge(http_client::Answer { status, headers, beginning, is_whole: false }, &Method::GET);
        assert!(matches!(endless, Err(LookupError::Nonsense(_))));
    }

    #[test]
    fn credentials_are_sent_and_not_shown() {
        let credentials = Credentials { username: Secret::new("Aladdin"), password: Secret::new("open sesame") };
        let value = basic(&credentials).unwrap();
        assert_eq!(value.to_str().unwrap(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(!format!("{value:?} {credentials:?}").contains("QWx"));
        assert!(!format!("{credentials:?}").contains("Aladdin"));
    }
}
