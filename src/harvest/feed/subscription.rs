//! Subscription at the WebSub hub that a feed names, so that the feed is requested when it has changed.
//!
//! The hub sends its notifications to a URL with a token. The run requests the subscription after the page with the token
//! is on disk, because the hub asks for a confirmation at once. The body of a notification is not used: it begins a run,
//! which requests the feed, so a forged notification can do no more than that.

use axum::http::StatusCode;
use url::form_urlencoded::Serializer;
use uuid::Uuid;

use super::{
    document::FeedLinks,
    harvest::{FeedHarvester, page},
    position::{HubLink, HubSubscription, Position, Walk},
};
use crate::{
    harvest::{HarvestError, Page, PageEnd},
    model::Timestamp,
};

/// Lease that the gateway requests, in seconds.
const LEASE_SECONDS: i64 = 10 * 24 * 60 * 60;

/// Time before a subscription is requested again, in milliseconds.
const RETRY_MILLIS: i64 = 60 * 60 * 1000;

impl FeedHarvester {
    /// Returns the hub that a document names, with the URL of the feed there.
    pub(super) fn hub_link(&self, links: &FeedLinks) -> Option<HubLink> {
        let document = self.settings.url.expose();
        let url = self.link(document.as_str(), links.hub.as_ref()?)?;
        // The query of the configured URL may be a credential, so it is no topic.
        let public = || document.query().is_none().then(|| self.feed_url.clone());
        let topic = match &links.own {
            Some(own) => self.link(document.as_str(), own)?,
            None => public()?,
        };
        Some(HubLink { url, topic })
    }

    /// Returns the last page of a run, or continues the run with a subscription if one is due.
    pub(super) async fn before_end(&self, page: Page) -> Result<Page, HarvestError> {
        let mut position = Position::parse(&page.position, &self.feed_url);
        if page.end != PageEnd::Complete || !self.is_subscription_due(&position).await? {
            return Ok(page);
        }
        let Some(hub) = position.hub.clone() else { return Ok(page) };
        let former = position.subscription.take().filter(|former| former.hub == hub);
        // Two random UUIDs contain 244 random bits.
        let token = || format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let token = former.map_or_else(token, |former| former.token);
        position.subscription = Some(HubSubscription { hub, token, requested: Timestamp::now() });
        position.walk = Some(Walk::Subscribe);
        Ok(Page { position: position.text(), end: PageEnd::More, ..page })
    }

    /// Returns whether a subscription must be requested: the first one, one at another hub, or the renewal of one of which
    /// less than a third is left.
    async fn is_subscription_due(&self, position: &Position) -> Result<bool, HarvestError> {
        if self.callbacks.is_none() || position.hub.is_none() {
            return Ok(false);
        }
        let Some(former) = position.subscription.as_ref().filter(|former| Some(&former.hub) == position.hub.as_ref())
        else {
            return Ok(true);
        };
        let (now, requested) = (Timestamp::now().millis(), former.requested.millis());
        let lease = self.journal.harvest(self.source.clone()).await?.and_then(|stored| stored.lease);
        let is_ending = lease.is_none_or(|lease| (lease.millis() - now).saturating_mul(3) < lease.millis() - requested);
        Ok(is_ending && now - requested >= RETRY_MILLIS)
    }

    /// Requests the subscription, and ends the run. A hub that fails changes nothing: the feed is requested on schedule.
    pub(super) async fn subscribe(&self, position: Position) -> Result<Page, HarvestError> {
        let end = |remark| Ok(page(&position, Vec::new(), PageEnd::Complete, Vec::from_iter(remark)));
        let (Some(callbacks), Some(HubSubscription { hub, token, .. })) = (&self.callbacks, &position.subscription)
        else {
            return end(None);
        };
        let form = Serializer::new(String::new())
            .append_pair("hub.mode", "subscribe")
            .append_pair("hub.topic", &hub.topic)
            .append_pair("hub.callback", &format!("{callbacks}/harvests/{}/notifications/{token}", self.source))
            .append_pair("hub.lease_seconds", &LEASE_SECONDS.to_string())
            .finish();
        let result = match self.linked_url(&hub.url) {
            Err(reason) => Err(reason),
            Ok(url) => match self.client.post_form(&url, form).await {
                Ok((status, _)) if status.is_success() => Ok(()),
                Ok((status @ StatusCode::NOT_FOUND, _)) => Err(format!("there is no hub ({status})")),
                Ok((status, body)) => Err(format!("it answers {status}: {body}")),
                Err(error) => Err(HarvestError::from(error).to_string()),
            },
        };
        end(result.err().map(|reason| {
            format!("the hub of the feed refuses a subscription, so the feed is requested on schedule: {reason}")
        }))
    }
}
