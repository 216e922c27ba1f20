//! `GET /live`: a page for people that shows changes as they come, by the browser's own `EventSource`. It is also
//! the example of how little a page needs for that.
//!
//! A browser's `EventSource` cannot be told to send a token, and pages of other origins may not read from here. So
//! the page is served by the gateway itself: where tokens are asked for, the browser asks the person for a
//! password once (any name, and the token), and then sends it with the stream as well.

use std::sync::LazyLock;

use axum::{
    http::{HeaderMap, Method},
    response::Response,
};

use crate::web::{Page, problems};

/// The page.
static PAGE: LazyLock<Page> = LazyLock::new(|| Page::new(include_str!("../../examples/live.html")));

problems!(Problems:);

/// A page that shows changes as they come. Its query is that of `/stream`.
#[utoipa::path(
    get,
    path = "/live",
    operation_id = "getLive",
    tag = "out",
    responses(
        (status = 200, description = "The page.", body = String, content_type = "text/html"),
        (status = 304, description = "The client has it."),
        Problems,
    ),
)]
pub async fn page(method: Method, headers: HeaderMap) -> Response {
    PAGE.respond(&method, &headers)
}
