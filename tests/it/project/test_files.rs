//! Files of tests belong to the test program: a file without its line in the module of its folder never runs.

use std::{collections::BTreeSet, fs, path::Path};

use super::architecture::sources;

#[test]
fn each_file_of_tests_is_a_module() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let mut forgotten = Vec::new();
    for folder in fs::read_dir(&tests).unwrap().map(|folder| folder.unwrap().path()) {
        let Ok(list) = fs::read_to_string(folder.join("mod.rs")) else { continue };
        for file in fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()) {
            let name = file.file_stem().unwrap().to_str().unwrap();
            let is_module = name == "mod" || list.lines().any(|line| line.ends_with(&format!("mod {name};")));
            if file.extension().is_some_and(|extension| extension == "rs") && !is_module {
                forgotten.push(file.clone());
            }
        }
    }
    assert!(forgotten.is_empty(), "no mod.rs names {forgotten:?}");
}

/// Calls that open the SQLite file of a journal.
const READS_SQLITE: [&str; 3] = ["journal_file(", "verify_ok(", "Connection::open("];

/// Returns the functions of a file, each with its name and its text without comments.
fn functions(text: &str) -> Vec<(&str, String)> {
    let items = text.split("\n}\n").filter_map(|item| {
        let name = &item[item.find("fn ")? + 3..];
        let code: String = item.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
        Some((&name[..name.find(|c: char| !c.is_alphanumeric() && c != '_')?], code))
    });
    items.collect()
}

/// The tests of `journal` open most journals themselves, and are marked by hand.
#[test]
fn tests_that_read_the_file_of_a_gateway_need_sqlite() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let (mut marked, mut wrong) = (0, Vec::new());
    for path in sources(&tests) {
        let text = fs::read_to_string(&path).unwrap();
        let is_exempt = ["support", "project", "journal"].iter().any(|folder| path.starts_with(tests.join(folder)));
        if is_exempt || !(text.contains("Gateway") || text.contains("gateway(")) {
            continue;
        }
        let functions = functions(&text);
        let mut reading: BTreeSet<&str> = BTreeSet::new();
        loop {
            let reads = |code: &str| {
                let calls = |name: &&str| code.contains(&format!("{name}("));
                READS_SQLITE.iter().any(|call| code.contains(call)) || reading.iter().any(calls)
            };
            let more: Vec<_> = functions.iter().filter(|(name, code)| !reading.contains(name) && reads(code)).collect();
            if more.is_empty() {
                break;
            }
            reading.extend(more.iter().map(|(name, _)| *name));
        }
        let is_test = |code: &str| code.contains("#[test]") || code.contains("#[tokio::test");
        for (name, code) in functions.iter().filter(|(name, code)| reading.contains(name) && is_test(code)) {
            if code.contains("needs_sqlite();") {
                marked += 1;
            } else {
                wrong.push(format!("{}: {name} does not begin with needs_sqlite", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(marked > 30, "the test finds {marked} tests of SQLite");
}
