//! HTML pages of the views, for people who follow a link of the feed. They need no script and load nothing. Every text of
//! a partner is escaped, and is a link only if it is an http or https URL.

use std::{
    io::{self, Write},
    sync::LazyLock,
};

use axum::{
    http::{HeaderMap, HeaderValue, Method, header::CONTENT_SECURITY_POLICY},
    response::Response,
};
use quick_xml::escape::escape;
use url::form_urlencoded;

use crate::{
    model::{ContentItemModification, ItemChange, State, Timestamp, Uri},
    text,
    web::{CachePolicy, DocumentWriter, Problem, Representation, Spool, page_policy, spool_problem},
};

/// Media type of a page, for negotiation.
pub(super) const HTML: &str = "text/html";

/// Maximum number of items on a page.
pub(super) const MAX_ITEMS: usize = 500;

/// Maximum length of a text on a page, in characters.
const MAX_TEXT: usize = 4000;

const STYLE: &str = ":root { color-scheme: light dark } \
    body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 1.5rem auto; padding: 0 1rem; overflow-wrap: anywhere } \
    h1 { font-size: 1.4rem; line-height: 1.25 } h2 { font-size: 1.1rem; margin-top: 2rem } \
    dl { display: grid; grid-template-columns: minmax(5rem, max-content) 1fr; gap: .25rem 1rem } dt { opacity: .7 } dd { margin: 0 } \
    ol, ul { padding-left: 1.2rem } li { margin: .5rem 0 } nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem } \
    .gone { text-decoration: line-through }";

/// Content Security Policy of the pages. It is computed from the style only, so nothing in a page can widen it.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| page_policy(&format!("<style>{STYLE}</style>")));

/// Writes a page on the current, blocking thread. `content` writes what follows the title.
pub(super) fn page(
    spool: &Spool,
    title: &str,
    content: impl FnOnce(&mut DocumentWriter) -> io::Result<()>,
) -> Result<Representation, Problem> {
    let title = escaped(title);
    let mut out = DocumentWriter::new(spool);
    let written = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         <h1>{title}</h1>\n"
    )
    .and_then(|()| content(&mut out))
    .and_then(|()| out.write_all(b"</html>\n"));
    written.map_err(spool_problem)?;
    // A later version of the gateway may show the same facts in another way, so no page is immutable.
    let page = out.finish("text/html; charset=utf-8", CachePolicy::Revalidate).map_err(spool_problem)?;
    Ok(page.varying_by_accept())
}

/// Responds to a GET or HEAD request with a page.
pub(super) fn respond(page: &Representation, method: &Method, headers: &HeaderMap) -> Response {
    let mut response = page.respond(method, headers);
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, POLICY.clone());
    response
}

/// Returns a text as HTML, in one line.
pub(super) fn escaped(raw: &str) -> String {
    escape(text::line(raw, MAX_TEXT).to_string()).into_owned()
}

/// Returns a link to another page of the gateway. `href` is a relative URL.
pub(super) fn link(href: &str, label: &str) -> String {
    format!("<a href=\"{}\">{}</a>", escape(href), escaped(label))
}

/// Returns the relative URL of an object's page, from a page at the top of the gateway.
pub(super) fn object_url(object: &Uri) -> String {
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("uri", object.as_str()).finish();
    format!("objects?{query}")
}

/// Returns a URI as HTML: as a link, if a browser can open it.
pub(super) fn uri(uri: &Uri) -> String {
    let is_web = ["http://", "https://"]
        .iter()
        .any(|scheme| uri.as_str().get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    let label = escaped(uri.as_str());
    if is_web { format!("<a href=\"{}\" rel=\"nofollow\">{label}</a>", escape(uri.as_str())) } else { label }
}

/// Returns a time as HTML.
pub(super) fn time(time: Timestamp) -> String {
    let shown = time.datetime().format("%Y-%m-%d %H:%M:%S UTC");
    format!("<time datetime=\"{time}\">{shown}</time>")
}

/// Writes a row of a list of facts. The value is HTML.
pub(super) fn fact(out: &mut impl Write, name: &str, value: &str) -> io::Result<()> {
    writeln!(out, "<dt>{name}</dt><dd>{value}</dd>")
}

/// Returns the states before and after a change of an item; empty if it has none.
pub(super) fn states(change: &ItemChange) -> String {
    let state = |state: Option<&State>| state.map_or_else(|| "—".to_owned(), |state| escaped(state.as_str()));
    match (change.before(), change.after()) {
        (None, None) => String::new(),
        (before, after) => format!("{} → {}", state(before), state(after)),
    }
}

/// Writes the facts of an item's change: its URI, states and content.
pub(super) fn item_facts(out: &mut impl Write, item: &ContentItemModification) -> io::Result<()> {
    writeln!(out, "<dl>")?;
    fact(out, "Item", &uri(&item.uri))?;
    let states = states(&item.change);
    if !states.is_empty() {
        fact(out, "State", &states)?;
    }
    if let Some(content) = item.change.content() {
        fact(out, "Content", &uri(&content.url))?;
        if let Some(media_type) = &content.media_type {
            fact(out, "Type", &escaped(&media_type.to_string()))?;
        }
        if let Some(size) = content.size {
            fact(out, "Size", &format!("{size} bytes"))?;
        }
        if let Some(digest) = &content.digest {
            fact(out, &escaped(digest.algorithm().name()), digest.hex())?;
        }
        if let Some(original) = &content.original {
            fact(out, "Copy of", &uri(&original.url))?;
        }
    }
    writeln!(out, "</dl>")
}

#[cfg(test)]
mod tests {
    use super::{Uri, escaped, link, object_url, uri};

    #[test]
    fn texts_of_partners_cannot_become_markup() {
        assert_eq!(escaped("<script>\u{202e}&\"'"), "&lt;script&gt;\\u{202e}&amp;&quot;&apos;");
        let parsed = |text: &str| Uri::parse(text).unwrap();
        assert_eq!(uri(&parsed("urn:x:1")), "urn:x:1");
        assert_eq!(uri(&parsed("ftp://h/'1'")), "ftp://h/&apos;1&apos;");
        assert_eq!(
            uri(&parsed("HTTP://h/?a&b")),
            "<a href=\"HTTP://h/?a&amp;b\" rel=\"nofollow\">HTTP://h/?a&amp;b</a>"
        );
        assert_eq!(object_url(&parsed("http://h/?a&b=c#d")), "objects?uri=http%3A%2F%2Fh%2F%3Fa%26b%3Dc%23d");
        assert_eq!(link("x?a&b", "<"), "<a href=\"x?a&amp;b\">&lt;</a>");
    }
}
