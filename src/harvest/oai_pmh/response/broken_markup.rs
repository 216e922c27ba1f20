//! Division of a list whose markup is broken in some records.

use memchr::memchr_iter;

use super::{Parser, RawRecord, Response, char_boundary};

/// Divides a list with broken records at the tags of the records. `None` if the rest of the response is broken too.
pub(super) fn recover(text: &str, max_record_bytes: usize) -> Option<Response> {
    let spans = record_spans(text)?;
    let mut envelope = String::with_capacity(text.len() - spans.iter().map(|(from, to)| to - from).sum::<usize>());
    let mut at = 0;
    for (from, to) in &spans {
        envelope.push_str(&text[at..*from]);
        at = *to;
    }
    envelope.push_str(&text[at..]);
    let mut parser = Parser::new(&envelope, max_record_bytes);
    let mut response = parser.response().ok()?;
    let namespaces: String =
        parser.outer_namespaces.iter().map(|(name, value)| format!(" {name}=\"{value}\"")).collect();
    let records = spans.into_iter().map(|(from, to)| {
        let xml = &text[from..to];
        // The record alone, in an envelope of its own.
        let alone = format!("<OAI-PMH{namespaces}><ListRecords>{xml}</ListRecords></OAI-PMH>");
        let read = Parser::new(&alone, max_record_bytes).response().ok().and_then(|response| response.list);
        let read = read.and_then(|mut list| list.records.pop());
        read.unwrap_or_else(|| RawRecord {
            xml: xml[..char_boundary(xml, xml.len().min(max_record_bytes))].to_owned(),
            size: xml.len(),
            ..RawRecord::default()
        })
    });
    response.list.as_mut()?.records = records.collect();
    Some(response)
}

/// Returns the beginning and the end of each record in the text, by the tags alone. The name of a record may have a
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
            }
        }
    }
    (depth == 0 && !spans.is_empty()).then_some(spans)
}
