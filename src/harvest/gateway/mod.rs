//! Harvests of another gateway.
//!
//! A run begins with the other gateway's `/snapshot` and continues with its `/changes`. Between two runs a long poll
//! waits for new changes, so that they arrive at once. A gateway that no longer has the next change, or that has got
//! another journal, is read from its snapshot again.
//!
//! * `position` is the place in the other journal;
//! * `page` is a page, whose objects or changes are places in its text;
//! * `harvest` sends the requests.

mod harvest;
mod page;
mod position;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use futures_util::future::BoxFuture;

use self::{
    harvest::GatewayHarvester,
    page::{ChangePage, SnapshotPage},
};
use super::{
    Harvester, HarvesterContext, HarvesterSettings, SetupError, Timeouts,
    client::{PlaceClient, PlaceSettings},
};
use crate::{http_client::OutboundUrl, model::SourceName, web::Secret};

/// Settings of the harvest of another gateway.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// URL of the gateway, with a path if a proxy adds one.
    pub url: OutboundUrl,
    /// Token for reading, if the gateway asks for one.
    pub token: Option<Secret>,
    /// PEM file of the CA certificates to trust instead of those of the operating system.
    pub ca: Option<PathBuf>,
    /// Maximum size of a page, in bytes.
    pub page_bytes: usize,
    /// Timeouts of requests.
    pub timeouts: Timeouts,
}

/// Reads a body as a page of each kind, as a harvest does; returns the number of its elements. For fuzzing and tests.
#[doc(hidden)]
#[must_use]
pub fn count_elements(body: &[u8]) -> Option<usize> {
    let text = str::from_utf8(body).ok()?;
    let snapshot = serde_json::from_str(text).map(|SnapshotPage { objects, .. }| objects.iter().count());
    snapshot.or_else(|_| serde_json::from_str(text).map(|ChangePage { changes, .. }| changes.iter().count())).ok()
}

impl HarvesterSettings for GatewaySettings {
    fn dialect(&self) -> &'static str {
        "gateway"
    }

    fn can_be_audited(&self) -> bool {
        true
    }

    fn requests_objects(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        format!("gateway {}{}", self.url.origin(), self.url.expose().path())
    }

    fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    fn build(&self, _: SourceName, context: HarvesterContext) -> BoxFuture<'_, Result<Arc<dyn Harvester>, SetupError>> {
        Box::pin(async {
            let Self { url, ca, page_bytes, timeouts, .. } = self.clone();
            let own_journal = context.journal.clone();
            let client =
                PlaceClient::new(PlaceSettings { url, noun: "gateway", ca, page_bytes, timeouts }, context).await?;
            Ok(Arc::new(GatewayHarvester::new(self.clone(), client, own_journal)) as Arc<dyn Harvester>)
        })
    }
}
