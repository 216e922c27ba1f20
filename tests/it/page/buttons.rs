//! Each button of the page is clicked by a test.

use std::{fs, path::Path};

use regex_lite::Regex;

/// Texts of the buttons that are no operations of the interface, as the tests write them.
const OTHERS: [&str; 11] = [
    "Cancel",
    "Close",
    "Filter",
    "Find",
    "Last week",
    r"More of 1\u{202f}000",
    "Pause",
    "Refresh again",
    "Sign in",
    "Sign out",
    "Try now",
];

/// Number of the places that make such buttons: `Pause` and `Refresh again` are one, and the answer of the dialog, which
/// [`OpenPage::confirm`](super::OpenPage::confirm) clicks, has the name of the operation.
const PLACES: usize = OTHERS.len();

/// Returns the texts of the files of a folder with this extension.
fn texts(folder: &str, extension: &str) -> String {
    let files = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
    let paths =
        files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|one| one == extension));
    paths.map(|path| fs::read_to_string(path).unwrap()).collect()
}

/// Returns what the first group of a regular expression, and the second one if there is one, has found in a text.
fn found(text: &str, expression: &str) -> Vec<String> {
    let expression = Regex::new(expression).unwrap();
    let name = |found: regex_lite::Captures<'_>| {
        let thing = found.get(2).map_or("", |thing| thing.as_str());
        format!("{} {thing}", &found[1]).trim().to_owned()
    };
    let mut names: Vec<_> = expression.captures_iter(text).map(name).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn each_button_is_clicked_by_a_test() {
    let (sources, tests) = (texts("src/admin/page", "js"), texts("tests/it/page", "rs"));
    // The first argument is the label, and the second one may begin with words about the thing.
    let names = found(&sources, r#"\b(?:button|move|start)\(\s*"([^"]+)"(?:,\s*`([^`$]*))?"#);
    assert!(names.len() >= 29, "{names:?}");
    let clicks = found(&tests, r#"\b(?:click|confirm)\(\s*(?:&format!\(\s*)?"([^"]+)""#);
    // Of the names that begin alike, a click is on the longest one.
    let name_of = |click: &String| {
        let matching = names.iter().filter(|name| click.starts_with(name.as_str()));
        matching.max_by_key(|name| name.len())
    };
    let clicked: Vec<_> = clicks.iter().filter_map(name_of).collect();
    let others: Vec<_> = names.iter().filter(|name| !clicked.contains(name)).collect();
    assert_eq!(others, Vec::<&String>::new());

    let places = Regex::new(r#"\bh\(\s*"button""#).unwrap().find_iter(&sources).count();
    assert_eq!(places, PLACES + 1, "one of them makes the operations");
    assert_eq!(found(&tests, r#"\bclick_text\(\s*"([^"]+)""#), OTHERS);
}
