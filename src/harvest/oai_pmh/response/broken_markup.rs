//! Division of a list whose markup is broken in some records.

use memchr::memchr_iter;

use super::{
    InvalidResponse, PageLimits, Parser, RawRecord, RecordContent, Response, namespace_bytes,
    size::{ListSize, MAX_RECORDS},
};
use crate::transfer::Cancelled;

/// Divides a list with broken records at the tags of the records. `None` if the rest of the response is broken too.
///
/// # Errors
/// Fails if the records exceed a limit.
pub(super) fn recover(
    text: &str,
    limits: PageLimits,
    sets: &[String],
    cancelled: &Cancelled,
) -> Result<Option<Response>, InvalidResponse> {
    let Some(spans) = record_spans(text) else { return Ok(None) };
    if spans.len() > MAX_RECORDS {
        return Err(InvalidResponse::TooMuch(format!("a page has more than {MAX_RECORDS} records")));
    }
    let mut envelope = String::with_capacity(text.len() - spans.iter().map(|(from, to)| to - from).sum::<usize>());
    let mut at = 0;
    for (from, to) in &spans {
        envelope.push_str(&text[at..*from]);
        at = *to;
    }
    envelope.push_str(&text[at..]);
    let mut response = match Parser::new(&envelope, limits, sets, cancelled).response() {
        Ok(response) => response,
        Err(error @ (InvalidResponse::TooMuch(_) | InvalidResponse::Cancelled)) => return Err(error),
        Err(_) => return Ok(None),
    };
    drop(envelope);
    let Some(list) = &mut response.list else { return Ok(None) };
    let declared: String = list.namespaces.iter().map(|(name, value)| format!(" {name}=\"{value}\"")).collect();
    let mut size = ListSize::new(limits);
    list.records = Vec::with_capacity(spans.len());
    for (from, to) in spans {
        if cancelled.is_cancelled() {
            return Err(InvalidResponse::Cancelled);
        }
        size.add(to - from, namespace_bytes(&list.namespaces))?;
        let xml = &text[from..to];
        // The record alone, in an envelope of its own.
        let alone = format!("<OAI-PMH{declared}><ListRecords>{xml}</ListRecords></OAI-PMH>");
        let read = Parser::new(&alone, limits, sets, cancelled).response().ok().and_then(|response| response.list);
        let read = read.and_then(|mut list| list.records.pop());
        let content = RecordContent::Piece { from, to, is_alone: read.is_none() };
        list.records.push(RawRecord { content, size: to - from, ..read.unwrap_or_default() });
    }
    Ok(Some(response))
}

/// Returns the beginning and the end of each record in the text, by the tags alone, up to one more than allowed. The name of a record may have a
/// prefix, and records may contain elements of the same name. `None` if tags do not match.
fn record_spans(text: &str) -> Option<Vec<(usize, usize)>> {
    let list = text.find("ListRecords")?;
    let first = text[list..].find("record").map(|at| list + at)?;
    let tag = text[..first].rfind('<')?;
    let prefix = &text[tag + 1..first];
    if !prefix.is_empty() && !prefix.ends_with(':') {
        return None;
    }
    let (open, close) = (format!("<{prefix}record"), format!("</{prefix}record>"));
    let (mut spans, mut depth, mut start) = (Vec::new(), 0_usize, tag);
    for at in memchr_iter(b'<', text.as_bytes()).filter(|at| *at >= tag) {
        let rest = &text[at..];
        // Another name that begins so, such as `recordset`, has an end tag of its own.
        if rest.starts_with(&open) && rest[open.len()..].starts_with(['>', ' ', '\t', '\r', '\n']) {
            if depth == 0 {
                start = at;
            }
            depth += 1;
        } else if rest.starts_with(&close) {
            depth = depth.checked_sub(1)?;
            if depth == 0 {
                spans.push((start, at + close.len()));
                if spans.len() > MAX_RECORDS {
                    break;
                }
            }
        }
    }
    (depth == 0 && !spans.is_empty()).then_some(spans)
}
