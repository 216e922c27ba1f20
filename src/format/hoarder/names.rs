//! Names of documents and items at librairy's event bus.
//!
//! The Hoarder gives short names: the record `oai:oa.upm.es:17` is `documents/oa-upm-17`, and its file
//! `http://oa.upm.es/17/1/eciencia_upm.pdf` is `items/17-eciencia`. A name here depends only on the URIs of object and
//! item, so it stays the same without a table of names.
//!
//! * **Short document**: an identifier `oai:DOMAIN:LOCAL` whose parts are letters and digits, either as the URI itself
//!   or in the URL of a `GetRecord` for `oai_dc`. The name has the labels of the domain but the last, and LOCAL.
//! * **Short item**: a file of such a document with the path `/LOCAL/1/STEM_LABEL.pdf`, where LABEL is a label of the
//!   domain. The name has LOCAL and STEM.
//! * **Every other name** ends with a digest of the URIs, so it is unique.
//!
//! Short names leave out the top-level domain of a document, and the repository of an item. Within one repository
//! they are unique. Two repositories at one exchange could share a short name.

use std::{borrow::Cow, fmt};

use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};
use url::Url;

use crate::model::Uri;

/// Number of bytes of a digest in a name.
const DIGEST_BYTES: usize = 8;

/// Maximum number of characters of the readable part of a name with a digest.
const MAX_READABLE: usize = 48;

/// Name of a document.
pub(super) enum DocumentName {
    /// Name of a record in the `oai` scheme.
    Short {
        /// Labels of the repository's domain without the last one.
        labels: Vec<String>,
        /// Local part of the identifier.
        local: String,
    },
    /// Name with a digest.
    Digest(String),
}

impl DocumentName {
    /// Returns the name of an object.
    pub(super) fn of(object: &Uri) -> Self {
        Self::short(object).unwrap_or_else(|| Self::Digest(with_digest(object.as_str(), &[object])))
    }

    fn short(object: &Uri) -> Option<Self> {
        let identifier = match object.as_str().starts_with("oai:") {
            true => object.as_str().to_owned(),
            false => identifier_of_record(object)?,
        };
        let (domain, local) = identifier.strip_prefix("oai:")?.split_once(':')?;
        let labels: Vec<_> = domain.split('.').map(str::to_owned).collect();
        let is_simple = |label: &String| is_word(label) && !label.bytes().any(|byte| byte.is_ascii_uppercase());
        if labels.len() < 2 || !labels.iter().all(is_simple) || !is_word(local) {
            return None;
        }
        let labels = labels[..labels.len() - 1].to_vec();
        Some(Self::Short { labels, local: local.to_owned() })
    }
}

impl fmt::Display for DocumentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { labels, local } => write!(f, "{}-{local}", labels.join("-")),
            Self::Digest(name) => f.write_str(name),
        }
    }
}

/// Returns the name of an item.
pub(super) fn item(document: &DocumentName, object: &Uri, item: &Uri) -> String {
    let file = item.as_str().split(['?', '#']).next().unwrap_or_default();
    let file = file.rsplit(['/', ':']).next().unwrap_or_default();
    match document {
        DocumentName::Short { labels, local } => match short_stem(labels, local, item) {
            Some(stem) => format!("{local}-{stem}"),
            None => format!("{local}-{}", with_digest(file, &[object, item])),
        },
        DocumentName::Digest(_) => with_digest(file, &[object, item]),
    }
}

/// Returns the stem of a file's name if it alone identifies the file within its record.
fn short_stem(labels: &[String], local: &str, item: &Uri) -> Option<String> {
    let url = Url::parse(item.as_str()).ok()?;
    if !matches!(url.scheme(), "http" | "https") || url.query().is_some() || url.fragment().is_some() {
        return None;
    }
    let name = url.path().strip_prefix('/')?.strip_prefix(local)?.strip_prefix("/1/")?;
    let (stem, label) = name.strip_suffix(".pdf")?.rsplit_once('_')?;
    (is_word(stem) && labels.iter().any(|other| other == label)).then(|| stem.to_owned())
}

/// Returns the identifier in the URL of a `GetRecord` for unqualified Dublin Core.
fn identifier_of_record(object: &Uri) -> Option<String> {
    let (_, query) = object.as_str().split_once("?verb=GetRecord&metadataPrefix=oai_dc&identifier=")?;
    // A form would decode "+" as a space, which is no character of an identifier.
    percent_decode_str(query).decode_utf8().ok().map(Cow::into_owned)
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Returns the letters and digits of a text, and a digest of URIs.
fn with_digest(text: &str, uris: &[&Uri]) -> String {
    let words: Vec<_> = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let readable: String = words.join("-").chars().take(MAX_READABLE).collect();
    let mut digest = Sha256::new();
    for uri in uris {
        digest.update(uri.as_str());
        // A URI contains no line break.
        digest.update("\n");
    }
    let digest = hex::encode(&digest.finalize()[..DIGEST_BYTES]);
    match readable.trim_end_matches('-') {
        "" => digest,
        readable => format!("{readable}-{digest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{DocumentName, Uri, item};

    fn document(object: &str) -> String {
        DocumentName::of(&Uri::parse(object).unwrap()).to_string()
    }

    fn item_name(object: &str, uri: &str) -> String {
        let [object, uri] = [object, uri].map(|uri| Uri::parse(uri).unwrap());
        item(&DocumentName::of(&object), &object, &uri)
    }

    fn has_digest(name: &str) -> bool {
        name.rsplit('-').next().is_some_and(|last| last.len() == 16 && last.bytes().all(|c| c.is_ascii_hexdigit()))
    }

    const RECORD: &str =
        "http://oa.upm.es/cgi/oai2?verb=GetRecord&metadataPrefix=oai_dc&identifier=oai%3Aoa.upm.es%3A17";

    #[test]
    fn identifier_is_the_name_of_the_document() {
        assert_eq!(document(RECORD), "oa-upm-17");
        assert_eq!(document("oai:oa.upm.es:17"), "oa-upm-17");
        let others = [
            "oai:oa-upm.es:17",
            "oai:oa.upm.es:1-7",
            "oai:oa.upm.es:a/17",
            "oai:OA.upm.es:17",
            "oai:upm:17",
            "urn:x:17",
            &RECORD.replace("oai_dc", "mets"),
            &format!("{RECORD}%2B"),
        ];
        let mut names: Vec<_> = others.iter().map(|uri| document(uri)).collect();
        for name in &names {
            assert!(has_digest(name) && name.len() <= 66, "{name}");
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), others.len());
    }

    #[test]
    fn file_is_the_name_of_the_item() {
        assert_eq!(item_name(RECORD, "http://oa.upm.es/17/1/eciencia_upm.pdf"), "17-eciencia");
        assert_eq!(item_name(RECORD, "https://files.example/17/1/eciencia_oa.pdf"), "17-eciencia");
        let others = [
            "http://oa.upm.es/17/2/eciencia_upm.pdf",
            "http://oa.upm.es/17/1/eciencia.pdf",
            "http://oa.upm.es/17/1/eciencia_upm.txt",
            "http://oa.upm.es/17/1/eciencia_es.pdf",
            "http://oa.upm.es/17/1/a/eciencia_upm.pdf",
            "http://oa.upm.es/18/1/eciencia_upm.pdf",
            "http://oa.upm.es/17/1/eciencia_upm.pdf?x",
            "http://oa.upm.es/",
        ];
        let mut names: Vec<_> = others.iter().map(|uri| item_name(RECORD, uri)).collect();
        for name in &names {
            assert!(name.starts_with("17-") && has_digest(name), "{name}");
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), others.len());
        let [one, two] = ["urn:x:1", "urn:x:2"].map(|object| item_name(object, "http://h/a.pdf"));
        assert!(one != two && one.starts_with("a-pdf-"), "{one} {two}");
    }
}
