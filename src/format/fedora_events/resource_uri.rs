//! URIs of resources. Some events contain a path without the repository's URL.

use crate::{
    format::{Rejection, json_ld::Node},
    model::{InvalidUri, Uri},
};

/// Placeholders for an unknown repository URL: `info:fedora` in Fedora 4.6 and 4.7, and Java's `null` in Fedora
/// 5 and 6, which concatenate strings without a check.
const NO_BASE: [&str; 2] = ["info:fedora", "null"];

/// Returns the URI of the resource at `path` of the repository at `base`.
///
/// # Errors
/// Fails if the result is not an absolute URI.
pub fn join(base: &str, path: &str) -> Result<Uri, InvalidUri> {
    Uri::parse(&format!("{}/{}", base.trim_end_matches('/'), path.trim_start_matches('/')))
}

/// Returns the path of the container of a path; `None` for the root.
pub(super) fn container(path: &str) -> Option<&str> {
    let path = path.trim_end_matches('/');
    let end = path.rfind(['/', '#'])?;
    Some(path[..end].trim_end_matches(['/', '#']))
}

/// Returns the URI of the resource that `node` is or refers to. `base_url` replaces a missing repository URL.
///
/// # Errors
/// Fails if there is no identifier, or it is not an absolute URI.
pub(super) fn resource(node: &Node<'_>, base_url: Option<&Uri>) -> Result<Uri, Rejection> {
    let id = node.id();
    let path = id.as_ref().and_then(Node::text).and_then(path_without_base);
    match (id, path, base_url) {
        (Some(id), Some(path), Some(base)) => {
            join(base.as_str(), path).map_err(|error| id.unprocessable(error.to_string()))
        }
        (Some(id), Some(_), None) => id.uri().map_err(|_| {
            id.unprocessable(
                "the event does not contain the URL of the repository; set base_url in the settings of the source",
            )
        }),
        (id, ..) => {
            let uri = node.id_uri()?;
            // LDP resources have URLs. Events of Islandora look alike, but their objects are URNs.
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

/// Returns whether two URIs identify the same resource; trailing slashes are ignored, because the root occurs
/// with and without one.
pub(super) fn is_same(one: &Uri, other: &Uri) -> bool {
    one.as_str().trim_end_matches('/') == other.as_str().trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Node, Uri, container, join, resource};

    #[test]
    fn repository_and_path_are_joined_by_one_slash() {
        for (base, path) in [("http://h/rest", "/a"), ("http://h/rest/", "/a"), ("http://h/rest/", "a")] {
            assert_eq!(join(base, path).unwrap().as_str(), "http://h/rest/a");
        }
        assert!(join("/rest", "/a").is_err());
    }

    #[test]
    fn root_has_no_container() {
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
    fn missing_base_url_comes_from_the_settings() {
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
