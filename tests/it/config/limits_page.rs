//! `docs/limits.md` lists every limit of the configuration with its default, and every limit with a metric.

use std::{collections::BTreeMap, fs, path::Path};

use tidings::{
    config::{Config, DEFAULTS, Flags},
    format::{DIALECTS, Limits},
    web::Limit,
};

/// Returns the default for each key in the table of `docs/limits.md`.
fn documented() -> BTreeMap<String, String> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/limits.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        (cells[0].to_owned(), cells[1].to_owned())
    })
    .collect()
}

#[test]
fn limits_page_lists_every_key_and_its_default() {
    let (_, table) = DEFAULTS.split_once("\n[limits]\n").unwrap();
    let lines = table.lines().take_while(|line| !line.starts_with('['));
    let keys = lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = "));
    let mut expected: BTreeMap<_, _> =
        keys.map(|(key, default)| (format!("limits.{key}"), default.to_owned())).collect();
    assert!(expected.len() > 10, "{expected:?}");
    for key in ["rate", "burst"] {
        expected.insert(format!("sources.NAME.{key}"), "none".to_owned());
    }
    assert_eq!(documented(), expected);
}

#[test]
fn limits_page_lists_every_counted_limit() {
    let keys = documented();
    for limit in Limit::ALL {
        let name = limit.name();
        let known = [format!("limits.{name}"), format!("sources.NAME.{name}")];
        assert!(known.iter().any(|key| keys.contains_key(key)), "{name} is not documented");
    }
}

#[test]
fn message_limits_equal_their_defaults_without_a_configuration() {
    let config = Config::load_with(None, [], &Flags::default(), DIALECTS).unwrap();
    assert_eq!(config.limits.message_limits(), Limits::default());
}
