//! The page of the gateway at `/`: what flows, what does not, and the buttons that mend it.
//!
//! The document contains no data and needs no token. Its script reads the interface that every program reads, with the token
//! that a person has entered, which stays in the tab. The parts are joined, so that the page is one document
//! whose script and style the policy names by their hashes. `GET /live` and `GET /docs` are the same document, whose script
//! opens the part that the path names.

use std::{collections::HashMap, sync::LazyLock};

use axum::{
    extract::State,
    http::{HeaderMap, Method},
    response::Response,
};
use minifier::{css, js};

use crate::web::{Page, Problem, ProblemCode, problems};

/// Style of the document.
const STYLE: &str = include_str!("page.css");

/// Elements of the document.
const SHELL: &str = include_str!("shell.html");

/// Script of the document. Each file has one subject; together they are one module.
const SCRIPT: &str = concat!(
    include_str!("document.js"),
    include_str!("words.js"),
    include_str!("requests.js"),
    include_str!("actions.js"),
    include_str!("verdict.js"),
    include_str!("picture.js"),
    include_str!("sources.js"),
    include_str!("subscriptions.js"),
    include_str!("journal.js"),
    include_str!("gateway.js"),
    include_str!("connect.js"),
    include_str!("live.js"),
    include_str!("interface.js"),
    include_str!("main.js"),
);

/// The page.
static PAGE: LazyLock<Page> = LazyLock::new(|| Page::new(document()));

/// The page at `/`, where programs get JSON.
pub(super) static HOME: LazyLock<Page> = LazyLock::new(|| PAGE.clone().varying_by_accept());

problems!(Problems: NotFound);

/// The page for people, opened at the stream of changes. It contains no data: its script reads `/stream`, with the query of
/// the page and the token that a person enters.
///
/// # Errors
/// `not-found` if `page.enabled` is `false`.
#[utoipa::path(
    get,
    path = "/live",
    operation_id = "getLive",
    tag = "out",
    responses(
        (status = 200, description = "The page.", body = String, content_type = "text/html"),
        (status = 304, description = "Not modified."),
        Problems,
    ),
)]
pub async fn live(State(has_page): State<bool>, method: Method, headers: HeaderMap) -> Result<Response, Problem> {
    part(has_page, &method, &headers)
}

/// The page for people, opened at the description of the HTTP interface. It contains no data: its script reads
/// `/openapi.json`.
///
/// # Errors
/// `not-found` if `page.enabled` is `false`.
#[utoipa::path(
    get,
    path = "/docs",
    operation_id = "getDocumentation",
    tag = "administration",
    responses(
        (status = 200, description = "The page.", body = String, content_type = "text/html"),
        (status = 304, description = "Not modified."),
        Problems,
    ),
)]
pub async fn docs(State(has_page): State<bool>, method: Method, headers: HeaderMap) -> Result<Response, Problem> {
    part(has_page, &method, &headers)
}

fn part(has_page: bool, method: &Method, headers: &HeaderMap) -> Result<Response, Problem> {
    if has_page {
        return Ok(PAGE.respond(method, headers));
    }
    let detail = "The page for people is switched off: page.enabled is false. Programs read /stream and /openapi.json.";
    Err(Problem::new(ProblemCode::NotFound, detail))
}

/// Returns the document, with its style and its script without blanks and comments.
fn document() -> String {
    let script = with_short_names(SCRIPT);
    #[expect(clippy::expect_used, reason = "the style and the script are those of the program")]
    let (style, script) =
        (css::minify(STYLE).expect("the style is minified"), js::minify(&script).expect("the script is minified"));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>Tidings</title>\n<style>{style}</style>\n</head>\n\
         <body>\n{SHELL}<script type=\"module\">{script}</script>\n</body>\n</html>\n"
    )
}

/// Returns the names with a capital that the script declares at the beginning of a line, such as `stateOf`. Each is a word of
/// its own: a test excludes members and texts with such a name.
fn long_names(script: &str) -> impl Iterator<Item = &str> {
    let declared = script.lines().filter_map(|line| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        let rest = ["const ", "let ", "function "].iter().find_map(|kind| line.strip_prefix(kind))?;
        rest.split(|letter| !is_in_names(letter)).next()
    });
    declared.filter(|name| name.len() > 2 && name.contains(char::is_uppercase))
}

fn is_in_names(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '$')
}

/// Returns the script with one or two letters instead of each long name, because compression does not make names that short.
fn with_short_names(script: &str) -> String {
    let letters = || ('A'..='Z').map(String::from);
    let short = letters().chain(letters().flat_map(|one| letters().map(move |other| format!("{one}{other}"))));
    let names: HashMap<_, _> = long_names(script).zip(short).collect();
    let mut shorter = String::with_capacity(script.len());
    let mut rest = script;
    while let Some(letter) = rest.chars().next() {
        let end = rest.find(|letter| !is_in_names(letter)).unwrap_or(rest.len()).max(letter.len_utf8());
        let (word, after) = rest.split_at(end);
        shorter.push_str(names.get(word).map_or(word, String::as_str));
        rest = after;
    }
    shorter
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::{SCRIPT, document, long_names, with_short_names};

    /// The page, with the parts that it may get later, is at most 60 kB, and 20 kB compressed.
    #[test]
    fn page_is_small() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        let document = document();
        gzip.write_all(document.as_bytes()).unwrap();
        let (plain, compressed) = (document.len(), gzip.finish().unwrap().len());
        assert!(plain <= 60_000 && compressed <= 20_000, "{plain} bytes, {compressed} compressed");
    }

    #[test]
    fn names_are_short() {
        let script = "const stateOf = (one) => one.state;\nasync function getAll() {\n  const bigOne = 1;\n}\n";
        let shorter = "const A = (one) => one.state;\nasync function B() {\n  const bigOne = 1;\n}\n";
        assert_eq!(
            with_short_names(&format!("{script}`${{stateOf(getAll())}} $stateOf`")),
            format!("{shorter}`${{A(B())}} $stateOf`")
        );
        let code: String = SCRIPT.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let code = code.replace("...", " ");
        for name in long_names(SCRIPT) {
            for other in [format!(".{name}"), format!("{name}:"), format!("\"{name}"), format!("{name}\"")] {
                assert!(!code.contains(&other), "{other}");
            }
        }
    }

    #[test]
    fn page_has_one_script_and_neither_loads_nor_parses_anything() {
        let document = document();
        for element in ["<script", "</script", "<style", "</style"] {
            assert_eq!(document.matches(element).count(), 1, "{element}");
        }
        for sink in [
            "src=",
            "href=\"http",
            "@import",
            " url(",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "eval(",
            "document.write",
            "localStorage",
            "cookie",
        ] {
            assert!(!document.contains(sink), "{sink}");
        }
    }
}
