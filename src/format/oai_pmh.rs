//! Records of a repository with OAI-PMH 2.0, each as the element `record` of `ListRecords` or `GetRecord`.
//!
//! * The object is the record, which identifier and metadata format identify together (section 2.5). Its URI is the URL
//!   of `GetRecord`, because identifiers are unique only within a repository.
//! * The metadata is an item of the object, with the same URI. Its digest is that of the canonical metadata, so a
//!   record with the same metadata is unchanged, whatever its datestamp is: repositories touch datestamps without a
//!   change, and change crosswalks without a new datestamp. Locations of schemas are no metadata, and elements of `oai_dc`
//!   have no order.
//! * Files are further items, if the setting `files` is a regular expression of their URLs. It is compared with each text
//!   and each value of an attribute in the metadata, because every metadata format has its own place for links.
//! * The end of an embargo concerns the files, because the repository shows the record to everybody. It is the date of
//!   OpenAIRE (`info:eu-repo/date/embargoEnd/`), the date `Available` of DataCite, or `dcterms:available`; of several, the
//!   latest. If the record is certainly under an embargo, and a date cannot be read, its files are hidden.
//! * A deleted record is absent with its files, even if it has metadata.
//! * A record in the format `content-change` is that of an object of another gateway. The object is then the object itself, with
//!   its items.
//! * A container `about` with provenance becomes part of the description. It does not count as a change.
//!
//! * If the harvest keeps its records ([`kept_record`]), the content of the metadata is the copy in the file store.
//! * With the setting `sets`, the types of the object are the lists of the record's sets.
//!
//! Headers give the facts that a record does not contain: the base URL, the metadata prefix, the date of the response, for
//! records without a datestamp, and the place of its copy.

mod embargo;
pub mod kept_record;
mod provenance;
mod registered;
mod sets;

use percent_encoding::utf8_percent_encode;
use serde::Deserialize;

pub use self::provenance::OriginDescription;
pub(crate) use self::provenance::PROVENANCE;
use self::{
    embargo::{Embargo, EmbargoEnd},
    provenance::origins,
};
use super::{
    Dialect, DialectKind, DuplicateDetection, Limits, Location, Message, MessageLimit, NOT_UNRESERVED, ParsedMessage,
    Rejection, content_change, parse_settings,
    xml::{Document, Element, ElementDigest},
};
use crate::model::{
    ContentLocation, Digest, DigestAlgorithm, Draft, DraftChange, DraftItem, DraftItems, DraftLookup, DraftTime,
    DroppedPart, MediaType, OriginalContent, Reading, State, Text, Timestamp, Uri, UrlPattern, User,
};

/// Namespace of OAI-PMH (section 3.2).
pub const NAMESPACE: &str = "http://www.openarchives.org/OAI/2.0/";

/// Namespace and location of the schema of all responses.
pub(crate) const SCHEMA_LOCATION: &str =
    "http://www.openarchives.org/OAI/2.0/ http://www.openarchives.org/OAI/2.0/OAI-PMH.xsd";

/// Header with the base URL of the repository, without credentials.
pub const BASE_URL: &str = "oai-base-url";

/// Header with the base URL at which records are requested, if it is not the one of their URIs: the repository has moved, or
/// the records had URIs without the query of the base URL before.
pub const FETCH_URL: &str = "oai-fetch-url";

/// Header with the prefix of the metadata format.
pub const METADATA_PREFIX: &str = "oai-metadata-prefix";

/// Header with the date of the response that contained the record.
pub const RESPONSE_DATE: &str = "oai-response-date";

/// Header with the location of the copy of the record in the file store, as JSON: the one that the registry has, or a new one.
pub const COPY: &str = "oai-copy";

/// Prefix of the format in which a gateway disseminates the objects of its registry.
pub const CONTENT_CHANGE: &str = "content-change";

/// The dialect `oai-pmh`.
pub(super) static DIALECT: DialectKind = DialectKind {
    name: "oai-pmh",
    about: "records of a repository with OAI-PMH 2.0",
    accepts: &["text/xml", "application/xml"],
    headers: &["oai-"],
    duplicates: DuplicateDetection::Impossible,
    redact: None,
    repository: None,
    sample_settings: &["{}", r#"{"files": "https?://.*[.]pdf"}"#, r#"{"sets": true}"#],
    build: |value, limits| {
        let Settings { files, sets } = parse_settings(value)?;
        Ok(Box::new(OaiPmh { files, sets, limits }))
    },
};

/// Settings of a source.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// Regular expression of the URLs of files.
    files: Option<UrlPattern>,
    /// Whether the sets of a record are types of its object.
    #[serde(default)]
    sets: bool,
}

/// The configured dialect.
struct OaiPmh {
    files: Option<UrlPattern>,
    sets: bool,
    limits: Limits,
}

/// The element `header` of a record.
#[derive(Default)]
struct RecordHeader {
    identifier: String,
    datestamp: String,
    sets: Vec<String>,
    is_deleted: bool,
}

/// A record.
#[derive(Default)]
struct Record {
    header: Option<RecordHeader>,
    /// Digest of the metadata.
    digest: Option<ElementDigest>,
    /// URLs of the files, each once.
    files: Vec<Uri>,
    embargo: Embargo,
    origins: Vec<OriginDescription>,
    /// Message about an object of another gateway.
    registered: Option<Box<Draft>>,
}

impl Dialect for OaiPmh {
    fn read(&self, message: &Message<'_>) -> Result<ParsedMessage, Rejection> {
        let header = |name: &str| {
            message.headers.get(name).ok_or_else(|| {
                let reason = format!("the header {name} is missing; a harvest adds it to each record");
                Rejection::unprocessable(Location::Message, reason)
            })
        };
        let (base_url, prefix) = (header(BASE_URL)?, header(METADATA_PREFIX)?);
        let is_of_gateway = prefix == CONTENT_CHANGE;
        let Record { header, digest, files, embargo, origins, registered } =
            self.record(message.body, is_of_gateway)?;
        let missing = |what: &str| Rejection::unprocessable(Location::Message, format!("the record has no {what}"));
        let RecordHeader { identifier, datestamp, sets, is_deleted } = header.ok_or_else(|| missing("header"))?;
        if identifier.is_empty() {
            return Err(missing("identifier"));
        }
        let date = datestamp_of(&datestamp).or_else(|| datestamp_of(message.headers.get(RESPONSE_DATE)?));
        if is_of_gateway {
            let registered = registered.filter(|_| !is_deleted);
            if registered.is_none() && !is_deleted {
                return Err(missing("message 0.1 as its metadata, and is not deleted"));
            }
            return Ok(ParsedMessage::one(registered::draft(&identifier, registered.map(|draft| *draft), date)?));
        }
        let address = get_record_url(base_url, prefix, &identifier).map_err(|error| {
            Rejection::unprocessable(Location::Message, format!("the URL of the record is not a URI: {error}"))
        })?;
        let fetch_url = message.headers.get(FETCH_URL).map(|base| get_record_url(base, prefix, &identifier));
        let fetch_url = fetch_url.and_then(Result::ok).unwrap_or_else(|| address.clone());
        let copy = message.headers.get(COPY).and_then(|copy| serde_json::from_str::<ContentLocation>(copy).ok());
        let types =
            if self.sets && !is_deleted { sets::types(base_url, prefix, sets, self.limits.types) } else { Vec::new() };
        let items = match digest {
            _ if is_deleted => Vec::new(),
            None => return Err(missing("metadata, and is not deleted")),
            Some(digest) => {
                let files = files.into_iter().filter(|url| *url != address).map(ContentLocation::at);
                let present = |file: ContentLocation| {
                    let url = file.url.clone();
                    let item = |state| DraftItem::new(url, DraftChange::Present { content: Some(file), state });
                    match embargo.end() {
                        EmbargoEnd::Known(dates) => item(None).with_all_dates(dates),
                        // A date that cannot be read is no sign that there is none.
                        EmbargoEnd::Partial(dates) => item(None).dated(dates),
                        EmbargoEnd::Unreadable => item(Some(State::EMBARGOED)),
                    }
                };
                std::iter::once(metadata_item(&address, fetch_url, &digest, copy)).chain(files.map(present)).collect()
            }
        };
        Ok(ParsedMessage::one(Draft {
            id: None,
            event_id: None,
            software_version: None,
            user: User::unknown(),
            time: date.map_or(DraftTime::Arrival, DraftTime::Observed),
            object: address,
            parent: None,
            types,
            description: description(&identifier, &origins, embargo.unreadable_date()),
            items: DraftItems::Complete(items),
            report: None,
            lookup: DraftLookup::default(),
            reading: Reading {
                dropped: embargo.unreadable_date().map(|_| DroppedPart::VisibilityDate).into_iter().collect(),
                ..Reading::default()
            },
        }))
    }
}

impl OaiPmh {
    fn record(&self, body: &[u8], is_of_gateway: bool) -> Result<Record, Rejection> {
        let mut document = Document::open(body, self.limits)?;
        let root = document.root()?;
        if !root.is(NAMESPACE, "record") {
            let reason = format!("the element {} was found; a record of OAI-PMH 2.0 was expected", root.name());
            return Err(root.unprocessable(reason));
        }
        let mut record = Record::default();
        while let Some(child) = document.child()? {
            if child.is(NAMESPACE, "header") {
                record.header = Some(record_header(&mut document, &child)?);
            } else if child.is(NAMESPACE, "metadata") {
                while let Some(metadata) = document.child()? {
                    if is_of_gateway && record.registered.is_none() && metadata.atom() == Some("feed") {
                        let message = content_change::embedded(&mut document, metadata, self.limits)?;
                        record.registered = Some(Box::new(message));
                        continue;
                    }
                    if record.digest.is_some() {
                        return Err(metadata.unprocessable("the metadata has more than one element"));
                    }
                    let Record { files, embargo, .. } = &mut record;
                    let digest = document.digest(&metadata, &mut |place, text| {
                        self.add_file(text, files);
                        embargo.read(place, text);
                    })?;
                    record.digest = Some(digest);
                }
            } else if child.is(NAMESPACE, "about") {
                origins(&mut document, &mut record.origins)?;
            } else {
                document.skip()?;
            }
        }
        document.finish()?;
        let (files, max) = (record.files.len(), self.limits.items.saturating_sub(1));
        if files > max {
            let reason =
                format!("the record names more than {max} files; narrow the setting files, or raise limits.items");
            return Err(Rejection::over_limit(MessageLimit::Items, Location::Message, reason));
        }
        Ok(record)
    }

    /// Adds the URL of a file; not more of them than are needed to see that there are too many.
    fn add_file(&self, text: &str, files: &mut Vec<Uri>) {
        let is_file = |files: &UrlPattern| files.is_match(text.trim());
        if files.len() < self.limits.items
            && self.files.as_ref().is_some_and(is_file)
            && let Ok(url) = Uri::parse(text.trim())
            && !files.contains(&url)
        {
            files.push(url);
        }
    }
}

/// Returns the item for the metadata. Registries of former versions have another digest of it, which is recognised. With a
/// copy, the content is that copy.
fn metadata_item(
    address: &Uri,
    url: Uri,
    ElementDigest { digest, former }: &ElementDigest,
    copy: Option<ContentLocation>,
) -> DraftItem {
    let parse = |digest: &str| Digest::parse(DigestAlgorithm::Sha256, digest).ok();
    let content = ContentLocation {
        media_type: MediaType::parse("text/xml").ok(),
        digest: parse(digest),
        ..ContentLocation::at(url)
    };
    if let Some(copy) = copy {
        // A copy that the registry has keeps its original, also one with the other digest of the same metadata.
        let is_same = |original: &OriginalContent| {
            let known = original.digest.as_ref().map(Digest::hex);
            original.url == content.url && known.is_some_and(|known| [digest, former].iter().any(|own| *own == known))
        };
        let original = copy.original.filter(|original| is_same(original));
        let original = Some(original.unwrap_or_else(|| Box::new(content.reported())));
        let copy = ContentLocation { original, ..copy };
        return DraftItem::new(address.clone(), DraftChange::Present { content: Some(copy), state: None });
    }
    let change = match parse(former).filter(|_| former != digest) {
        Some(former) => DraftChange::Redigested { content, former },
        None => DraftChange::Present { content: Some(content), state: None },
    };
    DraftItem::new(address.clone(), change)
}

fn record_header(document: &mut Document<'_>, element: &Element<'_>) -> Result<RecordHeader, Rejection> {
    let status = element.attribute("status").unwrap_or_default();
    // Repositories write `Deleted` too.
    let mut header =
        RecordHeader { is_deleted: status.trim().eq_ignore_ascii_case("deleted"), ..RecordHeader::default() };
    while let Some(child) = document.child()? {
        let text = document.text()?;
        if child.is(NAMESPACE, "identifier") {
            text.trim().clone_into(&mut header.identifier);
        } else if child.is(NAMESPACE, "datestamp") || child.is(NAMESPACE, "dateStamp") {
            text.trim().clone_into(&mut header.datestamp);
        } else if child.is(NAMESPACE, "setSpec") {
            header.sets.push(text.trim().to_owned());
        }
    }
    Ok(header)
}

fn description(identifier: &str, origins: &[OriginDescription], unreadable_date: Option<&str>) -> Text {
    let mut text = format!("record {identifier}");
    for OriginDescription { base_url, identifier, datestamp, .. } in origins {
        text.push_str(&format!("; from {base_url}: {identifier}, {datestamp}"));
    }
    if let Some(date) = unreadable_date {
        text.push_str(&format!("; the end of the embargo cannot be read: {date:?}"));
    }
    Text::new(&text)
}

/// Returns the URL of `GetRecord` for a record. A base URL may have a query.
///
/// # Errors
/// Fails if the URL is too long, or the base URL is not a URL.
pub fn get_record_url(base_url: &str, prefix: &str, identifier: &str) -> Result<Uri, crate::model::InvalidUri> {
    let [prefix, identifier] = [prefix, identifier].map(|value| utf8_percent_encode(value, NOT_UNRESERVED));
    let separator = separator(base_url);
    Uri::parse(&format!("{base_url}{separator}verb=GetRecord&metadataPrefix={prefix}&identifier={identifier}"))
}

/// Returns the text between a base URL, which may have a query, and the arguments of a request.
fn separator(base_url: &str) -> &'static str {
    match base_url.split_once('?') {
        Some((_, query)) if query.is_empty() || query.ends_with('&') => "",
        Some(_) => "&",
        None => "?",
    }
}

/// Parses a datestamp in the two forms of the protocol (section 3.3), and in the forms that repositories send: with a
/// fraction, with an offset, without `Z`, in lower case. `None` for any other text.
#[must_use]
pub fn datestamp_of(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if text.len() == "2002-02-08".len() {
        return Timestamp::parse(&format!("{text}T00:00:00Z")).ok();
    }
    Timestamp::parse(&text.to_ascii_uppercase()).ok()
}

#[cfg(test)]
mod tests {
    use super::{BASE_URL, DIALECT, Limits, METADATA_PREFIX, datestamp_of};
    use crate::{
        format::{Headers, Message, ParsedMessage},
        model::{Draft, DraftItems},
    };

    fn read(record: &str) -> Result<Draft, String> {
        let dialect = (DIALECT.build)(serde_json::Value::Null, Limits::default()).unwrap();
        let headers: Headers = [(BASE_URL, "http://h.example/oai"), (METADATA_PREFIX, "oai_dc")].into_iter().collect();
        let record = record.replace("<record", "<record xmlns='http://www.openarchives.org/OAI/2.0/'");
        match dialect.read(&Message { content_type: None, headers: &headers, body: record.as_bytes() }) {
            Ok(ParsedMessage::Drafts(drafts)) => Ok(drafts[0].clone()),
            Ok(ParsedMessage::NoChange(reason)) => Err(reason.to_owned()),
            Err(rejection) => Err(rejection.to_string()),
        }
    }

    #[test]
    fn identifier_is_encoded_in_the_url() {
        let draft = read(
            "<record><header><identifier> oai:h:a/b%3C+c </identifier></header><metadata><a/></metadata></record>",
        )
        .unwrap();
        assert_eq!(
            draft.object.as_str(),
            "http://h.example/oai?verb=GetRecord&metadataPrefix=oai_dc&identifier=oai%3Ah%3Aa%2Fb%253C%2Bc"
        );
        assert_eq!(draft.description.as_str(), "record oai:h:a/b%3C+c");
    }

    #[test]
    fn query_of_the_base_url_is_part_of_the_record() {
        for (base, expected) in [
            ("http://h/oai?db=maps", "http://h/oai?db=maps&verb=GetRecord&metadataPrefix=p&identifier=i"),
            ("http://h/oai?", "http://h/oai?verb=GetRecord&metadataPrefix=p&identifier=i"),
        ] {
            assert_eq!(super::get_record_url(base, "p", "i").unwrap().as_str(), expected);
        }
    }

    #[test]
    fn deleted_record_has_no_items() {
        let draft = read(
            "<record><header status=' Deleted'><identifier>a</identifier></header><metadata><a/></metadata></record>",
        )
        .unwrap();
        assert_eq!(draft.items, DraftItems::Complete(Vec::new()));
    }

    #[test]
    fn unreadable_record_is_rejected_with_the_reason() {
        let header = "<header><identifier>a</identifier></header>";
        for (record, complaint) in [
            ("<record/>".to_owned(), "no header"),
            ("<record><header/></record>".to_owned(), "no identifier"),
            (format!("<record>{header}</record>"), "no metadata, and is not deleted"),
            (format!("<record>{header}<metadata/></record>"), "no metadata, and is not deleted"),
            (format!("<record>{header}<metadata><a/><b/></metadata></record>"), "more than one element"),
            (format!("<record>{header}<metadata><dc:a/></metadata></record>"), "\"dc\" is not declared"),
            ("<other/>".to_owned(), "a record of OAI-PMH 2.0 was expected"),
        ] {
            let found = read(&record).unwrap_err();
            assert!(found.contains(complaint), "{record}: {found}");
        }
    }

    #[test]
    fn datestamps_have_many_forms() {
        for (text, expected) in [
            ("2002-02-08", Some("2002-02-08T00:00:00.000Z")),
            ("2002-02-08T08:55:46Z", Some("2002-02-08T08:55:46.000Z")),
            (" 2002-02-08t08:55:46.123z\n", Some("2002-02-08T08:55:46.123Z")),
            ("2002-02-08T08:55:46+02:00", Some("2002-02-08T06:55:46.000Z")),
            ("2002-02-08T08:55:46", Some("2002-02-08T08:55:46.000Z")),
            ("", None),
            ("yesterday!", None),
        ] {
            assert_eq!(datestamp_of(text).map(|time| time.to_string()).as_deref(), expected, "{text}");
        }
    }
}
