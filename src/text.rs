//! Which characters a text may contain, and how people see it.
//!
//! Text of partners may contain anything. Two rules apply to it, and each has one place:
//!
//! - What is stored has characters that every database, XML and JSON can hold: [`cleaned`], the type `Text` of the model,
//!   and [`storable`] as the last resort of the stores.
//! - What is shown in a log or on a terminal contains nothing that controls a terminal, reorders the text or hides a part
//!   of it: [`line()`], [`lines`] and [`json`] write such characters as escapes.

use std::{
    borrow::Cow,
    fmt::{self, Write},
};

/// Returns whether XML 1.0 allows the character in a document (section 2.2, production `Char`).
#[must_use]
pub fn is_xml_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..='\u{10FFFF}')
}

/// Returns a text without the characters that XML forbids, without white space at its ends, and of at most `max_chars`
/// characters. Every database, XML and JSON can hold it. Joiners and marks of direction stay, because Persian, Hindi and
/// Hebrew need them.
#[must_use]
pub fn cleaned(raw: &str, max_chars: usize) -> String {
    let raw = raw.trim();
    if raw.len() <= max_chars && is_clean_ascii(raw) {
        return raw.to_owned();
    }
    let cleaned: String = raw.chars().filter(|c| is_xml_char(*c)).take(max_chars).collect();
    // After the removal of a character there can be white space at either end again.
    match cleaned.trim() {
        trimmed if trimmed.len() == cleaned.len() => cleaned,
        trimmed => trimmed.to_owned(),
    }
}

/// Returns whether all characters are ASCII and valid in XML. This is true for nearly all texts, and copying such a
/// text as a whole is faster than copying it by character.
fn is_clean_ascii(raw: &str) -> bool {
    raw.bytes().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r'))
}

/// Returns a text that every database can store: with U+FFFD for each NUL, which the type `text` of PostgreSQL cannot
/// contain.
#[must_use]
pub fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{FFFD}").into() } else { text.into() }
}

/// Shows a text in one line of at most `max_chars` characters. Line breaks, tabs, controls, marks of direction and invisible
/// characters become escapes, as in `\n` and `\u{202e}`. A text that is cut ends with `…`.
#[must_use]
pub fn line(text: &str, max_chars: usize) -> Line<'_> {
    Line { text, max_chars }
}

/// A text that is shown in one line; see [`line()`].
#[derive(Clone, Copy, Debug)]
pub struct Line<'t> {
    text: &'t str,
    max_chars: usize,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text;
        let end = text.char_indices().nth(self.max_chars).map(|(at, _)| at);
        escape(&text[..end.unwrap_or(text.len())], f, is_hidden, Notation::Rust)?;
        if end.is_some() { f.write_char('…') } else { Ok(()) }
    }
}

/// Shows a text of several lines. Tabs and line breaks stay; all other characters that [`line()`] escapes become escapes.
#[must_use]
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, is_hidden_in_lines, Notation::Rust)
}

/// Shows JSON. The characters that [`lines`] escapes become escapes of JSON, so the values stay the same.
#[must_use]
pub fn json(text: &str) -> Cow<'_, str> {
    escaped(text, is_hidden_in_lines, Notation::Json)
}

/// Returns whether a character controls a terminal, reorders text, or has no visible form. Joiners and marks of direction
/// are among them: they are needed for the writing of several languages, but they can also hide what a line says.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Default_Ignorable_Code_Point of Unicode 16.
            '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}' | '\u{180B}'..='\u{180F}'
            | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{3164}'
            | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFF8}' | '\u{1BCA0}'..='\u{1BCA3}'
            | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}'
            // Separators of lines and paragraphs, marks of annotations, and the two that XML forbids.
            | '\u{2028}'..='\u{2029}' | '\u{FFF9}'..='\u{FFFB}' | '\u{FFFE}'..='\u{FFFF}')
}

fn is_hidden_in_lines(c: char) -> bool {
    is_hidden(c) && !matches!(c, '\n' | '\t')
}

/// Notation of an escape.
#[derive(Clone, Copy)]
enum Notation {
    /// As in the source of Rust: `\u{202e}`.
    Rust,
    /// As in JSON: `\u202e`.
    Json,
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool, notation: Notation) -> Cow<'_, str> {
    // Bytes decide about nearly all texts.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t')) || !text.contains(&is_escaped) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    // Writing to a string never fails.
    let _ = escape(text, &mut shown, is_escaped, notation);
    shown.into()
}

fn escape(text: &str, out: &mut impl Write, is_escaped: impl Fn(char) -> bool, notation: Notation) -> fmt::Result {
    let mut rest = text;
    while let Some(at) = rest.find(&is_escaped) {
        let (plain, from) = rest.split_at(at);
        out.write_str(plain)?;
        let mut following = from.chars();
        match (following.next(), notation) {
            (None, _) => break,
            (Some('\n'), Notation::Rust) => out.write_str("\\n")?,
            (Some('\r'), Notation::Rust) => out.write_str("\\r")?,
            (Some('\t'), Notation::Rust) => out.write_str("\\t")?,
            (Some(c), Notation::Rust) => write!(out, "\\u{{{:x}}}", u32::from(c))?,
            (Some(c), Notation::Json) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
        }
        rest = following.as_str();
    }
    out.write_str(rest)
}

#[cfg(test)]
mod tests {
    use super::{is_hidden, is_xml_char, json, line, lines, storable};

    #[test]
    fn a_line_shows_what_would_control_reorder_or_hide() {
        for (text, shown) in [
            ("plain Ünïcödé 漢字 🎉", "plain Ünïcödé 漢字 🎉"),
            ("\u{1b}]0;owned\u{7}\u{1b}[2J", "\\u{1b}]0;owned\\u{7}\\u{1b}[2J"),
            ("a\nb\r\n\tc\0", "a\\nb\\r\\n\\tc\\u{0}"),
            ("\u{7f}\u{80}\u{9b}31m", "\\u{7f}\\u{80}\\u{9b}31m"),
            ("cod\u{202e}gpj.exe\u{2066}\u{200b}\u{feff}", "cod\\u{202e}gpj.exe\\u{2066}\\u{200b}\\u{feff}"),
            ("a\u{2028}b\u{e0041}", "a\\u{2028}b\\u{e0041}"),
        ] {
            assert_eq!(line(text, 100).to_string(), shown);
            assert!(!shown.contains(is_hidden));
        }
        assert_eq!(line("äöüß", 3).to_string(), "äöü…");
        assert_eq!(line("äöü", 3).to_string(), "äöü");
    }

    #[test]
    fn lines_keep_their_breaks_and_json_keeps_its_values() {
        let text = "{\"a\":\t\"x\u{9b}\u{202e}\u{200d}\u{e0041}é\"}\n";
        assert_eq!(lines("a\n\tb\r\u{9b}"), "a\n\tb\\r\\u{9b}");
        assert_eq!(json(text), "{\"a\":\t\"x\\u009b\\u202e\\u200d\\udb40\\udc41é\"}\n");
        let (shown, plain) = (json(text), text);
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&shown), value(plain));
    }

    #[test]
    fn storable_text_has_no_nul() {
        assert_eq!(storable("a\0b\u{1}\0"), "a\u{FFFD}b\u{1}\u{FFFD}");
        assert_eq!(storable("a\u{200d}b"), "a\u{200d}b");
    }

    #[test]
    fn xml_allows_joiners_and_marks_of_direction() {
        assert!(['\t', 'a', '\u{200c}', '\u{200d}', '\u{200f}', '\u{202e}', '\u{10ffff}'].into_iter().all(is_xml_char));
        assert!(!['\0', '\u{8}', '\u{b}', '\u{1b}', '\u{fffe}', '\u{ffff}'].into_iter().any(is_xml_char));
    }
}
