//! Removes the credentials from the start of a harvest, before anything else processes the body. Credentials
//! must not reach the journal, the quarantine, the log or a response.
//!
//! In well-formed JSON, the value of every member `credentials` becomes `null`, at any depth and in any
//! spelling of the name. Line breaks of the value are kept, so line numbers stay valid. A string that itself
//! contains JSON with credentials becomes empty.
//!
//! In malformed JSON the end of the value is unknown, because the missing character may be a bracket or a
//! quotation mark. Everything after the first occurrence of the name is therefore replaced, one space per
//! character. The location of the parse error stays valid.
//!
//! In any other body, for example compressed or in base64, the name cannot be found.

use serde::de::IgnoredAny;

use super::super::{Redaction, json};

const NAME: &[u8] = b"credentials";

/// Maximum number of zero bytes between two characters of a name: UTF-32 has three.
const MAX_FILLING: usize = 3;

/// Maximum number of backslashes at the beginning of an escape: JSON in a string in JSON has two, and so on.
const MAX_BACKSLASHES: usize = 16;

/// Removes the credentials from a body.
pub(super) fn redact(body: &[u8]) -> Redaction {
    let Some(mention) = first_mention(body) else {
        return if is_json_text(body) { Redaction::Unchanged } else { Redaction::Opaque };
    };
    match json::read::<IgnoredAny>(body) {
        Ok(IgnoredAny) => Redaction::Removed(without_members(body)),
        Err(rejection) => Redaction::Blanked(blank_after(body, mention), rejection),
    }
}

/// Returns whether a body is text in UTF-8, UTF-16 or UTF-32 that begins like a JSON object or array.
fn is_json_text(body: &[u8]) -> bool {
    let is_before = |byte: &u8| matches!(byte, 0 | 0xEF | 0xBB | 0xBF | 0xFE | 0xFF | b' ' | b'\t' | b'\r' | b'\n');
    let begins = body.iter().find(|byte| !is_before(byte));
    let is_text = || match memchr::memchr(0, body) {
        None => std::str::from_utf8(body).is_ok_and(|text| !text.contains(is_binary)),
        Some(_) => is_wide_text(body),
    };
    matches!(begins, Some(b'{' | b'[')) && is_text()
}

/// Returns whether the bytes are UTF-16 or UTF-32, in either byte order, without binary characters.
fn is_wide_text(body: &[u8]) -> bool {
    let utf_16 = |unit: fn([u8; 2]) -> u16| {
        let (units, rest) = body.as_chunks::<2>();
        let characters = char::decode_utf16(units.iter().map(|bytes| unit(*bytes)));
        rest.is_empty() && characters.into_iter().all(|c| c.is_ok_and(|c| !is_binary(c)))
    };
    let utf_32 = |unit: fn([u8; 4]) -> u32| {
        let (units, rest) = body.as_chunks::<4>();
        rest.is_empty() && units.iter().all(|bytes| char::from_u32(unit(*bytes)).is_some_and(|c| !is_binary(c)))
    };
    utf_16(u16::from_le_bytes) || utf_16(u16::from_be_bytes) || utf_32(u32::from_le_bytes) || utf_32(u32::from_be_bytes)
}

/// Returns whether a character never occurs unescaped in JSON.
fn is_binary(c: char) -> bool {
    c.is_control() && !c.is_whitespace()
}

/// Removes the credentials from well-formed JSON.
fn without_members(json: &[u8]) -> Vec<u8> {
    let mut output = Vec::with_capacity(json.len());
    let (mut copied, mut at) = (0, 0);
    while let Some(&byte) = json.get(at) {
        if byte != b'"' {
            at += 1;
            continue;
        }
        let end = string_end(json, at);
        let text = &json[(at + 1).min(end)..end.saturating_sub(1).max(at + 1)];
        let next = space_end(json, end);
        let is_name = json.get(next) == Some(&b':');
        let (from, to, instead) = if is_name && name_end(text, 0) == Some(text.len()) {
            let value = space_end(json, next + 1);
            (value, value_end(json, value), &b"null"[..])
        } else if has_brace(text) && first_mention(text).is_some() {
            (at, end, &b"\"\""[..])
        } else {
            at = end;
            continue;
        };
        output.extend_from_slice(&json[copied..from]);
        output.extend_from_slice(instead);
        output.extend(json[from..to].iter().filter(|byte| **byte == b'\n'));
        (copied, at) = (to, to);
    }
    output.extend_from_slice(&json[copied..]);
    output
}

fn has_brace(text: &[u8]) -> bool {
    let escaped = |window: &[u8]| window.eq_ignore_ascii_case(b"u007b");
    text.contains(&b'{') || text.windows(5).any(escaped)
}

/// Replaces everything after `from`, one space per character.
fn blank_after(body: &[u8], from: usize) -> Vec<u8> {
    let is_first_of_character = |byte: &&u8| **byte & 0xC0 != 0x80;
    let blank = |byte: &u8| if *byte == b'\n' { b'\n' } else { b' ' };
    let (start, rest) = body.split_at(from);
    start.iter().copied().chain(rest.iter().filter(is_first_of_character).map(blank)).collect()
}

/// Returns the end of the first occurrence of the name, in any spelling of its backslashes; the whole value is
/// after it.
fn first_mention(bytes: &[u8]) -> Option<usize> {
    let plain = mention_end(bytes);
    let Some((unescaped, first)) = without_escaped_backslashes(bytes) else { return plain };
    mention_end(&unescaped).map(|_| plain.map_or(first, |plain| plain.min(first)))
}

/// Replaces every `\u005c` with a backslash, repeatedly, and removes the zero bytes of wider encodings. Also
/// returns the position of the first replacement. Returns `None` if there is none.
fn without_escaped_backslashes(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    const ESCAPED: &[u8] = b"\\u005c";
    memchr::memchr(b'\\', bytes)?;
    let mut unescaped = Vec::with_capacity(bytes.len());
    let mut first = None;
    for (at, byte) in bytes.iter().enumerate().filter(|(_, byte)| **byte != 0) {
        unescaped.push(*byte);
        let begin = unescaped.len().saturating_sub(ESCAPED.len());
        if matches!(byte, b'c' | b'C') && unescaped[begin..].eq_ignore_ascii_case(ESCAPED) {
            unescaped.truncate(begin + 1);
            first.get_or_insert(at);
        }
    }
    Some((unescaped, first?))
}

/// Returns the end of the first occurrence of the name in any encoding and spelling.
fn mention_end(bytes: &[u8]) -> Option<usize> {
    memchr::memchr3_iter(b'c', b'C', b'\\', bytes).find_map(|at| name_end(bytes, at))
}

/// Returns the end of the name that begins at `at`, in letters of either case or escaped; `None` if there is
/// another text.
fn name_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    for (index, letter) in NAME.iter().enumerate() {
        if index > 0 {
            at += bytes[at..].iter().take(MAX_FILLING).take_while(|byte| **byte == 0).count();
        }
        at = letter_end(bytes, at, *letter)?;
    }
    Some(at)
}

fn letter_end(bytes: &[u8], at: usize, letter: u8) -> Option<usize> {
    let first = *bytes.get(at)?;
    if first.eq_ignore_ascii_case(&letter) {
        return Some(at + 1);
    }
    let mut rest = bytes[at..].iter().enumerate().filter(|(_, byte)| **byte != 0).map(|(index, byte)| (index, *byte));
    let mut backslashes = 0;
    let (_, marker) = rest.by_ref().take(MAX_BACKSLASHES + 1).find(|(_, byte)| {
        let is_backslash = *byte == b'\\';
        backslashes += usize::from(is_backslash);
        !is_backslash
    })?;
    if backslashes == 0 || !marker.eq_ignore_ascii_case(&b'u') {
        return None;
    }
    let mut code = 0;
    let mut end = at;
    for _ in 0..4 {
        let (index, digit) = rest.next()?;
        code = code * 16 + char::from(digit).to_digit(16)?;
        end = at + index + 1;
    }
    u8::try_from(code).ok().filter(|code| code.eq_ignore_ascii_case(&letter)).map(|_| end)
}

/// Returns the end of the string whose opening quotation mark is at `at`.
fn string_end(json: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    json.len()
}

fn space_end(json: &[u8], at: usize) -> usize {
    at + json[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

fn value_end(json: &[u8], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => {
                at = string_end(json, at);
                if depth == 0 {
                    return at;
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' | b',' if depth == 0 => return at,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            byte if depth == 0 && byte.is_ascii_whitespace() => return at,
            _ => {}
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests;
