//! `GET /live`: an HTML page that shows changes as they are recorded, using the browser's `EventSource`. It is also
//! an example of how little code such a page needs.
//!
//! `EventSource` cannot send a token, and pages of other origins cannot read from the gateway. Therefore the gateway
//! itself serves the page. With access control, the browser prompts once for a password (any user name, and the
//! token) and then also sends it with the stream.

use std::sync::LazyLock;

use axum::{
    http::{HeaderMap, Method},
    response::Response,
};

use crate::web::{Page, ReadPermit, problems};

/// The page.
static PAGE: LazyLock<Page> = LazyLock::new(|| Page::new(include_str!("../../examples/live.html")));

problems!(Problems:);

/// An HTML page that shows changes as they are recorded. It accepts the query parameters of `/stream`.
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
pub async fn page(_: ReadPermit, method: Method, headers: HeaderMap) -> Response {
    PAGE.respond(&method, &headers)
}
