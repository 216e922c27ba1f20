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
    pub fn new(html: impl Into<String>) -> Self {
        let html = html.into();
        let policy = page_policy(&html);
        let document = Representation::new("text/html; charset=utf-8", html, CachePolicy::Revalidate);
        Self { document, policy }
    }

    /// Declares that the URL of the page has other representations, depending on `Accept`.
    #[must_use]
    pub fn varying_by_accept(self) -> Self {
        Self { document: self.document.varying_by_accept(), ..self }
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
/// scripts of the page. Scripts can connect only to the gateway, and cannot make elements or code of a text.
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
        policy += "connect-src 'self'; require-trusted-types-for 'script'; ";
    }
    policy += "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    #[expect(clippy::expect_used, reason = "letters, digits and ASCII punctuation alone")]
    HeaderValue::try_from(policy).expect("a policy is a header value")
}

/// Iterates over the contents of all elements with this name. A value of an attribute must not contain `>`.
fn inline<'h>(html: &'h str, element: &str) -> impl Iterator<Item = &'h str> {
    let (begin, end) = (format!("<{element}"), format!("</{element}>"));
    let after_attributes = |rest: &'h str| match rest.starts_with(['>', ' ']) {
        true => Some(rest.split_once('>')?.1),
        false => None,
    };
    let contents = html.split(&begin).skip(1).filter_map(after_attributes);
    let parts: Vec<_> = contents.filter_map(|content| Some(content.split_once(&end)?.0)).collect();
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
        let policy = page_policy("<script>one()</script><script>two()</script><scripts>three()</scripts>");
        let policy = policy.to_str().unwrap();
        assert_eq!(policy.matches("'sha256-").count(), 2, "{policy}");
        assert!(policy.contains("; connect-src 'self'; require-trusted-types-for 'script'; base-uri"), "{policy}");
        assert!(!policy.contains("style-src"), "{policy}");
        assert_eq!(policy, page_policy("<script type=\"module\">one()</script><script async>two()</script>"));
    }
}
