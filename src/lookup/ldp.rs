//! What a Linked Data Platform (Fedora 4 to 6) knows of an event: what its content is like, the types of the resource and
//! the container that it is in.
//!
//! Fedora's resources have no address for each version, so what is told is of what is there now. If that was modified
//! after the event, nothing of it is told but that.

use std::collections::HashSet;

use axum::http::{
    HeaderMap,
    header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, LAST_MODIFIED, LINK},
};
use base64::{Engine, engine::general_purpose::STANDARD};

use super::{asking::Asking, client::There, error::LookupError};
use crate::{
    format::ldp::{Described, description, links},
    model::{
        ContentLocation, Digest, DigestAlgorithm, Draft, DraftItems, LookupMark, MediaType, MissingFacts, Timestamp,
        Uri,
    },
    web::header_date,
};

/// Which digests are wanted, those first that Fedora 6 and Fedora 4 have at hand (RFC 3230).
const WANT_DIGEST: &[(&str, &str)] = &[("want-digest", "sha-512, sha-256;q=0.2, sha;q=0.5")];

const DIGEST: HeaderName = HeaderName::from_static("digest");

const JSON_LD: &str = "application/ld+json";

/// The types that every resource has by what LDP is, and that tell nothing of it in particular.
const LDP: &str = "http://www.w3.org/ns/ldp#";

/// The path of the description of what is no RDF.
const METADATA: &str = "/fcr:metadata";

/// Up to so many containers are asked for: between a resource and its container there may be parts of a path that are none.
const MOST_STEPS: usize = 16;

/// Completes a draft as far as the repository answers. `object` is what its object is below the repository's address;
/// `None` where it is elsewhere, and only some of its contents may be here.
///
/// # Errors
/// When it does not answer everything. What it did answer is in the draft.
pub(super) async fn complete(asking: &Asking<'_>, object: Option<&str>, draft: &mut Draft) -> Result<(), LookupError> {
    if draft.lookup.missing == MissingFacts::Nothing {
        return Ok(());
    }
    let time = draft.time.reported();
    let mut found = None;
    let mut mark = None;
    let DraftItems::Listed(items) = draft.items.clone() else { return Ok(()) };
    let mut items = items.into_vec();
    for item in &mut items {
        let Some(content) = item.change.content_mut() else { continue };
        let Some(path) = asking.repository.settings().path_of(content.url.as_str()) else { continue };
        let path = path.split('#').next().unwrap_or_default().to_owned();
        match asked(asking, &path).await? {
            None => mark = mark.or(Some(LookupMark::Gone)),
            Some(there) if is_newer(&there.headers, time) => {
                mark = mark.or(Some(LookupMark::Newer));
                found = found.or(Some(there));
            }
            Some(there) => {
                fill(content, &there.headers);
                found = found.or(Some(there));
            }
        }
    }
    if let Ok(items) = items.try_into() {
        draft.items = DraftItems::Listed(items);
    }
    draft.lookup.mark = mark;
    match (object, found) {
        (Some(path), Some(there)) => of_object(asking, path, &there, draft).await,
        _ => Ok(()),
    }
}

/// What is told of a resource. A large file may take longer to make a digest of than anybody waits for, and none of the
/// digests may be known there.
async fn asked(asking: &Asking<'_>, path: &str) -> Result<Option<There>, LookupError> {
    match asking.head(path, WANT_DIGEST, is_resource).await {
        Err(LookupError::Silent(_)) => asking.head(path, &[], is_resource).await,
        Err(LookupError::Status(status)) if status.is_client_error() => asking.head(path, &[], is_resource).await,
        answer => answer,
    }
}

/// The types and the container of the object, which is there.
async fn of_object(asking: &Asking<'_>, path: &str, there: &There, draft: &mut Draft) -> Result<(), LookupError> {
    let whole = draft.object.as_str();
    let base = whole.strip_suffix(path).unwrap_or(asking.repository.settings().url.as_str()).to_owned();
    // An event of Fedora 5 and 6 names the repository itself, which everything belongs to.
    let is_root = |uri: &Uri| uri.as_str().trim_end_matches('/') == base.trim_end_matches('/');
    let told = draft.parent.take().filter(|parent| !is_root(parent));
    let told_root = Uri::parse(&format!("{base}/")).ok();
    let mut parent = told;
    let mut types = Vec::new();
    if draft.types.is_empty() {
        let described = described(asking, path, &there.headers).await?;
        types = described.types;
        parent = parent.or_else(|| described.parent.map(|parent| public(asking, &parent, &base)));
    }
    types.extend(all(&there.headers, "type").into_iter().filter_map(|name| Uri::parse(name).ok()));
    let mut known: HashSet<_> = draft.types.iter().cloned().collect();
    draft.types.extend(types.into_iter().filter(|name| known.insert(name.clone())));
    let parent = match parent {
        Some(parent) => Some(parent),
        None => container(asking, path, &base).await?.or(told_root),
    };
    draft.parent =
        parent.filter(|parent| parent.as_str().trim_end_matches('/') != draft.object.as_str().trim_end_matches('/'));
    Ok(())
}

/// What the description of a resource says.
async fn described(asking: &Asking<'_>, path: &str, headers: &HeaderMap) -> Result<Described, LookupError> {
    let settings = asking.repository.settings();
    let elsewhere = all(headers, "describedby").into_iter().find_map(|at| settings.path_of(at));
    // A part of a resource is described with it.
    let whole = path.split('#').next().unwrap_or_default();
    let at = elsewhere.as_deref().unwrap_or(whole);
    let resource = format!("{}{path}", settings.url);
    let read = |body: &[u8], _| {
        let mut found = description(body, &resource)?;
        // Fedora names what it describes by the address that it takes for its own.
        for base in &settings.public_urls {
            if found.types.is_empty() {
                found = description(body, &format!("{base}{path}"))?;
            }
        }
        Ok(found)
    };
    Ok(asking.read(at, JSON_LD, read).await?.unwrap_or_default())
}

/// The nearest container above a path; `None` where that is the repository itself.
async fn container(asking: &Asking<'_>, path: &str, base: &str) -> Result<Option<Uri>, LookupError> {
    let (path, fragment) = path.split_once('#').unwrap_or((path, ""));
    if !fragment.is_empty() {
        return Ok(Uri::parse(&format!("{base}{path}")).ok());
    }
    let mut path = path.trim_end_matches('/').trim_end_matches(METADATA);
    for _ in 0..MOST_STEPS {
        let Some((above, _)) = path.rsplit_once('/').filter(|(above, _)| !above.is_empty()) else { return Ok(None) };
        path = above;
        if let Some(there) = asking.head(path, &[], is_resource).await?
            && all(&there.headers, "type").iter().any(|name| name.starts_with(LDP) && name.ends_with("Container"))
        {
            return Ok(Uri::parse(&format!("{base}{path}")).ok());
        }
    }
    Ok(None)
}

/// A resource as messages name it, by what the repository calls it.
fn public(asking: &Asking<'_>, named: &Uri, base: &str) -> Uri {
    let path = asking.repository.settings().path_of(named.as_str());
    path.and_then(|path| Uri::parse(&format!("{base}{path}")).ok()).unwrap_or_else(|| named.clone())
}

fn fill(content: &mut ContentLocation, headers: &HeaderMap) {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let media_type = text(&CONTENT_TYPE).and_then(|told| MediaType::parse(told).ok());
    content.media_type = media_type.or_else(|| content.media_type.take());
    // What is made anew for each reader has no size of its own.
    if all(headers, "type").contains(&"http://www.w3.org/ns/ldp#NonRDFSource") {
        content.size = text(&CONTENT_LENGTH).and_then(|told| told.parse().ok()).or(content.size);
        content.digest = text(&DIGEST).and_then(digest).or_else(|| content.digest.take());
    }
}

/// The strongest of the digests in a header (RFC 3230 section 4.3.2). Fedora writes them in hexadecimal digits, others in
/// base64.
fn digest(header: &str) -> Option<Digest> {
    let one = |told: &str| {
        let (name, value) = told.trim().split_once('=')?;
        let algorithm = DigestAlgorithm::parse(if name.eq_ignore_ascii_case("sha") { "sha-1" } else { name })?;
        Digest::parse(algorithm, value).ok().or_else(|| {
            let bytes = STANDARD.decode(value).ok()?;
            Digest::parse(algorithm, &hex::encode(bytes)).ok()
        })
    };
    header.split(',').filter_map(one).max_by_key(|digest| digest.algorithm().hex_len())
}

/// Whether what is there was modified after `time`; a header tells whole seconds.
fn is_newer(headers: &HeaderMap, time: Option<Timestamp>) -> bool {
    match (header_date(headers, &LAST_MODIFIED), time) {
        (Some(modified), Some(time)) => modified.timestamp_millis() > time.millis(),
        _ => false,
    }
}

/// A page that asks somebody to log in is no resource.
fn is_resource(there: &There) -> Result<(), &'static str> {
    let is_told = all(&there.headers, "type").iter().any(|name| name.starts_with(LDP));
    if is_told { Ok(()) } else { Err("it is not told to be a resource of LDP (Link rel=\"type\")") }
}

/// The targets of all links of a relation.
fn all<'h>(headers: &'h HeaderMap, relation: &str) -> Vec<&'h str> {
    links(headers.get_all(LINK).iter().filter_map(|value| value.to_str().ok()), relation)
}

#[cfg(test)]
mod tests {
    use super::{HeaderMap, LAST_MODIFIED, Timestamp, digest, is_newer};

    #[test]
    fn a_digest_is_read_in_hexadecimal_and_in_base64() {
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
    fn what_was_modified_in_the_second_of_the_event_is_not_newer() {
        let headers = HeaderMap::from_iter([(LAST_MODIFIED, "Sat, 21 Nov 2026 08:00:05 GMT".parse().unwrap())]);
        let newer_than = |time| is_newer(&headers, Some(Timestamp::parse(time).unwrap()));
        assert!(newer_than("2026-11-21T08:00:04.999Z"));
        assert!(!newer_than("2026-11-21T08:00:05.000Z") && !newer_than("2026-11-21T08:00:05.900Z"));
        assert!(!is_newer(&headers, None) && !is_newer(&HeaderMap::new(), None));
    }
}
