//! Wiring of the WebSub hub: connects it with the feed, whose filters are its topics, and with the notifications of
//! ResourceSync.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::ServeError;
use crate::{
    config::Config,
    delivery::{
        Subscriptions,
        websub::{Hub, HubRunner, HubSettings, Topic, TopicDocument, Topics},
    },
    http_client::{Client, ClientSettings, OutboundPolicy, SystemResolver},
    journal::RecordedChange,
    model::ReaderView,
    view::{feed::FeedView, resourcesync::ResourceSync},
};

/// Returns the URL of the hub, if it is enabled.
pub(super) fn url(config: &Config, public_url: &str) -> Option<String> {
    config.hub.enabled.then(|| format!("{}/hub", public_url.trim_end_matches('/')))
}

/// Sets up the hub, if it is enabled.
pub(super) async fn open(
    config: &Config,
    topics: OwnTopics,
    subscriptions: Subscriptions,
    guard: OutboundPolicy,
    public_url: &str,
) -> Result<Option<(Hub, HubRunner)>, ServeError> {
    let Some(url) = url(config, public_url) else { return Ok(None) };
    // Subscribers choose the host names that are resolved, so these lookups have their own limit.
    let resolver = Arc::new(SystemResolver::with_separate_limit());
    let client = Client::new(ClientSettings { resolver, ..ClientSettings::new(guard.clone()) }).await?;
    let settings = HubSettings {
        url,
        lease: config.hub.lease,
        max_lease: config.hub.longest_lease,
        subscriptions: config.hub.subscriptions,
        per_callback: config.hub.per_callback,
        signature: config.hub.signature,
    };
    Ok(Some(Hub::open(subscriptions, Arc::new(topics), client, guard, settings).await?))
}

/// The topics of the hub. Deliveries and views do not depend on each other except here.
pub(super) struct OwnTopics {
    pub(super) feed: FeedView,
    pub(super) resourcesync: ResourceSync,
}

impl Topics for OwnTopics {
    fn find(&self, url: &str, view: Option<Arc<ReaderView>>) -> Result<Topic, String> {
        if let Some(topic) = self.resourcesync.topic(url, view.clone()) {
            let (url, filter) = topic?;
            return Ok(Topic { url, filter });
        }
        let (url, filter) = self.feed.topic(url, view).map_err(|error| error.to_string())?;
        Ok(Topic { url, filter })
    }

    fn entries<'a>(
        &'a self,
        topic: &'a str,
        view: Option<Arc<ReaderView>>,
        changes: &'a [Arc<RecordedChange>],
    ) -> BoxFuture<'a, Result<TopicDocument, String>> {
        Box::pin(async move {
            if self.resourcesync.topic(topic, view.clone()).is_some() {
                let body = self.resourcesync.notification(topic, view, changes).await?;
                return Ok(TopicDocument { media_type: "application/xml", body });
            }
            let body = self.feed.entries(topic, view, changes).map_err(|error| error.to_string())?;
            Ok(TopicDocument { media_type: "application/atom+xml;type=feed", body })
        })
    }
}
