//! Lines in a file that a running program writes.

use std::{fs, path::Path};

/// Returns the complete lines of a file.
///
/// A program may write a line in several pieces, so text after the last line feed is no line yet.
pub(crate) fn printed_lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
}
