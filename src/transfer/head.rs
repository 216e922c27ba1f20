//! Facts about the responses with a file, which are kept with its bytes.

use axum::http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{CONTENT_ENCODING, ETAG, LAST_MODIFIED, SET_COOKIE},
};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::{
    files::{FileStoreError, Workspace},
    format::fileset::public_url,
    http_client::OutboundUrl,
    model::Timestamp,
};

/// Place of a file in a workspace, in which an interrupted transfer continues after a restart of the program.
#[derive(Clone, Copy)]
pub(crate) struct PartPlace<'a> {
    pub(crate) workspace: &'a Workspace,
    /// Name of the file.
    pub(crate) name: &'a str,
}

impl PartPlace<'_> {
    /// Returns the name of the record about the response.
    pub(crate) fn head_name(self) -> String {
        format!("{}.head", self.name)
    }

    /// Returns the name of the record about the complete file.
    pub(crate) fn record_name(self) -> String {
        format!("{}.done", self.name)
    }

    pub(crate) async fn head(self) -> Result<Option<ResponseHead>, FileStoreError> {
        let record = self.workspace.record(&self.head_name()).await?;
        Ok(record.and_then(|record| serde_json::from_slice(&record).ok()))
    }
}

/// Facts about the first response with a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResponseHead {
    /// URL after all redirections. A query that a redirection has added is left out, because it may be a credential.
    pub(crate) url: String,
    /// Time of the response.
    pub(crate) time: Timestamp,
    /// Redirections before it, the first one first.
    #[serde(default)]
    pub(crate) redirections: Vec<Redirection>,
    /// Headers, without cookies.
    headers: Vec<(String, String)>,
}

/// A redirection, without queries that it may have added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Redirection {
    /// URL of the request.
    pub(crate) url: String,
    /// URL that it leads to.
    pub(crate) target: String,
    /// Status, which is one of redirections.
    pub(crate) status: u16,
    /// Time of the response.
    pub(crate) time: Timestamp,
}

/// The way of a request: its URL and the redirections so far.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    first: Url,
    pub(crate) redirections: Vec<Redirection>,
}

impl Way {
    pub(crate) fn new(first: &Url) -> Self {
        Self { first: first.clone(), redirections: Vec::new() }
    }

    /// Adds a redirection from one URL to the next.
    pub(crate) fn add(&mut self, from: &Url, to: &Url, status: StatusCode) {
        let (url, target) = (self.public(from), self.public(to));
        self.redirections.push(Redirection { url, target, status: status.as_u16(), time: Timestamp::now() });
    }

    /// Returns a URL of the way as it is published: without a query that is not the one of the first request, and without
    /// a signature.
    pub(crate) fn public(&self, url: &Url) -> String {
        let mut url = url.clone();
        if url.query() != self.first.query() {
            url.set_query(None);
        }
        without_signature(&url)
    }
}

impl ResponseHead {
    /// Creates the facts about a response. The bytes are stored without an encoding if they are decoded.
    pub(crate) fn new(way: Way, url: &OutboundUrl, headers: &HeaderMap, is_decoded: bool) -> Self {
        let is_kept = |name: &HeaderName| *name != SET_COOKIE && !(is_decoded && *name == CONTENT_ENCODING);
        let headers = headers.iter().filter(|(name, _)| is_kept(name));
        let text = |(name, value): (&HeaderName, &HeaderValue)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        };
        Self {
            url: way.public(url.expose()),
            time: Timestamp::now(),
            redirections: way.redirections,
            headers: headers.filter_map(text).collect(),
        }
    }

    /// Returns the headers.
    pub(crate) fn headers(&self) -> HeaderMap {
        let header = |(name, value): &(String, String)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        };
        self.headers.iter().filter_map(header).collect()
    }

    /// Returns the condition under which an interrupted transfer continues. A strong validator identifies the bytes; if
    /// the receiver can verify the whole file, its list does that better than a time in seconds.
    pub(crate) fn continuation(&self, can_verify: bool) -> Continuation {
        let headers = self.headers();
        if headers.contains_key(CONTENT_ENCODING) {
            return Continuation::Never;
        }
        match headers.get(ETAG).filter(|etag| etag.as_bytes().starts_with(b"\"")) {
            Some(etag) => Continuation::IfUnchanged(etag.clone()),
            None if can_verify => Continuation::Unchecked,
            None => {
                headers.get(LAST_MODIFIED).map_or(Continuation::Never, |time| Continuation::IfUnchanged(time.clone()))
            }
        }
    }
}

/// Condition under which an interrupted transfer continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Continuation {
    /// It begins again.
    Never,
    /// The server has the same content, by this validator.
    IfUnchanged(HeaderValue),
    /// The whole file is verified at the end.
    Unchecked,
}

/// Returns a URL without its query if the query is a signature, and without the key of a private project.
pub(crate) fn without_signature(url: &Url) -> String {
    public_url::without_signature(url.as_str())
}

#[cfg(test)]
mod tests {
    use super::{StatusCode, Url, Way};

    #[test]
    fn queries_of_redirections_are_left_out() {
        let url = |text: &str| Url::parse(text).unwrap();
        let mut way = Way::new(&url("http://h.example/f?id=1"));
        way.add(&url("http://h.example/f?id=1"), &url("https://h.example/f?id=1"), StatusCode::FOUND);
        way.add(&url("https://h.example/f?id=1"), &url("https://s.example/a?x=secret"), StatusCode::FOUND);
        let targets: Vec<_> = way.redirections.iter().map(|one| (&*one.url, &*one.target)).collect();
        let expected = [
            ("http://h.example/f?id=1", "https://h.example/f?id=1"),
            ("https://h.example/f?id=1", "https://s.example/a"),
        ];
        assert_eq!(targets, expected);
    }
}
