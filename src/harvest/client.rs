//! HTTP client of one harvested place: redirections, compression, limits on bytes, and the classification of failures.

use std::{path::PathBuf, sync::Arc, time::Duration};

use axum::http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, COOKIE},
};
use chrono::Utc;
use tokio::{sync::Mutex, time::timeout};

use super::{HarvestError, HarvesterContext, cookies::Cookies};
use crate::{
    http_client::{
        Client, ClientError, ClientSettings, InvalidOutboundUrl, NameResolver, Origin, OutboundPolicy, OutboundUrl,
        RequestHeaders, SystemResolver, redirection_target, retry_after,
    },
    transfer::{
        BudgetShare, HarvestBudget, HostPermit, Hosts,
        body::{HeldBody, OpenError, ReceiveError, ReceivedBody, receive},
    },
};

/// Maximum number of redirections of a request.
const MAX_REDIRECTS: usize = 5;

/// Maximum time without requests that a server can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

/// Noun for a repository with OAI-PMH.
pub(super) const REPOSITORY: &str = "repository";

/// Settings of a client.
pub(super) struct PlaceSettings {
    /// URL, with its credentials.
    pub(super) url: OutboundUrl,
    /// Noun for the place in reasons, such as `repository`.
    pub(super) noun: &'static str,
    /// PEM file of the CA certificates to trust instead of those of the operating system.
    pub(super) ca: Option<PathBuf>,
    /// Maximum size of a body, compressed or decompressed, in bytes.
    pub(super) page_bytes: usize,
    /// Timeouts of requests.
    pub(super) timeouts: Timeouts,
}

/// Timeouts of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Time until the headers of a response. Large repositories need minutes for a page.
    pub response: Duration,
    /// Time between two pieces of a body.
    pub idle: Duration,
    /// Time until the end of a body, with all redirections, so that a server that drips does not keep its harvest and its
    /// host.
    pub page: Duration,
    /// Wait if the server is busy and does not say for how long.
    pub busy: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            response: Duration::from_secs(300),
            idle: Duration::from_secs(60),
            page: Duration::from_secs(15 * 60),
            busy: Duration::from_secs(120),
        }
    }
}

/// Client of one place.
pub(super) struct PlaceClient {
    settings: PlaceSettings,
    /// For the configured origin, which may be internal if the operator has configured it.
    own: Client,
    /// Policy of `own`.
    own_policy: OutboundPolicy,
    /// For other origins, which the place names.
    foreign: Client,
    cookies: Cookies,
    context: ClientContext,
}

/// Facts that a client needs.
pub(super) struct ClientContext {
    /// Limits on the requests to each host.
    pub(super) hosts: Hosts,
    /// Memory for the answers of other servers, together.
    pub(super) budget: HarvestBudget,
    /// HTTP clients of all harvests.
    pub(super) clients: SharedClients,
    /// Whether the operator has chosen the URL. Others may not name internal hosts.
    pub(super) is_configured: bool,
    /// Policy for other origins than that of the URL.
    pub(super) redirects: OutboundPolicy,
    /// Policy for the origin of the URL.
    pub(super) file_policy: OutboundPolicy,
    /// Maximum size of a record, in bytes.
    pub(super) max_record_bytes: usize,
}

impl From<HarvesterContext> for ClientContext {
    fn from(context: HarvesterContext) -> Self {
        let HarvesterContext {
            hosts, budget, clients, is_configured, redirects, file_policy, max_record_bytes, ..
        } = context;
        Self { hosts, budget, clients, is_configured, redirects, file_policy, max_record_bytes }
    }
}

/// Reason why a request got no usable response.
#[derive(Debug)]
pub(super) enum RequestError {
    /// The server or the network failed, or the request was too large for the server. A repeat may succeed.
    Transient { reason: String, after: Option<Duration> },
    /// The compressed body is broken.
    Compression(String),
    /// The list must be divided: the page exceeds a limit here or there.
    TooLarge(String),
    /// An administrator must act.
    Permanent(String),
}

impl From<RequestError> for HarvestError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Transient { reason, after } => Self::Retry { reason, after },
            RequestError::Compression(reason) => Self::retry(reason),
            RequestError::TooLarge(reason) | RequestError::Permanent(reason) => Self::fail(reason),
        }
    }
}

/// Status, headers and decompressed body of a response.
pub(super) struct RawResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    /// Share of the budget for the body and for what is made of it.
    pub(super) share: BudgetShare,
    /// Fact about the address that an administrator should know.
    pub(super) remark: Option<String>,
}

/// A response whose body has arrived.
struct ReceivedResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: ReceivedBody,
}

impl RawResponse {
    /// Returns the parameter `charset` of the media type.
    pub(super) fn charset(&self) -> Option<&str> {
        let content_type = self.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let charset = content_type.split(';').find_map(|part| part.trim().strip_prefix("charset="));
        charset.map(|charset| charset.trim_matches(['"', '\'']))
    }

    /// Returns whether the server refuses the request because of its load.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
    }
}

/// HTTP clients that harvests share, because each has the CA certificates of the operating system and its own
/// connections. Clones are the same set.
#[derive(Clone)]
pub struct SharedClients {
    clients: Arc<Mutex<Vec<SharedClient>>>,
    resolver: Arc<dyn NameResolver>,
}

struct SharedClient {
    policy: OutboundPolicy,
    timeouts: Timeouts,
    client: Client,
}

/// Clients that resolve names as the operating system does.
impl Default for SharedClients {
    fn default() -> Self {
        Self::with_resolver(Arc::new(SystemResolver::default()))
    }
}

impl SharedClients {
    /// Creates an empty set, whose clients use this resolver.
    #[must_use]
    pub fn with_resolver(resolver: Arc<dyn NameResolver>) -> Self {
        Self { clients: Arc::default(), resolver }
    }

    /// Returns the client for a policy. One with CA certificates of its own is not shared.
    async fn client(
        &self,
        policy: &OutboundPolicy,
        timeouts: Timeouts,
        ca: Option<PathBuf>,
    ) -> Result<Client, ClientError> {
        let settings = ClientSettings {
            ca,
            resolver: Arc::clone(&self.resolver),
            response_timeout: timeouts.response,
            body_timeout: timeouts.idle,
            ..ClientSettings::new(policy.clone())
        };
        if settings.ca.is_some() {
            return Client::new(settings).await;
        }
        // Locked while a client is created, so that it is created once.
        let mut clients = self.clients.lock().await;
        let is_it = |shared: &&SharedClient| shared.policy.is_same(policy) && shared.timeouts == timeouts;
        if let Some(shared) = clients.iter().find(is_it) {
            return Ok(shared.client.clone());
        }
        let client = Client::new(settings).await?;
        clients.push(SharedClient { policy: policy.clone(), timeouts, client: client.clone() });
        Ok(client)
    }
}

impl PlaceClient {
    pub(super) async fn new(settings: PlaceSettings, context: impl Into<ClientContext>) -> Result<Self, ClientError> {
        let context = context.into();
        let PlaceSettings { timeouts, ca, .. } = &settings;
        let client = |policy| context.clients.client(policy, *timeouts, ca.clone());
        let own_policy = match context.is_configured {
            true => context.file_policy.for_configured(settings.url.expose()),
            false => context.file_policy.clone(),
        };
        let (own, foreign) = (client(&own_policy).await?, client(&context.redirects).await?);
        Ok(Self { own, own_policy, foreign, cookies: Cookies::default(), settings, context })
    }

    /// Returns the maximum size of a record, in bytes.
    pub(super) fn max_record_bytes(&self) -> usize {
        self.context.max_record_bytes
    }

    /// Returns the maximum size of a page, in bytes.
    pub(super) fn page_bytes(&self) -> usize {
        self.settings.page_bytes
    }

    /// Returns the budget for the answers of other servers.
    pub(super) fn budget(&self) -> &HarvestBudget {
        &self.context.budget
    }

    /// Forgets the cookies of the run, which has ended.
    pub(super) fn rest(&self) {
        self.cookies.forget();
    }

    /// Waits for the permission to send a request.
    pub(super) async fn permit(&self) -> HostPermit {
        self.context.hosts.permit(&self.settings.url.origin()).await
    }

    /// Pauses the requests to the host as a busy server asks for, and returns the error for its response.
    pub(super) fn busy(&self, permit: &mut HostPermit, status: StatusCode, headers: &HeaderMap) -> RequestError {
        let wait = retry_after(headers, Utc::now()).unwrap_or(self.settings.timeouts.busy);
        permit.pause(wait.min(LONGEST_PAUSE));
        let noun = self.settings.noun;
        RequestError::Transient { reason: format!("the {noun} is busy ({status})"), after: Some(wait) }
    }

    /// Sends a request, with this encoded query after that of the URL, follows redirections, and waits for a share of the
    /// budget for the body. A redirection that has lost the query gets it again.
    pub(super) async fn get(
        &self,
        at: &OutboundUrl,
        query: Option<&str>,
        headers: impl Into<RequestHeaders>,
    ) -> Result<RawResponse, RequestError> {
        let mut headers = headers.into();
        headers.insert_default(ACCEPT_ENCODING, HeaderValue::from_static("gzip, identity"));
        let longest = self.settings.timeouts.page;
        let arrived = timeout(longest, self.exchange(at, query, &headers)).await;
        let (ReceivedResponse { status, headers, body }, remark) = arrived.unwrap_or_else(|_| {
            let reason = format!("the response has not arrived within {} seconds", longest.as_secs());
            Err(RequestError::Transient { reason, after: None })
        })?;
        let opened = body.open(self.settings.page_bytes, self.budget()).await;
        let HeldBody { bytes: body, share } = opened.map_err(|error| self.open_error(error, &headers))?;
        Ok(RawResponse { status, headers, body, share, remark })
    }

    /// Sends a request and follows redirections. Returns the response with a remark about the address.
    async fn exchange(
        &self,
        at: &OutboundUrl,
        query: Option<&str>,
        headers: &RequestHeaders,
    ) -> Result<(ReceivedResponse, Option<String>), RequestError> {
        let noun = self.settings.noun;
        let mut url = query.map_or_else(|| at.clone(), |query| at.with_encoded_query(query));
        let mut remark = None;
        for _ in 0..=MAX_REDIRECTS {
            let origin = url.origin();
            let mut headers = headers.clone();
            if let Some(cookies) = self.cookies.header(&origin) {
                headers.insert(COOKIE, cookies);
            }
            let raw = self.send(&url, &headers).await?;
            self.cookies.note(&origin, &raw.headers);
            if !raw.status.is_redirection() || raw.status == StatusCode::NOT_MODIFIED {
                return Ok((raw, remark));
            }
            let mut next = redirection_target(&raw.headers, url.expose()).ok_or_else(|| {
                RequestError::Permanent(format!("the {noun} redirects ({}) to no valid URL", raw.status))
            })?;
            next.set_fragment(None);
            let mut next = self.allowed(next.as_str()).map_err(|error| {
                RequestError::Permanent(format!("the {noun} redirects to a URL that is not allowed: {error}"))
            })?;
            if let Some(query) = query.filter(|_| next.expose().query().is_none()) {
                next = next.with_encoded_query(query);
            }
            if matches!(raw.status, StatusCode::MOVED_PERMANENTLY | StatusCode::PERMANENT_REDIRECT) {
                let (origin, path) = (next.origin(), next.expose().path());
                // Only the other kinds have URIs that do not depend on the address.
                let advice = match noun {
                    REPOSITORY => {
                        "url with this address and formerly with the old one keep all URIs; without formerly, all records \
                         become new objects"
                    }
                    _ => "change url when the move is confirmed",
                };
                remark = Some(format!("the {noun} has moved to {origin}{path}; {advice}"));
            }
            url = next;
        }
        let (origin, path) = (url.origin(), url.expose().path());
        let cookies = self.cookies.names(&origin);
        let cookies =
            if cookies.is_empty() { String::new() } else { format!(", with the cookies {}", cookies.join(", ")) };
        Err(RequestError::Permanent(format!(
            "the {noun} redirects more than {MAX_REDIRECTS} times, at last to {origin}{path}{cookies}; it may want a login, or \
             a browser"
        )))
    }

    /// Sends a POST request with a form, which is not redirected; returns the status and the beginning of the body.
    pub(super) async fn post_form(
        &self,
        url: &OutboundUrl,
        form: String,
    ) -> Result<(StatusCode, String), RequestError> {
        let client = if self.is_own(url) { &self.own } else { &self.foreign };
        let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, form_type)]);
        let response = client.post(url, headers, form.into()).await.map_err(|error| request_error(&error))?;
        Ok((response.status, String::from_utf8_lossy(&response.body_start).chars().take(200).collect()))
    }

    /// Parses a URL that the server has named. Other origins than the configured one must be allowed.
    pub(super) fn allowed(&self, url: &str) -> Result<OutboundUrl, InvalidOutboundUrl> {
        let unrestricted = OutboundPolicy::unrestricted();
        let parsed = OutboundUrl::parse(url, &unrestricted)?;
        OutboundUrl::parse(url, if self.is_own(&parsed) { &self.own_policy } else { &self.context.redirects })
    }

    /// Returns whether a URL is of the configured origin. Another port can be the server of somebody else.
    fn is_own(&self, url: &OutboundUrl) -> bool {
        Origin::of(self.settings.url.expose()).is_some_and(|origin| origin.includes(url.expose()))
    }

    async fn send(&self, url: &OutboundUrl, headers: &RequestHeaders) -> Result<ReceivedResponse, RequestError> {
        let client = if self.is_own(url) { &self.own } else { &self.foreign };
        let mut stream = client.open(url, headers).await.map_err(|error| request_error(&error))?;
        let body = receive(&mut stream, self.settings.page_bytes, self.budget()).await;
        let body = body.map_err(|error| match error {
            ReceiveError::TooLarge => self.too_large(),
            ReceiveError::Client(error) => request_error(&error),
            ReceiveError::Disk(reason) => disk_error(&reason),
        })?;
        Ok(ReceivedResponse { status: stream.status, headers: std::mem::take(&mut stream.headers), body })
    }

    fn open_error(&self, error: OpenError, headers: &HeaderMap) -> RequestError {
        match error {
            OpenError::TooLarge => self.too_large(),
            OpenError::Corrupt { encoding, reason } => {
                let announced = headers.get(CONTENT_ENCODING).is_some();
                let where_from = if announced { "announced" } else { "unannounced" };
                RequestError::Compression(format!("the {where_from} {encoding} of the response is broken: {reason}"))
            }
            OpenError::Disk(reason) => disk_error(&reason),
        }
    }

    fn too_large(&self) -> RequestError {
        let bytes = self.settings.page_bytes;
        RequestError::TooLarge(format!("a page has more than {bytes} bytes; raise page_bytes if that is expected"))
    }
}

fn disk_error(reason: &str) -> RequestError {
    RequestError::Transient { reason: format!("the response cannot be kept: {reason}"), after: None }
}

fn request_error(error: &ClientError) -> RequestError {
    match error {
        ClientError::NotAllowed(_) | ClientError::TlsRoots(_) => RequestError::Permanent(error.to_string()),
        ClientError::Timeout(_) | ClientError::Refused(_) | ClientError::Connection(_) => {
            RequestError::Transient { reason: error.to_string(), after: None }
        }
    }
}
