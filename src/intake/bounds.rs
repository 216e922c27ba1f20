//! Limits on the drafts of a message, checked before they are appended, whatever the dialect and the
//! repository are. URIs that a browser would execute are refused as well, because views render URIs as links.

use super::{Intake, Source};
use crate::{
    format::{Location, MessageLimit, Rejection},
    journal::{DraftOutcome, store::EventKey},
    model::{Draft, Uri, json_size},
};

impl Source {
    /// Checks the drafts of a message after enrichment.
    ///
    /// # Errors
    /// Fails if an object has too many types, if a change may become too large, or if a URI has an active
    /// scheme.
    pub(super) fn check(&self, drafts: &[(Option<EventKey>, Draft)]) -> Result<(), Rejection> {
        drafts.iter().try_for_each(|(_, draft)| {
            self.check_types(&draft.object, &draft.types)?;
            uris(draft).try_for_each(check_scheme)?;
            let (bytes, max) = (json_size::of_draft(draft, self.limits.types), self.limits.change_bytes);
            if bytes > max {
                let reason = format!(
                    "the change of {} may have {bytes} bytes of JSON; at most {max} are allowed: send several messages, or \
                     raise limits.change_bytes",
                    draft.object
                );
                return Err(Rejection::over_limit(MessageLimit::ChangeBytes, Location::Message, reason));
            }
            Ok(())
        })
    }

    /// Checks the number of types of an object.
    ///
    /// # Errors
    /// Fails if there are too many.
    pub(super) fn check_types(&self, object: &Uri, types: &[Uri]) -> Result<(), Rejection> {
        let max = self.limits.types;
        if types.len() > max {
            let reason = format!(
                "the object {object} has {} types; at most {max} are allowed: raise limits.types if they are expected",
                types.len()
            );
            return Err(Rejection::over_limit(MessageLimit::Types, Location::Message, reason));
        }
        Ok(())
    }

    /// Checks the number of items of an object that a crawl found.
    ///
    /// # Errors
    /// Fails if there are too many.
    pub(super) fn check_items(&self, object: &Uri, items: usize) -> Result<(), Rejection> {
        let max = self.limits.items;
        if items > max {
            let reason =
                format!("the object {object} has {items} items; at most {max} are allowed: raise limits.items");
            return Err(Rejection::over_limit(MessageLimit::Items, Location::Message, reason));
        }
        Ok(())
    }
}

/// Schemes whose links make a browser run a program or show an embedded document.
const ACTIVE_SCHEMES: [&str; 3] = ["javascript", "vbscript", "data"];

/// Returns the URIs of a draft that views render as links.
fn uris(draft: &Draft) -> impl Iterator<Item = &Uri> {
    let about = [Some(&draft.object), draft.parent.as_ref(), draft.user.uri()].into_iter().flatten();
    let items = draft.items.listed().iter().flat_map(|item| {
        let content = item.change.content();
        let links = [
            Some(&item.uri),
            content.map(|content| &content.url),
            content.and_then(|content| content.generated_by.as_ref()),
            content.and_then(|content| content.original.as_deref()).map(|original| &original.url),
        ];
        links.into_iter().flatten()
    });
    about.chain(items)
}

/// Refuses a URI with an active scheme.
pub(super) fn check_scheme(uri: &Uri) -> Result<(), Rejection> {
    let (scheme, _) = uri.as_str().split_once(':').unwrap_or_default();
    if ACTIVE_SCHEMES.iter().any(|active| scheme.eq_ignore_ascii_case(active)) {
        let reason = format!("the scheme {scheme} is not allowed, because a browser would execute the link: {uri}");
        return Err(Rejection::unprocessable(Location::Message, reason));
    }
    Ok(())
}

impl Intake {
    /// Returns the reason why the journal refused a message, if it did.
    pub(super) fn journal_refusal(&self, outcomes: &[DraftOutcome]) -> Option<Rejection> {
        if outcomes.contains(&DraftOutcome::Refused) {
            let reason = "the storage of the journal refuses the message; the log of the gateway has the reason";
            return Some(Rejection::unprocessable(Location::Message, reason));
        }
        outcomes.contains(&DraftOutcome::TooManyItems).then(|| self.too_many_items())
    }

    pub(super) fn too_many_items(&self) -> Rejection {
        let max = self.journal.bounds().object_items;
        let reason = format!(
            "an object would have more than {max} items, including deleted ones: raise limits.object_items if that \
             is intended"
        );
        Rejection::over_limit(MessageLimit::ObjectItems, Location::Message, reason)
    }
}
