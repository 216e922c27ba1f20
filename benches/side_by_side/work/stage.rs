//! Stages of the work, by the names of functions.

/// Stages, each with the crates or modules whose functions belong to it. The first match counts.
const STAGES: [(&str, &[&str]); 14] = [
    ("HTTP libraries", &["hyper", "http", "httparse", "axum", "tower", "matchit", "reqwest", "rustls"]),
    ("AMQP library", &["lapin", "amq_protocol", "async_rs", "async_lapin", "nom", "cookie_factory"]),
    ("runtime", &["tokio", "mio", "parking_lot", "futures", "socket2", "polling", "async_", "slab", "flume"]),
    ("log and metrics", &["tracing", "metrics", "quanta", "sharded_slab", "matchers"]),
    ("JSON", &["serde"]),
    ("XML", &["quick_xml"]),
    ("SQLite", &["rusqlite", "libsqlite3_sys"]),
    ("tidings: journal, settling", &["tidings::journal::settle"]),
    ("tidings: journal, store", &["tidings::journal::store"]),
    ("tidings: journal", &["tidings::journal"]),
    ("tidings: web, router, access", &["tidings::web", "tidings::router", "tidings::access"]),
    ("tidings: dialects and formats", &["tidings::format", "tidings::model"]),
    ("tidings: sources and intake", &["tidings::source", "tidings::intake", "tidings::harvest", "tidings::lookup"]),
    ("tidings: deliveries and views", &["tidings::delivery", "tidings::view", "tidings::http_client"]),
];

/// The other parts of the program, and functions that no stage has called.
pub(super) const OTHER: &str = "other";

/// Names with which the C functions begin that are not SQLite's.
const NO_SQLITE: [&str; 7] = ["ring_", "ZSTD_", "HUF_", "FSE_", "XXH", "ERR_", "_start"];

/// Returns the stage of a function of the program; `None` if its work is charged to its callers, as that of the standard
/// library, of the allocator and of crates of small tools is.
pub(super) fn stage(function: &str) -> Option<&'static str> {
    if !function.contains("::") {
        let is_shared = is_of_allocator(function) || function.starts_with("0x");
        return (!is_shared && !NO_SQLITE.iter().any(|prefix| function.starts_with(prefix))).then_some("SQLite");
    }
    let path = module(function);
    let found = STAGES.iter().find(|(_, prefixes)| prefixes.iter().any(|prefix| path.starts_with(prefix)));
    found.map(|(stage, _)| *stage).or_else(|| path.starts_with("tidings").then_some(OTHER))
}

/// Returns whether a function is of the program's allocator.
pub(super) fn is_of_allocator(function: &str) -> bool {
    function.starts_with("mi_") || function.starts_with("_mi_")
}

/// Returns the path with which the name of a function begins. A method of a generic type is of its trait.
fn module(function: &str) -> &str {
    const MARKS: [char; 6] = ['<', '&', '*', '(', '[', ' '];
    let start = |text: &'static str| move |path: &str| path.starts_with(text);
    let mut path = function.trim_start_matches(MARKS);
    for word in ["dyn ", "mut ", "const "] {
        path = if start(word)(path) { &path[word.len()..] } else { path };
    }
    let first = path.split([':', ' ', ',', '>', '<']).next().unwrap_or_default();
    if path[first.len()..].starts_with("::") {
        return path;
    }
    path.split_once(" as ").map_or(path, |(_, of_trait)| of_trait.trim_start_matches(MARKS))
}
