//! Files of one room that import each other in a circle can only be understood together. Rooms that have none keep it so.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// Rooms without a circle.
const ROOMS: [&str; 7] = ["cluster", "config", "files", "http_client", "intake", "lookup", "transfer"];

/// Returns the modules beside a file that it imports with `use super::…`, or, for `mod.rs`, that it publishes.
fn imports(file: &str, text: &str, modules: &BTreeSet<String>) -> BTreeSet<String> {
    let code: String = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code = code.split("mod tests {").next().unwrap_or_default();
    if file == "mod" {
        let used = code.split("use ").skip(1).filter_map(|rest| rest.split("::").next());
        return used.map(str::to_owned).filter(|name| modules.contains(name)).collect();
    }
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("super::") {
        let rest = &code[at + "super::".len()..];
        let mut names = Vec::new();
        if rest.starts_with('{') {
            let mut depth = 0;
            for (at, c) in rest.char_indices().take_while(|(_, c)| *c != ';') {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ => {}
                }
                if depth == 1 && matches!(c, '{' | ',') {
                    names.push(&rest[at + 1..]);
                }
            }
        } else {
            names.push(rest);
        }
        for name in names {
            let name = name.trim_start();
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
            if !name[..end].is_empty() {
                let module = if modules.contains(&name[..end]) { &name[..end] } else { "mod" };
                found.insert(module.to_owned());
            }
        }
    }
    found
}

/// Returns the modules that can be reached from one.
fn reachable(from: &str, edges: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let (mut reached, mut left) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(module) = left.pop() {
        // A room in a file beside its folder has no `mod.rs`.
        for next in edges.get(&module).into_iter().flatten() {
            if reached.insert(next.clone()) {
                left.push(next.clone());
            }
        }
    }
    reached
}

#[test]
fn files_of_a_room_import_each_other_one_way() {
    let mut found = 0;
    for room in ROOMS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(room);
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let files: BTreeMap<String, String> = files
            .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
            .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap()))
            .filter(|(name, _)| name != "tests")
            .collect();
        let modules: BTreeSet<String> = files.keys().cloned().collect();
        let edges: BTreeMap<String, BTreeSet<String>> =
            files.iter().map(|(name, text)| (name.clone(), imports(name, text, &modules))).collect();
        found += edges.values().map(BTreeSet::len).sum::<usize>();
        let in_circle: Vec<_> = modules.iter().filter(|name| reachable(name, &edges).contains(*name)).collect();
        assert!(in_circle.is_empty(), "files of {room} import each other in a circle: {in_circle:?}");
    }
    assert!(found > 150, "the test finds no imports");
}
