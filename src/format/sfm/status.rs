//! Converts a status: the state of the harvest or export, and newly found data of seeds.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{FINAL_STATES, description, draft, message::Status, uri_template::UriTemplate};
use crate::{
    format::{Limits, Location, MessageLimit, Rejection},
    model::{Draft, DraftChange, DraftItem, ItemChange, Reading, Uri, User},
};

impl Status {
    /// Returns the change of state.
    pub(super) fn change(&self) -> DraftChange {
        let after = self.status.clone();
        if FINAL_STATES.contains(&after) {
            DraftChange::Reported(ItemChange::State { before: None, after })
        } else {
            DraftChange::Activity { after, over: &FINAL_STATES }
        }
    }

    /// Creates a draft of the activity's state. Its time is the end of the activity, or else its begin, because
    /// a status does not contain the time at which it was sent.
    pub(super) fn draft(&self, activity: Uri, what: &str) -> Draft {
        let mut reading = Reading::default();
        let (ended, started) = (self.date_ended.read(&mut reading), self.date_started.read(&mut reading));
        let service = self.rest.get("service").and_then(Value::as_str);
        Draft {
            user: User::new(service.unwrap_or_default(), None),
            time: ended.max(started).into(),
            description: description::status(what, self),
            reading,
            ..draft(activity, self.change())
        }
    }

    /// Returns the seeds for which the harvest found a token or a uid, each as an UPDATE, because only a
    /// property is new. The description contains the property.
    ///
    /// # Errors
    /// Fails if a change may not have so many items, or a URI is too long.
    pub(super) fn seeds(&self, template: &UriTemplate, limits: Limits) -> Result<Vec<DraftItem>, Rejection> {
        let updates = [("/token_updates", &self.token_updates), ("/uids", &self.uids)];
        let updates = updates.into_iter().filter_map(|(pointer, seeds)| Some((pointer, seeds.as_ref()?)));
        let mut seen_seeds = BTreeSet::new();
        let mut items = Vec::new();
        for (pointer, seeds) in updates {
            for (seed, _) in seeds.iter().filter(|(_, value)| description::has_value(value)) {
                let location = format!("{pointer}/{}", seed.replace('~', "~0").replace('/', "~1"));
                if !seen_seeds.insert(seed) {
                    continue;
                }
                // The harvest is an item too.
                if seen_seeds.len() >= limits.items {
                    let reason = format!("a change has at most {} items here", limits.items);
                    return Err(Rejection::over_limit(MessageLimit::Items, Location::Pointer(location), reason));
                }
                let update = ItemChange::Update { content: None, before: None, after: None };
                items.push(DraftItem::new(template.of(seed, &location)?, DraftChange::Reported(update)));
            }
        }
        Ok(items)
    }
}
