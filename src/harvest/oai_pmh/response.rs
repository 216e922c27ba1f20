//! Parser of responses: the envelope of OAI-PMH, with each record as a piece of XML for the dialect.
//!
//! A response is complete only with the end tag of its root. A list whose markup is broken in some records is divided
//! at the tags of its records, so that only the broken records are lost.

mod broken_markup;

use quick_xml::{
    NsReader,
    escape::escape,
    events::{BytesStart, Event},
    name::{Namespace, ResolveResult},
};

use self::broken_markup::recover;
use crate::format::oai_pmh::NAMESPACE;

/// Number of characters of a foreign response that an error shows.
const SHOWN_CHARS: usize = 200;

/// Maximum depth of nested elements. The dialect has its own limit for records; this one protects the parser.
const MAX_DEPTH: usize = 512;

/// Maximum length of the namespace declarations around the records, in bytes, because each record gets a copy of them.
const MAX_NAMESPACE_BYTES: usize = 8 * 1024;

/// A response.
#[derive(Debug, Default)]
pub(super) struct Response {
    /// Date of the response, as text.
    pub(super) date: Option<String>,
    /// Errors of the protocol: code and text.
    pub(super) errors: Vec<(String, String)>,
    /// Facts about the repository.
    pub(super) identify: Option<IdentifyFields>,
    /// The list, if the response has one.
    pub(super) list: Option<RecordList>,
    /// Whether broken markup was repaired.
    pub(super) is_recovered: bool,
}

/// Fields of `Identify`, as text.
#[derive(Debug, Default)]
pub(super) struct IdentifyFields {
    pub(super) base_url: String,
    pub(super) granularity: String,
    pub(super) deleted_record: String,
    pub(super) earliest_datestamp: String,
}

/// A page of `ListRecords` or `ListIdentifiers`, or the record of `GetRecord`.
#[derive(Debug, Default)]
pub(super) struct RecordList {
    pub(super) records: Vec<RawRecord>,
    /// The token, if it is not empty.
    pub(super) token: Option<String>,
    /// Number of records of the whole list, if the repository announces it.
    pub(super) complete_list_size: Option<u64>,
}

/// A record as XML, with the fields of its header.
#[derive(Debug, Default)]
pub(super) struct RawRecord {
    pub(super) identifier: String,
    pub(super) datestamp: String,
    /// The element with all namespaces that it uses, or its beginning if it is too large.
    pub(super) xml: String,
    /// Size of the element in bytes.
    pub(super) size: usize,
    /// Whether the record is deleted.
    pub(super) is_deleted: bool,
    /// Sets that the record says it belongs to.
    pub(super) sets: Vec<String>,
    /// Reason why the repository does not deliver the record.
    pub(super) failure: Option<String>,
}

impl RawRecord {
    /// Creates a record without metadata. A deleted one is a tombstone; the dialect rejects any other.
    pub(super) fn without_metadata(identifier: &str, datestamp: &str, is_deleted: bool) -> Self {
        let status = if is_deleted { " status=\"deleted\"" } else { "" };
        let xml = format!(
            "<record xmlns=\"{NAMESPACE}\"><header{status}><identifier>{}</identifier><datestamp>{}</datestamp></header>\
             </record>",
            escape(identifier),
            escape(datestamp)
        );
        let (identifier, datestamp) = (identifier.to_owned(), datestamp.to_owned());
        Self { identifier, datestamp, size: xml.len(), xml, is_deleted, ..Self::default() }
    }
}

/// Reason why a response cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidResponse {
    /// The response is not OAI-PMH.
    #[error("the response is not OAI-PMH 2.0; it begins with {0:?}")]
    NotOaiPmh(String),
    /// The response is truncated or not well-formed.
    #[error("the response cannot be read: {0}")]
    Malformed(String),
}

/// Parses a response. A record is cut after `max_record_bytes`.
pub(super) fn parse(text: &str, max_record_bytes: usize) -> Result<Response, InvalidResponse> {
    match Parser::new(text, max_record_bytes).response() {
        Err(InvalidResponse::Malformed(reason)) => recover(text, max_record_bytes)
            .map(|response| Response { is_recovered: true, ..response })
            .ok_or(InvalidResponse::Malformed(reason)),
        result => result,
    }
}

struct Parser<'t> {
    text: &'t str,
    reader: NsReader<&'t [u8]>,
    max_record_bytes: usize,
    /// Namespace declarations of the elements around the records: the attribute and its raw value.
    outer_namespaces: Vec<(String, String)>,
}

/// Next part of an element's content.
enum Child<'t> {
    /// Start of an element.
    Start(BytesStart<'t>, bool),
    End,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str, max_record_bytes: usize) -> Self {
        let mut reader = NsReader::from_str(text);
        reader.config_mut().expand_empty_elements = true;
        Self { text, reader, max_record_bytes, outer_namespaces: Vec::new() }
    }

    fn response(&mut self) -> Result<Response, InvalidResponse> {
        self.root()?;
        let mut response = Response::default();
        while let Child::Start(start, is_oai) = self.child()? {
            match start.local_name().as_ref() {
                b"responseDate" if is_oai => response.date = Some(self.text_of()?),
                b"error" if is_oai => {
                    let code = attribute(&start, "code").unwrap_or_default();
                    let text = self.text_of()?;
                    response.errors.push((code, text));
                }
                b"Identify" if is_oai => response.identify = Some(self.identify()?),
                b"ListRecords" | b"ListIdentifiers" | b"GetRecord" if is_oai => {
                    self.note_namespaces(&start)?;
                    response.list = Some(self.list()?);
                }
                _ => self.skip()?,
            }
        }
        Ok(response)
    }

    /// Reads up to the root element, which must be that of OAI-PMH.
    fn root(&mut self) -> Result<(), InvalidResponse> {
        loop {
            match self.reader.read_resolved_event() {
                Ok((namespace, Event::Start(start))) => {
                    if start.local_name().as_ref() != b"OAI-PMH" || !is_oai(&namespace) {
                        return Err(self.foreign());
                    }
                    let start = start.into_owned();
                    return self.note_namespaces(&start);
                }
                Ok((_, Event::Text(text))) if text.iter().all(u8::is_ascii_whitespace) => {}
                Ok((_, Event::Decl(_) | Event::Comment(_) | Event::PI(_) | Event::DocType(_))) => {}
                Ok(_) | Err(_) => return Err(self.foreign()),
            }
        }
    }

    fn foreign(&self) -> InvalidResponse {
        InvalidResponse::NotOaiPmh(self.text.trim_start().chars().take(SHOWN_CHARS).collect())
    }

    fn identify(&mut self) -> Result<IdentifyFields, InvalidResponse> {
        let mut fields = IdentifyFields::default();
        while let Child::Start(start, is_oai) = self.child()? {
            let field = match start.local_name().as_ref() {
                b"baseURL" if is_oai => &mut fields.base_url,
                b"granularity" if is_oai => &mut fields.granularity,
                b"deletedRecord" if is_oai => &mut fields.deleted_record,
                b"earliestDatestamp" if is_oai => &mut fields.earliest_datestamp,
                _ => {
                    self.skip()?;
                    continue;
                }
            };
            *field = self.text_of()?;
        }
        Ok(fields)
    }

    fn list(&mut self) -> Result<RecordList, InvalidResponse> {
        let mut list = RecordList::default();
        loop {
            let offset = self.offset();
            let Child::Start(start, is_oai) = self.child()? else { return Ok(list) };
            match start.local_name().as_ref() {
                b"record" if is_oai => {
                    // The text before the tag is white space or a comment.
                    let offset = self.text[offset..self.offset()].rfind('<').map_or(offset, |at| offset + at);
                    let record = self.record(offset, &start)?;
                    list.records.push(record);
                }
                b"header" if is_oai => {
                    let mut header = RawRecord::default();
                    self.header(&mut header, &start)?;
                    let RawRecord { identifier, datestamp, is_deleted, sets, .. } = header;
                    let record = RawRecord::without_metadata(&identifier, &datestamp, is_deleted);
                    list.records.push(RawRecord { sets, ..record });
                }
                b"resumptionToken" if is_oai => {
                    list.complete_list_size = attribute(&start, "completeListSize").and_then(|size| size.parse().ok());
                    list.token = Some(self.text_of()?).filter(|token| !token.is_empty());
                }
                _ => self.skip()?,
            }
        }
    }

    /// Reads a record whose start tag begins at `offset`.
    fn record(&mut self, offset: usize, start: &BytesStart<'_>) -> Result<RawRecord, InvalidResponse> {
        let mut record = RawRecord::default();
        let name_end = offset + 1 + start.name().as_ref().len();
        let outer = self.outer_namespaces.iter().filter(|(name, _)| raw_attribute(start, name).is_none());
        let namespaces: String = outer.map(|(name, value)| format!(" {name}=\"{value}\"")).collect();
        while let Child::Start(child, is_oai) = self.child()? {
            if !is_oai || child.local_name().as_ref() != b"header" {
                self.skip()?;
                continue;
            }
            self.header(&mut record, &child)?;
        }
        let end = self.offset();
        record.size = end - offset;
        let shown = char_boundary(self.text, end.min(offset + self.max_record_bytes));
        record.xml =
            format!("{}{namespaces}{}", &self.text[offset..name_end], &self.text[name_end..shown.max(name_end)]);
        Ok(record)
    }

    /// Reads the header of a record.
    fn header(&mut self, record: &mut RawRecord, start: &BytesStart<'_>) -> Result<(), InvalidResponse> {
        record.is_deleted = attribute(start, "status").is_some_and(|status| status.eq_ignore_ascii_case("deleted"));
        while let Child::Start(field, is_oai) = self.child()? {
            match field.local_name().as_ref() {
                b"identifier" if is_oai => record.identifier = self.text_of()?,
                b"datestamp" if is_oai => record.datestamp = self.text_of()?,
                b"setSpec" if is_oai => record.sets.push(self.text_of()?),
                _ => self.skip()?,
            }
        }
        Ok(())
    }

    /// Remembers the namespaces of an element around the records. Those of an inner element replace the outer ones.
    fn note_namespaces(&mut self, start: &BytesStart<'_>) -> Result<(), InvalidResponse> {
        for attribute in start.attributes().with_checks(false).flatten() {
            let name = String::from_utf8_lossy(attribute.key.as_ref()).into_owned();
            if name == "xmlns" || name.starts_with("xmlns:") {
                let value = String::from_utf8_lossy(&attribute.value).replace('"', "&quot;");
                self.outer_namespaces.retain(|(known, _)| *known != name);
                self.outer_namespaces.push((name, value));
            }
        }
        let bytes: usize = self.outer_namespaces.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > MAX_NAMESPACE_BYTES {
            let reason = format!("the declarations of namespaces have more than {MAX_NAMESPACE_BYTES} bytes");
            return Err(InvalidResponse::Malformed(reason));
        }
        Ok(())
    }

    /// Returns the next child element, and whether it is in the namespace of OAI-PMH.
    fn child(&mut self) -> Result<Child<'t>, InvalidResponse> {
        loop {
            match self.reader.read_resolved_event() {
                Ok((namespace, Event::Start(start))) => {
                    let is_oai = is_oai(&namespace);
                    return Ok(Child::Start(start, is_oai));
                }
                Ok((_, Event::End(_))) => return Ok(Child::End),
                Ok((_, Event::Eof)) => return Err(truncated()),
                Ok(_) => {}
                Err(error) => return Err(InvalidResponse::Malformed(error.to_string())),
            }
        }
    }

    /// Returns the text of the current element and of the elements inside, without white space at its ends.
    fn text_of(&mut self) -> Result<String, InvalidResponse> {
        let (mut text, mut depth) = (String::new(), 1_usize);
        loop {
            match self.reader.read_event() {
                Ok(Event::Start(_)) => depth = deeper(depth)?,
                Ok(Event::End(_)) => {
                    depth -= 1;
                    if depth == 0 {
                        return Ok(text.trim().to_owned());
                    }
                }
                Ok(Event::Text(part)) => text.push_str(&String::from_utf8_lossy(&part)),
                Ok(Event::CData(part)) => text.push_str(&String::from_utf8_lossy(&part)),
                Ok(Event::GeneralRef(reference)) => match &*String::from_utf8_lossy(&reference) {
                    "lt" => text.push('<'),
                    "gt" => text.push('>'),
                    "amp" => text.push('&'),
                    "apos" => text.push('\''),
                    "quot" => text.push('"'),
                    _ => text.extend(reference.resolve_char_ref().ok().flatten()),
                },
                Ok(Event::Eof) => return Err(truncated()),
                Ok(_) => {}
                Err(error) => return Err(InvalidResponse::Malformed(error.to_string())),
            }
        }
    }

    fn skip(&mut self) -> Result<(), InvalidResponse> {
        let mut depth = 1_usize;
        while depth > 0 {
            match self.reader.read_event() {
                Ok(Event::Start(_)) => depth = deeper(depth)?,
                Ok(Event::End(_)) => depth -= 1,
                Ok(Event::Eof) => return Err(truncated()),
                Ok(_) => {}
                Err(error) => return Err(InvalidResponse::Malformed(error.to_string())),
            }
        }
        Ok(())
    }

    fn offset(&self) -> usize {
        usize::try_from(self.reader.buffer_position()).unwrap_or(self.text.len())
    }
}

fn is_oai(namespace: &ResolveResult<'_>) -> bool {
    matches!(namespace, ResolveResult::Bound(Namespace(name)) if *name == NAMESPACE.as_bytes())
}

fn truncated() -> InvalidResponse {
    InvalidResponse::Malformed("it ends before its last element does".to_owned())
}

fn deeper(depth: usize) -> Result<usize, InvalidResponse> {
    if depth == MAX_DEPTH {
        return Err(InvalidResponse::Malformed(format!("elements are nested more than {MAX_DEPTH} deep")));
    }
    Ok(depth + 1)
}

/// Returns the raw value of an attribute.
fn raw_attribute(start: &BytesStart<'_>, name: &str) -> Option<String> {
    let mut attributes = start.attributes();
    let found = attributes.with_checks(false).flatten().find(|attribute| attribute.key.as_ref() == name.as_bytes())?;
    Some(String::from_utf8_lossy(&found.value).into_owned())
}

fn attribute(start: &BytesStart<'_>, name: &str) -> Option<String> {
    raw_attribute(start, name).map(|value| value.trim().to_owned())
}

/// Returns the last boundary of a character at or before `at`.
fn char_boundary(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
