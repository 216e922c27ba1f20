//! Dependency rules of the source tree. Data flows one way: source → dialect → intake → journal → format →
//! delivery and view. This test reads the sources and compares the imports between modules with the table in
//! `docs/architecture.md`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Imports allowed for each module. A module without a row may import nothing.
const TABLE: [(&str, &[&str]); 40] = [
    ("named", &[]),
    ("text", &[]),
    ("model", &["text"]),
    ("supervision", &[]),
    ("retry", &[]),
    ("message_rate", &[]),
    ("cache", &[]),
    ("features", &[]),
    ("suggestion", &["features"]),
    ("template", &[]),
    ("settings", &["named", "suggestion"]),
    ("outage", &[]),
    ("web", &["model", "suggestion", "text"]),
    ("broker", &["web"]),
    ("amqp", &["broker"]),
    ("stomp", &["broker", "text", "web"]),
    ("kafka", &["broker", "settings", "text", "web"]),
    ("dbus", &["broker"]),
    ("http_client", &["web"]),
    ("format", &["model", "suggestion", "template", "text"]),
    ("journal", &["model", "outage", "retry", "supervision", "text"]),
    ("cluster", &["journal", "model", "outage", "supervision"]),
    ("lookup", &["model", "format", "http_client", "retry", "web"]),
    ("intake", &["model", "format", "journal", "lookup", "message_rate", "retry"]),
    ("files", &["features", "http_client", "web"]),
    ("segments", &["files", "journal", "model"]),
    ("transfer", &["files", "format", "http_client", "model"]),
    ("filesets", &["transfer", "files", "http_client", "intake", "format", "journal", "model", "retry", "text", "web"]),
    (
        "harvest",
        &[
            "cluster",
            "supervision",
            "transfer",
            "filesets",
            "files",
            "http_client",
            "intake",
            "format",
            "journal",
            "model",
            "retry",
            "text",
            "web",
        ],
    ),
    ("audit", &["cluster", "filesets", "harvest", "http_client", "intake", "journal", "lookup", "model", "retry"]),
    (
        "delivery",
        &[
            "amqp",
            "broker",
            "cache",
            "cluster",
            "dbus",
            "http_client",
            "journal",
            "kafka",
            "message_rate",
            "model",
            "format",
            "retry",
            "settings",
            "stomp",
            "suggestion",
            "supervision",
            "template",
            "text",
            "web",
        ],
    ),
    ("source", &["amqp", "kafka", "stomp", "broker", "intake", "format", "retry", "web"]),
    ("publish", &["cluster", "files", "journal", "model", "outage", "web"]),
    ("view", &["cache", "files", "journal", "model", "format", "publish", "segments", "template", "text", "web"]),
    (
        "admin",
        &[
            "audit", "broker", "cluster", "delivery", "filesets", "harvest", "intake", "journal", "lookup", "model",
            "format", "publish", "segments", "text", "view", "web",
        ],
    ),
    (
        "config",
        &[
            "amqp",
            "stomp",
            "cluster",
            "dbus",
            "delivery",
            "features",
            "files",
            "filesets",
            "harvest",
            "http_client",
            "journal",
            "kafka",
            "lookup",
            "model",
            "format",
            "publish",
            "segments",
            "settings",
            "source",
            "suggestion",
            "view",
            "web",
        ],
    ),
    ("openapi", &["delivery", "model", "source", "view", "admin", "web"]),
    (
        "router",
        &["audit", "cluster", "delivery", "source", "view", "admin", "harvest", "journal", "openapi", "publish", "web"],
    ),
    (
        "app",
        &[
            "admin",
            "audit",
            "broker",
            "cluster",
            "config",
            "delivery",
            "files",
            "format",
            "filesets",
            "harvest",
            "http_client",
            "intake",
            "journal",
            "lookup",
            "model",
            "openapi",
            "publish",
            "router",
            "segments",
            "source",
            "supervision",
            "transfer",
            "view",
            "web",
        ],
    ),
    (
        "lib",
        &[
            "admin",
            "amqp",
            "app",
            "broker",
            "stomp",
            "cluster",
            "config",
            "delivery",
            "format",
            "filesets",
            "harvest",
            "http_client",
            "intake",
            "journal",
            "kafka",
            "lookup",
            "model",
            "openapi",
            "publish",
            "router",
            "segments",
            "settings",
            "source",
            "supervision",
            "text",
            "transfer",
            "view",
            "web",
        ],
    ),
];

pub(super) fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    files.chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

/// Returns the crate's modules that a source file names, each with its first line.
fn imports(source: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let code: Vec<_> = source.lines().map(|line| line.split("//").next().unwrap_or("")).collect();
    let text = code.join("\n");
    for (start, _) in text.match_indices("crate::") {
        let line = text[..start].matches('\n').count() + 1;
        let rest = &text[start + "crate::".len()..];
        let names = if rest.starts_with('{') { group(rest) } else { vec![word(rest)] };
        for name in names {
            found.entry(name.to_owned()).or_insert(line);
        }
    }
    found
}

/// Returns the first path segments in `{a::b, c::{d, e}, f}`.
fn group(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let mut members = Vec::new();
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if depth == 1 && matches!(c, '{' | ',') {
            members.push(word(text[at + 1..].trim_start()));
        }
    }
    members.retain(|member| !member.is_empty());
    members
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

#[test]
fn imports_go_one_way() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let modules: BTreeSet<_> = TABLE.iter().map(|(module, _)| *module).collect();
    let mut wrong = Vec::new();
    let mut checked = 0;
    for path in sources(&root) {
        let relative = path.strip_prefix(&root).unwrap();
        let module = relative.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        if path.file_name().is_some_and(|name| name == "tests.rs") {
            // Unit tests may start parts of the gateway that their module must not import.
            continue;
        }
        if matches!(module, "main" | "command") {
            // The command line is a separate crate, which uses the library's public API.
            continue;
        }
        let row = TABLE.iter().find(|(name, _)| *name == module);
        let (_, allowed) = row.unwrap_or_else(|| panic!("{module} has no row in the table of imports"));
        for (name, line) in imports(&fs::read_to_string(&path).unwrap()) {
            checked += 1;
            if modules.contains(name.as_str()) && name != module && !allowed.contains(&name.as_str()) {
                wrong.push(format!("src/{}:{line}: {module} may not import {name}", relative.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(checked > 50, "the test finds no sources");
}

#[test]
fn import_table_equals_the_documented_table() {
    let documentation = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/architecture.md");
    let documentation = fs::read_to_string(documentation).unwrap();
    let rows: BTreeMap<_, BTreeSet<_>> = documentation
        .lines()
        .skip_while(|line| !line.starts_with("| module | may import"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            let module = cells.next().unwrap().trim_matches('`').to_owned();
            let imports = cells.next().unwrap().split(", ").filter(|cell| *cell != "nothing of ours");
            (module, imports.map(|cell| cell.trim_matches('`').to_owned()).collect())
        })
        .collect();
    let table: BTreeMap<_, BTreeSet<_>> = TABLE
        .iter()
        .filter(|(module, _)| *module != "lib")
        .map(|(module, imports)| ((*module).to_owned(), imports.iter().map(|name| (*name).to_owned()).collect()))
        .collect();
    assert_eq!(rows, table);
}

#[test]
fn import_parser_finds_every_form() {
    let source = "use crate::model::Uri;\nuse crate::{\n    journal::{Journal, store::{A, B}},\n    web,\n};\n// crate::view\nlet x = crate::app::y;";
    let found: Vec<_> = imports(source).into_iter().collect();
    let expected = [("app", 7), ("journal", 2), ("model", 1), ("web", 2)];
    assert_eq!(found, expected.map(|(name, line)| (name.to_owned(), line)));
}

/// Only `http_client` writes the header, for the origin of the credentials. The command line sends a token to the URL that
/// its user gives, and follows no redirection.
#[test]
fn credentials_are_sent_by_the_client_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    // These read the header of a request, or write it for the user of the command line.
    let others = ["web", "command"];
    // Writes it into messages, for their consumers and not for a server.
    let of_messages = Path::new("delivery/stomp/mod.rs");
    for path in sources(&root) {
        let relative = path.strip_prefix(&root).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        let names_it = words.any(|word| word == "AUTHORIZATION");
        let module = relative.iter().next().unwrap().to_str().unwrap();
        assert!(
            !names_it || module == "http_client" || others.contains(&module) || relative == of_messages,
            "{} names the header Authorization",
            relative.display()
        );
    }
}

#[test]
fn source_files_are_short_and_have_a_module_comment() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for path in sources(&root) {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//! "), "{} does not say what it is", path.display());
        let lines = text.lines().count();
        assert!(lines <= 450, "{} has {lines} lines: more than one subject?", path.display());
    }
}
