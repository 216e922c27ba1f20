//! Parser of responses: the envelope of OAI-PMH, with the place of each record in the text.
//!
//! A response is complete only with the end tag of its root. A list whose markup is broken in some records is divided
//! at the tags of its records, so that only the broken records are lost.
//!
//! The text of a page and the namespaces around its records are there once. A record becomes a piece of XML for the dialect
//! when it is written ([`RawRecord::xml`]). The number of records of a page has a limit, and so has the size of all these
//! pieces together, because a response of a few bytes for each record could otherwise fill the memory.

mod broken_markup;
mod catalogue;
mod record;
mod size;

use quick_xml::{
    NsReader,
    events::{BytesStart, Event},
    name::{Namespace, ResolveResult},
};

pub use self::catalogue::{FormatDescription, SetDescription};
use self::{broken_markup::recover, record::RecordContent, size::ListSize};
pub(super) use self::{
    record::{ListText, RawRecord},
    size::PageLimits,
};
use crate::{format::oai_pmh::NAMESPACE, transfer::Cancelled};

/// Number of characters of a foreign response that an error shows.
const SHOWN_CHARS: usize = 200;

/// Maximum depth of nested elements. The dialect has its own limit for records; this one protects the parser.
const MAX_DEPTH: usize = 512;

/// Maximum length of the namespace declarations around the records, in bytes, because each record is written with them.
const MAX_NAMESPACE_BYTES: usize = 8 * 1024;

/// Maximum length of a token, of the address of a repository and of the other texts around the records, in bytes, because
/// the position of the harvest has some of them, and is written with each part of a page. Tokens of real repositories have
/// up to some hundred bytes.
const MAX_TEXT_BYTES: usize = 4096;

/// Maximum length of the identifier of a record in memory, in bytes. A longer one is cut; the journal lists none above
/// 4 KiB.
const MAX_IDENTIFIER_BYTES: usize = 8192;

/// Maximum length of a datestamp in memory, in bytes. A longer one is cut, and is no date then.
const MAX_DATE_BYTES: usize = 64;

/// Maximum number of errors of the protocol in one response. Others are ignored.
const MAX_ERRORS: usize = 16;

/// A response.
#[derive(Debug, Default)]
pub(super) struct Response {
    /// Date of the response, as text.
    pub(super) date: Option<String>,
    /// Errors of the protocol: code and text.
    pub(super) errors: Vec<(String, String)>,
    /// Facts about the repository.
    pub(super) identify: Option<IdentifyFields>,
    /// Sets of a page of `ListSets`.
    pub(super) sets: Vec<SetDescription>,
    /// Token of the next page of `ListSets`.
    pub(super) token: Option<String>,
    /// Formats of `ListMetadataFormats`.
    pub(super) formats: Vec<FormatDescription>,
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
    /// Namespace declarations of the elements around the records: the attribute and its raw value.
    pub(super) namespaces: Vec<(String, String)>,
    /// The token, if it is not empty.
    pub(super) token: Option<String>,
    /// Number of records of the whole list, if the repository announces it.
    pub(super) complete_list_size: Option<u64>,
    /// Number of records before this page, if the repository tells it.
    pub(super) cursor: Option<u64>,
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
    /// The page exceeds a limit.
    #[error("{0}")]
    TooMuch(String),
    /// Nobody waits for the response any more.
    #[error("the harvest is stopping")]
    Cancelled,
}

/// Parses a response. `sets` are those that the harvest follows; none for all.
pub(super) fn parse(
    text: &str,
    limits: PageLimits,
    sets: &[String],
    cancelled: &Cancelled,
) -> Result<Response, InvalidResponse> {
    match Parser::new(text, limits, sets, cancelled).response() {
        Err(InvalidResponse::Malformed(reason)) => match recover(text, limits, sets, cancelled)? {
            Some(response) => Ok(Response { is_recovered: true, ..response }),
            None => Err(InvalidResponse::Malformed(reason)),
        },
        result => result,
    }
}

struct Parser<'t> {
    text: &'t str,
    reader: NsReader<&'t [u8]>,
    size: ListSize,
    /// Sets that the harvest follows; none for all.
    sets: &'t [String],
    cancelled: &'t Cancelled,
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
    fn new(text: &'t str, limits: PageLimits, sets: &'t [String], cancelled: &'t Cancelled) -> Self {
        let mut reader = NsReader::from_str(text);
        reader.config_mut().expand_empty_elements = true;
        Self { text, reader, size: ListSize::new(limits), sets, cancelled, outer_namespaces: Vec::new() }
    }

    fn response(&mut self) -> Result<Response, InvalidResponse> {
        self.root()?;
        let mut response = Response::default();
        while let Child::Start(start, is_oai) = self.child()? {
            match start.local_name().as_ref() {
                b"responseDate" if is_oai => response.date = Some(self.text_of(MAX_TEXT_BYTES)?),
                b"error" if is_oai => {
                    let code = attribute(&start, "code").unwrap_or_default();
                    let text = self.text_of(MAX_TEXT_BYTES)?;
                    if response.errors.len() < MAX_ERRORS {
                        response
                            .errors
                            .push((code[..char_boundary(&code, code.len().min(MAX_TEXT_BYTES))].to_owned(), text));
                    }
                }
                b"Identify" if is_oai => response.identify = Some(self.identify()?),
                b"ListSets" if is_oai => (response.sets, response.token) = self.sets()?,
                b"ListMetadataFormats" if is_oai => response.formats = self.formats()?,
                b"ListRecords" | b"ListIdentifiers" | b"GetRecord" if is_oai => {
                    self.note_namespaces(&start)?;
                    let list = self.list()?;
                    response.list = Some(RecordList { namespaces: self.outer_namespaces.clone(), ..list });
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
            *field = self.text_of(MAX_TEXT_BYTES)?;
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
                    let record = self.record(offset)?;
                    list.records.push(record);
                }
                b"header" if is_oai => {
                    let mut record = RawRecord { content: RecordContent::Header, ..RawRecord::default() };
                    self.header(&mut record, &start)?;
                    record.size = record.header_xml().len();
                    self.size.add(record.size, 0)?;
                    list.records.push(record);
                }
                b"resumptionToken" if is_oai => {
                    let number = |name: &str| attribute(&start, name).and_then(|number| number.parse().ok());
                    (list.complete_list_size, list.cursor) = (number("completeListSize"), number("cursor"));
                    list.token = self.token()?;
                }
                _ => self.skip()?,
            }
        }
    }

    /// Reads a resumption token; `None` if it is empty.
    fn token(&mut self) -> Result<Option<String>, InvalidResponse> {
        let token = self.text_of(MAX_TEXT_BYTES + 1)?;
        if token.len() > MAX_TEXT_BYTES {
            let reason = format!("the resumption token has more than {MAX_TEXT_BYTES} bytes");
            return Err(InvalidResponse::TooMuch(reason));
        }
        Ok(Some(token).filter(|token| !token.is_empty()))
    }

    /// Reads a record whose start tag begins at `offset`.
    fn record(&mut self, offset: usize) -> Result<RawRecord, InvalidResponse> {
        if self.cancelled.is_cancelled() {
            return Err(InvalidResponse::Cancelled);
        }
        let mut record = RawRecord::default();
        while let Child::Start(child, is_oai) = self.child()? {
            if !is_oai || child.local_name().as_ref() != b"header" {
                self.skip()?;
                continue;
            }
            self.header(&mut record, &child)?;
        }
        let end = self.offset();
        record.size = end - offset;
        record.content = RecordContent::Piece { from: offset, to: end, is_alone: false };
        self.size.add(record.size, namespace_bytes(&self.outer_namespaces))?;
        Ok(record)
    }

    /// Reads the header of a record.
    fn header(&mut self, record: &mut RawRecord, start: &BytesStart<'_>) -> Result<(), InvalidResponse> {
        record.is_deleted = attribute(start, "status").is_some_and(|status| status.eq_ignore_ascii_case("deleted"));
        let (mut names_set, mut is_followed) = (false, false);
        while let Child::Start(field, is_oai) = self.child()? {
            match field.local_name().as_ref() {
                b"identifier" if is_oai => record.identifier = self.text_of(MAX_IDENTIFIER_BYTES)?,
                b"datestamp" | b"dateStamp" if is_oai => record.datestamp = self.text_of(MAX_DATE_BYTES)?,
                b"setSpec" if is_oai && !self.sets.is_empty() => {
                    let set = self.text_of(MAX_TEXT_BYTES)?;
                    (names_set, is_followed) = (true, is_followed || self.follows(&set));
                }
                _ => self.skip()?,
            }
        }
        record.is_foreign = names_set && !is_followed;
        Ok(())
    }

    /// Returns whether a set is one of those that the harvest follows, or within one.
    fn follows(&self, set: &str) -> bool {
        let is_within = |followed: &String| {
            set.strip_prefix(followed.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        self.sets.iter().any(is_within)
    }

    /// Remembers the namespaces of an element around the records. Those of an inner element replace the outer ones.
    fn note_namespaces(&mut self, start: &BytesStart<'_>) -> Result<(), InvalidResponse> {
        for attribute in start.attributes().with_checks(false).flatten() {
            let name = String::from_utf8_lossy(attribute.key.as_ref()).into_owned();
            if name == "xmlns" || name.starts_with("xmlns:") {
                let value = String::from_utf8_lossy(&attribute.value).replace('"', "&quot;");
                self.outer_namespaces.retain(|(known, _)| *known != name);
                self.outer_namespaces.push((name, value));
                if namespace_bytes(&self.outer_namespaces) > MAX_NAMESPACE_BYTES {
                    let reason = format!("the declarations of namespaces have more than {MAX_NAMESPACE_BYTES} bytes");
                    return Err(InvalidResponse::TooMuch(reason));
                }
            }
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

    /// Returns the text of the current element and of the elements inside, without white space at its ends, and cut after
    /// this number of bytes.
    fn text_of(&mut self, max_bytes: usize) -> Result<String, InvalidResponse> {
        let (mut text, mut depth) = (String::new(), 1_usize);
        // White space at the beginning does not count.
        let is_full = |text: &String| text.len() > max_bytes;
        loop {
            let part = match self.reader.read_event() {
                Ok(Event::Start(_)) => {
                    depth = deeper(depth)?;
                    continue;
                }
                Ok(Event::End(_)) => {
                    depth -= 1;
                    if depth > 0 {
                        continue;
                    }
                    let trimmed = text.trim_end();
                    return Ok(trimmed[..char_boundary(trimmed, trimmed.len().min(max_bytes))].to_owned());
                }
                Ok(Event::Text(part)) => part.into_inner(),
                Ok(Event::CData(part)) => part.into_inner(),
                Ok(Event::GeneralRef(reference)) if !is_full(&text) => {
                    match &*String::from_utf8_lossy(&reference) {
                        "lt" => text.push('<'),
                        "gt" => text.push('>'),
                        "amp" => text.push('&'),
                        "apos" => text.push('\''),
                        "quot" => text.push('"'),
                        _ => text.extend(reference.resolve_char_ref().ok().flatten()),
                    }
                    continue;
                }
                Ok(Event::Eof) => return Err(truncated()),
                Ok(_) => continue,
                Err(error) => return Err(InvalidResponse::Malformed(error.to_string())),
            };
            if !is_full(&text) {
                // The text of the response is valid, so each of its parts is.
                let part = std::str::from_utf8(&part).unwrap_or_default();
                let part = if text.is_empty() { part.trim_start() } else { part };
                text.push_str(&part[..char_boundary(part, part.len().min(max_bytes + 1))]);
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

/// Returns the length of the declarations of namespaces, in bytes.
fn namespace_bytes(namespaces: &[(String, String)]) -> usize {
    namespaces.iter().map(|(name, value)| name.len() + value.len() + " =\"\"".len()).sum()
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
