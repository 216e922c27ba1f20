//! `GET /feed.css`: the style of the feed in a browser.
//!
//! The documents name it in a processing instruction, which feed readers ignore. A browser gets them as
//! `application/xml`, because Chromium shows `application/atom+xml` as plain text. The style is CSS, because browsers are
//! removing XSLT. CSS cannot make links, so the pages of the changes are reached with a feed reader or from `/live`.

use std::sync::LazyLock;

use axum::{
    http::{HeaderMap, HeaderValue, Method, header::CONTENT_SECURITY_POLICY},
    response::Response,
};

use crate::web::{CachePolicy, ReadPermit, Representation, problems};

pub(super) static STYLE: LazyLock<Representation> = LazyLock::new(|| {
    Representation::new("text/css; charset=utf-8", include_str!("style.css"), CachePolicy::Revalidate)
});

/// Content Security Policy of the documents of the feed: a browser loads nothing but styles of the gateway.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

problems!(Problems:);

/// The style of the feed in a browser.
#[utoipa::path(
    get,
    path = "/feed.css",
    operation_id = "getFeedStyle",
    tag = "out",
    responses(
        (status = 200, description = "The style.", body = String, content_type = "text/css"),
        (status = 304, description = "Not modified."),
        Problems,
    ),
)]
pub async fn style(_: ReadPermit, method: Method, headers: HeaderMap) -> Response {
    STYLE.respond(&method, &headers)
}

/// Returns the processing instruction that names the style (W3C xml-stylesheet), for a document of the feed or, one
/// folder below, of its archive. The URL is relative, because readers may use another host than `server.public_url`.
pub(in crate::view) fn instruction(is_archive: bool) -> String {
    let folder = if is_archive { "../../" } else { "" };
    format!("<?xml-stylesheet type=\"text/css\" href=\"{folder}feed.css\"?>\n")
}

/// Permits a browser to load the style.
pub(super) fn permit(mut response: Response) -> Response {
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, POLICY);
    response
}
