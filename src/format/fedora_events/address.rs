//! Where resources are: some events tell a path without the repository's URL.

use crate::{
    format::{Rejection, json_ld::Node},
    model::{InvalidUri, Uri},
};

/// What stands in place of the repository's URL where an event does not know it: `info:fedora` in
/// Fedora 4.6 and 4.7; in Fedora 5 and 6, which join two strings without looking, Java's `null`.
const NO_BASE: [&str; 2] = ["info:fedora", "null"];

/// The resource at `path` of the repository at `base`.
///
/// # Errors
/// When the two do not make an absolute URI.
pub fn join(base: &str, path: &str) -> Result<Uri, InvalidUri> {
    Uri::parse(&format!("{}/{}", base.trim_end_matches('/'), path.trim_start_matches('/')))
}

/// The path of the container that a path is in; `None` for the root.
pub(super) fn container(path: &str) -> Option<&str> {
    let path = path.trim_end_matches('/');
    let end = path.rfind(['/', '#'])?;
    Some(path[..end].trim_end_matches(['/', '#']))
}

/// The resource that `node` is or refers to. `base_url` stands in where the repository's URL is
/// missing.
///
/// # Errors
/// When nothing identifies it, or not by an absolute URI.
pub(super) fn resource(node: &Node<'_>, base_url: Option<&Uri>) -> Result<Uri, Rejection> {
    let id = node.id();
    let path = id.as_ref().and_then(Node::text).and_then(path_without_base);
    match (id, path, base_url) {
        (Some(id), Some(path), Some(base)) => {
            join(base.as_str(), path).map_err(|error| id.unprocessable(error.to_string()))
        }
        (Some(id), Some(_), None) => id.uri().map_err(|_| {
            id.unprocessable("the repository does not tell its own URL; set base_url in the settings of the source")
        }),
        (id, ..) => {
            let uri = node.id_uri()?;
            // A resource of LDP has a URL. Islandora's objects are URNs, in events that look alike.
            let is_urn = |_: &Node<'_>| uri.as_str().starts_with("urn:");
            match id.filter(is_urn) {
                Some(id) => {
                    Err(id.unprocessable("a resource has a URL, not a URN; is this source's dialect islandora?"))
                }
                None => Ok(uri),
            }
        }
    }
}

fn path_without_base(id: &str) -> Option<&str> {
    let path = NO_BASE.iter().find_map(|prefix| id.strip_prefix(prefix))?;
    (path.is_empty() || path.starts_with('/')).then_some(path)
}

/// Whether two spellings are of one resource: the root has its URL with and without a slash.
pub(super) fn is_same(one: &Uri, other: &Uri) -> bool {
    one.as_str().trim_end_matches('/') == other.as_str().trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Node, Uri, container, join, resource};

    #[test]
    fn one_slash_stands_between_the_repository_and_a_path() {
        for (base, path) in [("http://h/rest", "/a"), ("http://h/rest/", "/a"), ("http://h/rest/", "a")] {
            assert_eq!(join(base, path).unwrap().as_str(), "http://h/rest/a");
        }
        assert!(join("/rest", "/a").is_err());
    }

    #[test]
    fn the_root_has_no_container() {
        for (path, parent) in [
            ("/a/b", Some("/a")),
            ("/a/b/", Some("/a")),
            ("/a", Some("")),
            ("/a#b", Some("/a")),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(container(path), parent, "{path}");
        }
    }

    #[test]
    fn a_missing_base_is_taken_from_the_settings() {
        let base = Uri::parse("http://h/rest").unwrap();
        for (id, alone, with_base) in [
            ("info:fedora/a", Some("info:fedora/a"), Some("http://h/rest/a")),
            ("null/a", None, Some("http://h/rest/a")),
            ("info:fedora", Some("info:fedora"), Some("http://h/rest/")),
            ("info:fedoras/a", Some("info:fedoras/a"), Some("info:fedoras/a")),
            ("http://other/a", Some("http://other/a"), Some("http://other/a")),
        ] {
            let id = json!(id);
            let read = |base| resource(&Node::root(&id), base).ok().map(|uri| uri.to_string());
            assert_eq!(read(None).as_deref(), alone);
            assert_eq!(read(Some(&base)).as_deref(), with_base);
        }
    }
}
