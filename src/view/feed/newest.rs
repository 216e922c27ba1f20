//! The subscription document of the feed, cached for a head.

use chrono::{DateTime, TimeDelta, Utc};

use crate::{model::Seq, web::Representation};

/// Subscription document of a head.
#[derive(Clone)]
pub(super) struct NewestDocument {
    pub(super) head: Seq,
    pub(super) oldest: Seq,
    received: Option<DateTime<Utc>>,
    pub(super) document: Representation,
    /// The document with its Last-Modified.
    dated: Representation,
}

impl NewestDocument {
    pub(super) fn new(head: Seq, oldest: Seq, received: Option<DateTime<Utc>>, document: Representation) -> Self {
        let dated = received.map_or_else(|| document.clone(), |received| document.clone().last_modified(received));
        Self { head, oldest, received, document, dated }
    }

    /// Returns the document. It has a Last-Modified only if that is more than a minute old. Last-Modified has a
    /// resolution of one second, and a change received in the same second may be added while the journal is writing
    /// it. A client that revalidates only by date would never see that change.
    pub(super) fn serve(&self) -> Representation {
        let is_final = |received: &DateTime<Utc>| Utc::now() - *received > TimeDelta::minutes(1);
        if self.received.as_ref().is_some_and(is_final) { self.dated.clone() } else { self.document.clone() }
    }
}
