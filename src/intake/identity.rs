//! Identity of events: which messages are certainly about the same event.
//!
//! A dropped event is never corrected, and a change too many costs a consumer one request. So an event is dropped only if
//! its identifier, its time or its transport says that it is a repetition, and equal bytes alone say nothing.

use super::{Incoming, Source};
use crate::{
    format::DuplicateDetection,
    journal::{
        DuplicatePolicy,
        store::{EventIdentity, EventKey, event_key},
    },
    model::{Draft, EventId},
};

impl Source {
    /// Returns the key that identifies a repeat of this draft: the source's own identifier, the transport's
    /// identifier, or a digest of the message. `None` if the same bytes can mean another event.
    pub(super) fn key(
        &self,
        incoming: &Incoming,
        headers: &[(String, String)],
        draft: &Draft,
        ordinal: usize,
    ) -> Option<EventKey> {
        let draft_id = draft.id.map(|id| id.to_string());
        let own = draft.event_id.as_ref().map(EventId::as_str);
        let of_event = || own.or(incoming.transport_id.as_ref().map(EventId::as_str));
        let id = match self.kind.duplicates {
            DuplicateDetection::ByChange => draft_id.as_deref(),
            _ => draft_id.as_deref().or_else(of_event),
        };
        let identity = match (id, self.kind.duplicates) {
            (Some(id), _) => EventIdentity::Id(id),
            (None, DuplicateDetection::ByBody | DuplicateDetection::ByBodyUnlessNews) => {
                EventIdentity::Message { headers, body: &incoming.body }
            }
            (None, DuplicateDetection::Impossible | DuplicateDetection::ByChange) => return None,
        };
        Some(event_key(self.name(), identity, ordinal))
    }

    /// Returns whether a repeat of the message is certainly a repeat of the same event: the source or the transport has given
    /// the event an identifier, or a time that distinguishes it. Equal bytes alone say nothing.
    pub(super) fn identifies_event(incoming: &Incoming, draft: &Draft) -> bool {
        let has_id = draft.id.is_some() || draft.event_id.is_some() || incoming.transport_id.is_some();
        has_id || draft.time.identifies_event()
    }

    /// Returns the journal's policy for drafts of this message whose key it already has. `is_identified` tells that
    /// a repeat is certainly a repeat ([`Self::identifies_event`]).
    pub(super) fn duplicate_policy(&self, incoming: &Incoming, is_identified: bool) -> DuplicatePolicy {
        let by_transport = incoming.redelivered || incoming.transport_id.is_some();
        match self.kind.duplicates {
            DuplicateDetection::ByBodyUnlessNews if by_transport => DuplicatePolicy::RememberAll,
            DuplicateDetection::ByBodyUnlessNews => DuplicatePolicy::RememberAllUnlessNewState,
            DuplicateDetection::ByChange => DuplicatePolicy::DropKnownChanges,
            DuplicateDetection::ByBody if is_identified => DuplicatePolicy::RememberChanges,
            DuplicateDetection::ByBody if incoming.redelivered => DuplicatePolicy::RememberUnlessNews,
            DuplicateDetection::ByBody => DuplicatePolicy::RememberForRedelivery,
            DuplicateDetection::Impossible => DuplicatePolicy::RememberChanges,
        }
    }
}
