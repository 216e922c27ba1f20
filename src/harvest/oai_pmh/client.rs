//! Requests to a repository with OAI-PMH, and the classification of its responses.

use std::sync::Arc;

use axum::http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT_ENCODING, FROM},
};
use percent_encoding::utf8_percent_encode;

use super::{
    OaiPmhSettings,
    position::Quirks,
    response::{self, InvalidResponse, ListText, PageLimits, Response},
};
use crate::{
    format::NOT_UNRESERVED,
    harvest::{
        client::{ClientContext, PlaceClient, PlaceSettings, REPOSITORY, RawResponse, RequestError},
        text,
    },
    http_client::{ClientError, OutboundUrl, is_transient},
    transfer::{Cancelled, HarvestBudget},
};

/// Client of one repository.
pub(super) struct RepositoryClient {
    url: OutboundUrl,
    contact: Option<HeaderValue>,
    client: PlaceClient,
    limits: PageLimits,
    /// Sets that the harvest follows; none for all.
    sets: Arc<[String]>,
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
    /// Text of the records of the response.
    pub(super) text: ListText,
    pub(super) is_repaired: bool,
    /// Fact about the address that an administrator should know.
    pub(super) remark: Option<String>,
}

impl RepositoryClient {
    pub(super) async fn new(settings: &OaiPmhSettings, context: impl Into<ClientContext>) -> Result<Self, ClientError> {
        let context = context.into();
        let OaiPmhSettings { url, ca, contact, page_bytes, timeouts, sets, .. } = settings.clone();
        let place = PlaceSettings { url: url.clone(), noun: REPOSITORY, ca, page_bytes, timeouts };
        let limits = PageLimits { record_bytes: context.max_record_bytes, all_bytes: page_bytes.saturating_mul(2) };
        Ok(Self { url, contact, client: PlaceClient::new(place, context).await?, limits, sets: sets.into() })
    }

    /// Forgets the cookies of the run, which has ended.
    pub(super) fn rest(&self) {
        self.client.rest();
    }

    /// Returns the memory and the threads for documents.
    pub(super) fn budget(&self) -> &HarvestBudget {
        self.client.budget()
    }

    /// Sends a request and parses the response. Errors of the protocol count before the status of HTTP.
    pub(super) async fn request(
        &self,
        arguments: &Arguments<'_>,
        quirks: Quirks,
    ) -> Result<ReadResponse, RequestError> {
        let query = arguments.query();
        let accepted = if quirks.no_compression { "identity" } else { "gzip, identity" };
        let mut headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(accepted))]);
        headers.extend(self.contact.clone().map(|contact| (FROM, contact)));
        let mut permit = self.client.permit().await;
        let mut raw = self.client.get(&self.url, Some(&query), &headers).await?;
        let (remark, is_busy, headers) = (raw.remark.take(), raw.is_busy(), raw.headers.clone());
        let (status, limits, page_bytes) = (raw.status, self.limits, self.client.page_bytes());
        let sets = Arc::clone(&self.sets);
        let parsed = self.client.budget().work(move |cancelled| parse(raw, page_bytes, limits, &sets, cancelled)).await;
        let parsed = parsed.map_err(|error| RequestError::Permanent(error.to_string()))?;
        match parsed {
            Ok((response, text, is_repaired)) if status.is_success() || !response.errors.is_empty() => {
                Ok(ReadResponse { response, text, is_repaired, remark })
            }
            _ if is_busy => Err(self.client.busy(&mut permit, status, &headers)),
            _ if status == StatusCode::PAYLOAD_TOO_LARGE => {
                Err(RequestError::TooLarge(format!("the repository refuses the list as too large ({status})")))
            }
            _ if status == StatusCode::FORBIDDEN || status == StatusCode::UNAUTHORIZED => {
                Err(RequestError::Permanent(format!("the repository refuses access ({status})")))
            }
            _ if is_transient(status) || status == StatusCode::UNPROCESSABLE_ENTITY => {
                Err(RequestError::Transient { reason: format!("the repository has failed ({status})"), after: None })
            }
            Err(InvalidResponse::TooMuch(reason)) if status.is_success() => Err(RequestError::TooLarge(reason)),
            Err(invalid) if status.is_success() => {
                Err(RequestError::Transient { reason: invalid.to_string(), after: None })
            }
            _ => Err(RequestError::Permanent(format!("the repository refuses the request ({status})"))),
        }
    }
}

impl Arguments<'_> {
    fn query(&self) -> String {
        let mut query = format!("verb={}", self.verb);
        for (name, value) in &self.others {
            query.push_str(&format!("&{name}={}", utf8_percent_encode(value, NOT_UNRESERVED)));
        }
        if let Some((name, value)) = self.verbatim {
            query.push_str(&format!("&{name}={value}"));
        }
        query
    }
}

fn parse(
    raw: RawResponse,
    page_bytes: usize,
    limits: PageLimits,
    sets: &[String],
    cancelled: &Cancelled,
) -> Result<(Response, ListText, bool), InvalidResponse> {
    let charset = raw.charset().map(str::to_owned);
    let read = text::read(raw.body, charset.as_deref(), page_bytes);
    let text::RepairedText { text, repairs } = read.map_err(|error| InvalidResponse::TooMuch(error.to_string()))?;
    let response = response::parse(&text, limits, sets, cancelled)?;
    let is_repaired = repairs > 0 || response.is_recovered;
    let mut text = ListText::new(text, raw.share);
    text.keep(response.list.as_ref().map_or(0, |list| list.records.len()));
    Ok((response, text, is_repaired))
}
