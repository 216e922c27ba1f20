//! The end of an embargo in the metadata of a record.

use super::super::xml::TextPlace;
use crate::model::{Timestamp, VisibilityDates};

/// Begin of a date in OpenAIRE's guidelines up to version 3, in any case. It is the value of a `dc:date`.
const EMBARGO_END: &str = "info:eu-repo/date/embargoend/";

/// Begin of the namespaces of DataCite's metadata, which the guidelines have used since version 4.
const DATACITE: &str = "http://datacite.org/schema/";

/// Namespace of the terms of Dublin Core.
const DCTERMS: &str = "http://purl.org/dc/terms/";

/// End of an embargo in the metadata.
#[derive(Default)]
pub(super) struct Embargo {
    end: Option<Timestamp>,
    /// Number of the element that is a date of DataCite of the type `Available`.
    available: Option<usize>,
    is_unreadable: bool,
}

impl Embargo {
    /// Returns the dates of the files.
    pub(super) fn dates(&self) -> VisibilityDates {
        VisibilityDates::new(self.end, None).unwrap_or_default()
    }

    /// Returns whether a date has a form that is not read.
    pub(super) fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }

    /// Reads a text or a value of an attribute of the metadata.
    pub(super) fn read(&mut self, place: TextPlace<'_>, text: &str) {
        let TextPlace { namespace, element, number, attribute } = place;
        let is_datacite = element == "date" && namespace.starts_with(DATACITE);
        if attribute.is_some() {
            if is_datacite && attribute == Some("dateType") && text == "Available" {
                self.available = Some(number);
            }
            return;
        }
        let is_available = self.available == Some(number);
        let text = text.trim();
        let date = match text.get(..EMBARGO_END.len()).filter(|begin| begin.eq_ignore_ascii_case(EMBARGO_END)) {
            Some(begin) => &text[begin.len()..],
            // The begin of a range.
            None if is_available => text.split('/').next().unwrap_or(text),
            None if element == "available" && namespace == DCTERMS => text,
            None => return,
        };
        match first_day(date) {
            Some(date) => self.end = self.end.max(Some(date)),
            None => self.is_unreadable = true,
        }
    }
}

/// Parses a date of W3CDTF. A day, a month or a year is its begin in UTC.
fn first_day(date: &str) -> Option<Timestamp> {
    let date = date.trim();
    let day = match date.len() {
        4 => format!("{date}-01-01"),
        7 => format!("{date}-01"),
        _ => date.to_owned(),
    };
    Timestamp::parse_or_day(&day).ok()
}

#[cfg(test)]
mod tests {
    use super::super::{BASE_URL, DIALECT, METADATA_PREFIX};
    use crate::{
        format::{Headers, Limits, Message, ParsedMessage},
        model::{DraftChange, DraftItem},
    };

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
                _ => None,
            };
            let ends: Vec<_> = drafts[0].items.listed().iter().map(end).collect();
            assert_eq!((ends.len(), &ends[0], &ends[1]), (3, &None, &ends[2]));
            (ends[1].clone(), !drafts[0].reading.dropped.is_empty())
        };
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
            ("<x>info:eu-repo/date/embargoEnd/</x>", (None, true)),
        ] {
            assert_eq!(dates(metadata), expected, "{metadata}");
        }
    }
}
