//! Lookups in a Linked Data Platform (Fedora 4 to 6): properties of the content, types of the resource, and
//! its container.
//!
//! Versions of Fedora's resources have no URL of their own, so a lookup returns the current state. If the
//! resource was modified after the event, the draft is only marked as outdated.

use std::collections::HashSet;

use axum::http::{
    HeaderMap,
    header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, LAST_MODIFIED, LINK},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::future::join_all;

use super::{cached_requests::CachedRequests, client::Resource, error::LookupError, note_unreadable, restrict};
use crate::{
    format::{
        ldp::{ResourceDescription, parse_description},
        stated_dates::DateStatements,
        web_links,
    },
    http_client::header_text,
    model::{
        ContentLocation, Digest, DigestAlgorithm, Draft, DraftItems, LookupMark, MediaType, MissingFacts, Timestamp,
        Uri,
    },
    web::header_date,
};

/// Requested digests, with preference for those that Fedora 6 and Fedora 4 have stored (RFC 3230).
const WANT_DIGEST: &[(&str, &str)] = &[("want-digest", "sha-512, sha-256;q=0.2, sha;q=0.5")];

const DIGEST: HeaderName = HeaderName::from_static("digest");

const JSON_LD: &str = "application/ld+json";

/// Namespace of the types of LDP itself, which say nothing about a particular resource.
const LDP_NAMESPACE: &str = "http://www.w3.org/ns/ldp#";

/// Path suffix of the description of a non-RDF resource.
const METADATA_SUFFIX: &str = "/fcr:metadata";

/// Maximum number of path segments that are checked for a container. Segments between a resource and its
/// container may not exist as resources.
const MAX_CONTAINER_STEPS: usize = 16;

/// Completes a draft from the repository, as far as it responds. `object` is the path of the object below the
/// repository's URL; `None` if the object is elsewhere and only some of its content is in this repository.
///
/// # Errors
/// Returns the error of the first request that failed. The draft contains the facts of the other requests.
pub(super) async fn complete(
    requests: &CachedRequests<'_>,
    object: Option<&str>,
    draft: &mut Draft,
) -> Result<(), LookupError> {
    if draft.lookup.missing == MissingFacts::Nothing {
        return Ok(());
    }
    // Events of Fedora 5 and 6 also name the repository root, which contains every resource.
    if let Some(path) = object {
        let base = base_of(requests, &draft.object, path);
        draft.parent = draft.parent.take().filter(|parent| !is_same_place(parent.as_str(), &base));
    }
    let time = draft.time.reported();
    let mut first = None;
    let mut mark = None;
    let DraftItems::Listed(items) = draft.items.clone() else { return Ok(()) };
    let mut items = items.into_vec();
    for item in &mut items {
        let Some(content) = item.change.content_mut() else { continue };
        let Some(path) = requests.repository.settings().path_of(content.url.as_str()) else { continue };
        let path = path.split('#').next().unwrap_or_default().to_owned();
        match head_with_digest(requests, &path).await? {
            None => mark = mark.or(Some(LookupMark::Gone)),
            Some(resource) if is_newer(&resource.headers, time) => {
                mark = mark.or(Some(LookupMark::Newer));
                first = first.or(Some(resource));
            }
            Some(resource) => {
                fill(content, &resource.headers);
                first = first.or(Some(resource));
            }
        }
    }
    if let Ok(items) = items.try_into() {
        draft.items = DraftItems::Listed(items);
    }
    draft.lookup.mark = mark;
    match (object, first) {
        (Some(path), Some(resource)) => complete_object(requests, path, &resource, draft).await,
        _ => Ok(()),
    }
}

/// Requests the headers of a resource with a digest, and without one if that fails. Computing the digest of a
/// large file may exceed the timeout, and the repository may support none of the algorithms.
async fn head_with_digest(requests: &CachedRequests<'_>, path: &str) -> Result<Option<Resource>, LookupError> {
    match requests.head(path, WANT_DIGEST, is_resource).await {
        Err(LookupError::NoResponse(_)) => requests.head(path, &[], is_resource).await,
        Err(LookupError::Status(status)) if status.is_client_error() => requests.head(path, &[], is_resource).await,
        result => result,
    }
}

/// Sets the types and the container of an object that exists.
async fn complete_object(
    requests: &CachedRequests<'_>,
    path: &str,
    resource: &Resource,
    draft: &mut Draft,
) -> Result<(), LookupError> {
    let base = base_of(requests, &draft.object, path);
    let root = Uri::parse(&format!("{base}/")).ok();
    let mut parent = draft.parent.clone();
    let mut types = Vec::new();
    let mut stated = None;
    // The description of a file is about the file, so it says nothing of itself.
    let has_dates = !requests.repository.settings().dates.is_empty() && !path.ends_with(METADATA_SUFFIX);
    if draft.types.is_empty() || has_dates {
        let described = describe(requests, path, &resource.headers).await?;
        let dates = match &described {
            Some(described) => {
                let mut dates = described.dates.clone();
                if let Err(error) = add_dates_of_places(requests, &mut dates).await {
                    restrict(draft, &dates);
                    return Err(error);
                }
                dates
            }
            // The repository has the resource, and its dates stay unknown.
            None => DateStatements::unreadable(),
        };
        if let Some(described) = described.filter(|_| draft.types.is_empty()) {
            types = described.types;
            parent = parent.or_else(|| described.parent.map(|parent| public_uri(requests, &parent, &base)));
        }
        if has_dates {
            restrict(draft, &dates);
            stated = Some(dates);
        }
    }
    types.extend(link_targets(&resource.headers, "type").into_iter().filter_map(|name| Uri::parse(&name).ok()));
    let mut type_set: HashSet<_> = draft.types.iter().cloned().collect();
    draft.types.extend(types.into_iter().filter(|name| type_set.insert(name.clone())));
    let parent = match parent {
        Some(parent) => Some(parent),
        None => container(requests, path, &base).await?.or(root),
    };
    draft.parent = parent.filter(|parent| !is_same_place(parent.as_str(), draft.object.as_str()));
    if let Some(dates) = stated {
        note_unreadable(draft, &dates);
    }
    Ok(())
}

/// Returns the URL of the repository in the URI of an object whose path below it is known.
fn base_of(requests: &CachedRequests<'_>, object: &Uri, path: &str) -> String {
    object.as_str().strip_suffix(path).unwrap_or(requests.repository.settings().url.as_str()).to_owned()
}

/// Returns whether two URLs differ in nothing but a slash at their ends.
fn is_same_place(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// Adds the dates of the resources that have dates for others, at most four. A resource that cannot be read costs its dates, and
/// not the event, because the next request would not read it either.
///
/// # Errors
/// Returns the first error after which another attempt may read the resource. The dates of the others are added.
async fn add_dates_of_places(requests: &CachedRequests<'_>, dates: &mut DateStatements) -> Result<(), LookupError> {
    let mut failed = Ok(());
    let places = dates.places().to_vec();
    // At the same time, so that a message waits for the slowest request, and not for all in turn.
    let described =
        join_all(places.iter().map(async |place| match requests.repository.settings().path_of(place.as_str()) {
            Some(path) => describe(requests, &path, &HeaderMap::new()).await,
            None => Ok(None),
        }));
    for described in described.await {
        let described = described.unwrap_or_else(|error| {
            if error.is_transient() && failed.is_ok() {
                failed = Err(error);
            }
            None
        });
        match described {
            Some(described) => dates.add_all(&described.dates),
            None => dates.add_unreadable(),
        }
    }
    failed
}

/// Requests and parses the description of a resource; `None` if the repository has no document about it, or redirects to
/// another server, where external content is.
async fn describe(
    requests: &CachedRequests<'_>,
    path: &str,
    headers: &HeaderMap,
) -> Result<Option<ResourceDescription>, LookupError> {
    let settings = requests.repository.settings();
    let elsewhere = link_targets(headers, "describedby").into_iter().find_map(|at| settings.path_of(&at));
    // A fragment is described together with its resource.
    let document = path.split('#').next().unwrap_or_default();
    let at = elsewhere.as_deref().unwrap_or(document);
    // Fedora uses the base URL that it considers its own for the subject.
    let bases = std::iter::once(&settings.url).chain(&settings.public_urls);
    let subjects: Vec<_> = bases.map(|base| format!("{base}{path}")).collect();
    let predicates = settings.dates.clone();
    let read = move |body: &[u8], limits| {
        let mut described = ResourceDescription::default();
        for subject in &subjects {
            described = parse_description(body, subject, &predicates, limits)?;
            if described.is_found {
                break;
            }
        }
        Ok(described)
    };
    match requests.read(at, JSON_LD, read).await {
        Err(LookupError::Status(status)) if status.is_redirection() => Ok(None),
        described => Ok(described?.filter(|described| described.is_found)),
    }
}

/// Returns the nearest container above a path; `None` if that is the repository root.
async fn container(requests: &CachedRequests<'_>, path: &str, base: &str) -> Result<Option<Uri>, LookupError> {
    let (path, fragment) = path.split_once('#').unwrap_or((path, ""));
    if !fragment.is_empty() {
        return Ok(Uri::parse(&format!("{base}{path}")).ok());
    }
    let mut path = path.trim_end_matches('/').trim_end_matches(METADATA_SUFFIX);
    for _ in 0..MAX_CONTAINER_STEPS {
        let Some((above, _)) = path.rsplit_once('/').filter(|(above, _)| !above.is_empty()) else { return Ok(None) };
        path = above;
        if let Some(resource) = requests.head(path, &[], is_resource).await?
            && link_targets(&resource.headers, "type")
                .iter()
                .any(|name| name.starts_with(LDP_NAMESPACE) && name.ends_with("Container"))
        {
            return Ok(Uri::parse(&format!("{base}{path}")).ok());
        }
    }
    Ok(None)
}

/// Converts a URI of the repository to the URI that messages use.
fn public_uri(requests: &CachedRequests<'_>, internal: &Uri, base: &str) -> Uri {
    let path = requests.repository.settings().path_of(internal.as_str());
    path.and_then(|path| Uri::parse(&format!("{base}{path}")).ok()).unwrap_or_else(|| internal.clone())
}

fn fill(content: &mut ContentLocation, headers: &HeaderMap) {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let media_type = text(&CONTENT_TYPE).and_then(|text| MediaType::parse(text).ok());
    content.media_type = media_type.or_else(|| content.media_type.take());
    // An RDF resource is serialized for each request, so it has no size of its own.
    if link_targets(headers, "type").iter().any(|kind| kind == "http://www.w3.org/ns/ldp#NonRDFSource") {
        content.size = text(&CONTENT_LENGTH).and_then(|text| text.parse().ok()).or(content.size);
        content.digest = text(&DIGEST).and_then(digest).or_else(|| content.digest.take());
    }
}

/// Returns the strongest digest in a header (RFC 3230 section 4.3.2). Fedora writes hexadecimal digits, other
/// servers write base64.
fn digest(header: &str) -> Option<Digest> {
    let parse_one = |text: &str| {
        let (name, value) = text.trim().split_once('=')?;
        let algorithm = DigestAlgorithm::parse(if name.eq_ignore_ascii_case("sha") { "sha-1" } else { name })?;
        Digest::parse(algorithm, value).ok().or_else(|| {
            let bytes = STANDARD.decode(value).ok()?;
            Digest::parse(algorithm, &hex::encode(bytes)).ok()
        })
    };
    header.split(',').filter_map(parse_one).max_by_key(|digest| digest.algorithm().hex_len())
}

/// True if the resource was modified after `time`. The header has a resolution of one second.
fn is_newer(headers: &HeaderMap, time: Option<Timestamp>) -> bool {
    match (header_date(headers, &LAST_MODIFIED), time) {
        (Some(modified), Some(time)) => modified.timestamp_millis() > time.millis(),
        _ => false,
    }
}

/// Refuses responses that are no LDP resources, such as a login page.
fn is_resource(resource: &Resource) -> Result<(), &'static str> {
    let is_ldp = link_targets(&resource.headers, "type").iter().any(|name| name.starts_with(LDP_NAMESPACE));
    if is_ldp { Ok(()) } else { Err("it is no LDP resource (no Link rel=\"type\" says so)") }
}

/// Returns the targets of all links with a relation.
fn link_targets(headers: &HeaderMap, relation: &str) -> Vec<String> {
    web_links::link_targets(headers.get_all(LINK).iter().map(header_text), relation)
}

#[cfg(test)]
mod tests {
    use super::{HeaderMap, LAST_MODIFIED, Timestamp, digest, is_newer};

    #[test]
    fn digest_is_parsed_from_hexadecimal_and_base64() {
        let hex = "da39a3ee5e6b4b0d3255bfef95601890afd80709";
        for (header, algorithm) in [
            (format!("sha={hex}"), "sha-1"),
            ("SHA=2jmj7l5rSw0yVb/vlWAYkK/YBwk=".to_owned(), "sha-1"),
            (format!("sha={hex}, sha-256={}", "0".repeat(64)), "sha-256"),
            (format!("unixsum=1, md5={}", "0".repeat(32)), "md5"),
        ] {
            assert_eq!(digest(&header).unwrap().algorithm().name(), algorithm, "{header}");
        }
        assert_eq!(digest("SHA=2jmj7l5rSw0yVb/vlWAYkK/YBwk=").unwrap().hex(), hex);
        for nonsense in ["", "sha", "sha=", "sha=zz", "crc=1"] {
            assert_eq!(digest(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn modification_in_the_second_of_the_event_is_not_newer() {
        let headers = HeaderMap::from_iter([(LAST_MODIFIED, "Sat, 21 Nov 2026 08:00:05 GMT".parse().unwrap())]);
        let newer_than = |time| is_newer(&headers, Some(Timestamp::parse(time).unwrap()));
        assert!(newer_than("2026-11-21T08:00:04.999Z"));
        assert!(!newer_than("2026-11-21T08:00:05.000Z") && !newer_than("2026-11-21T08:00:05.900Z"));
        assert!(!is_newer(&headers, None) && !is_newer(&HeaderMap::new(), None));
    }
}
