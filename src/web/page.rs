//! HTML pages. Each is one document that contains its style and script and loads nothing except from the gateway.

use axum::{
    http::{HeaderMap, HeaderValue, Method, header::CONTENT_SECURITY_POLICY},
    response::Response,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};

use super::{CachePolicy, Representation};

/// Static page.
#[derive(Clone, Debug)]
pub struct Page {
    document: Representation,
    policy: HeaderValue,
}

impl Page {
    /// Creates a page from an HTML document.
    #[must_use]
    pub fn new(html: &'static str) -> Self {
        let document = Representation::new("text/html; charset=utf-8", html, CachePolicy::Revalidate);
        Self { document, policy: page_policy(html) }
    }

    /// Responds to a GET or HEAD request with these headers.
    #[must_use]
    pub fn respond(&self, method: &Method, headers: &HeaderMap) -> Response {
        let mut response = self.document.respond(method, headers);
        response.headers_mut().insert(CONTENT_SECURITY_POLICY, self.policy.clone());
        response
    }
}

/// Returns the Content Security Policy of a page (W3C CSP 3). The browser applies only the styles and runs only the
/// scripts of the page, and scripts can connect only to the gateway.
#[must_use]
pub fn page_policy(html: &str) -> HeaderValue {
    let mut policy = "default-src 'none'; ".to_owned();
    for (element, directive) in [("style", "style-src"), ("script", "script-src")] {
        let hashes: Vec<_> = inline(html, element).map(|text| format!("'sha256-{}'", digest(text))).collect();
        if !hashes.is_empty() {
            policy += &format!("{directive} {}; ", hashes.join(" "));
        }
    }
    if inline(html, "script").next().is_some() {
        policy += "connect-src 'self'; ";
    }
    policy += "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    #[expect(clippy::expect_used, reason = "letters, digits and ASCII punctuation alone")]
    HeaderValue::try_from(policy).expect("a policy is a header value")
}

/// Iterates over the contents of all elements with this name, which must have no attributes.
fn inline<'h>(html: &'h str, element: &str) -> impl Iterator<Item = &'h str> {
    let (begin, end) = (format!("<{element}>"), format!("</{element}>"));
    let parts: Vec<_> = html.split(&begin).skip(1).filter_map(|rest| Some(rest.split_once(&end)?.0)).collect();
    parts.into_iter()
}

fn digest(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::page_policy;

    #[test]
    fn policy_allows_only_content_of_the_page() {
        let policy = page_policy("<title>x</title><style>a {}</style><p>y</p>");
        assert_eq!(
            policy,
            "default-src 'none'; style-src 'sha256-mkSHzL7faOU7/U/v8Umg+058R69+vN2A2xmE3Fz1q98='; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'"
        );
        let policy = page_policy("<script>one()</script><script>two()</script>");
        let policy = policy.to_str().unwrap();
        assert_eq!(policy.matches("'sha256-").count(), 2, "{policy}");
        assert!(policy.contains("; connect-src 'self'; base-uri") && !policy.contains("style-src"), "{policy}");
    }
}
