//! Files of tests belong to the test program: a file without its line in the module of its folder never runs.

use std::{fs, path::Path};

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
