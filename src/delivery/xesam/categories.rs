//! Categories of records: the classes of the Xesam core ontology 1.0.
//!
//! A record has a content category, the abstract interpretation of its subject, and a source category, its physical
//! representation. A crawler that asks for a category also gets the classes below it.

use crate::model::MediaType;

/// Prefix of the names of the ontology on D-Bus.
pub(super) const PREFIX: &str = "xesam:";

/// Namespace of the ontology, which a crawler may write instead of the prefix.
const NAMESPACE: &str = "http://freedesktop.org/standards/xesam/1.0/core#";

/// Content category of a subject whose kind is unknown.
pub(super) const CONTENT: &str = "xesam:Content";

/// Source category of a subject without content of its own.
pub(super) const RESOURCE: &str = "xesam:RemoteResource";

/// Source category of a subject with content at a URL.
pub(super) const FILE: &str = "xesam:RemoteFile";

/// Each class with its parents.
const CLASSES: &[(&str, &[&str])] = &[
    // Sources.
    ("ArchivedFile", &["Filelike"]),
    ("BlockDevice", &["Source"]),
    ("DeletedFile", &["Filelike"]),
    ("EmailAttachment", &["EmbeddedObject"]),
    ("EmbeddedObject", &["Source"]),
    ("File", &["Filelike"]),
    ("Filelike", &["Source"]),
    ("IMAP4Message", &["RemoteMessageboxMessage"]),
    ("MessageboxMessage", &["Source"]),
    ("OfflineMedia", &["Source"]),
    ("POP3Message", &["RemoteMessageboxMessage"]),
    ("RemoteFile", &["RemoteResource", "Filelike"]),
    ("RemoteMessageboxMessage", &["RemoteResource", "MessageboxMessage"]),
    ("RemoteResource", &["Source"]),
    ("RevisionControlledFile", &["File"]),
    ("Source", &[]),
    ("SystemResource", &["Source"]),
    // Contents.
    ("Annotation", &["Content"]),
    ("Archive", &["Content"]),
    ("Audio", &["Media"]),
    ("AudioList", &["MediaList"]),
    ("Bookmark", &["Annotation"]),
    ("CommunicationChannel", &["Content"]),
    ("Contact", &["Content"]),
    ("ContactGroup", &["Content"]),
    ("Content", &[]),
    ("Document", &["Text"]),
    ("Documentation", &["Document"]),
    ("Email", &["Message"]),
    ("FileSystem", &["Content"]),
    ("Folder", &["Annotation"]),
    ("IMMessage", &["Message"]),
    ("Image", &["Visual"]),
    ("MailingList", &["CommunicationChannel", "ContactGroup"]),
    ("MailingListEmail", &["Email"]),
    ("Media", &["Content"]),
    ("MediaList", &["Annotation"]),
    ("Message", &["Content"]),
    ("Music", &["Audio"]),
    ("NewsGroup", &["CommunicationChannel"]),
    ("NewsGroupEmail", &["Email"]),
    ("Organization", &["Contact"]),
    ("Person", &["Contact"]),
    ("PersonalEmail", &["Email"]),
    ("Photo", &["Image"]),
    ("Presentation", &["Document"]),
    ("Project", &["Annotation"]),
    ("RSSFeed", &["CommunicationChannel"]),
    ("RSSMessage", &["Message"]),
    ("RevisionControlledRepository", &["Content"]),
    ("SoftwarePackage", &["Content"]),
    ("SourceCode", &["Text"]),
    ("Spreadsheet", &["Document"]),
    ("Tag", &["Annotation"]),
    ("Text", &["Content"]),
    ("TextDocument", &["Document"]),
    ("UncategorizedText", &["Text"]),
    ("Video", &["Audio", "Visual"]),
    ("Visual", &["Media"]),
    ("XML", &["Text"]),
];

/// Content categories of media types, by the beginning of the type. The first match counts.
const MEDIA_TYPES: &[(&str, &str)] = &[
    ("image/", "xesam:Image"),
    ("audio/", "xesam:Audio"),
    ("video/", "xesam:Video"),
    ("message/rfc822", "xesam:Email"),
    ("message/", "xesam:Message"),
    ("application/mbox", "xesam:Email"),
    ("application/pdf", "xesam:TextDocument"),
    ("application/msword", "xesam:TextDocument"),
    ("application/rtf", "xesam:TextDocument"),
    ("text/rtf", "xesam:TextDocument"),
    ("application/epub", "xesam:TextDocument"),
    ("application/vnd.oasis.opendocument.text", "xesam:TextDocument"),
    ("application/vnd.openxmlformats-officedocument.wordprocessing", "xesam:TextDocument"),
    ("application/vnd.oasis.opendocument.spreadsheet", "xesam:Spreadsheet"),
    ("application/vnd.openxmlformats-officedocument.spreadsheet", "xesam:Spreadsheet"),
    ("application/vnd.ms-excel", "xesam:Spreadsheet"),
    ("text/csv", "xesam:Spreadsheet"),
    ("application/vnd.oasis.opendocument.presentation", "xesam:Presentation"),
    ("application/vnd.openxmlformats-officedocument.presentation", "xesam:Presentation"),
    ("application/vnd.ms-powerpoint", "xesam:Presentation"),
    ("text/html", "xesam:TextDocument"),
    ("application/xhtml+xml", "xesam:TextDocument"),
    ("application/rss", "xesam:RSSFeed"),
    ("application/atom", "xesam:RSSFeed"),
    ("text/xml", "xesam:XML"),
    ("application/xml", "xesam:XML"),
    ("text/x-", "xesam:SourceCode"),
    ("text/javascript", "xesam:SourceCode"),
    ("text/css", "xesam:SourceCode"),
    ("application/javascript", "xesam:SourceCode"),
    ("application/sql", "xesam:SourceCode"),
    ("text/plain", "xesam:UncategorizedText"),
    ("text/", "xesam:Text"),
    ("application/zip", "xesam:Archive"),
    ("application/gzip", "xesam:Archive"),
    ("application/x-tar", "xesam:Archive"),
    ("application/x-7z", "xesam:Archive"),
    ("application/x-bzip", "xesam:Archive"),
    ("application/warc", "xesam:Archive"),
    ("application/vnd.debian.binary-package", "xesam:SoftwarePackage"),
    ("application/x-rpm", "xesam:SoftwarePackage"),
];

/// Returns the content category of content with this media type.
pub(super) fn of_media_type(media_type: Option<&MediaType>) -> &'static str {
    let Some(media_type) = media_type else { return CONTENT };
    let kind = media_type.as_str().split(';').next().unwrap_or_default().trim_end().to_ascii_lowercase();
    let known = MEDIA_TYPES.iter().find(|(beginning, _)| kind.starts_with(beginning)).map(|(_, category)| *category);
    known.unwrap_or(if kind.ends_with("+xml") { "xesam:XML" } else { CONTENT })
}

/// Categories that a crawler asks for. Without any, every category matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CategoryFilter {
    /// Names without prefix.
    wanted: Vec<String>,
}

impl CategoryFilter {
    /// Creates a filter from names as `xesam:Image`, `Image` or with the namespace of the ontology. A name of another
    /// ontology matches nothing.
    pub(super) fn new(names: &[String]) -> Self {
        let plain = |name: &String| {
            let plain = name.strip_prefix(PREFIX).or_else(|| name.strip_prefix(NAMESPACE)).unwrap_or(name);
            plain.to_owned()
        };
        Self { wanted: names.iter().map(plain).collect() }
    }

    /// Returns whether the filter selects a category of the ontology.
    pub(super) fn matches(&self, category: &str) -> bool {
        self.wanted.is_empty() || self.selects(category.strip_prefix(PREFIX).unwrap_or(category))
    }

    fn selects(&self, class: &str) -> bool {
        let parents = || CLASSES.iter().find(|(name, _)| *name == class).map_or(&[][..], |(_, parents)| *parents);
        self.wanted.iter().any(|wanted| wanted == class) || parents().iter().any(|parent| self.selects(parent))
    }
}

#[cfg(test)]
mod tests {
    use super::{CLASSES, CONTENT, CategoryFilter, FILE, MEDIA_TYPES, MediaType, PREFIX, RESOURCE, of_media_type};

    fn filter(names: &[&str]) -> CategoryFilter {
        CategoryFilter::new(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn every_parent_and_every_category_is_a_class() {
        let is_class = |class: &str| CLASSES.iter().any(|(name, _)| *name == class);
        for (class, parents) in CLASSES {
            assert!(parents.iter().all(|parent| is_class(parent)), "{class}");
            let roots = ["Source", "Content"].map(|root| filter(&[root]).matches(class));
            assert!(roots[0] != roots[1], "{class} has one root");
        }
        let used = MEDIA_TYPES.iter().map(|(_, category)| *category).chain([CONTENT, RESOURCE, FILE]);
        for category in used {
            assert!(is_class(category.strip_prefix(PREFIX).unwrap()), "{category}");
        }
    }

    #[test]
    fn category_selects_its_descendants() {
        assert!(filter(&[]).matches("xesam:Photo"));
        for name in ["xesam:Visual", "Visual", "http://freedesktop.org/standards/xesam/1.0/core#Visual", "Media"] {
            assert!(filter(&[name]).matches("xesam:Photo") && filter(&[name]).matches("xesam:Video"), "{name}");
            assert!(!filter(&[name]).matches("xesam:Text") && !filter(&[name]).matches(CONTENT), "{name}");
        }
        assert!(filter(&["xesam:Audio"]).matches("xesam:Video"), "a class may have several parents");
        assert!(filter(&["xesam:Text", "xesam:Image"]).matches("xesam:XML"), "the names are alternatives");
        assert!(filter(&["Filelike"]).matches(FILE) && !filter(&["Filelike"]).matches(RESOURCE));
        assert!(!filter(&["nmm:Photo"]).matches("xesam:Photo"));
    }

    #[test]
    fn media_types_have_content_categories() {
        for (media_type, category) in [
            ("image/svg+xml", "xesam:Image"),
            ("Image/JPEG; q=1", "xesam:Image"),
            ("text/x-python", "xesam:SourceCode"),
            ("text/plain;charset=UTF-8", "xesam:UncategorizedText"),
            ("application/rdf+xml", "xesam:XML"),
            ("application/octet-stream", CONTENT),
        ] {
            assert_eq!(of_media_type(Some(&MediaType::parse(media_type).unwrap())), category, "{media_type}");
        }
        assert_eq!(of_media_type(None), CONTENT);
    }
}
