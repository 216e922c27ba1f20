//! The subscription document of the feed, cached for a head.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use crate::{model::Seq, web::Representation};

/// Time after which a Last-Modified is final.
const FINAL: Duration = Duration::from_secs(60);

/// Subscription document of a head.
#[derive(Clone)]
pub(super) struct NewestDocument {
    pub(super) head: Seq,
    pub(super) oldest: Seq,
    received: Option<DateTime<Utc>>,
    pub(super) document: Representation,
    /// The document with its Last-Modified.
    dated: Representation,
    rendered: Instant,
}

impl NewestDocument {
    pub(super) fn new(head: Seq, oldest: Seq, received: Option<DateTime<Utc>>, document: Representation) -> Self {
        let dated = received.map_or_else(|| document.clone(), |received| document.clone().last_modified(received));
        Self { head, oldest, received, document, dated, rendered: Instant::now() }
    }

    /// Returns the document. It has a Last-Modified only if that is final, because a client that revalidates only by date
    /// would never see another change of the same second.
    pub(super) fn serve(&self) -> Representation {
        match self.is_final(Utc::now(), self.rendered.elapsed()) {
            true => self.dated.clone(),
            false => self.document.clone(),
        }
    }

    /// Returns whether no further change can have the time of the newest one, `age` after the document was rendered. The
    /// time has a resolution of one second, and the clock of the journal may differ from the clock of this node, so both
    /// `now` and `age` must be a minute later.
    pub(super) fn is_final(&self, now: DateTime<Utc>, age: Duration) -> bool {
        age > FINAL && self.received.is_some_and(|received| (now - received).to_std().is_ok_and(|old| old > FINAL))
    }
}
