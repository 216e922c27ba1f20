//! From the bytes of a response to text that an XML parser accepts: encodings, and characters that XML does not allow.
//!
//! A response without errors comes out unchanged, without the marks and the white space before its document. Each repair
//! counts, so that the page is marked as repaired.
//!
//! The rules for encodings, in their order: a byte order mark; the pattern of zeros of UTF-16 (XML 1.0, appendix F); UTF-8
//! if the bytes are valid UTF-8 with characters beyond ASCII, because text of another encoding practically never is; the
//! XML declaration; the media type (RFC 7303 section 3.2 has another order, which few repositories follow); UTF-8.

use encoding_rs::{CoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};
use memchr::{memchr, memmem};

use crate::text::is_xml_char;

/// Text of a response.
#[derive(Debug)]
pub(super) struct RepairedText {
    pub(super) text: String,
    /// Number of repaired places.
    pub(super) repairs: usize,
}

/// Number of bytes in which an XML declaration is looked for.
const DECLARATION_BYTES: usize = 256;

/// Length up to which a text may be longer than twice its body, in bytes.
const LEAST_TEXT_BYTES: usize = 64 * 1024;

/// Smallest number of bytes for which room is made while a text is decoded.
const DECODED_BYTES: usize = 4096;

/// Maximum length of the name of an entity, in bytes.
const LONGEST_REFERENCE: usize = 32;

/// The text of a response is longer than its limit.
#[derive(Debug, thiserror::Error)]
#[error("the text of the response is longer than {0} bytes")]
pub(super) struct TextTooLong(usize);

/// Decodes a response and repairs its text. `charset` is the parameter of the media type. A response that is correct UTF-8
/// is not copied. The text begins with its document: an XML parser would drop a byte order mark without counting it, and
/// its positions would then be wrong.
///
/// # Errors
/// Fails if the text is longer than `max_bytes`, or than twice the body: decoding and repairs make text longer, `&` five
/// times.
pub(super) fn read(body: Vec<u8>, charset: Option<&str>, max_bytes: usize) -> Result<RepairedText, TextTooLong> {
    let limit = max_bytes.min(body.len().saturating_mul(2).saturating_add(LEAST_TEXT_BYTES));
    let (decoded, invalid) = decode(body, charset, limit)?;
    let (decoded, notices) = without_preamble(decoded);
    let (text, replaced) = repair(decoded, limit)?;
    Ok(RepairedText { text, repairs: invalid + notices + replaced })
}

/// Number of bytes in which a document is looked for after the messages of a program.
const PREAMBLE_BYTES: usize = 16 * 1024;

/// Removes everything before the document: white space and byte order marks, and messages that a program has printed
/// before the XML declaration. Returns the text, and 1 if there were such messages.
fn without_preamble(mut text: String) -> (String, usize) {
    let mut start = text.len() - text.trim_start_matches(|c: char| c.is_whitespace() || c == MARK).len();
    let mut notices = 0;
    if !text[start..].starts_with("<?xml") {
        let bytes = &text.as_bytes()[start..];
        let before =
            memmem::find(&bytes[..bytes.len().min(PREAMBLE_BYTES)], b"<?xml ").map(|at| &text[start..start + at]);
        // A declaration within a document is part of a text.
        let is_within = |before: &str| DOCUMENTS.iter().any(|name| before.contains(name));
        if let Some(before) = before.filter(|before| !is_within(before)) {
            (start, notices) = (start + before.len(), 1);
        }
    }
    text.drain(..start);
    (text, notices)
}

/// Byte order mark, wherever it is.
const MARK: char = '\u{FEFF}';

/// Names of the roots of documents that harvests read.
const DOCUMENTS: [&str; 4] = ["OAI-PMH", "<rss", "feed", "RDF"];

fn decode(body: Vec<u8>, charset: Option<&str>, limit: usize) -> Result<(String, usize), TextTooLong> {
    let (encoding, mark) = match Encoding::for_bom(&body) {
        Some((encoding, length)) => (encoding, length),
        None => {
            let named = |name: &str| Encoding::for_label(name.as_bytes());
            let declared = || declared(&body).and_then(named).or_else(|| charset.and_then(named));
            let encoding = match body.as_slice() {
                [b'<', 0, letter, 0, ..] if *letter != 0 => Some(UTF_16LE),
                [0, b'<', 0, letter, ..] if *letter != 0 => Some(UTF_16BE),
                body if is_utf8_beyond_ascii(body) => Some(UTF_8),
                // A declaration that can be read as ASCII is never in UTF-16.
                _ => declared().filter(|encoding| encoding.is_ascii_compatible()),
            };
            (encoding.unwrap_or(UTF_8), 0)
        }
    };
    if encoding == UTF_8 {
        return decode_utf8(body, mark, limit);
    }
    let (mut text, mut rest, mut has_errors) = (String::new(), &body[mark..], false);
    let mut decoder = encoding.new_decoder_without_bom_handling();
    loop {
        text.reserve(rest.len().clamp(DECODED_BYTES, limit.max(DECODED_BYTES)));
        let (result, read, had_errors) = decoder.decode_to_string(rest, &mut text, true);
        has_errors |= had_errors;
        rest = &rest[read..];
        if text.len() > limit {
            return Err(TextTooLong(limit));
        }
        if result == CoderResult::InputEmpty {
            return Ok((text, usize::from(has_errors)));
        }
    }
}

/// Returns whether a body is valid UTF-8 with characters beyond ASCII.
fn is_utf8_beyond_ascii(body: &[u8]) -> bool {
    !body.is_ascii() && std::str::from_utf8(body).is_ok()
}

/// Returns the encoding that the XML declaration names.
fn declared(body: &[u8]) -> Option<&str> {
    let start = &body[..body.len().min(DECLARATION_BYTES)];
    let start = &start[memmem::find(start, b"<?xml")?..];
    let declaration = &start[..memmem::find(start, b"?>")?];
    let value = &declaration[memmem::find(declaration, b"encoding")? + "encoding".len()..];
    let quote = value.iter().position(|byte| matches!(byte, b'"' | b'\''))?;
    let name = &value[quote + 1..];
    std::str::from_utf8(&name[..memchr(value[quote], name)?]).ok()
}

/// Decodes UTF-8, and each invalid sequence as windows-1252, because it is nearly always text of a Western system that
/// was pasted into a database.
fn decode_utf8(mut body: Vec<u8>, mark: usize, limit: usize) -> Result<(String, usize), TextTooLong> {
    body.drain(..mark);
    let body = match String::from_utf8(body) {
        Ok(text) if text.len() > limit => return Err(TextTooLong(limit)),
        Ok(text) => return Ok((text, 0)),
        Err(invalid) => invalid.into_bytes(),
    };
    let (mut text, mut invalid) = (String::with_capacity(body.len()), 0);
    for chunk in body.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push_str(&WINDOWS_1252.decode_without_bom_handling(chunk.invalid()).0);
            invalid += 1;
        }
        if text.len() > limit {
            return Err(TextTooLong(limit));
        }
    }
    Ok((text, invalid))
}

/// Repairs text for an XML parser: removes characters that XML does not allow, raw or as references, replaces entities
/// of HTML by their characters, and escapes other ampersands that begin no reference. Sections of CDATA, comments and
/// processing instructions may contain any ampersand.
fn repair(text: String, limit: usize) -> Result<(String, usize), TextTooLong> {
    let Some(first) = first_suspect(&text) else { return Ok((text, 0)) };
    let (mut repaired, mut repairs) = (String::with_capacity(text.len() + 64), 0);
    let mut rest = text.as_str();
    let mut clean = first;
    loop {
        let (before, from) = rest.split_at(clean);
        repaired.push_str(before);
        if repaired.len() > limit {
            return Err(TextTooLong(limit));
        }
        let Some(c) = from.chars().next() else { break };
        rest = match c {
            '&' => reference(from, &mut repaired, &mut repairs),
            '<' => {
                let section = section_length(from);
                for c in from[..section].chars() {
                    if is_xml_char(c) { repaired.push(c) } else { repairs += 1 }
                }
                &from[section..]
            }
            _ => {
                repairs += 1;
                &from[c.len_utf8()..]
            }
        };
        clean = next_suspect(rest);
    }
    Ok(if repairs == 0 { (text, 0) } else { (repaired, repairs) })
}

/// Returns the first place that may need a repair or hides one; `None` if there is none, as in most responses.
fn first_suspect(text: &str) -> Option<usize> {
    let at = next_suspect(text);
    (at < text.len()).then_some(at)
}

/// Returns the offset of the next ampersand, section or character that XML does not allow; the length of the text if
/// there is none.
fn next_suspect(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'<' if matches!(bytes.get(at + 1), Some(b'!' | b'?')) => return at,
            b'&' | 0..=0x08 | 0x0B | 0x0C | 0x0E..=0x1F => return at,
            // U+FFFE and U+FFFF.
            0xEF if bytes[at..].starts_with(b"\xEF\xBF\xBE") || bytes[at..].starts_with(b"\xEF\xBF\xBF") => return at,
            _ => at += 1,
        }
    }
    at
}

/// Copies a reference, or its repair; returns the text after it.
fn reference<'t>(text: &'t str, repaired: &mut String, repairs: &mut usize) -> &'t str {
    let after = &text[1..];
    let end = after.bytes().take(LONGEST_REFERENCE).position(|byte| byte == b';');
    let name = end.map(|end| &after[..end]);
    let kind = name.map_or(Reference::None, Reference::of);
    match (kind, end) {
        (Reference::Valid, Some(end)) => {
            repaired.push_str(&text[..end + 2]);
            &after[end + 1..]
        }
        (Reference::Illegal, Some(end)) => {
            *repairs += 1;
            &after[end + 1..]
        }
        (Reference::Html(c), Some(end)) => {
            *repairs += 1;
            repaired.push(c);
            &after[end + 1..]
        }
        _ => {
            *repairs += 1;
            repaired.push_str("&amp;");
            after
        }
    }
}

/// Kind of a reference.
enum Reference {
    /// XML allows it.
    Valid,
    /// It refers to a character that XML does not allow.
    Illegal,
    /// It is an entity of HTML.
    Html(char),
    /// It is no reference.
    None,
}

impl Reference {
    fn of(name: &str) -> Self {
        if let Some(number) = name.strip_prefix('#') {
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) if number.starts_with('x') || !hex.is_empty() => u32::from_str_radix(hex, 16),
                _ => number.parse(),
            };
            return match code.ok() {
                // XML has no capital X.
                Some(code) if !number.starts_with('X') && char::from_u32(code).is_some_and(is_xml_char) => Self::Valid,
                Some(_) => Self::Illegal,
                None => Self::None,
            };
        }
        match name {
            "lt" | "gt" | "amp" | "apos" | "quot" => Self::Valid,
            name => HTML.binary_search_by_key(&name, |(name, _)| *name).map_or(Self::None, |at| Self::Html(HTML[at].1)),
        }
    }
}

/// Returns the length of a section of CDATA, a comment or a processing instruction at the beginning of the text; 1 for
/// anything else.
fn section_length(text: &str) -> usize {
    for (start, end) in [("<![CDATA[", "]]>"), ("<!--", "-->"), ("<?", "?>")] {
        if text.starts_with(start) {
            let found = memmem::find(&text.as_bytes()[start.len()..], end.as_bytes());
            return found.map_or(text.len(), |at| start.len() + at + end.len());
        }
    }
    1
}

/// Entities of HTML that occur in metadata, in order of their names: those of Latin-1, and common punctuation.
const HTML: &[(&str, char)] = &[
    ("AElig", 'Æ'),
    ("Aacute", 'Á'),
    ("Acirc", 'Â'),
    ("Agrave", 'À'),
    ("Aring", 'Å'),
    ("Atilde", 'Ã'),
    ("Auml", 'Ä'),
    ("Ccedil", 'Ç'),
    ("ETH", 'Ð'),
    ("Eacute", 'É'),
    ("Ecirc", 'Ê'),
    ("Egrave", 'È'),
    ("Euml", 'Ë'),
    ("Iacute", 'Í'),
    ("Icirc", 'Î'),
    ("Igrave", 'Ì'),
    ("Iuml", 'Ï'),
    ("Ntilde", 'Ñ'),
    ("Oacute", 'Ó'),
    ("Ocirc", 'Ô'),
    ("Ograve", 'Ò'),
    ("Oslash", 'Ø'),
    ("Otilde", 'Õ'),
    ("Ouml", 'Ö'),
    ("THORN", 'Þ'),
    ("Uacute", 'Ú'),
    ("Ucirc", 'Û'),
    ("Ugrave", 'Ù'),
    ("Uuml", 'Ü'),
    ("Yacute", 'Ý'),
    ("aacute", 'á'),
    ("acirc", 'â'),
    ("acute", '´'),
    ("aelig", 'æ'),
    ("agrave", 'à'),
    ("aring", 'å'),
    ("atilde", 'ã'),
    ("auml", 'ä'),
    ("bdquo", '„'),
    ("brvbar", '¦'),
    ("bull", '•'),
    ("ccedil", 'ç'),
    ("cedil", '¸'),
    ("cent", '¢'),
    ("copy", '©'),
    ("curren", '¤'),
    ("deg", '°'),
    ("divide", '÷'),
    ("eacute", 'é'),
    ("ecirc", 'ê'),
    ("egrave", 'è'),
    ("eth", 'ð'),
    ("euml", 'ë'),
    ("euro", '€'),
    ("frac12", '½'),
    ("frac14", '¼'),
    ("frac34", '¾'),
    ("hellip", '…'),
    ("iacute", 'í'),
    ("icirc", 'î'),
    ("iexcl", '¡'),
    ("igrave", 'ì'),
    ("iquest", '¿'),
    ("iuml", 'ï'),
    ("laquo", '«'),
    ("ldquo", '“'),
    ("lsquo", '‘'),
    ("macr", '¯'),
    ("mdash", '—'),
    ("micro", 'µ'),
    ("middot", '·'),
    ("nbsp", '\u{A0}'),
    ("ndash", '–'),
    ("not", '¬'),
    ("ntilde", 'ñ'),
    ("oacute", 'ó'),
    ("ocirc", 'ô'),
    ("ograve", 'ò'),
    ("ordf", 'ª'),
    ("ordm", 'º'),
    ("oslash", 'ø'),
    ("otilde", 'õ'),
    ("ouml", 'ö'),
    ("para", '¶'),
    ("plusmn", '±'),
    ("pound", '£'),
    ("raquo", '»'),
    ("rdquo", '”'),
    ("reg", '®'),
    ("rsquo", '’'),
    ("sbquo", '‚'),
    ("sect", '§'),
    ("shy", '\u{AD}'),
    ("sup1", '¹'),
    ("sup2", '²'),
    ("sup3", '³'),
    ("szlig", 'ß'),
    ("thorn", 'þ'),
    ("times", '×'),
    ("trade", '™'),
    ("uacute", 'ú'),
    ("ucirc", 'û'),
    ("ugrave", 'ù'),
    ("uml", '¨'),
    ("uuml", 'ü'),
    ("yacute", 'ý'),
    ("yen", '¥'),
    ("yuml", 'ÿ'),
];

#[cfg(test)]
mod tests;
