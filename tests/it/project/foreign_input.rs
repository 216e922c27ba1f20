//! Rules about documents of strangers, which the sources must keep: what is made of them is bounded, and the work on them is
//! not done by asynchronous threads. `docs/architecture.md` has the reasons.

use std::{fs, path::Path};

use super::architecture::sources;

/// Returns the code of a source file before its tests, without comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap();
    code.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

/// Returns the sources of datasets below `src`, with their paths.
fn fileset_sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/filesets");
    let all = sources(&root);
    all.iter().map(|path| (path.strip_prefix(&root).unwrap().display().to_string(), code(path))).collect()
}

/// Each answer of a platform becomes JSON in one function, which works on a blocking thread within the budget.
#[test]
fn json_of_platforms_is_read_in_one_place() {
    for (file, code) in fileset_sources() {
        let parses = ["serde_json::from_", "Deserializer::from_", ".to_bytes()", ".json::<Value"];
        let allowed = match file.as_str() {
            "json.rs" => &["Deserializer::from_"][..],
            // Records of workspaces and jobs, which the program itself has written.
            "comparison.rs" | "ingest.rs" | "files.rs" | "job_loop.rs" | "job_claims.rs" => &["serde_json::from_"],
            _ => &[],
        };
        for pattern in parses.iter().filter(|pattern| !allowed.contains(pattern)) {
            assert!(!code.contains(pattern), "{file} has {pattern}; use PlatformClient::json or read_json");
        }
        for pattern in ["Regex", "String::from_utf8("] {
            assert!(!code.contains(pattern), "{file} has {pattern}, which reads a whole body");
        }
    }
}

/// A list of a document has a bound (`json::List`), and unknown values are skipped instead of stored.
#[test]
fn documents_of_platforms_have_no_unbounded_parts() {
    for (file, code) in fileset_sources().into_iter().filter(|(file, _)| file.contains('/')) {
        for pattern in ["serde(untagged", "serde(flatten"] {
            assert!(!code.contains(pattern), "{file} has {pattern}, which stores a whole value before it is read");
        }
        for derived in code
            .split("#[derive(")
            .skip(1)
            .filter(|rest| rest.split(')').next().is_some_and(|names| names.contains("Deserialize")))
        {
            let end = derived.find("\n}").unwrap_or(derived.len()).min(derived.find(";\n").unwrap_or(derived.len()));
            for pattern in ["Vec<", "Map<String", " Value", "<Value", "Set<"] {
                let item = &derived[..end];
                assert!(!item.contains(pattern), "{file}: {pattern} has no bound in {item}");
            }
        }
    }
}

/// Each parser whose memory is measured has a fuzz target, and the other way round.
#[test]
fn parsers_have_fuzz_targets() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
    let (parsers, manifest) = (read("tests/memory/parsers.rs"), read("fuzz/Cargo.toml"));
    let names = parsers.split("Parser { name: \"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
    let mut names: Vec<_> = names.collect();
    assert!(names.len() >= 10, "{names:?}");
    for name in &names {
        let target = read(&format!("fuzz/fuzz_targets/{name}.rs"));
        assert!(target.contains(&format!("check_parser(\"{name}\"")), "{name}");
    }
    // These read no documents of other servers, or check them in their own way.
    names.extend(["amqp", "dialects", "feed_query", "stomp"].map(String::from));
    for entry in fs::read_dir(root.join("fuzz/fuzz_targets")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(names.iter().any(|known| known == name), "{name} is no parser of tests/memory/parsers.rs");
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name} is not in fuzz/Cargo.toml");
    }
}

/// Fuzzing and `tests/memory` read the documents that a module lists.
#[test]
fn documents_of_platforms_are_measured() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/filesets");
    let (readers, platforms) = (code(&folder.join("readers.rs")), code(&folder.join("platform/mod.rs")));
    for (file, code) in fileset_sources() {
        // Parts of documents, and records of the program itself.
        if ["json.rs", "job_loop.rs", "files.rs"].contains(&file.as_str()) || !code.contains("Deserialize)]") {
            continue;
        }
        assert!(code.contains("const DOCUMENTS: &[json::Reads]"), "{file} lists no DOCUMENTS");
        let module = file.rsplit('/').next().unwrap().trim_end_matches(".rs").replace("mod", "item");
        let listed = if file.starts_with("platform/") { &platforms } else { &readers };
        assert!(listed.contains(&format!("{module}::DOCUMENTS")), "{module}::DOCUMENTS is not read");
    }
}
