//! The end of an embargo in the metadata of a record.

use super::super::{stated_dates::first_day, xml::TextPlace};
use crate::model::{Timestamp, VisibilityDates};

/// Begin of a date in OpenAIRE's guidelines up to version 3, in any case. It is the value of a `dc:date`.
const EMBARGO_END: &str = "info:eu-repo/date/embargoend/";

/// Begin of the namespaces of DataCite's metadata, which the guidelines have used since version 4.
const DATACITE: &str = "http://datacite.org/schema/";

/// Namespace of the terms of Dublin Core.
const DCTERMS: &str = "http://purl.org/dc/terms/";

/// Rights of a record under an embargo: in the terms of OpenAIRE up to version 3, and in those of COAR, which the guidelines
/// have used since version 4.
const EMBARGOED_ACCESS: [&str; 2] =
    ["info:eu-repo/semantics/embargoedAccess", "http://purl.org/coar/access_right/c_f1cf"];

/// Maximum number of characters of an unreadable date that a description shows.
const SHOWN_CHARS: usize = 64;

/// End of an embargo according to the metadata.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EmbargoEnd {
    /// The dates of the files; there may be none.
    Known(VisibilityDates),
    /// The dates that can be read. Another one cannot, and may be no embargo.
    Partial(VisibilityDates),
    /// The record is under an embargo whose end cannot be read. Other dates count no more, because they may be earlier.
    Unreadable,
}

/// Dates and rights in the metadata.
#[derive(Default)]
pub(super) struct Embargo {
    end: Option<Timestamp>,
    /// Number of the element that is a date of DataCite of the type `Available`.
    available: Option<usize>,
    /// The first date in a form that is not read.
    unreadable: Option<String>,
    /// Whether an unreadable date is certainly the end of an embargo.
    is_unreadable_end: bool,
    /// Whether the rights of the record are those of an embargo.
    is_embargoed: bool,
}

impl Embargo {
    /// Returns what the metadata says about the end of an embargo.
    pub(super) fn end(&self) -> EmbargoEnd {
        let dates = VisibilityDates::new(self.end, None).unwrap_or_default();
        match self.unreadable {
            None => EmbargoEnd::Known(dates),
            Some(_) if self.is_unreadable_end || self.is_embargoed => EmbargoEnd::Unreadable,
            Some(_) => EmbargoEnd::Partial(dates),
        }
    }

    /// Returns the first date in a form that is not read.
    pub(super) fn unreadable_date(&self) -> Option<&str> {
        self.unreadable.as_deref()
    }

    /// Reads a text or a value of an attribute of the metadata.
    pub(super) fn read(&mut self, place: TextPlace<'_>, text: &str) {
        let TextPlace { namespace, element, number, attribute } = place;
        let text = text.trim();
        self.is_embargoed |= EMBARGOED_ACCESS.iter().any(|rights| text.eq_ignore_ascii_case(rights));
        let is_datacite = element == "date" && namespace.starts_with(DATACITE);
        if attribute.is_some() {
            if is_datacite && attribute == Some("dateType") && text == "Available" {
                self.available = Some(number);
            }
            return;
        }
        let is_available = self.available == Some(number);
        let is_end = text.get(..EMBARGO_END.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(EMBARGO_END));
        let date = match text.get(EMBARGO_END.len()..).filter(|_| is_end) {
            Some(date) => date,
            // The begin of a range.
            None if is_available => text.split('/').next().unwrap_or(text),
            None if element == "available" && namespace == DCTERMS => text,
            None => return,
        };
        match first_day(date) {
            Some(date) => self.end = self.end.max(Some(date)),
            None => {
                self.unreadable.get_or_insert_with(|| date.chars().take(SHOWN_CHARS).collect());
                self.is_unreadable_end |= is_end;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BASE_URL, DIALECT, METADATA_PREFIX};
    use crate::{
        format::{Headers, Limits, Message, ParsedMessage},
        model::{DraftChange, DraftItem, State},
    };

    const COAR: &str = "http://purl.org/coar/access_right/c_f1cf";

    #[test]
    fn end_of_an_embargo_concerns_the_files() {
        let dialect = (DIALECT.build)(serde_json::json!({ "files": "http://h/f.*" }), Limits::default()).unwrap();
        let headers: Headers = [(BASE_URL, "http://h.example/oai"), (METADATA_PREFIX, "p")].into_iter().collect();
        let dates = |metadata: &str| {
            let record = format!(
                "<record xmlns='http://www.openarchives.org/OAI/2.0/'><header><identifier>a</identifier></header>
                <metadata><m xmlns='' xmlns:d='http://datacite.org/schema/kernel-4' xmlns:t='http://purl.org/dc/terms/'>
                <i>http://h/f1</i>{metadata}<i>http://h/f2</i></m></metadata></record>"
            );
            let message = Message { content_type: None, headers: &headers, body: record.as_bytes() };
            let Ok(ParsedMessage::Drafts(drafts)) = dialect.read(&message) else { panic!("{record}") };
            let end = |item: &DraftItem| match &item.change {
                DraftChange::Dated { dates, .. } => dates.from().map(|from| from.to_string()),
                DraftChange::Present { state, .. } => state.as_ref().map(State::to_string),
                _ => None,
            };
            let is_remarked = drafts[0].description.as_str().contains("cannot be read");
            assert_eq!(is_remarked, !drafts[0].reading.dropped.is_empty(), "{metadata}");
            let ends: Vec<_> = drafts[0].items.listed().iter().map(end).collect();
            assert_eq!((ends.len(), &ends[0], &ends[1]), (3, &None, &ends[2]));
            (ends[1].clone(), !drafts[0].reading.dropped.is_empty())
        };
        let hidden = || (Some("EMBARGOED".to_owned()), true);
        let end = |date: &str| (Some(format!("{date}T00:00:00.000Z")), false);
        for (metadata, expected) in [
            ("<date>info:eu-repo/date/embargoEnd/2030-02-03</date>", end("2030-02-03")),
            ("<x>info:eu-repo/date/EmbargoEnd/2030</x>", end("2030-01-01")),
            ("<d:date dateType='Available'> 2030-02-03 </d:date>", end("2030-02-03")),
            ("<d:date dateType='Available'>2030-02/2031-01</d:date>", end("2030-02-01")),
            ("<t:available>2030-02-03</t:available><t:available>2029-01-01</t:available>", end("2030-02-03")),
            ("<d:date dateType='Accepted'>2030-02-03</d:date><date>2030-02-03</date>", (None, false)),
            ("<d:date dateType='Available'/><d:date>2030-02-03</d:date>", (None, false)),
            ("<date dateType='Available'>2030-02-03</date><available>2030-02-03</available>", (None, false)),
            ("<t:available>in spring</t:available>", (None, true)),
            ("<t:available>in spring</t:available><t:available>2030-02-03</t:available>", (end("2030-02-03").0, true)),
            ("<x>info:eu-repo/date/embargoEnd/</x>", hidden()),
            ("<x>info:eu-repo/date/embargoEnd/soon</x><t:available>2001-02-03</t:available>", hidden()),
            ("<r>info:eu-repo/semantics/embargoedaccess</r><t:available>in spring</t:available>", hidden()),
            (&*format!("<d:date dateType='Available'>?</d:date><d:rights rightsURI='{COAR}'>no</d:rights>"), hidden()),
            (&*format!("<d:rights rightsURI='{COAR}'>no</d:rights>"), (None, false)),
        ] {
            assert_eq!(dates(metadata), expected, "{metadata}");
        }
    }
}
