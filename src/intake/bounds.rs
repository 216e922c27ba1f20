//! Bounds on what a message may make of the journal, whatever its dialect and its repository: its drafts are measured before they
//! are appended. A URI that a browser would run instead of following it is refused as well, since views make links of URIs.

use super::{Intake, Source};
use crate::{
    format::{Bound, Place, Rejection},
    journal::{DraftOutcome, store::EventKey},
    model::{Draft, DraftItems, Uri, json_size},
};

impl Source {
    /// Checks the drafts of a message after its repository has completed them.
    ///
    /// # Errors
    /// When an object has too many types, or a change may have too many bytes.
    pub(super) fn check(&self, drafts: &[(Option<EventKey>, Draft)]) -> Result<(), Rejection> {
        drafts.iter().try_for_each(|(_, draft)| {
            self.check_types(&draft.object, &draft.types)?;
            uris(draft).try_for_each(check_scheme)?;
            let (bytes, most) = (json_size::of_draft(draft, self.limits.types), self.limits.change_bytes);
            if bytes > most {
                let reason = format!(
                    "the change of {} may have {bytes} bytes of JSON; at most {most} are taken: send several messages, or \
                     raise limits.change_bytes",
                    draft.object
                );
                return Err(Rejection::past(Bound::ChangeBytes, Place::Message, reason));
            }
            Ok(())
        })
    }

    /// Checks the types of an object.
    ///
    /// # Errors
    /// When there are too many.
    pub(super) fn check_types(&self, object: &Uri, types: &[Uri]) -> Result<(), Rejection> {
        let most = self.limits.types;
        if types.len() > most {
            let reason = format!(
                "the object {object} has {} types; at most {most} are taken: raise limits.types if these are meant",
                types.len()
            );
            return Err(Rejection::past(Bound::Types, Place::Message, reason));
        }
        Ok(())
    }

    /// Checks the number of items of a change that a walk tells.
    ///
    /// # Errors
    /// When there are too many.
    pub(super) fn check_items(&self, object: &Uri, items: usize) -> Result<(), Rejection> {
        let most = self.limits.items;
        if items > most {
            let reason = format!("the object {object} has {items} items; at most {most} are taken: raise limits.items");
            return Err(Rejection::past(Bound::Items, Place::Message, reason));
        }
        Ok(())
    }
}

/// Schemes that make a link a program or a document of its own.
const ACTIVE_SCHEMES: [&str; 3] = ["javascript", "vbscript", "data"];

/// The URIs of a draft that views show as links.
fn uris(draft: &Draft) -> impl Iterator<Item = &Uri> {
    let about = [Some(&draft.object), draft.parent.as_ref(), draft.user.uri()].into_iter().flatten();
    let items = match &draft.items {
        DraftItems::Listed(items) => &items[..],
        DraftItems::Purge => &[],
    };
    let items = items.iter().flat_map(|item| {
        let content = item.change.content();
        let links = [
            Some(&item.uri),
            content.map(|content| &content.url),
            content.and_then(|content| content.generated_by.as_ref()),
        ];
        links.into_iter().flatten()
    });
    about.chain(items)
}

/// Refuses a URI with an active scheme.
pub(super) fn check_scheme(uri: &Uri) -> Result<(), Rejection> {
    let (scheme, _) = uri.as_str().split_once(':').unwrap_or_default();
    if ACTIVE_SCHEMES.iter().any(|active| scheme.eq_ignore_ascii_case(active)) {
        let reason = format!("the scheme {scheme} is not taken, since a browser would run the URI as a link: {uri}");
        return Err(Rejection::unprocessable(Place::Message, reason));
    }
    Ok(())
}

impl Intake {
    /// Why the journal has refused a message, if it has.
    pub(super) fn refusal(&self, outcomes: &[DraftOutcome]) -> Option<Rejection> {
        outcomes.contains(&DraftOutcome::TooManyItems).then(|| self.too_many_items())
    }

    pub(super) fn too_many_items(&self) -> Rejection {
        let most = self.journal.bounds().object_items;
        let reason = format!(
            "an object would have more than {most} items, those included that are gone: raise limits.object_items if that \
             is meant"
        );
        Rejection::past(Bound::ObjectItems, Place::Message, reason)
    }
}
