//! Texts of the screen: columns of a width on the terminal, ages of times, and bars.
//!
//! A name can contain wide characters, and anything that controls a terminal. The first count twice, the second are shown as
//! escapes.

use ratatui::text::Span;
use serde_json::Value;
use tidings::model::Timestamp;

use super::documents::elements;
use crate::command::output::cell;

/// Heights of bars, from zero to the maximum.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Returns the number of columns of a text on the terminal.
fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Returns a text of others in so many columns: cut with `…`, or filled up.
pub(super) fn fitted(text: &str, columns: usize) -> String {
    let text = cell(text);
    let mut fitted = String::new();
    let mut used = 0;
    let is_cut = width(&text) > columns;
    let room = if is_cut { columns.saturating_sub(1) } else { columns };
    for character in text.chars() {
        let more = width(character.encode_utf8(&mut [0; 4]));
        if used + more > room {
            break;
        }
        fitted.push(character);
        used += more;
    }
    if is_cut && columns > 0 {
        fitted.push('…');
        used += 1;
    }
    fitted.extend(std::iter::repeat_n(' ', columns.saturating_sub(used)));
    fitted
}

/// Divides a text of others into lines of at most so many columns, at blanks if possible.
pub(super) fn folded(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in cell(text).split(' ') {
        for part in pieces(word, columns) {
            let more = width(&part);
            match lines.last_mut().filter(|_| used == 0 || used + 1 + more <= columns) {
                Some(line) if used > 0 => {
                    *line = format!("{line} {part}");
                    used += 1 + more;
                }
                Some(line) => (*line, used) = (part, more),
                None => {
                    lines.push(part);
                    used = more;
                }
            }
        }
    }
    lines
}

/// Divides a word into pieces of at most so many columns, and of at least a character.
fn pieces(word: &str, columns: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for character in word.chars() {
        match pieces.last_mut() {
            Some(piece) if piece.is_empty() || width(piece) + width(character.encode_utf8(&mut [0; 4])) <= columns => {
                piece.push(character);
            }
            _ => pieces.push(character.to_string()),
        }
    }
    pieces
}

/// Returns cells in a line, each in its number of columns, with two blanks between them.
pub(super) fn joined<const N: usize>(cells: [&str; N], columns: [usize; N]) -> String {
    let cells = cells.iter().zip(columns).map(|(cell, columns)| fitted(cell, columns));
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

/// Returns how far a time is from now, as in `4 min` and `in 4 min`; nothing if it is no time.
pub(super) fn age(time: &Value, now: Timestamp) -> String {
    let Some(time) = time.as_str().and_then(|time| Timestamp::parse(time).ok()) else { return String::new() };
    let seconds = now.millis().saturating_sub(time.millis()) / 1000;
    let (number, unit) = match seconds.unsigned_abs() {
        seconds @ 0..=119 => (seconds, "s"),
        seconds @ 120..=7199 => (seconds / 60, "min"),
        seconds @ 7200..=172_799 => (seconds / 3600, "h"),
        seconds => (seconds / 86_400, "d"),
    };
    if seconds < 0 { format!("in {number} {unit}") } else { format!("{number} {unit}") }
}

/// Returns the sum of the known slots.
pub(super) fn sum(slots: &Value) -> u64 {
    elements(slots).iter().filter_map(Value::as_u64).fold(0, u64::saturating_add)
}

/// Returns bars of slots, as many slots in each column as needed. A column of which nothing is known is blank.
pub(super) fn bars(slots: &Value, columns: usize) -> String {
    let slots = elements(slots);
    let of_column = slots.len().div_ceil(columns.max(1)).max(1);
    // The newest slots are at the right end, each column full.
    let sums: Vec<Option<u64>> = slots
        .rchunks(of_column)
        .map(|chunk| {
            chunk
                .iter()
                .filter_map(Value::as_u64)
                .fold(None, |sum: Option<u64>, slot| Some(sum.unwrap_or(0).saturating_add(slot)))
        })
        .collect();
    let most = sums.iter().flatten().max().copied().unwrap_or(0).max(1);
    let bar = |sum: &Option<u64>| match sum {
        None => ' ',
        Some(0) => HEIGHTS[0],
        // A column with a change is higher than one without.
        Some(sum) => {
            let height = u128::from(*sum) * (HEIGHTS.len() as u128 - 2) / u128::from(most);
            HEIGHTS[1 + usize::try_from(height).unwrap_or(0).min(HEIGHTS.len() - 2)]
        }
    };
    sums.iter().rev().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Timestamp, age, bars, fitted, folded, sum, width};

    #[test]
    fn text_fits_into_its_columns() {
        for (text, columns, expected) in [
            ("index", 8, "index   "),
            ("index", 5, "index"),
            ("index", 4, "ind…"),
            ("期刊索引", 8, "期刊索引"),
            ("期刊索引", 6, "期刊… "),
            ("e\u{301}te\u{301}", 3, "e\u{301}te\u{301}"),
            ("\u{1b}[2J\u{202e}x", 20, "\\u{1b}[2J\\u{202e}x  "),
            ("", 0, ""),
        ] {
            let shown = fitted(text, columns);
            assert_eq!(shown, expected);
            assert_eq!(width(&shown), columns, "{text:?}");
        }
    }

    #[test]
    fn text_is_folded_at_blanks() {
        for (text, columns, expected) in [
            ("the broker cannot be reached", 12, &["the broker", "cannot be", "reached"][..]),
            ("a 123456789012 b", 5, &["a", "12345", "67890", "12 b"]),
            ("期刊 索引", 4, &["期刊", "索引"]),
            ("期", 1, &["期"]),
            ("a\n\u{1b}[2J b", 80, &["a\\n\\u{1b}[2J b"]),
            ("", 5, &[""]),
        ] {
            assert_eq!(folded(text, columns), expected, "{text:?}");
        }
    }

    #[test]
    fn ages_are_in_the_largest_unit_that_says_enough() {
        let now = Timestamp::parse("2026-11-29T12:00:00Z").unwrap();
        for (time, expected) in [
            ("2026-11-29T11:59:20Z", "40 s"),
            ("2026-11-29T11:30:00Z", "30 min"),
            ("2026-11-28T13:00:00Z", "23 h"),
            ("2026-11-01T12:00:00Z", "28 d"),
            ("2026-11-29T12:05:00Z", "in 5 min"),
            ("soon", ""),
        ] {
            assert_eq!(age(&json!(time), now), expected);
        }
    }

    #[test]
    fn bars_end_with_the_newest_slot() {
        assert_eq!(bars(&json!([null, null, 0, 1, 8, u64::MAX]), 6), "  ▁▂▂█");
        assert_eq!(bars(&json!([1, 2, 3, 4, 5]), 2), "▃█", "the oldest column has two slots");
        assert_eq!(bars(&json!([0, 0]), 2), "▁▁");
        assert_eq!((bars(&json!(null), 5), sum(&json!([1, null, 2]))), (String::new(), 3));
    }
}
