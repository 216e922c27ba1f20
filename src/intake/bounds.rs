//! Limits on the drafts of a message, checked before they are appended, whatever the dialect and the
//! repository are. URIs that a browser would execute are refused as well, because views render URIs as links.

use super::{Intake, Source};
use crate::{
    format::{Location, MessageLimit, Rejection},
    journal::{DraftOutcome, store::EventKey},
    model::{Draft, Seq, Uri, json_size},
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
            check_identity(&draft.object)?;
            draft.items.listed().iter().try_for_each(|item| check_identity(&item.uri))?;
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

/// Usual ports of servers of the web. Any other number can be that of a thing: `demo:5/DC`.
const WEB_PORTS: [&str; 6] = ["80", "443", "8080", "8081", "8443", "8888"];

/// Refuses an identity that only looks like a URI: a host without a scheme, whose name would be the scheme, and a URN
/// without its UUID, which would unite all things that have it.
fn check_identity(uri: &Uri) -> Result<(), Rejection> {
    let (scheme, rest) = uri.as_str().split_once(':').unwrap_or_default();
    let is_port = rest.split_once('/').is_some_and(|(port, _)| WEB_PORTS.contains(&port));
    let reason = if scheme.contains('.') || is_port || scheme.eq_ignore_ascii_case("localhost") {
        format!("{uri} has no scheme: write http:// or https:// before the host")
    } else if scheme.eq_ignore_ascii_case("urn") && rest.eq_ignore_ascii_case("uuid:") {
        format!("{uri} has no UUID")
    } else {
        return Ok(());
    };
    Err(Rejection::unprocessable(Location::Message, reason))
}

impl Intake {
    /// Returns the reason why the journal refused a message, if it did.
    pub(super) fn journal_refusal(&self, outcomes: &[DraftOutcome]) -> Option<Rejection> {
        outcomes.iter().find_map(|outcome| match outcome {
            DraftOutcome::TooManyItems => Some(self.too_many_items()),
            DraftOutcome::Refused => Some(refused_by_storage()),
            DraftOutcome::OtherObject { seq } => Some(identifier_of_other_object(*seq)),
            DraftOutcome::Accepted { .. } | DraftOutcome::Duplicate { .. } | DraftOutcome::Unchanged => None,
        })
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

fn refused_by_storage() -> Rejection {
    let reason = "the storage of the journal refuses the message; the log of the gateway has the reason";
    Rejection::unprocessable(Location::Message, reason)
}

/// Rejects an event whose identifier the source has used for another object.
fn identifier_of_other_object(seq: Seq) -> Rejection {
    let reason = format!(
        "the source has used this idempotency key or identifier already, for an event about another object (change {seq}); \
         each event needs its own"
    );
    Rejection::unprocessable(Location::Message, reason)
}

#[cfg(test)]
mod tests {
    use super::{Uri, check_identity};

    #[test]
    fn host_and_port_are_no_identity() {
        let is_refused = |text: &str| check_identity(&Uri::parse(text).unwrap()).is_err();
        for text in [
            "localhost:8080/objects/1",
            "localhost:3000/objects/1",
            "repo.example.org:8080/rest",
            "repo.example.org:7777",
            "fedora:8080/rest/a",
            "fedora:80/",
            "urn:uuid:",
        ] {
            assert!(is_refused(text), "{text}");
        }
        for text in [
            "http://localhost:8080/objects/1",
            "ark:12345/x",
            "hdl:2027/mdp.390",
            "doi:10.1000/182",
            "info:fedora/demo:5",
            "urn:uuid:55555555-5555-4555-8555-555555555555",
            "demo:8080",
            "demo:5/DC",
            "tag:example.org,2020:1",
            "svn+ssh://host/a",
        ] {
            assert!(!is_refused(text), "{text}");
        }
    }
}
