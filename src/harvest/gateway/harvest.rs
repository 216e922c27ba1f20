//! Requests of another gateway, and the position after each response.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header::ACCEPT};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use tokio::time::sleep;
use url::form_urlencoded;
use uuid::Uuid;

use super::{
    GatewaySettings,
    page::{ChangeFacts, ChangePage, EXCERPT, Element, Member, PageText, SnapshotPage},
    position::{Position, SnapshotStart},
};
use crate::{
    format::gateway::snapshot_event,
    harvest::{
        HarvestError, Harvester, Page, PageEnd, Records,
        client::{PlaceClient, RawResponse},
    },
    http_client::{Authorization, Origin, OutboundUrl, RequestHeaders, is_transient},
    journal::Journal,
    model::{Seq, Uri},
    retry::Backoff,
};

/// Number of objects of a page of the snapshot, and of changes of a page.
const PAGE_LIMIT: &str = "1000";

/// Time that a request waits for further changes before the run ends, in seconds.
const LAST_WAIT: &str = "5";

/// Time that a request between two runs waits for changes, in seconds.
const POLL_WAIT: &str = "60";

/// Minimum time between two requests without changes, for a gateway that lets no request wait.
const SHORTEST_POLL: Duration = Duration::from_secs(1);

/// Waits after failed requests between two runs.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// Maximum size of a problem detail that is read, in bytes.
const MAX_PROBLEM_BYTES: usize = 64 * 1024;

/// Harvest of another gateway.
pub(super) struct GatewayHarvester {
    settings: GatewaySettings,
    client: PlaceClient,
    /// The journal of this gateway.
    own_journal: Journal,
}

/// The part of a problem detail (RFC 9457) that is for people.
#[derive(Deserialize)]
struct ProblemDetail {
    detail: String,
}

impl Harvester for GatewayHarvester {
    fn describe(&self) -> String {
        super::HarvesterSettings::describe(&self.settings)
    }

    fn page<'a>(&'a self, position: &'a str, _attempt: u32) -> BoxFuture<'a, Result<Page, HarvestError>> {
        Box::pin(async move {
            match Position::parse(position) {
                Position::Beginning => self.snapshot(None).await,
                Position::Snapshot { start, after } => self.snapshot(Some((start, after))).await,
                Position::Changes { journal, after, repeated } => self.changes(journal, after, repeated).await,
            }
        })
    }

    fn object<'a>(&'a self, _: &'a str, object: &'a Uri) -> BoxFuture<'a, Result<Records, HarvestError>> {
        Box::pin(self.single_object(object))
    }

    fn new_work<'a>(&'a self, position: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            match Position::parse(position) {
                Position::Changes { journal, after, .. } => self.wait_for_change(journal, after).await,
                Position::Beginning | Position::Snapshot { .. } => std::future::pending().await,
            }
        })
    }
}

impl GatewayHarvester {
    pub(super) fn new(settings: GatewaySettings, client: PlaceClient, own_journal: Journal) -> Self {
        Self { settings, client, own_journal }
    }

    /// Requests a page of the snapshot, the first one if there was none before.
    async fn snapshot(&self, before: Option<(SnapshotStart, Uri)>) -> Result<Page, HarvestError> {
        let after = before.as_ref().map(|(_, after)| ("after", after.as_str()));
        let parameters: Vec<_> = [("former", "true")].into_iter().chain(after).collect();
        let response = self.request("snapshot", &parameters).await?;
        let read = self.read(response, |text| {
            let SnapshotPage { journal, head, seeds, objects, next } = serde_json::from_str(text)?;
            let element = |object| Element::new(text, object, Member::Object(journal));
            Ok((journal, objects.iter().map(element).collect::<Vec<_>>(), (head, seeds, next)))
        });
        let (text, (journal, elements, (head, seeds, next))) = read.await?;
        let start = before.map_or(SnapshotStart { journal, head, seeds }, |(start, _)| start);
        if start.journal != journal {
            return Err(begin_again("the gateway has got another journal while its snapshot was read"));
        }
        let position = match next {
            Some(after) => Position::Snapshot { start, after },
            // An object that a crawl has added meanwhile may be on none of the pages, and is in no change.
            None if start.seeds != seeds => Position::Beginning,
            // The last page is empty, so its head was read after all objects.
            None => Position::Changes { journal, after: start.head, repeated: head },
        };
        Ok(Page::new(self.records(text, elements), position.text(), PageEnd::More))
    }

    /// Requests one object; returns no record if the gateway says that it does not have the object.
    async fn single_object(&self, object: &Uri) -> Result<Records, HarvestError> {
        let mut permit = self.client.permit().await;
        let response = self.send("objects", &[("uri", object.as_str())]).await?;
        if response.is_busy() {
            return Err(self.client.busy(&mut permit, response.status, &response.headers).into());
        }
        // A proxy before the gateway may use the same status.
        if response.status == StatusCode::NOT_FOUND && problem_detail(&response).is_some() {
            return Ok(Vec::new().into());
        }
        if !response.status.is_success() {
            return Err(refusal(&response));
        }
        let RawResponse { body, share, .. } = response;
        let text = self.client.budget().work(move |_| PageText::new(body, share));
        let text = text.await.map_err(|error| HarvestError::fail(error.to_string()))?;
        let text = text.map_err(|_| HarvestError::fail("the response is no object of a gateway: it is not UTF-8"))?;
        // The identity of the journal is only part of the identifier of an event.
        let element = Element::new(text.as_str(), text.as_str(), Member::Object(Uuid::nil()));
        Ok(self.records(text, vec![element]))
    }

    /// Requests the changes after a number. The run ends when there are none for a while.
    async fn changes(&self, journal: Uuid, after: Seq, repeated: Seq) -> Result<Page, HarvestError> {
        let number = after.to_string();
        let parameters = [("after", number.as_str()), ("wait", LAST_WAIT)];
        let response = self.request("changes", &parameters).await?;
        if response.status == StatusCode::GONE {
            return Err(begin_again(&format!("the gateway no longer has the change after {after}")));
        }
        let own_snapshot = snapshot_event(self.own_journal.identity());
        let read = self.read(response, move |text| {
            let ChangePage { journal, changes, next } = serde_json::from_str(text)?;
            let mut is_empty = true;
            let element = |change: &str| {
                is_empty = false;
                let ChangeFacts { seq, source_event_id } = serde_json::from_str(change).unwrap_or_default();
                // The other gateway has this fact from the snapshot of this one.
                let has_returned = source_event_id.is_some_and(|id| id == own_snapshot);
                let member = if seq <= repeated { Member::Repeat } else { Member::Change };
                (!has_returned).then(|| Element::new(text, change, member))
            };
            let elements: Vec<_> = changes.iter().filter_map(element).collect();
            Ok((journal, elements, (next, is_empty)))
        });
        let (text, (read_journal, elements, (next, is_empty))) = read.await?;
        if read_journal != journal {
            return Err(begin_again("the gateway has another journal than before"));
        }
        let position = Position::Changes { journal, after: next, repeated };
        let end = if is_empty { PageEnd::Complete } else { PageEnd::More };
        Ok(Page::new(self.records(text, elements), position.text(), end))
    }

    /// Returns the elements of a page as messages.
    fn records(&self, text: PageText, elements: Vec<Element>) -> Records {
        let (text, max_bytes) = (text.keep(), self.client.max_record_bytes());
        Records::new(elements.into_iter().map(move |element| text.message(&element, max_bytes)))
    }

    /// Waits until the other gateway has a change after this number, or must be read from its snapshot.
    async fn wait_for_change(&self, journal: Uuid, after: Seq) {
        let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
        let number = after.to_string();
        loop {
            let parameters = [("after", number.as_str()), ("limit", "1"), ("wait", POLL_WAIT)];
            // No permit of the host, because others may send requests to it during the wait.
            let response = self.send("changes", &parameters).await;
            let page = match response {
                Ok(response) if response.status == StatusCode::GONE => Ok(None),
                Ok(response) => self.read(response, count_changes).await.map(|(_, page)| Some(page)),
                Err(error) => Err(error),
            };
            match page {
                Ok(Some((read, 0, ()))) if read == journal => {
                    backoff.reset();
                    sleep(SHORTEST_POLL).await;
                }
                Ok(_) => return,
                Err(error) => {
                    tracing::debug!(%error, "cannot wait for changes of another gateway; retrying");
                    sleep(backoff.next_wait()).await;
                }
            }
        }
    }

    /// Requests a page when the host may get a request. A busy gateway is an error.
    async fn request(&self, path: &str, parameters: &[(&str, &str)]) -> Result<RawResponse, HarvestError> {
        let mut permit = self.client.permit().await;
        let limited = [parameters, &[("limit", PAGE_LIMIT)]].concat();
        let mut response = self.send(path, &limited).await?;
        if response.status == StatusCode::BAD_REQUEST {
            // The `limits.page` of the gateway is smaller, so its default applies.
            response = self.send(path, parameters).await?;
        }
        if response.is_busy() {
            return Err(self.client.busy(&mut permit, response.status, &response.headers).into());
        }
        Ok(response)
    }

    async fn send(&self, path: &str, parameters: &[(&str, &str)]) -> Result<RawResponse, HarvestError> {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
        let authorization = self.authorization()?;
        let headers = RequestHeaders::from(headers).with_authorization(authorization.as_ref());
        Ok(self.client.get(&self.url(path)?, Some(&query), headers).await?)
    }

    /// Returns the token for the origin of the gateway.
    fn authorization(&self) -> Result<Option<Authorization>, HarvestError> {
        let Some(token) = &self.settings.token else { return Ok(None) };
        let origin = Origin::of(self.settings.url.expose());
        let authorization = origin.and_then(|origin| Authorization::bearer(origin, token));
        authorization.map(Some).ok_or_else(|| HarvestError::fail("the token has characters that a header cannot have"))
    }

    /// Returns the URL of a resource of the gateway.
    fn url(&self, path: &str) -> Result<OutboundUrl, HarvestError> {
        let mut url = self.settings.url.expose().clone();
        let folder = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{folder}/{path}"));
        self.client.allowed(url.as_str()).map_err(|error| HarvestError::fail(error.to_string()))
    }

    /// Reads a page on a blocking thread, and checks that it is not of this gateway itself.
    async fn read<E: Send + 'static, F: Send + 'static>(
        &self,
        response: RawResponse,
        read: impl FnOnce(&str) -> serde_json::Result<(Uuid, E, F)> + Send + 'static,
    ) -> Result<(PageText, (Uuid, E, F)), HarvestError> {
        if !response.status.is_success() {
            return Err(refusal(&response));
        }
        let RawResponse { body, share, .. } = response;
        let read = self.client.budget().work(move |_| {
            let no_page = |reason: &str, start: String| {
                HarvestError::fail(format!("the response is no page of a gateway ({reason}); it begins with {start:?}"))
            };
            let text = PageText::new(body, share).map_err(|start| no_page("it is not UTF-8", start))?;
            let page = read(text.as_str());
            let page =
                page.map_err(|error| no_page(&error.to_string(), text.as_str().chars().take(EXCERPT).collect()))?;
            Ok::<_, HarvestError>((text, page))
        });
        let (text, page) = read.await.map_err(|error| HarvestError::fail(error.to_string()))??;
        if page.0 == self.own_journal.identity() {
            return Err(HarvestError::fail("the url of the source leads to this gateway itself; remove the source"));
        }
        Ok((text, page))
    }
}

/// Returns the journal of a page of changes and their number.
fn count_changes(text: &str) -> serde_json::Result<(Uuid, usize, ())> {
    let ChangePage { journal, changes, .. } = serde_json::from_str(text)?;
    Ok((journal, changes.iter().count(), ()))
}

fn begin_again(reason: &str) -> HarvestError {
    HarvestError::Continue { reason: format!("{reason}; its snapshot is read"), position: Position::Beginning.text() }
}

/// Returns the detail of a response that is a problem of a gateway.
fn problem_detail(response: &RawResponse) -> Option<String> {
    let body = response.body.get(..response.body.len().min(MAX_PROBLEM_BYTES)).unwrap_or_default();
    let ProblemDetail { detail } = serde_json::from_slice(body).ok()?;
    Some(detail)
}

/// Returns the error for a response without a page.
fn refusal(response: &RawResponse) -> HarvestError {
    let status = response.status;
    let detail = problem_detail(response).map(|detail| format!(": {detail}")).unwrap_or_default();
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            HarvestError::fail(format!("the gateway refuses access ({status}){detail} Check the token of the source"))
        }
        _ if is_transient(status) => HarvestError::retry(format!("the gateway has failed ({status}){detail}")),
        _ => HarvestError::fail(format!("the gateway does not return the page ({status}){detail}")),
    }
}
