//! Pages for people: one document of HTML with its style and script in it, which needs no network but the
//! gateway.

use axum::{
    http::{HeaderMap, Method, header::CONTENT_SECURITY_POLICY},
    response::{IntoResponse, Response},
};

use super::{Cache, Representation};

/// The page holds its own style and script, and may speak to the gateway alone.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Answers with a page. What it may load and speak to is held by a policy (W3C Content Security Policy).
#[must_use]
pub fn page(html: &'static str, method: &Method, headers: &HeaderMap) -> Response {
    let page = Representation::new("text/html; charset=utf-8", html, Cache::Revalidate).respond(method, headers);
    ([(CONTENT_SECURITY_POLICY, POLICY)], page).into_response()
}
