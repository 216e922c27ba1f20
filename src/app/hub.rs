//! Wiring of the WebSub hub: connects it with the feed, whose filters are its topics.

use std::sync::Arc;

use super::ServeError;
use crate::{
    config::Config,
    delivery::{
        Subscriptions,
        websub::{Hub, HubRunner, HubSettings, Topic, Topics},
    },
    http_client::{Client, ClientSettings, OutboundPolicy, SystemResolver},
    journal::RecordedChange,
    model::ReaderView,
    view::feed::FeedView,
};

/// Returns the URL of the hub, if it is enabled.
pub(super) fn url(config: &Config, public_url: &str) -> Option<String> {
    config.hub.enabled.then(|| format!("{}/hub", public_url.trim_end_matches('/')))
}

/// Sets up the hub, if it is enabled.
pub(super) async fn open(
    config: &Config,
    feed: FeedView,
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
    let topics = Arc::new(Feed(feed));
    Ok(Some(Hub::open(subscriptions, topics, client, guard, settings).await?))
}

/// The feed as the topics of the hub. Deliveries and views do not depend on each other except here.
struct Feed(FeedView);

impl Topics for Feed {
    fn find(&self, url: &str, view: Option<Arc<ReaderView>>) -> Result<Topic, String> {
        let (url, filter) = self.0.topic(url, view).map_err(|error| error.to_string())?;
        Ok(Topic { url, filter })
    }

    fn entries(
        &self,
        topic: &str,
        view: Option<Arc<ReaderView>>,
        changes: &[Arc<RecordedChange>],
    ) -> Result<Vec<u8>, String> {
        self.0.entries(topic, view, changes).map_err(|error| error.to_string())
    }
}
