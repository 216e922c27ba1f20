//! Captures by Save Page Now 2: a job for each URL, whose status is polled.

use axum::http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT, CONTENT_TYPE},
};
use bytes::Bytes;
use chrono::Utc;
use serde::{Deserialize, de::DeserializeOwned};
use url::{Url, form_urlencoded};

use super::{Wayback, cdx::FoundCapture, is_time};
use crate::{
    filesets::{IngestFailure, RetryRule, client::named, json},
    format::fileset::{message::ManifestFile, status::IngestStatus},
    http_client::{RequestHeaders, is_transient, rate_limit_reset},
};

/// Maximum number of polls of a job.
const MAX_POLLS: usize = 60;

/// Maximum number of waits for a free session of the user.
const MAX_WAITS: usize = 20;

/// Maximum number of look-ups of a new capture in the index, which learns of it later.
const MAX_LOOKUPS: usize = 6;

/// Documents of the service.
pub(in crate::filesets) const DOCUMENTS: &[json::Reads] =
    &[json::is::<UserStatus>, json::is::<Accepted>, json::is::<JobStatus>];

/// Sessions of the user.
#[derive(Deserialize)]
struct UserStatus {
    available: i64,
}

/// Response to the request of a capture.
#[derive(Default, Deserialize)]
struct Accepted {
    #[serde(default)]
    job_id: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    status_ext: Option<String>,
}

/// Status of a job.
#[derive(Deserialize)]
struct JobStatus {
    status: String,
    #[serde(default)]
    status_ext: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    original_url: Option<String>,
    #[serde(default)]
    timestamp: Option<String>,
    #[serde(default)]
    original_job_id: Option<String>,
}

/// Next step after a request for a capture.
enum Step {
    /// The job with this identifier captures the URL.
    Job(String),
    /// The service has no free session.
    Busy(String),
    /// The service has captured the URL a short time ago.
    Recent(String),
}

impl Wayback<'_> {
    /// Captures a file.
    pub(super) async fn save(&self, file: &ManifestFile) -> Result<FoundCapture, IngestFailure> {
        let url = file.platform_url.as_deref().unwrap_or_default();
        if url.starts_with("ftp:") {
            let message = format!("{}: FTP is not captured", file.path);
            return Err(IngestFailure::permanent(IngestStatus::SPN2_NO_FTP, message));
        }
        let job = match self.begin(url).await? {
            Step::Job(job) => job,
            Step::Busy(reason) => return Err(spn_error(format!("no session is free: {reason}"))),
            Step::Recent(reason) => {
                let found = self.find(file).await?;
                let message = format!("{}: there is a recent capture that the index lacks: {reason}", file.path);
                return found
                    .into_iter()
                    .next()
                    .ok_or_else(|| IngestFailure::transient(IngestStatus::SPN2_RECENT_CAPTURE, message));
            }
        };
        let JobStatus { original_url, timestamp, .. } = self.finished(&job).await?;
        let captured = original_url.unwrap_or_default();
        if !captured.contains("://") || captured.starts_with('/') {
            let message = format!("{}: the capture has a part of a URL: {captured:?}", file.path);
            return Err(IngestFailure::transient(IngestStatus::SPN2_SUCCESS_PARTIAL_URL, message));
        }
        if captured.ends_with("/cookieAbsent") || captured.ends_with("cookieSet=1") {
            let message = format!("{}: the server wants cookies", file.path);
            return Err(IngestFailure::permanent(IngestStatus::BLOCKED_COOKIE, message));
        }
        let timestamp = timestamp.filter(|time| is_time(time));
        let timestamp = timestamp.ok_or_else(|| spn_error(format!("the capture of {} has no time", file.path)))?;
        self.indexed(file, &captured, &timestamp).await
    }

    /// Requests a capture, and waits while the user has no free session.
    async fn begin(&self, url: &str) -> Result<Step, IngestFailure> {
        let mut step = Step::Busy("the service does not say why".to_owned());
        for wait in 0..MAX_WAITS {
            if wait > 0 {
                tokio::time::sleep(self.settings.poll).await;
            }
            let UserStatus { available } = self.status("user").await?;
            if available < 1 {
                step = Step::Busy("all sessions of the user are in use".to_owned());
                continue;
            }
            step = self.request(url).await?;
            if !matches!(step, Step::Busy(_)) {
                break;
            }
        }
        Ok(step)
    }

    /// Requests a capture.
    async fn request(&self, url: &str) -> Result<Step, IngestFailure> {
        let place = self.place(None);
        let target = self.client.target(&place).map_err(spn_error)?;
        let parameters = [
            ("url", url),
            ("capture_all", "1"),
            ("if_not_archived_within", "1d"),
            ("skip_first_archive", "1"),
            // A file needs no browser.
            ("force_get", "1"),
        ];
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
        let mut headers = self.headers();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        let mut permit = self.client.hosts.permit(&target.origin()).await;
        let response = async {
            let response = self.client.client.post(&target, headers, Bytes::from(body)).await;
            response.map_err(|error| spn_error(format!("{}: {error}", named(&place))))
        };
        let response = self.client.exchange(&place, IngestStatus::SPN2_ERROR, response).await?;
        if matches!(response.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            if let Some(wait) = rate_limit_reset(&response.headers, Utc::now()) {
                permit.pause(wait.min(self.settings.longest_wait));
            }
            return Ok(Step::Busy(format!("it answers {}", response.status)));
        }
        if response.status != StatusCode::OK {
            return Err(status_failure(&place, response.status));
        }
        let accepted = json::document(&response.body_start);
        let accepted: Accepted = accepted.map_err(|reason| bad_document(&place, &reason.to_string()))?;
        let message = accepted.message.unwrap_or_default();
        if message.contains("limit of active sessions") {
            return Ok(Step::Busy(message));
        }
        if accepted.status.as_deref() == Some("error") {
            let word = accepted.status_ext.as_deref().unwrap_or("error");
            return if is_session_limit(word) { Ok(Step::Busy(message)) } else { Err(failure_of(word, &message)) };
        }
        match accepted.job_id.filter(|job| is_job(job)) {
            Some(job) => Ok(Step::Job(job)),
            None if message.contains("same snapshot") => Ok(Step::Recent(message)),
            None => Err(spn_error(format!("{} gives no job: {message}", named(&place)))),
        }
    }

    /// Polls a job until it has ended, and returns its status if it was successful.
    async fn finished(&self, job: &str) -> Result<JobStatus, IngestFailure> {
        for _ in 0..MAX_POLLS {
            let status: JobStatus = self.status(job).await?;
            match status.status.as_str() {
                "pending" => tokio::time::sleep(self.settings.poll).await,
                "success" => {
                    // The job found a recent capture, and the job of that one has the time.
                    let original = status.original_job_id.as_deref().filter(|job| is_job(job));
                    let Some(original) = original else { return Ok(status) };
                    let status: JobStatus = self.status(original).await?;
                    return match status.status.as_str() {
                        "success" => Ok(status),
                        "pending" => Err(pending(original)),
                        _ => Err(status.failure()),
                    };
                }
                _ => return Err(status.failure()),
            }
        }
        Err(pending(job))
    }

    /// Waits until the index has a new capture.
    async fn indexed(&self, file: &ManifestFile, url: &str, time: &str) -> Result<FoundCapture, IngestFailure> {
        for lookup in 0..MAX_LOOKUPS {
            if lookup > 0 {
                tokio::time::sleep(self.settings.poll * 3).await;
            }
            let captures = self.captures_at(url, time).await?;
            // An http URL and its https URL have the same key in the index.
            let is_redirection = |status: Option<u16>| status.is_some_and(|status| (300..400).contains(&status));
            let Some(cdx) = captures.into_iter().find(|line| !is_redirection(line.status_code)) else { continue };
            return match cdx.status_code {
                Some(200 | 226) => Ok(FoundCapture { cdx, revisit_cdx: None }),
                status => {
                    let status = status.map_or_else(|| "none".to_owned(), |status| status.to_string());
                    let message = format!("{}: the capture has the status {status}", file.path);
                    Err(IngestFailure::permanent(IngestStatus::TERMINAL_BAD_STATUS, message))
                }
            };
        }
        let message = format!("{}: the index lacks the capture of {time}", file.path);
        Err(IngestFailure::transient(IngestStatus::SPN2_CDX_LOOKUP_FAILURE, message))
    }

    async fn status<T: DeserializeOwned + Send + 'static>(&self, of: &str) -> Result<T, IngestFailure> {
        let place = self.place(Some(of));
        let answer = self.get(&place, &self.headers()).await;
        let (status, body) = answer.map_err(|failure| IngestFailure { status: IngestStatus::SPN2_ERROR, ..failure })?;
        if status != StatusCode::OK {
            return Err(status_failure(&place, status));
        }
        let read = self.read(&place, body, |status: T| status).await;
        let read = read.map_err(|failure| IngestFailure { status: IngestStatus::SPN2_ERROR, ..failure })?;
        read.map_err(|reason| bad_document(&place, &reason))
    }

    fn place(&self, status_of: Option<&str>) -> Url {
        let mut url = self.settings.save.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(status_of.into_iter().flat_map(|of| ["status", of]));
        }
        url
    }

    fn headers(&self) -> RequestHeaders {
        let authorization = self.settings.keys.as_ref().and_then(|keys| keys.authorization(&self.settings.save));
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
        RequestHeaders::from(headers).with_authorization(authorization.as_ref())
    }
}

impl JobStatus {
    fn failure(&self) -> IngestFailure {
        let word = self.status_ext.as_deref().unwrap_or(&self.status);
        failure_of(word, self.message.as_deref().unwrap_or_default())
    }
}

fn bad_document(place: &Url, reason: &str) -> IngestFailure {
    let message = format!("the answer of {} cannot be read: {reason}", named(place));
    IngestFailure { retry: RetryRule::AfterFix, ..spn_error(message) }
}

fn status_failure(place: &Url, status: StatusCode) -> IngestFailure {
    let failure = spn_error(format!("{} answers {status}", named(place)));
    // The service forgets sessions of users whose keys are right.
    let is_passing = is_transient(status) || status == StatusCode::UNAUTHORIZED;
    if is_passing { failure } else { IngestFailure { retry: RetryRule::AfterFix, ..failure } }
}

fn spn_error(message: impl Into<String>) -> IngestFailure {
    IngestFailure::transient(IngestStatus::SPN2_ERROR, message)
}

fn pending(job: &str) -> IngestFailure {
    IngestFailure::transient(IngestStatus::ERROR_PENDING, format!("the job {job} does not end"))
}

/// Returns whether a text can be the identifier of a job, which becomes a part of a path.
fn is_job(text: &str) -> bool {
    !text.is_empty() && text.len() < 200 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
}

fn is_session_limit(word: &str) -> bool {
    word == "error:user-session-limit"
}

/// Returns the failure for a word of the service, with Sandcrawler's status for it.
fn failure_of(word: &str, message: &str) -> IngestFailure {
    let message: String = format!("the capture failed: {word} {message}").chars().take(300).collect();
    let (status, is_final) = match word {
        "error:invalid-url" => (IngestStatus::INVALID_URL, true),
        "error:not-found" => (IngestStatus::NOT_FOUND, true),
        "error:no-access" | "error:forbidden" => (IngestStatus::FORBIDDEN, true),
        "error:invalid-host-resolution" => (IngestStatus::INVALID_HOST_RESOLUTION, false),
        "error:gateway-timeout" => (IngestStatus::GATEWAY_TIMEOUT, false),
        "error:too-many-redirects" => (IngestStatus::TOO_MANY_REDIRECTS, false),
        "error:read-timeout" => (IngestStatus::READ_TIMEOUT, false),
        "error:internal-server-error" => (IngestStatus::REMOTE_SERVER_ERROR, false),
        other => (other.strip_prefix("error:").map_or(IngestStatus::SPN2_ERROR, IngestStatus::spn_error), false),
    };
    if is_final { IngestFailure::permanent(status, message) } else { IngestFailure::transient(status, message) }
}
