//! The page of the gateway at `/`: what flows, what does not, and the buttons that mend it.
//!
//! The document contains no data and needs no token. Its script reads the interface that every program reads, with the token
//! that a person has entered, which stays in the tab. The parts are joined, so that the page is one document
//! whose script and style the policy names by their hashes.

use std::sync::LazyLock;

use minifier::{css, js};

use crate::web::Page;

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
    include_str!("main.js"),
);

/// The page.
pub(super) static PAGE: LazyLock<Page> = LazyLock::new(|| Page::new(document()).varying_by_accept());

/// Returns the document, with its style and its script without blanks and comments.
fn document() -> String {
    #[expect(clippy::expect_used, reason = "the style and the script are those of the program")]
    let (style, script) =
        (css::minify(STYLE).expect("the style is minified"), js::minify(SCRIPT).expect("the script is minified"));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>Tidings</title>\n<style>{style}</style>\n</head>\n\
         <body>\n{SHELL}<script type=\"module\">{script}</script>\n</body>\n</html>\n"
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::document;

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
