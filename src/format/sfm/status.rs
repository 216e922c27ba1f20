//! What a status becomes: the state of the harvest or the export, and what was found out of seeds.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{OVER, draft, message::Status, template::Template, words};
use crate::{
    format::{Bound, Limits, Place, Rejection},
    model::{Draft, DraftChange, DraftItem, DraftTime, ItemChange, Uri, User},
};

impl Status {
    /// The state that it tells.
    pub(super) fn change(&self) -> DraftChange {
        let after = self.status.clone();
        if OVER.contains(&after) {
            DraftChange::Reported(ItemChange::State { before: None, after })
        } else {
            DraftChange::Activity { after, over: &OVER }
        }
    }

    /// A draft of the activity's state. Its time is when the activity ended, or else when it began:
    /// no status tells when it was itself sent.
    pub(super) fn draft(&self, activity: Uri, what: &str) -> Draft {
        let service = self.rest.get("service").and_then(Value::as_str);
        Draft {
            user: User::new(service.unwrap_or_default(), None),
            time: self.date_ended.max(self.date_started).map_or(DraftTime::Arrival, DraftTime::Reported),
            description: words::status(what, self),
            ..draft(activity, self.change())
        }
    }

    /// The seeds for which the harvest has found a token or a uid, each an UPDATE: what is new is a
    /// property, and stands in the description.
    ///
    /// # Errors
    /// When there are more than a change may have items, or one has no identifier.
    pub(super) fn seeds(&self, template: &Template, limits: Limits) -> Result<Vec<DraftItem>, Rejection> {
        let found = [("/token_updates", &self.token_updates), ("/uids", &self.uids)];
        let found = found.into_iter().filter_map(|(pointer, seeds)| Some((pointer, seeds.as_ref()?)));
        let mut known = BTreeSet::new();
        let mut items = Vec::new();
        for (pointer, seeds) in found {
            for (seed, _) in seeds.iter().filter(|(_, value)| words::is_told(value)) {
                let place = format!("{pointer}/{}", seed.replace('~', "~0").replace('/', "~1"));
                if !known.insert(seed) {
                    continue;
                }
                // The harvest is an item too.
                if known.len() >= limits.items {
                    let reason = format!("a change has at most {} items here", limits.items);
                    return Err(Rejection::past(Bound::Items, Place::Pointer(place), reason));
                }
                let update = ItemChange::Update { content: None, before: None, after: None };
                items.push(DraftItem::new(template.of(seed, &place)?, DraftChange::Reported(update)));
            }
        }
        Ok(items)
    }
}
