//! The comments in `config/default.toml` are those of the specifications.

use std::collections::BTreeMap;

use super::{
    DEFAULTS,
    access::{PublicTable, TokenTable},
    files::S3Table,
    source,
    transports::TRANSPORTS,
};
use crate::{
    delivery::{COMMON_KEYS, DELIVERIES},
    settings::{Key, Table},
};

/// Returns the comment that begins with `heading`: its lines before the first row, and the rows, by their keys. The rows
/// follow an empty line. Each is "`KEY` TEXT"; an indented line continues it.
fn comment(heading: &str) -> (String, BTreeMap<String, String>) {
    let lines = DEFAULTS.lines().skip_while(|line| !line.starts_with(heading));
    let (mut head, mut rows, mut current, mut has_rows) = (String::new(), BTreeMap::new(), None, false);
    for line in lines.take_while(|line| line.starts_with("# ") || *line == "#") {
        let text = line.trim_start_matches('#');
        has_rows |= text.is_empty();
        if has_rows
            && let Some((key, text)) = text.strip_prefix(" `").and_then(|row| row.split_once("` "))
            && !key.contains('`')
        {
            rows.insert(key.to_owned(), text.trim().to_owned());
            current = Some(key.to_owned());
        } else if let Some(row) =
            current.as_ref().filter(|_| text.starts_with("     ")).and_then(|key| rows.get_mut(key))
        {
            *row = format!("{row} {}", text.trim());
        } else if rows.is_empty() {
            head = format!("{head} {}", text.trim());
        } else if !text.trim().is_empty() {
            break;
        }
    }
    assert!(!head.is_empty(), "no comment begins with {heading:?}");
    (head, rows)
}

/// Compares the rows of a comment with keys. A key without a row is named before the rows, because it is explained elsewhere.
fn compare<'k>(heading: &str, keys: impl IntoIterator<Item = &'k Key>) {
    let (head, mut rows) = comment(heading);
    for key in keys {
        let Some(row) = rows.remove(key.name) else {
            assert!(head.contains(&format!("`{}`", key.name)), "{heading}: no row for {}", key.name);
            continue;
        };
        let lower = |text: &str| {
            text.chars().take(1).flat_map(char::to_lowercase).chain(text.chars().skip(1)).collect::<String>()
        };
        assert!(
            row.starts_with("as for ") || lower(&row) == lower(&key.about()),
            "{heading}: {}: {row}\n{}",
            key.name,
            key.about()
        );
    }
    // A transport may say more about a setting that every source has.
    rows.retain(|name, _| !source::COMMON.iter().any(|key| key.name == name));
    assert_eq!(rows, BTreeMap::new(), "{heading}: no setting has these names");
}

#[test]
fn comments_on_settings_of_sources_are_those_of_the_specifications() {
    compare("# Sources of events.", source::COMMON);
    for kind in TRANSPORTS {
        compare(&format!("# Additional settings of the transport {:?}", kind.name), kind.keys());
    }
    compare("# `tidings token` makes a token and prints the lines", TokenTable::KEYS);
    compare("# Readers without a token.", PublicTable::KEYS);
    compare("# A bucket of an S3-compatible server", S3Table::KEYS);
}

#[test]
fn comments_on_settings_of_subscriptions_are_those_of_the_specifications() {
    compare("# Subscriptions. Each delivers", COMMON_KEYS);
    for kind in DELIVERIES {
        compare(&format!("# Additional settings of `delivery = {:?}`", kind.name), kind.settings);
    }
}
