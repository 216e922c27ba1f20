//! Summary of a change for people: short names of objects and items, and their events. All of it depends on
//! the change alone, because pages of the feed never change.

use percent_encoding::percent_decode_str;

use crate::{
    model::{ContentItemModification, ContentObjectModification, ItemChange, Uri},
    text,
};

/// Maximum length of a name, in characters.
const MAX_NAME: usize = 200;

/// Returns the title of a change of an item: what happened, and to what.
pub(super) fn title(modification: &ContentObjectModification, item: &ContentItemModification) -> String {
    format!("{}: {}", action(&item.change), item_name(&modification.object, &item.uri))
}

/// Summarizes the change of an item, with its whole URI.
pub(super) fn summary(item: &ContentItemModification) -> String {
    let state = match (item.change.before(), item.change.after()) {
        (Some(before), Some(after)) => format!(" ({before} → {after})"),
        (Some(before), None) => format!(" ({before} before)"),
        (None, Some(after)) => format!(" ({after} after)"),
        (None, None) => String::new(),
    };
    format!("{}: {}{state}", action(&item.change), item.uri)
}

/// Returns what happened to the item.
pub(super) fn action(change: &ItemChange) -> &'static str {
    match change {
        ItemChange::Add { .. } => "Added",
        ItemChange::Update { content: Some(_), .. } => "New content",
        ItemChange::Update { content: None, .. } => "New properties",
        ItemChange::Delete { .. } => "Deleted",
        ItemChange::State { .. } => "New state",
    }
}

/// Returns a short name of an object: the last segment of its path, or its URI if it has no path.
pub(super) fn object_name(object: &Uri) -> String {
    readable(last_segment(object.as_str()))
}

/// Returns a short name of an item of an object. It begins with that of the object if the item's URI begins with the
/// object's, and otherwise ends with it.
fn item_name(object: &Uri, item: &Uri) -> String {
    let (object, item) = (object.as_str(), item.as_str());
    match item.strip_prefix(object) {
        Some(rest) => readable(&format!("{}{rest}", last_segment(object))),
        None => format!("{} ({})", readable(last_segment(item)), readable(last_segment(object))),
    }
}

/// Returns the last segment of the path of a URI, with the query and the fragment behind it.
fn last_segment(uri: &str) -> &str {
    let path = uri[..uri.find(['?', '#']).unwrap_or(uri.len())].trim_end_matches('/');
    match path.rsplit_once('/') {
        // Otherwise the last part is the host.
        Some((before, last)) if !before.ends_with('/') => &uri[path.len() - last.len()..],
        _ => uri,
    }
}

/// Returns a part of a URI as people read it: without percent-encoding, if the result is text that shows all it
/// contains, and cut if it is long.
fn readable(part: &str) -> String {
    let decoded = percent_decode_str(part).decode_utf8().ok();
    let decoded = decoded.filter(|decoded| !decoded.trim().is_empty() && !decoded.contains(text::is_hidden));
    text::line(decoded.as_deref().unwrap_or(part), MAX_NAME).to_string()
}

#[cfg(test)]
mod tests {
    use super::{Uri, item_name, object_name};

    #[test]
    fn names_are_the_ends_of_uris() {
        let uri = |text: &str| Uri::parse(text).unwrap();
        for (object, name) in [
            ("http://h/fedora/objects/demo:1", "demo:1"),
            ("http://h/rest/a/b/", "b/"),
            ("http://h/", "http://h/"),
            ("http://h", "http://h"),
            ("urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa3", "urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa3"),
            ("info:fedora/demo:1", "demo:1"),
            ("http://h/node/1?_format=json", "1?_format=json"),
            ("http://h/a/b#c/d", "b#c/d"),
            ("http://h/caf%C3%A9%20au%20lait", "café au lait"),
            ("http://h/%FF", "%FF"),
            ("http://h/a%00b", "a%00b"),
            ("http://h/a%E2%80%AEb", "a%E2%80%AEb"),
            ("http://h/%20", "%20"),
        ] {
            assert_eq!(object_name(&uri(object)), name, "{object}");
        }
        for (object, item, name) in [
            ("http://h/o/1", "http://h/o/1", "1"),
            ("http://h/o/1", "http://h/o/1/datastreams/DC/content", "1/datastreams/DC/content"),
            ("urn:x:1", "http://h/node/1?_format=json", "1?_format=json (urn:x:1)"),
        ] {
            assert_eq!(item_name(&uri(object), &uri(item)), name);
        }
        let long = format!("http://h/{}", "a".repeat(1000));
        assert_eq!(object_name(&uri(&long)), format!("{}…", "a".repeat(200)));
    }
}
