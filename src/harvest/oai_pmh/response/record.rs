//! A record of a page, as a place in the text of the page.

use std::mem;

use quick_xml::{escape::escape, events::BytesStart};

use super::{char_boundary, raw_attribute};
use crate::{
    format::oai_pmh::{NAMESPACE, datestamp_of},
    model::Timestamp,
    transfer::BudgetShare,
};

/// A record, with the fields of its header.
#[derive(Debug, Default)]
pub(in crate::harvest::oai_pmh) struct RawRecord {
    /// Identifier; a long one is cut.
    pub(in crate::harvest::oai_pmh) identifier: String,
    pub(in crate::harvest::oai_pmh) datestamp: String,
    pub(super) content: RecordContent,
    /// Size of the element in bytes.
    pub(in crate::harvest::oai_pmh) size: usize,
    /// Whether the record is deleted.
    pub(in crate::harvest::oai_pmh) is_deleted: bool,
    /// Whether the record says that it is in sets, and the harvest follows none of them.
    pub(in crate::harvest::oai_pmh) is_foreign: bool,
    /// Number of other records of the page with this identifier.
    pub(in crate::harvest::oai_pmh) doubles: u64,
    /// Whether a list has the record, and `GetRecord` says that it does not exist.
    pub(in crate::harvest::oai_pmh) is_undelivered: bool,
    /// Reason why the repository does not deliver the record.
    pub(in crate::harvest::oai_pmh) failure: Option<Box<str>>,
}

/// Content of a record.
#[derive(Debug, Default)]
pub(super) enum RecordContent {
    /// There is the header alone.
    #[default]
    Header,
    /// A piece of the text of the page. `is_alone` means that it is written without the namespaces around it, because it
    /// cannot be read.
    Piece { from: usize, to: usize, is_alone: bool },
    /// The element with all namespaces that it uses, without a page.
    Own(Box<str>),
}

/// Text of a page that has records.
#[derive(Debug)]
pub(in crate::harvest::oai_pmh) struct ListText {
    text: String,
    /// Share of the budget for the text and the records, until they are written.
    share: Option<BudgetShare>,
}

impl ListText {
    pub(in crate::harvest::oai_pmh) fn new(text: String, share: BudgetShare) -> Self {
        Self { text, share: Some(share) }
    }

    /// A text of a page whose records have their own.
    pub(in crate::harvest::oai_pmh) fn none() -> Self {
        Self { text: String::new(), share: None }
    }

    /// A text without a share, for tests.
    #[cfg(test)]
    pub(super) fn of(text: &str) -> Self {
        Self { text: text.to_owned(), share: None }
    }

    /// Returns the part of the budget that this text and this number of records do not need.
    pub(in crate::harvest::oai_pmh) fn keep(&mut self, records: usize) {
        let bytes = self.text.capacity() + records.saturating_mul(RECORD_COST);
        if let Some(share) = &mut self.share {
            share.keep(bytes);
        }
    }
}

/// Memory of a record besides its text, in bytes: its fields, and its place in the lists of a page.
const RECORD_COST: usize = 320;

impl RawRecord {
    /// Creates a record without metadata. A deleted one is a tombstone; the dialect rejects any other.
    pub(in crate::harvest::oai_pmh) fn without_metadata(identifier: &str, datestamp: &str, is_deleted: bool) -> Self {
        let (identifier, datestamp) = (identifier.to_owned(), datestamp.to_owned());
        let mut record = Self { identifier, datestamp, is_deleted, ..Self::default() };
        record.size = record.header_xml().len();
        record
    }

    /// Returns the datestamp; `None` if it is missing or cannot be read.
    pub(in crate::harvest::oai_pmh) fn date(&self) -> Option<Timestamp> {
        datestamp_of(&self.datestamp)
    }

    /// Returns whether another record of the same page is the same, however often the page has it.
    pub(in crate::harvest::oai_pmh) fn is_same(&self, other: &Self, text: &ListText) -> bool {
        let piece = |record: &Self| match &record.content {
            RecordContent::Piece { from, to, .. } => text.text.get(*from..*to).unwrap_or_default().to_owned(),
            RecordContent::Header => record.header_xml(),
            RecordContent::Own(xml) => xml.to_string(),
        };
        piece(self) == piece(other)
    }

    /// Returns the identifier, and keeps it only if the message of the record needs it: for a header alone, and for the reason
    /// why a record of more than `max_bytes` is refused.
    pub(in crate::harvest::oai_pmh) fn take_identifier(&mut self, max_bytes: usize) -> String {
        if self.size > max_bytes || matches!(self.content, RecordContent::Header) {
            self.identifier.clone()
        } else {
            mem::take(&mut self.identifier)
        }
    }

    /// Returns the record with a text of its own, so that the page is not needed any more.
    pub(in crate::harvest::oai_pmh) fn into_own(
        self,
        text: &ListText,
        namespaces: &[(String, String)],
        max_bytes: usize,
    ) -> Self {
        let content = RecordContent::Own(self.xml(text, namespaces, max_bytes).into());
        Self { content, ..self }
    }

    /// Returns the element with all namespaces that it uses, or its beginning if it has more than `max_bytes`.
    pub(in crate::harvest::oai_pmh) fn xml(
        &self,
        text: &ListText,
        namespaces: &[(String, String)],
        max_bytes: usize,
    ) -> String {
        let (from, to, is_alone) = match &self.content {
            RecordContent::Header => return self.header_xml(),
            RecordContent::Own(xml) => return xml.to_string(),
            RecordContent::Piece { from, to, is_alone } => (*from, *to, *is_alone),
        };
        let piece = text.text.get(from..to).unwrap_or_default();
        let shown = &piece[..char_boundary(piece, piece.len().min(max_bytes))];
        let name_end = shown.find(|c: char| c.is_ascii_whitespace() || matches!(c, '>' | '/')).unwrap_or(shown.len());
        if is_alone {
            return shown.to_owned();
        }
        let tag_end = start_tag_end(shown).unwrap_or(name_end);
        let start = BytesStart::from_content(&shown[1.min(tag_end)..tag_end], name_end.saturating_sub(1));
        let (name, rest) = shown.split_at(name_end);
        let mut xml = String::with_capacity(shown.len() + super::namespace_bytes(namespaces));
        xml.push_str(name);
        for (name, value) in namespaces.iter().filter(|(name, _)| raw_attribute(&start, name).is_none()) {
            xml.extend([" ", name, "=\"", value, "\""]);
        }
        xml.push_str(rest);
        xml
    }

    pub(super) fn header_xml(&self) -> String {
        let status = if self.is_deleted { " status=\"deleted\"" } else { "" };
        format!(
            "<record xmlns=\"{NAMESPACE}\"><header{status}><identifier>{}</identifier><datestamp>{}</datestamp></header>\
             </record>",
            escape(&self.identifier),
            escape(&self.datestamp)
        )
    }
}

/// Returns the place of the `>` that ends the start tag at the beginning of a text: the first one outside of quotation
/// marks.
fn start_tag_end(xml: &str) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in xml.bytes().enumerate() {
        match (quote, byte) {
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), byte) if open == byte => quote = None,
            (None, b'>') => return Some(at),
            _ => {}
        }
    }
    None
}
