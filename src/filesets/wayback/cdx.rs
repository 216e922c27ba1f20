//! Look-ups in the index of a web archive (CDX server), and its replay.

use std::collections::HashSet;

use axum::http::{StatusCode, header::LOCATION};
use serde::Deserialize;
use url::Url;

use super::{Wayback, with_query};
use crate::{
    filesets::{
        IngestFailure, RetryRule,
        check::is_page_promised,
        client::{named, text_header},
        json::{self, List},
    },
    format::fileset::{
        message::{CdxLine, ManifestFile},
        status::IngestStatus,
    },
    http_client::{RequestHeaders, is_transient},
    transfer::budget::Cancelled,
};

/// Maximum number of captures of a file that are fetched until one is the file.
const MAX_CANDIDATES: usize = 3;

/// Beginning of the answer about a site that the archive does not show.
const BLOCKED_SITE: &[u8] = b"Blocked Site Error";

/// Number of the newest captures of a URL that are looked at.
const NEWEST: &str = "-25";

/// Maximum number of redirections from one capture to the next.
const MAX_REDIRECTS: usize = 10;

/// Size of an empty list in JSON, in bytes.
const EMPTY_LIST_BYTES: usize = 2;

/// Media type of a capture that repeats an earlier one.
const REVISIT: &str = "warc/revisit";

/// A capture in the web archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::filesets) struct FoundCapture {
    /// Line of the capture with the body.
    pub(in crate::filesets) cdx: CdxLine,
    /// Line of the capture that repeats it, if that one was found.
    pub(in crate::filesets) revisit_cdx: Option<CdxLine>,
}

impl FoundCapture {
    /// Returns the line of the capture that is replayed.
    pub(super) fn last(&self) -> &CdxLine {
        self.revisit_cdx.as_ref().unwrap_or(&self.cdx)
    }
}

/// Documents of the index.
pub(in crate::filesets) const DOCUMENTS: &[json::Reads] =
    &[|body| json::document::<Rows>(body).is_ok_and(|rows| !rows.captures().is_empty())];

/// Response of the index: a row with the names of the fields, and a row for each capture.
#[derive(Deserialize)]
#[serde(transparent)]
struct Rows(List<List<String>>);

impl Rows {
    /// Returns the captures, the oldest first. Rows without the necessary fields are left out.
    fn captures(self) -> Vec<CdxLine> {
        let mut rows = self.0.into_iter();
        let Some(names) = rows.next() else { return Vec::new() };
        let capture = |row: List<String>| {
            let field = |name: &str| {
                let at = names.iter().position(|known| known == name)?;
                row.get(at).filter(|value| *value != "-").cloned()
            };
            let number = |name: &str| field(name)?.parse().ok();
            let digest = field("digest")?;
            Some(CdxLine {
                surt: field("urlkey").unwrap_or_default(),
                datetime: field("timestamp").filter(|time| is_time(time))?,
                url: field("original")?,
                mimetype: field("mimetype"),
                status_code: field("statuscode").and_then(|status| status.parse().ok()),
                sha1hex: data_encoding::BASE32.decode(digest.as_bytes()).ok().map(hex::encode),
                sha1b32: digest,
                // The length alone, as in the public index, names no place in a file.
                warc_csize: field("filename").and_then(|_| number("length")),
                warc_offset: number("offset"),
                warc_path: field("filename"),
            })
        };
        rows.filter_map(capture).collect()
    }
}

/// Returns whether a text is a time of a web archive.
pub(super) fn is_time(text: &str) -> bool {
    text.len() == 14 && text.bytes().all(|b| b.is_ascii_digit())
}

impl Wayback<'_> {
    /// Returns the best captures of a file: the one with the SHA-1 of the manifest, or else the newest ones, which may have
    /// other content.
    pub(super) async fn find(&self, file: &ManifestFile) -> Result<Vec<FoundCapture>, IngestFailure> {
        let mut url = file.platform_url.clone().unwrap_or_default();
        let mut seen = vec![url.clone()];
        for _ in 0..=MAX_REDIRECTS {
            let captures = self.captures(&[("url", &url), ("matchType", "exact"), ("limit", NEWEST)]).await?;
            let found = best(&captures, file);
            if !found.is_empty() {
                return Ok(found);
            }
            let is_redirection = |line: &&CdxLine| line.status_code.is_some_and(|status| (300..400).contains(&status));
            let Some(redirection) = captures.iter().rev().find(is_redirection) else { return Ok(Vec::new()) };
            url = self.target(redirection).await?;
            if seen.contains(&url) {
                let message = format!("the captures of {} redirect in a circle", file.path);
                return Err(IngestFailure::permanent(IngestStatus::REDIRECT_LOOP, message));
            }
            seen.push(url.clone());
        }
        let message = format!("the captures of {} redirect more than {MAX_REDIRECTS} times", file.path);
        Err(IngestFailure::permanent(IngestStatus::REDIRECTS_EXCEEDED, message))
    }

    /// Returns the captures of a URL at a time.
    pub(super) async fn captures_at(&self, url: &str, time: &str) -> Result<Vec<CdxLine>, IngestFailure> {
        self.captures(&[("url", url), ("matchType", "exact"), ("from", time), ("to", time)]).await
    }

    async fn captures(&self, query: &[(&str, &str)]) -> Result<Vec<CdxLine>, IngestFailure> {
        let url = with_query(&self.settings.cdx, &[query, &[("output", "json")]].concat());
        let (status, body) = self
            .get(&url, &RequestHeaders::default())
            .await
            .map_err(|failure| IngestFailure { status: IngestStatus::CDX_ERROR, ..failure })?;
        let failure = |reason: String, retry| {
            let message = format!("the index {} {reason}", named(&url));
            IngestFailure { retry, ..IngestFailure::permanent(IngestStatus::CDX_ERROR, message) }
        };
        if status == StatusCode::FORBIDDEN {
            let is_blocked =
                |body: Vec<u8>, _: &Cancelled| body.windows(BLOCKED_SITE.len()).any(|part| part == BLOCKED_SITE);
            let is_blocked = self.client.read(body, self.client.limits.answer_bytes, is_blocked).await;
            let retry = if is_blocked.unwrap_or_default() { RetryRule::Never } else { RetryRule::Backoff(None) };
            return Err(failure("does not show the captures of this site".to_owned(), retry));
        }
        if status != StatusCode::OK {
            let retry = if is_transient(status) { RetryRule::Backoff(None) } else { RetryRule::AfterFix };
            return Err(failure(format!("answers {status}"), retry));
        }
        // Without captures it is an empty list, a line break, or nothing.
        if body.length() <= EMPTY_LIST_BYTES {
            return Ok(Vec::new());
        }
        let captures = self.read(&url, body, Rows::captures).await;
        let captures = captures.map_err(|failure| IngestFailure { status: IngestStatus::CDX_ERROR, ..failure })?;
        captures.map_err(|reason| failure(format!("gives no list of captures: {reason}"), RetryRule::AfterFix))
    }

    /// Returns the URL to which a capture redirects.
    async fn target(&self, capture: &CdxLine) -> Result<String, IngestFailure> {
        let url = self.replay_url(capture)?;
        let headers = RequestHeaders::default();
        let response = self.client.open_when_free(&url, &headers);
        let response = self.client.exchange(&url, IngestStatus::WAYBACK_ERROR, response).await;
        let response = response.map_err(|failure| IngestFailure { status: IngestStatus::WAYBACK_ERROR, ..failure })?;
        let location = text_header(&response.headers, LOCATION).filter(|_| response.status.is_redirection());
        let target = location.and_then(|location| self.captured_url(&url, location));
        target.ok_or_else(|| {
            let message = format!("the capture of {} at {} redirects to no URL", capture.url, capture.datetime);
            IngestFailure::permanent(IngestStatus::BAD_REDIRECT, message)
        })
    }

    /// Returns the URL under which a web archive replays a capture as it was.
    pub(super) fn replay_url(&self, capture: &CdxLine) -> Result<Url, IngestFailure> {
        let base = self.settings.replay.as_str().trim_end_matches('/');
        let url = Url::parse(&format!("{base}/{}id_/{}", capture.datetime, capture.url));
        url.map_err(|error| IngestFailure::permanent(IngestStatus::WAYBACK_ERROR, error.to_string()))
    }

    /// Returns the URL of a capture out of a link to its replay: the part after the time.
    fn captured_url(&self, place: &Url, location: &str) -> Option<String> {
        let base = self.settings.replay.as_str().trim_end_matches('/');
        let location = place.join(location).ok()?.to_string();
        let target = match location.strip_prefix(base) {
            Some(rest) => rest.strip_prefix('/')?.split_once('/')?.1.to_owned(),
            None => location,
        };
        let target = Url::parse(&target).ok()?;
        target.has_host().then(|| target.into())
    }
}

/// Returns the best captures of a file. A page is none, unless the file is one.
fn best(captures: &[CdxLine], file: &ManifestFile) -> Vec<FoundCapture> {
    let is_whole = |line: &&CdxLine| matches!(line.status_code, Some(200 | 226)) && !is_revisit(line);
    let is_page = |line: &CdxLine| line.mimetype.as_deref().is_some_and(|kind| kind.starts_with("text/html"));
    let usable = |line: &&CdxLine| is_page_promised(file) || !is_page(line);
    let is_expected = |line: &&CdxLine| {
        let expected = file.sha1.as_deref();
        expected.is_some_and(|sha1| line.sha1hex.as_deref().is_some_and(|known| known.eq_ignore_ascii_case(sha1)))
    };
    let whole = || captures.iter().rev().filter(is_whole).filter(usable);
    if let Some(expected) = whole().find(is_expected) {
        return vec![FoundCapture { cdx: expected.clone(), revisit_cdx: None }];
    }
    let found = |line: &CdxLine| {
        if !is_revisit(line) {
            return Some(FoundCapture { cdx: line.clone(), revisit_cdx: None });
        }
        let original = whole().find(|other| other.sha1b32 == line.sha1b32)?;
        Some(FoundCapture { cdx: original.clone(), revisit_cdx: Some(line.clone()) })
    };
    // Captures with the same digest have the same content.
    let mut digests = HashSet::new();
    let usable_or_revisit = captures.iter().rev().filter(|line| is_whole(line) && usable(line) || is_revisit(line));
    let different = usable_or_revisit.filter(|line| digests.insert(line.sha1b32.as_str()));
    different.filter_map(found).take(MAX_CANDIDATES).collect()
}

fn is_revisit(line: &CdxLine) -> bool {
    line.mimetype.as_deref() == Some(REVISIT)
}
