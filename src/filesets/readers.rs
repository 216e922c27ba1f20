//! All readers of foreign documents, each as a function of the body. Fuzzing and tests measure the memory that they take.

use axum::http::{HeaderMap, HeaderValue, header::LINK};
use url::Url;

use super::{
    client, item,
    page_links::PageLinks,
    platform::{self, bagit},
    wayback,
};
use crate::transfer::budget::Cancelled;

/// Reads a body as each JSON document of the platforms and archives; returns how many of them it is.
#[must_use]
pub fn count_documents(body: &[u8]) -> usize {
    let others = [client::DOCUMENTS, item::DOCUMENTS, wayback::cdx::DOCUMENTS, wayback::save_page_now::DOCUMENTS];
    let all = platform::DOCUMENTS.iter().copied().chain(others).flatten();
    all.filter(|is_document| is_document(body)).count()
}

/// Reads a body as each file of a bag; returns the number of files that it lists.
#[must_use]
pub fn count_bag_files(body: &[u8]) -> usize {
    str::from_utf8(body).map_or(0, bagit::count_files)
}

/// Reads a body as a landing page; returns whether it has links.
#[must_use]
pub fn page_has_links(body: &[u8]) -> bool {
    Url::parse("https://page.invalid/a/b")
        .is_ok_and(|url| PageLinks::read(&HeaderMap::new(), body, &url, &Cancelled::default()) != PageLinks::default())
}

/// Reads a body as a `Link` header of a landing page; returns whether it has links.
#[must_use]
pub fn header_has_links(body: &[u8]) -> bool {
    let (Ok(url), Ok(value)) = (Url::parse("https://page.invalid/a/b"), HeaderValue::from_bytes(body)) else {
        return false;
    };
    let headers = HeaderMap::from_iter([(LINK, value)]);
    PageLinks::read(&headers, &[], &url, &Cancelled::default()) != PageLinks::default()
}
