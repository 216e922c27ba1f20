//! The shape of requests: method, path, headers and body from templates, for receivers that read no message of the gateway.

mod parse;
mod presets;
mod samples;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::{CONTENT_TYPE, HOST},
};
use bytes::Bytes;
use chrono::Utc;
use serde_json::{Value, json};

use self::table::Each;
pub(super) use self::table::{RequestTable, redacted};
use super::Request;
use crate::{
    delivery::DeliveryOutcome,
    http_client::{Authorization, BoundedResponse, OutboundUrl, RequestHeaders, retry_after},
    template::{Condition, Facts, Template, TemplateError},
    web::Secret,
};

/// Maximum number of requests for one message.
const MAX_REQUESTS: usize = 50_000;

/// Maximum number of bytes of the requests of a message: bodies, URLs and headers.
const MAX_BODY_BYTES: usize = 8 << 20;

/// Maximum number of bytes of a path or a header.
const MAX_LINE_BYTES: usize = 8 << 10;

/// A shape that has been tried with a change of each kind.
pub(super) struct Shape {
    each: Each,
    method: Template,
    path: Template,
    content_type: HeaderValue,
    headers: Vec<(HeaderName, Template)>,
    /// Headers that contain credentials, for the origin of the receiver.
    authorizations: Vec<Authorization>,
    /// Template of the body; `None` if requests have none.
    body: Option<Template>,
    is_json: bool,
    retry_if: Option<Condition>,
    refuse_if: Option<Condition>,
    accepted_statuses: BTreeSet<u16>,
    values: Facts,
    /// Values of headers that are secrets, which a response may repeat.
    pub(super) secrets: Vec<Secret>,
}

/// Reason why a message has no requests of this shape. It is about the message, which will never have any.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShapeError {
    /// A template makes no text.
    #[error("request.{part}: {error}")]
    Template {
        /// Key of the template.
        part: String,
        /// Error of the template.
        error: TemplateError,
    },
    /// A template makes a text that does not fit its place.
    #[error("request.{part}: {reason}")]
    Unfit {
        /// Key of the template.
        part: String,
        /// Reason why the place refuses the text.
        reason: String,
    },
    /// The message would take too many requests.
    #[error("it takes more than {MAX_REQUESTS} requests")]
    TooManyRequests,
    /// The message would take too many bytes.
    #[error("its requests have more than {MAX_BODY_BYTES} bytes")]
    TooManyBytes,
    /// The message cannot be read.
    #[error("it is not JSON: {0}")]
    Unreadable(#[from] serde_json::Error),
}

impl Shape {
    /// Makes the requests for a message in the format `json`. The work grows with the message.
    ///
    /// # Errors
    /// Fails if a template makes no text of the message, or one that does not fit.
    pub(super) fn requests(
        &self,
        message: &[u8],
        is_batch: bool,
        is_repeat: bool,
        to: &OutboundUrl,
    ) -> Result<Vec<Request>, ShapeError> {
        let message: Value = serde_json::from_slice(message)?;
        let changes = match message {
            Value::Object(mut members) if is_batch => members.remove("changes").unwrap_or_default(),
            change => Value::Array(vec![change]),
        };
        let subjects = self.subjects(&changes)?;
        let first = changes.get(0).cloned().unwrap_or_default();
        let facts = json!({ "changes": changes, "change": first, "is_batch": is_batch, "is_repeat": is_repeat });
        let facts = self.values.with(&Facts::new(&facts));
        let mut requests = Vec::new();
        let mut bytes = 0;
        for subject in subjects {
            let facts = match subject {
                Some(subject) => facts.with(&Facts::new(&subject)),
                None => facts.clone(),
            };
            let Some((request, header_bytes)) = self.request(&facts, to)? else { continue };
            bytes += request.body.len() + request.to.expose().as_str().len() + header_bytes;
            if bytes > MAX_BODY_BYTES {
                return Err(ShapeError::TooManyBytes);
            }
            requests.push(request);
        }
        Ok(requests)
    }

    /// Returns the facts of each request's subject, beside those of the message.
    fn subjects(&self, changes: &Value) -> Result<Vec<Option<Value>>, ShapeError> {
        let changes = changes.as_array().map(Vec::as_slice).unwrap_or_default();
        let items_of = |change: &Value| change["items"].as_array().cloned().unwrap_or_default();
        let subjects: Vec<_> = match self.each {
            Each::Message => vec![None],
            Each::Item => {
                let of_change = |change: &Value| {
                    let mut rest = change.clone();
                    rest["items"] = Value::Null;
                    items_of(change).into_iter().map(move |item| {
                        let mut change = rest.clone();
                        change["items"] = json!([item]);
                        Some(json!({ "item": item, "change": change }))
                    })
                };
                changes.iter().flat_map(of_change).take(MAX_REQUESTS + 1).collect()
            }
            Each::Uri => {
                let mut seen = BTreeSet::new();
                let uris = changes.iter().flat_map(|change| {
                    let items = items_of(change).into_iter().map(|item| item["uri"].clone());
                    [change["object"].clone()].into_iter().chain(items)
                });
                let uris = uris.filter_map(|uri| uri.as_str().map(str::to_owned));
                let uris = uris.filter(|uri| seen.insert(uri.clone())).take(MAX_REQUESTS + 1);
                uris.map(|uri| Some(json!({ "uri": uri }))).collect()
            }
        };
        if subjects.len() > MAX_REQUESTS { Err(ShapeError::TooManyRequests) } else { Ok(subjects) }
    }

    /// Makes one request, with the size of its headers; `None` if its method is empty, or its body although there is a template.
    fn request(&self, facts: &Facts, to: &OutboundUrl) -> Result<Option<(Request, usize)>, ShapeError> {
        let render = |part: &str, template: &Template, max_bytes| {
            let rendered = template.render(facts, max_bytes);
            rendered.map_err(|error| ShapeError::Template { part: part.to_owned(), error })
        };
        let unfit = |part: &str, reason: String| ShapeError::Unfit { part: part.to_owned(), reason };
        let method = render("method", &self.method, MAX_LINE_BYTES)?;
        let method = method.trim();
        if method.is_empty() {
            return Ok(None);
        }
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|_| unfit("method", format!("{method:?} is no method of HTTP")))?;
        let path = render("path", &self.path, MAX_LINE_BYTES)?;
        let to = to.below(path.trim()).map_err(|reason| unfit("path", reason.to_string()))?;
        let mut headers = HeaderMap::new();
        for (name, template) in &self.headers {
            let part = format!("headers.{name}");
            let value = render(&part, template, MAX_LINE_BYTES)?;
            let value =
                HeaderValue::try_from(value.trim()).map_err(|_| unfit(&part, "a header cannot carry it".to_owned()))?;
            if *name != HOST || !value.is_empty() {
                headers.insert(name.clone(), value);
            }
        }
        let mut body = Bytes::new();
        if let Some(template) = &self.body {
            body = render("body", template, MAX_BODY_BYTES)?.into();
            if body.trim_ascii().is_empty() {
                return Ok(None);
            }
            headers.insert(CONTENT_TYPE, self.content_type.clone());
        }
        let header_bytes = headers.values().map(HeaderValue::len).sum();
        let headers = RequestHeaders::from(headers).with_authorization(&self.authorizations);
        Ok(Some((Request { method, to, headers, body }, header_bytes)))
    }

    /// Returns whether a request is made for a whole message, so that a message takes one response.
    pub(super) fn is_one_request(&self) -> bool {
        self.each == Each::Message
    }

    /// Returns the outcome that the shape gives to a response, if it has an opinion.
    pub(super) fn outcome_of(&self, answer: &BoundedResponse) -> Option<DeliveryOutcome> {
        if self.accepted_statuses.contains(&answer.status.as_u16()) {
            return Some(DeliveryOutcome::Delivered);
        }
        if self.retry_if.is_none() && self.refuse_if.is_none() {
            return None;
        }
        let mut response = json!({
            "status": answer.status.as_u16(), "text": String::from_utf8_lossy(&answer.body_start),
        });
        if let Ok(json) = serde_json::from_slice::<Value>(&answer.body_start) {
            response["json"] = json;
        }
        let facts = self.values.with(&Facts::new(&json!({ "response": response })));
        let reason = |key: &str| format!("it responded with {}, and request.{key} holds", answer.status);
        for (key, condition) in [("refuse_if", &self.refuse_if), ("retry_if", &self.retry_if)] {
            match condition.as_ref().map(|condition| condition.holds(&facts)) {
                None | Some(Ok(false)) => {}
                Some(Ok(true)) if key == "refuse_if" => return Some(DeliveryOutcome::Refused { reason: reason(key) }),
                Some(Ok(true)) => {
                    let after = retry_after(&answer.headers, Utc::now());
                    return Some(DeliveryOutcome::Retry { reason: reason(key), after });
                }
                Some(Err(error)) => {
                    let reason = format!("request.{key}: {error}");
                    return Some(DeliveryOutcome::Retry { reason, after: None });
                }
            }
        }
        None
    }
}
