//! URIs of resources, in the spelling of the repository's REST API.
//!
//! Messages of real repositories spell them in other ways: paths are not percent-encoded (Fedora 6), the base URL is that
//! of the request that made the change, or is missing, and descriptions have another name (Fedora 4.7 and 5).
//! [`ResourceUris`] is the only way from a message to a URI, so that two events about a resource, and a crawl, agree.

use crate::{
    format::{
        Rejection,
        json_ld::Node,
        uri_path::{Delimiters, encode_uri},
    },
    model::{FormerSpelling, InvalidUri, Reading, Uri},
};

/// Placeholders for an unknown repository URL: `info:fedora` in Fedora 4.6 and 4.7, Java's `null` in Fedora 5 and 6,
/// which concatenate strings without a check, and `info:fcres` of LAKEsuperior.
const NO_BASE: [&str; 3] = ["info:fedora", "info:fcres", "null"];

/// Last path segment of the description of a file in messages of Fedora 4.7 and 5, and in the REST API.
const DESCRIPTION: (&str, &str) = ("/fedora:description", "/fcr:metadata");

/// Returns the URI of the resource at `path` of the repository at `base`. The URI of the repository itself ends with a
/// slash, those of all other resources do not.
///
/// # Errors
/// Fails if the result is not an absolute URI.
pub fn join(base: &str, path: &str) -> Result<Uri, InvalidUri> {
    encode_uri(&joined(base, path.trim_end_matches('/')), Delimiters::Meant)
}

fn joined(base: &str, path: &str) -> String {
    format!("{}/{}", base.trim_end_matches('/'), path.trim_start_matches('/'))
}

/// Base URLs of a repository, from the settings of its source.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResourceUris<'a> {
    /// Base URL for messages without one, and in place of `others`.
    pub(super) base: Option<&'a Uri>,
    /// Other base URLs of the same repository.
    pub(super) others: &'a [Uri],
}

impl ResourceUris<'_> {
    /// Returns the URI of a resource that a message spells like this, and notes its former spelling if it has one. `root`
    /// is the base URL in the message.
    ///
    /// # Errors
    /// Fails if the result is not an absolute URI.
    pub(super) fn resource(self, raw: &str, root: Option<&str>, reading: &mut Reading) -> Result<Uri, InvalidUri> {
        let mapped = self.with_base(raw);
        let bases = self.base.map(Uri::as_str).into_iter().chain(root.map(str::trim));
        let is_root = bases.into_iter().any(|base| is_same_text(&self.with_base(base), &mapped));
        let uri = encode_uri(&if is_root { joined(&mapped, "") } else { without_slash(&mapped) }, Delimiters::Meant)?;
        let uri = match uri.as_str().strip_suffix(DESCRIPTION.0) {
            Some(described) => Uri::parse(&format!("{described}{}", DESCRIPTION.1))?,
            None => uri,
        };
        self.note_former(raw, &uri, reading);
        Ok(uri)
    }

    /// Returns the URI of a container that a message names. Its trailing slash stays.
    ///
    /// # Errors
    /// Fails if the result is not an absolute URI.
    pub(super) fn container(self, raw: &str, reading: &mut Reading) -> Result<Uri, InvalidUri> {
        let uri = encode_uri(&self.with_base(raw), Delimiters::Meant)?;
        self.note_former(raw, &uri, reading);
        Ok(uri)
    }

    /// Notes the URI that earlier versions took from the same text.
    fn note_former(self, raw: &str, uri: &Uri, reading: &mut Reading) {
        let of_base = |path: &str| self.base.map(|base| joined(base.as_str(), path));
        let former = path_without_base(raw).and_then(of_base).unwrap_or_else(|| raw.to_owned());
        if let Some(former) = Uri::parse(&former).ok().filter(|former| former != uri) {
            reading.former.push(FormerSpelling { uri: uri.clone(), former });
        }
    }

    /// Replaces a missing base URL, and one of the others, by that of the settings.
    fn with_base(self, raw: &str) -> String {
        let Some(base) = self.base else { return raw.to_owned() };
        let below = |other: &Uri| {
            let rest = raw.strip_prefix(other.as_str().trim_end_matches('/'))?;
            (rest.is_empty() || rest.starts_with(['/', '#', '?'])).then_some(rest)
        };
        let path = path_without_base(raw).or_else(|| self.others.iter().find_map(below));
        path.map_or_else(|| raw.to_owned(), |path| joined(base.as_str(), path))
    }
}

/// Removes the slash at the end of a path, unless the path is only a slash.
fn without_slash(uri: &str) -> String {
    let end = uri.find(['?', '#']).unwrap_or(uri.len());
    let (path, rest) = uri.split_at(end);
    let host = path.find("://").map_or(0, |scheme| scheme + "://".len());
    let trimmed = path.trim_end_matches('/');
    let has_path = trimmed.get(host..).is_some_and(|path| path.contains('/'));
    format!("{}{rest}", if has_path { trimmed } else { path })
}

/// Returns the path of the container of a path; `None` for the root.
pub(super) fn container(path: &str) -> Option<&str> {
    let path = path.trim_end_matches('/');
    let end = path.rfind(['/', '#'])?;
    Some(path[..end].trim_end_matches(['/', '#']))
}

/// Returns the URI of the resource that `node` is or refers to. `root` is the base URL in the message.
///
/// # Errors
/// Fails if there is no identifier, or it is not an absolute URI.
pub(super) fn resource(
    node: &Node<'_>,
    uris: ResourceUris<'_>,
    root: Option<&str>,
    reading: &mut Reading,
) -> Result<Uri, Rejection> {
    let id = node.id().ok_or_else(|| node.unprocessable("there is no \"id\" here"))?;
    let text = id.text().ok_or_else(|| id.unprocessable("this is not a URI; a string was expected"))?;
    let uri = uris.resource(text, root, reading).map_err(|error| {
        let is_unknown = path_without_base(text).is_some();
        id.unprocessable(if is_unknown { NO_BASE_URL.to_owned() } else { error.to_string() })
    })?;
    // LDP resources have URLs. Events of Islandora look alike, but their objects are URNs.
    if uri.as_str().starts_with("urn:") {
        return Err(id.unprocessable("a resource has a URL, not a URN; is this source's dialect islandora?"));
    }
    Ok(uri)
}

const NO_BASE_URL: &str =
    "the event does not contain the URL of the repository; set base_url in the settings of the source";

fn path_without_base(id: &str) -> Option<&str> {
    let path = NO_BASE.iter().find_map(|prefix| id.strip_prefix(prefix))?;
    (path.is_empty() || path.starts_with('/')).then_some(path)
}

/// Returns whether a base URL is only a placeholder.
pub(super) fn is_placeholder(base: &str) -> bool {
    NO_BASE.contains(&base.trim_end_matches('/'))
}

/// Returns whether two URIs identify the same resource; trailing slashes are ignored, because the root occurs
/// with and without one.
pub(super) fn is_same(one: &Uri, other: &Uri) -> bool {
    is_same_text(one.as_str(), other.as_str())
}

fn is_same_text(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Node, Reading, ResourceUris, Uri, container, join, resource};

    fn uri(text: &str) -> Uri {
        Uri::parse(text).unwrap()
    }

    #[test]
    fn repository_and_path_are_joined_by_one_slash() {
        for (base, path) in [("http://h/rest", "/a"), ("http://h/rest/", "/a"), ("http://h/rest/", "a/")] {
            assert_eq!(join(base, path).unwrap().as_str(), "http://h/rest/a");
        }
        assert_eq!(join("http://h/rest", "").unwrap().as_str(), "http://h/rest/");
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
        let base = uri("http://h/rest");
        for (id, alone, with_base) in [
            ("info:fedora/a", Some("info:fedora/a"), Some("http://h/rest/a")),
            ("info:fcres/a", Some("info:fcres/a"), Some("http://h/rest/a")),
            ("null/a", None, Some("http://h/rest/a")),
            ("info:fedora", Some("info:fedora"), Some("http://h/rest/")),
            ("info:fedoras/a", Some("info:fedoras/a"), Some("info:fedoras/a")),
            ("http://other/a", Some("http://other/a"), Some("http://other/a")),
        ] {
            let id = json!(id);
            let read = |base| {
                let uris = ResourceUris { base, others: &[] };
                resource(&Node::root(&id), uris, None, &mut Reading::default()).ok().map(|uri| uri.to_string())
            };
            assert_eq!(read(None).as_deref(), alone);
            assert_eq!(read(Some(&base)).as_deref(), with_base);
        }
    }

    /// Returns the URI and its former spelling.
    fn read(raw: &str, root: Option<&str>) -> (String, Option<String>) {
        let (base, others) = (uri("https://h/fcrepo/rest"), [uri("http://localhost:8080/rest/")]);
        let (uris, mut reading) = (ResourceUris { base: Some(&base), others: &others }, Reading::default());
        let uri = uris.resource(raw, root, &mut reading).unwrap();
        let former = reading.former_of(&uri).map(ToString::to_string);
        (uri.to_string(), former)
    }

    #[test]
    fn resource_has_one_spelling() {
        let raw = "https://h/fcrepo/rest/ground floor";
        assert_eq!(read(raw, None), ("https://h/fcrepo/rest/ground%20floor".to_owned(), None));
        for (raw, uri) in [
            ("http://localhost:8080/rest/a", "https://h/fcrepo/rest/a"),
            ("http://localhost:8080/rest/s/", "https://h/fcrepo/rest/s"),
            ("http://localhost:8080/rest/b#c", "https://h/fcrepo/rest/b#c"),
            ("http://localhost:8080/restaurant", "http://localhost:8080/restaurant"),
            ("https://h/fcrepo/rest/Skøyen", "https://h/fcrepo/rest/Sk%C3%B8yen"),
            ("https://h/fcrepo/rest/bin/fedora:description", "https://h/fcrepo/rest/bin/fcr:metadata"),
            ("https://h/fcrepo/rest/s/?ext=acl", "https://h/fcrepo/rest/s?ext=acl"),
            ("http://other/", "http://other/"),
        ] {
            let former = (raw != uri).then(|| raw.to_owned());
            assert_eq!(read(raw, None), (uri.to_owned(), former));
        }
    }

    #[test]
    fn root_ends_with_a_slash() {
        for raw in ["https://h/fcrepo/rest", "https://h/fcrepo/rest/", "http://localhost:8080/rest"] {
            assert_eq!(read(raw, None).0, "https://h/fcrepo/rest/");
        }
        for raw in ["http://other/rest", "http://other/rest/"] {
            assert_eq!(read(raw, Some("http://other/rest")).0, "http://other/rest/");
        }
    }
}
