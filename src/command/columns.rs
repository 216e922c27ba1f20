//! Tables for people: aligned columns, and values of JSON as text.

use serde_json::Value;

use super::output::cell;

/// Formats a value as a cell, without quotation marks.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => cell(text),
        other => cell(&other.to_string()),
    }
}

/// Formats a header and rows as aligned columns.
pub(super) fn columns<const N: usize>(header: &[&str; N], rows: &[[String; N]]) -> String {
    let mut widths = header.map(|name| name.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[String; N]| {
        let padded: Vec<_> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let header = header.map(str::to_owned);
    std::iter::once(&header).chain(rows).map(line).collect()
}
