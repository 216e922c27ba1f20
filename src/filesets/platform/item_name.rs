//! Names of items, in the characters that archive.org allows.
//!
//! A name has the whole identifier of the dataset. If that has other characters or is too long, a digest of the whole makes
//! the name unique.

use sha2::{Digest, Sha256};
use url::Url;

use super::{domain, segments};

/// Maximum length of a name, in characters.
const MAX_CHARS: usize = 100;

/// Number of bytes of the digest.
const DIGEST_BYTES: usize = 5;

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-".contains(c)
}

/// Returns the name for a host and the parts of an identifier.
pub(super) fn item_name(host: &str, parts: &[&str]) -> String {
    let is_whole = parts.iter().all(|part| part.chars().all(is_allowed));
    named(host, &parts.join("-"), is_whole, &parts.join("\0"))
}

/// Returns the name for a page that has only its URL.
pub(super) fn item_name_of_page(page: &Url) -> String {
    let parts = segments(page);
    // The path is read back from the name only if its parts have no hyphens.
    let is_plain = |part: &String| part.chars().all(|c| is_allowed(c) && c != '-');
    let is_whole = parts.iter().all(is_plain) && page.query().is_none();
    let identity = &page[url::Position::BeforePath..url::Position::AfterQuery];
    named(&domain(page), &parts.join("-"), is_whole, identity)
}

fn named(host: &str, id: &str, is_whole: bool, identity: &str) -> String {
    // A host has no such character, so the port stays readable.
    let name = format!("{}-{id}", host.replace(':', "_"));
    if is_whole && name.len() <= MAX_CHARS {
        return name;
    }
    let digest = hex::encode(&Sha256::digest(format!("{host}\0{identity}"))[..DIGEST_BYTES]);
    let start: String = name.chars().map(|c| if is_allowed(c) { c } else { '_' }).collect();
    format!("{}-{digest}", start.chars().take(MAX_CHARS - digest.len() - 1).collect::<String>())
}

/// Returns the name that versions before 0.2 gave, which was not unique: a part of the identifier, or characters replaced
/// and cut.
pub(super) fn former_name(parts: &[&str]) -> String {
    parts.join("-").chars().map(|c| if is_allowed(c) { c } else { '_' }).take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::{Url, former_name, item_name, item_name_of_page};

    #[test]
    fn plain_identifiers_are_names() {
        assert_eq!(item_name("zenodo.org", &["17"]), "zenodo.org-17");
        assert_eq!(item_name("h:80", &["17", "v1.0"]), "h_80-17-v1.0");
        assert_eq!(item_name("zenodo.org", &["17"]), former_name(&["zenodo.org", "17"]));
        assert_eq!(item_name_of_page(&Url::parse("https://h/d/1").unwrap()), "h-d-1");
        assert_eq!(former_name(&["h:80", "ä b", "v1.0"]), "h_80-__b-v1.0");
    }

    #[test]
    fn other_identifiers_have_different_names() {
        let pages = ["/%C3%A4%C3%B6", "/%C3%9F%C3%A9", "/a-b/c", "/a/b-c", "/a?id=1", "/a?id=2", "/a"];
        let long = ["x", "y"].map(|end| format!("/{}{end}", "p".repeat(200)));
        let pages = pages.into_iter().map(str::to_owned).chain(long);
        let mut names: Vec<_> =
            pages.map(|path| item_name_of_page(&Url::parse(&format!("https://h{path}")).unwrap())).collect();
        let pids = ["doi:10.1/A/ABCDEF", "doi:10.2/A/ABCDEF", "doi:10.1_A_ABCDEF"];
        names.extend(pids.map(|pid| item_name("h", &[pid, "v1.0"])));
        let count = names.len();
        assert!(names.iter().all(|name| name.len() <= 100 && name.chars().all(super::is_allowed)), "{names:?}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
