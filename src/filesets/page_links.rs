//! Links of a landing page: read once, with a bound on their number and their size. The same pass reads the bibliographic
//! data of its head.

use std::collections::HashSet;

use axum::http::{HeaderMap, header::LINK};
use url::Url;

use super::{
    json::MAX_ENTRIES,
    page_biblio::PageBiblio,
    page_elements::{self, Attribute, Element, Kind},
};
use crate::{format::web_links::web_links, http_client::header_text, transfer::budget::Cancelled};

/// Maximum size of the target of a link, in bytes. Longer links are left out.
const MAX_TARGET_BYTES: usize = page_elements::MAX_ATTRIBUTE_BYTES;

/// Maximum size of all targets of a page, in bytes, when they are joined with its URL.
const MAX_TARGETS_BYTES: usize = 8 << 20;

/// Maximum length of a media type or title, in bytes. Longer ones are left out.
const MAX_TEXT_BYTES: usize = 255;

/// Maximum number of anchors that may be the manifest of a bag.
const MAX_MANIFESTS: usize = 100;

/// Part of the name of each manifest of a bag.
const MANIFEST: &str = "manifest-";

/// Relation of a link that Signposting uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// A file of the dataset.
    Item,
    /// A description of the dataset.
    DescribedBy,
    /// The persistent identifier.
    CiteAs,
    /// A document with further links (RFC 9264).
    LinkSet,
}

impl Relation {
    const ALL: [Self; 4] = [Self::Item, Self::DescribedBy, Self::CiteAs, Self::LinkSet];

    fn name(self) -> &'static str {
        match self {
            Self::Item => "item",
            Self::DescribedBy => "describedby",
            Self::CiteAs => "cite-as",
            Self::LinkSet => "linkset",
        }
    }
}

/// A link of a landing page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Target.
    pub url: Url,
    /// Media type of the target, if the link has one.
    pub media_type: Option<String>,
    /// Title of the target, if the link has one.
    pub title: Option<String>,
}

impl Link {
    /// Creates a link without a title. A media type that is too long is left out.
    #[must_use]
    pub fn new(url: Url, media_type: Option<String>) -> Self {
        let media_type = media_type.filter(|text| text.len() <= MAX_TEXT_BYTES);
        Self { url, media_type, title: None }
    }
}

/// The links of a page: at most [`MAX_ENTRIES`] and one more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageLinks {
    links: Vec<(Relation, Link)>,
    /// Targets of anchors that may be the manifest of a bag.
    pub(super) manifests: Vec<Url>,
    /// Whether the page has more links than these.
    pub(super) is_cut: bool,
    /// Bibliographic data of the page.
    pub(super) biblio: PageBiblio,
}

impl PageLinks {
    /// Reads the `Link` headers of a response, then the elements of its page. It ends soon after it was
    /// cancelled.
    pub(super) fn read(headers: &HeaderMap, page: &[u8], url: &Url, cancelled: &Cancelled) -> Self {
        let (base, links) = (url.clone(), Self::default());
        let mut collector = Collector { page: url, base, has_base: false, links, seen: HashSet::new(), bytes: 0 };
        for value in headers.get_all(LINK) {
            collector.read_links(&header_text(value));
        }
        page_elements::read(page, cancelled, |element| collector.add_element(element));
        collector.links
    }

    /// Returns the links with a relation, those of the headers first.
    pub fn of(&self, relation: Relation) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(move |(known, _)| *known == relation).map(|(_, link)| link)
    }
}

/// Returns whether an anchor, relative to a base URL, is this page. A fragment is a part of the page.
pub(super) fn is_about(base: &Url, anchor: &str, page: &Url) -> bool {
    let without_fragment = |url: &Url| {
        let mut url = url.clone();
        url.set_fragment(None);
        url
    };
    base.join(anchor).is_ok_and(|anchor| without_fragment(&anchor) == without_fragment(page))
}

/// Links that were found so far.
struct Collector<'a> {
    page: &'a Url,
    /// URL that the links of the elements are relative to; the one of the page, or of its element `base`.
    base: Url,
    has_base: bool,
    links: PageLinks,
    seen: HashSet<(Relation, String)>,
    bytes: usize,
}

impl Collector<'_> {
    fn is_full(&self) -> bool {
        self.links.is_cut
    }

    /// Reads the links of a header, which are relative to the URL of the page. Those of another resource are left out.
    fn read_links(&mut self, header: &str) {
        for link in web_links(header) {
            if link.anchor.as_deref().is_some_and(|anchor| !is_about(self.page, anchor, self.page)) {
                continue;
            }
            let texts = [link.media_type.as_deref(), link.title.as_deref()];
            for relation in Relation::ALL.into_iter().filter(|relation| link.has_relation(relation.name())) {
                let url = self.resolved(&self.page.clone(), link.target);
                self.add(relation, url, texts);
            }
        }
    }

    fn add(&mut self, relation: Relation, url: Option<Url>, texts: [Option<&str>; 2]) {
        let Some(url) = url else { return };
        if !self.seen.insert((relation, url.as_str().to_owned())) {
            return;
        }
        let text = |text: Option<&str>| {
            text.filter(|text| !text.is_empty() && text.len() <= MAX_TEXT_BYTES).map(str::to_owned)
        };
        let [media_type, title] = texts.map(text);
        self.links.links.push((relation, Link { url, media_type, title }));
        self.links.is_cut |= self.links.links.len() > MAX_ENTRIES;
    }

    fn add_anchor(&mut self, target: &str) {
        if target.contains(MANIFEST) && self.links.manifests.len() < MAX_MANIFESTS {
            let url = self.resolved(&self.base.clone(), target);
            self.links.manifests.extend(url);
        }
    }

    /// Sets the URL that the links of elements are relative to. The first element `base` counts.
    fn set_base(&mut self, target: &str) {
        if !self.has_base
            && let Some(url) = self.resolved(&self.page.clone(), target)
        {
            (self.base, self.has_base) = (url, true);
        }
    }

    /// Returns the URL of a target, if there is room for it.
    fn resolved(&mut self, base: &Url, target: &str) -> Option<Url> {
        if self.is_full() || target.len() > MAX_TARGET_BYTES {
            return None;
        }
        let url = base.join(target).ok()?;
        self.bytes += url.as_str().len();
        self.links.is_cut |= self.bytes > MAX_TARGETS_BYTES;
        Some(url)
    }

    /// Adds the facts of an element; returns whether nothing else of the page is read.
    fn add_element(&mut self, element: &Element) -> bool {
        let of = |attribute| element.attribute(attribute);
        match (element.kind(), of(Attribute::Target)) {
            (Kind::Meta, _) => {
                if let (Some(name), Some(content)) = (of(Attribute::Name), of(Attribute::Content)) {
                    self.links.biblio.add(name, content);
                }
            }
            (Kind::Body, _) => self.links.biblio.end(),
            (Kind::Base, Some(target)) => self.set_base(target),
            (Kind::Anchor, Some(target)) => self.add_anchor(target),
            (Kind::Link, Some(target)) => self.add_link(target, element),
            (Kind::Base | Kind::Anchor | Kind::Link, None) => {}
        }
        self.is_full()
    }

    fn add_link(&mut self, target: &str, element: &Element) {
        let names = element.attribute(Attribute::Relations).unwrap_or_default();
        let has =
            |relation: &Relation| names.split_ascii_whitespace().any(|one| one.eq_ignore_ascii_case(relation.name()));
        for relation in Relation::ALL.into_iter().filter(has) {
            let url = self.resolved(&self.base.clone(), target);
            let texts = [Attribute::MediaType, Attribute::Title].map(|attribute| element.attribute(attribute));
            self.add(relation, url, texts);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use axum::http::HeaderValue;

    use super::*;

    fn read(page: &[u8]) -> PageLinks {
        let url = Url::parse("https://h.example/d/1").unwrap();
        PageLinks::read(&HeaderMap::new(), page, &url, &Cancelled::default())
    }

    fn items(page: &str) -> Vec<(String, Option<String>)> {
        read(page.as_bytes()).of(Relation::Item).map(|link| (link.url.to_string(), link.media_type.clone())).collect()
    }

    #[test]
    fn links_are_read_from_elements() {
        let page = r#"<html><LINK rel='cite-as' href="x"><link href="/a?b=1&amp;c" type=text/csv REL="item alternate">
            <link rel=item href=b><link rel="items" href="c"><a rel="item" href="d"><link rel="ITEM" href="/a?b=1&c">
            <link rel="item" rel="cite-as" href='f' href=g /><!-- <link rel=item href=comment> -->
            <script>"<link rel=item href=script>"</script><link rel=item>"#;
        let links = items(page);
        let links: Vec<_> = links.iter().map(|(url, media_type)| (url.as_str(), media_type.as_deref())).collect();
        assert_eq!(
            links,
            [
                ("https://h.example/a?b=1&c", Some("text/csv")),
                ("https://h.example/d/b", None),
                ("https://h.example/d/f", None)
            ]
        );
        assert_eq!(read(page.as_bytes()).of(Relation::CiteAs).count(), 1);
    }

    #[test]
    fn base_is_respected_by_the_elements_alone() {
        let mut headers = HeaderMap::new();
        headers.append(LINK, "<b>; rel=item; title=\"a, rel=x\"; type=text/csv".parse().unwrap());
        headers.append(LINK, "<other>; rel=item; anchor=\"/d/2\", <own>; rel=item; anchor=\"#x\"".parse().unwrap());
        headers.append(LINK, HeaderValue::from_bytes("<c>; rel=item; title=\"ü\"".as_bytes()).unwrap());
        let url = Url::parse("https://h.example/d/1").unwrap();
        let page = b"<base href=/files/><base href=/other/><link rel=item href=a>";
        let links = PageLinks::read(&headers, page, &url, &Cancelled::default());
        let paths: Vec<_> = links.of(Relation::Item).map(|link| link.url.path()).collect();
        assert_eq!(paths, ["/d/b", "/d/own", "/d/c", "/files/a"]);
        let first = links.of(Relation::Item).next().unwrap();
        assert_eq!((first.media_type.as_deref(), first.title.as_deref()), (Some("text/csv"), Some("a, rel=x")));
    }

    #[test]
    fn headers_come_before_elements() {
        let mut headers = HeaderMap::new();
        headers.append(LINK, "<b>; rel=item, <c>; rel=\"cite-as\"".parse().unwrap());
        let url = Url::parse("https://h.example/").unwrap();
        let links =
            PageLinks::read(&headers, b"<link rel=item href=a><link rel=item href=b>", &url, &Cancelled::default());
        let paths: Vec<_> = links.of(Relation::Item).map(|link| link.url.path().to_owned()).collect();
        assert_eq!(paths, ["/b", "/a"]);
        assert_eq!(links.of(Relation::CiteAs).count(), 1);
    }

    #[test]
    fn number_and_size_of_links_are_bounded() {
        let mut many = String::new();
        (0..3 * MAX_ENTRIES).for_each(|n| write!(many, "<link rel=item href={n:x}>").unwrap());
        let links = read(many.as_bytes());
        assert!(links.is_cut && links.of(Relation::Item).count() == MAX_ENTRIES + 1);
        let mut long = String::new();
        (0..4000).for_each(|n| write!(long, "<link rel=item href=\"{n}{}\">", "x".repeat(4 << 10)).unwrap());
        let links = read(long.as_bytes());
        let bytes: usize = links.of(Relation::Item).map(|link| link.url.as_str().len()).sum();
        assert!(links.is_cut && bytes < MAX_TARGETS_BYTES + (8 << 10), "{bytes}");
        let huge = format!("<link rel=item href=\"{}\"><link rel=item href=a>", "x".repeat(1 << 20));
        assert_eq!(items(&huge).len(), 1);
        let mut anchors = String::new();
        (0..1000).for_each(|n| write!(anchors, "<a href={n}/manifest-md5.txt>").unwrap());
        assert_eq!(read(anchors.as_bytes()).manifests.len(), MAX_MANIFESTS);
    }

    #[test]
    fn bytes_that_are_no_text_have_no_links() {
        assert_eq!(read(&vec![0xFF; 1 << 20]), PageLinks::default());
        let attributes: String = (0..50_000).fold("<link ".to_owned(), |mut page, n| {
            write!(page, "a{n}=b ").unwrap();
            page
        });
        assert_eq!(items(&format!("{attributes} rel=item href=a>")).len(), 1);
    }

    #[test]
    fn cancelled_reading_ends() {
        let cancelled = Cancelled::default();
        cancelled.cancel();
        let url = Url::parse("https://h.example/").unwrap();
        let links = PageLinks::read(&HeaderMap::new(), b"<link rel=item href=a>", &url, &cancelled);
        assert_eq!(links, PageLinks::default());
    }
}
