//! Linksets (RFC 9264): the links of a page in a document of its own, in JSON or in the syntax of the `Link` header. A header
//! has only what servers and proxies let pass, so the document counts where there is one.

use serde::Deserialize;
use url::Url;

use super::super::{
    IngestFailure, LandingPage, Link, PlatformClient,
    json::{self, List, MAX_ENTRIES, Text, document},
    page_links::is_about,
};
use crate::format::web_links::web_links;

/// Maximum number of linksets of a page that are read.
const MAX_LINKSETS: usize = 3;

/// Documents of links.
pub(super) const DOCUMENTS: &[json::Reads] = &[json::is::<Document>];

#[derive(Deserialize)]
struct Document {
    linkset: List<Context>,
}

/// Links of one resource.
#[derive(Deserialize)]
struct Context {
    #[serde(default)]
    anchor: Text,
    #[serde(default)]
    item: List<Target>,
}

#[derive(Deserialize)]
struct Target {
    href: String,
    #[serde(default, rename = "type")]
    media_type: Text,
    #[serde(default)]
    title: Text,
}

/// Returns the files that the linksets of a page name. A linkset that is not there names none.
pub(super) async fn items(
    places: Vec<Url>,
    page: &LandingPage,
    client: &PlatformClient,
) -> Result<Vec<Link>, IngestFailure> {
    let mut items = Vec::new();
    for place in places.into_iter().take(MAX_LINKSETS) {
        let (base, pages) = (place.clone(), page.hops.clone());
        let read = move |text: &str| {
            if text.trim_start().starts_with('{') {
                let document = document::<Document>(text.as_bytes());
                let wrong = |error| IngestFailure::bad_answer(format!("the linkset cannot be read: {error}"));
                document.map(|document| items_of_document(document, &base, &pages)).map_err(wrong)
            } else {
                Ok(items_of_header(text, &base, &pages))
            }
        };
        items.extend(client.optional_text_as(&place, read).await?.unwrap_or_default());
    }
    items.truncate(MAX_ENTRIES + 1);
    Ok(items)
}

/// Returns whether links are about one of the pages. Without an anchor they are.
fn is_about_page(base: &Url, anchor: Option<&str>, pages: &[Url]) -> bool {
    anchor.is_none_or(|anchor| pages.iter().any(|page| is_about(base, anchor, page)))
}

fn items_of_document(document: Document, base: &Url, pages: &[Url]) -> Vec<Link> {
    let contexts = document.linkset.into_iter();
    let own = contexts.filter(|context| is_about_page(base, context.anchor.0.as_deref(), pages));
    let link = |Target { href, media_type, title }: Target| {
        Some(Link { title: title.0, ..Link::new(base.join(&href).ok()?, media_type.0) })
    };
    own.flat_map(|context| context.item).filter_map(link).take(MAX_ENTRIES + 1).collect()
}

fn items_of_header(text: &str, base: &Url, pages: &[Url]) -> Vec<Link> {
    let own = web_links(text).filter(|link| link.has_relation("item"));
    let own = own.filter(|link| is_about_page(base, link.anchor.as_deref(), pages));
    let links = own.filter_map(|link| {
        Some(Link { title: link.title, ..Link::new(base.join(link.target).ok()?, link.media_type) })
    });
    links.take(MAX_ENTRIES + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::{Url, document, items_of_document, items_of_header};

    #[test]
    fn items_of_the_page_are_read_from_both_forms() {
        let url = |text: &str| Url::parse(text).unwrap();
        let (base, pages) = (url("https://h/ls/1"), [url("https://doi.org/10.1/a"), url("https://h/d/1")]);
        let json = br#"{"linkset":[{"anchor":"https://h/d/1","item":[{"href":"/f/1","type":"text/csv"},{"href":"https://s/2"}],
            "uniqueType":[]},{"anchor":"https://h/f/1","item":[{"href":"/other"}]},{"item":[{"href":"3"}]}]}"#;
        let links = items_of_document(document(json).unwrap(), &base, &pages);
        let urls: Vec<_> = links.iter().map(|link| link.url.as_str()).collect();
        assert_eq!(urls, ["https://h/f/1", "https://s/2", "https://h/ls/3"]);
        assert_eq!(links[0].media_type.as_deref(), Some("text/csv"));
        let text = "<https://h/f/1>\n ; rel=\"item\"; anchor=\"https://h/d/1\"; type=\"text/csv\",\n\
                    <https://h/x>; rel=item; anchor=\"https://h/f/1\",\n<https://h/d/1>; rel=collection; anchor=\"https://h/f/1\"";
        let links = items_of_header(text, &base, &pages);
        assert_eq!(links.iter().map(|link| link.url.as_str()).collect::<Vec<_>>(), ["https://h/f/1"]);
    }
}
