//! HTTP client of one repository: requests, redirections, compression, and the classification of failures.

use axum::http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, LOCATION},
};
use chrono::Utc;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{
    OaiPmhSettings,
    position::Quirks,
    response::{self, InvalidResponse, Response},
    text,
};
use crate::{
    harvest::{HarvestError, HarvesterContext},
    http_client::{Client, ClientError, ClientSettings, OutboundPolicy, OutboundUrl, is_transient, retry_after},
    web::{Decompression, decompress},
};

/// Maximum number of redirections of a request.
const MAX_REDIRECTS: usize = 5;

/// Characters of an argument that are percent-encoded (section 3.1.1.3): all but the unreserved ones.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Client of one repository.
pub(super) struct RepositoryClient {
    url: OutboundUrl,
    /// For the configured host, which may be internal.
    client: Client,
    /// For other hosts, to which the repository redirects.
    foreign: Client,
    context: HarvesterContext,
    page_bytes: usize,
    busy_wait: std::time::Duration,
}

/// Arguments of a request.
pub(super) struct Arguments<'a> {
    pub(super) verb: &'static str,
    pub(super) others: Vec<(&'static str, &'a str)>,
    /// Argument that is sent as it is.
    pub(super) verbatim: Option<(&'static str, &'a str)>,
}

/// A response, with the facts about its repair.
pub(super) struct ReadResponse {
    pub(super) response: Response,
    pub(super) is_repaired: bool,
    /// Fact about the address that an administrator should know.
    pub(super) remark: Option<String>,
}

/// Reason why a request got no usable response.
#[derive(Debug)]
pub(super) enum RequestError {
    /// The server or the network failed, or the request was too large for the repository. A repeat may succeed.
    Transient { reason: String, after: Option<std::time::Duration> },
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

/// Status, headers and body of a response.
struct RawResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl RepositoryClient {
    pub(super) async fn new(settings: &OaiPmhSettings, context: HarvesterContext) -> Result<Self, ClientError> {
        let of = |policy: OutboundPolicy| ClientSettings {
            ca: settings.ca.clone(),
            response_timeout: settings.timeouts.response,
            body_timeout: settings.timeouts.idle,
            ..ClientSettings::new(policy)
        };
        Ok(Self {
            url: settings.url.clone(),
            // The URL comes from the operator's configuration, so it may point to an internal host.
            client: Client::new(of(OutboundPolicy::unrestricted())).await?,
            foreign: Client::new(of(context.redirects.clone())).await?,
            context,
            page_bytes: settings.page_bytes,
            busy_wait: settings.timeouts.busy,
        })
    }

    /// Sends a request and parses the response. Errors of the protocol count before the status of HTTP.
    pub(super) async fn request(
        &self,
        arguments: &Arguments<'_>,
        quirks: Quirks,
    ) -> Result<ReadResponse, RequestError> {
        let query = arguments.query();
        let mut permit = self.context.hosts.permit(&self.url.origin()).await;
        let (raw, remark) = self.follow(&query, quirks).await?;
        let asked = retry_after(&raw.headers, Utc::now());
        let is_busy = matches!(raw.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let (status, max_record_bytes) = (raw.status, self.context.max_record_bytes);
        let parsed = tokio::task::spawn_blocking(move || raw.parse(max_record_bytes)).await;
        let parsed = parsed.map_err(|error| RequestError::Permanent(format!("the parser has failed: {error}")))?;
        match parsed {
            Ok((response, is_repaired)) if status.is_success() || !response.errors.is_empty() => {
                Ok(ReadResponse { response, is_repaired, remark })
            }
            _ if is_busy => {
                let wait = asked.unwrap_or(self.busy_wait);
                permit.pause(wait.min(super::LONGEST_PAUSE));
                Err(RequestError::Transient { reason: format!("the repository is busy ({status})"), after: Some(wait) })
            }
            _ if status == StatusCode::PAYLOAD_TOO_LARGE => {
                Err(RequestError::TooLarge(format!("the repository refuses the list as too large ({status})")))
            }
            _ if status == StatusCode::FORBIDDEN || status == StatusCode::UNAUTHORIZED => {
                Err(RequestError::Permanent(format!("the repository refuses access ({status})")))
            }
            _ if is_transient(status) || status == StatusCode::UNPROCESSABLE_ENTITY => {
                Err(RequestError::Transient { reason: format!("the repository has failed ({status})"), after: None })
            }
            Err(invalid) if status.is_success() => {
                Err(RequestError::Transient { reason: invalid.to_string(), after: None })
            }
            _ => Err(RequestError::Permanent(format!("the repository refuses the request ({status})"))),
        }
    }

    /// Sends a request and follows redirections.
    async fn follow(&self, query: &str, quirks: Quirks) -> Result<(RawResponse, Option<String>), RequestError> {
        let mut url = self.url.with_encoded_query(query);
        let mut remark = None;
        for _ in 0..=MAX_REDIRECTS {
            let raw = self.send(&url, quirks).await?;
            if !raw.status.is_redirection() {
                return Ok((raw, remark));
            }
            let location = raw.headers.get(LOCATION).and_then(|location| location.to_str().ok());
            let target = location.and_then(|location| url.expose().join(location).ok()).ok_or_else(|| {
                RequestError::Permanent(format!("the repository redirects ({}) to no valid URL", raw.status))
            })?;
            let policy = if target.host() == self.url.expose().host() {
                &OutboundPolicy::unrestricted()
            } else {
                &self.context.redirects
            };
            let mut next = OutboundUrl::parse(target.as_str(), policy).map_err(|error| {
                RequestError::Permanent(format!("the repository redirects to a URL that is not allowed: {error}"))
            })?;
            if target.query().is_none() {
                next = next.with_encoded_query(query);
            }
            let is_permanent = matches!(raw.status, StatusCode::MOVED_PERMANENTLY | StatusCode::PERMANENT_REDIRECT);
            if is_permanent {
                remark = Some(format!(
                    "the repository has moved to {}{}; change the url of the source",
                    next.origin(),
                    next.expose().path()
                ));
            }
            url = next;
        }
        Err(RequestError::Permanent(format!("the repository redirects more than {MAX_REDIRECTS} times")))
    }

    async fn send(&self, url: &OutboundUrl, quirks: Quirks) -> Result<RawResponse, RequestError> {
        let is_own = url.expose().host() == self.url.expose().host();
        let client = if is_own { &self.client } else { &self.foreign };
        let accepted = if quirks.no_compression { "identity" } else { "gzip, identity" };
        let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(accepted))]);
        let mut stream = client.open(url, headers).await.map_err(|error| request_error(&error))?;
        let mut body = Vec::new();
        while let Some(piece) = stream.piece().await.map_err(|error| request_error(&error))? {
            if body.len() + piece.len() > self.page_bytes {
                return Err(self.too_large());
            }
            body.extend_from_slice(&piece);
        }
        let headers = std::mem::take(&mut stream.headers);
        let body = self.decompress(&headers, body)?;
        Ok(RawResponse { status: stream.status, headers, body })
    }

    /// Decompresses a body by its first bytes, because the header is often wrong.
    fn decompress(&self, headers: &HeaderMap, body: Vec<u8>) -> Result<Vec<u8>, RequestError> {
        let encoding = match body.as_slice() {
            [0x1F, 0x8B, ..] => "gzip",
            [0x28, 0xB5, 0x2F, 0xFD, ..] => "zstd",
            _ => return Ok(body),
        };
        match decompress(encoding, &body, self.page_bytes) {
            Decompression::Body(body) => Ok(body.into()),
            Decompression::NotEncoded => Ok(body),
            Decompression::TooLarge => Err(self.too_large()),
            Decompression::Corrupt(reason) => {
                let announced = headers.get(CONTENT_ENCODING).is_some();
                let where_from = if announced { "announced" } else { "unannounced" };
                Err(RequestError::Compression(format!(
                    "the {where_from} {encoding} of the response is broken: {reason}"
                )))
            }
            Decompression::Unsupported => {
                Err(RequestError::Compression(format!("the encoding {encoding} is not supported")))
            }
        }
    }

    fn too_large(&self) -> RequestError {
        let bytes = self.page_bytes;
        RequestError::TooLarge(format!("a page has more than {bytes} bytes; raise page_bytes if that is expected"))
    }
}

impl Arguments<'_> {
    fn query(&self) -> String {
        let mut query = format!("verb={}", self.verb);
        for (name, value) in &self.others {
            query.push_str(&format!("&{name}={}", utf8_percent_encode(value, ENCODED)));
        }
        if let Some((name, value)) = self.verbatim {
            query.push_str(&format!("&{name}={value}"));
        }
        query
    }
}

impl RawResponse {
    fn parse(&self, max_record_bytes: usize) -> Result<(Response, bool), InvalidResponse> {
        let content_type = self.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let charset = content_type.split(';').find_map(|part| part.trim().strip_prefix("charset="));
        let text::RepairedText { text, repairs } =
            text::read(&self.body, charset.map(|charset| charset.trim_matches(['"', '\''])));
        let response = response::parse(&text, max_record_bytes)?;
        let is_repaired = repairs > 0 || response.is_recovered;
        Ok((response, is_repaired))
    }
}

fn request_error(error: &ClientError) -> RequestError {
    match error {
        ClientError::NotAllowed(_) | ClientError::TlsRoots(_) => RequestError::Permanent(error.to_string()),
        ClientError::Timeout(_) | ClientError::Connection(_) => {
            RequestError::Transient { reason: error.to_string(), after: None }
        }
    }
}
