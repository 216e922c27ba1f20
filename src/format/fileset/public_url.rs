//! URLs without their possible credentials, as results publish them.
//!
//! Services sign the URLs of downloads in many ways, and whoever has such a URL can use it. So a query that a server has
//! added is left out as a whole, and of other URLs each parameter whose name looks like one of a credential.

/// Parts of the names of parameters that are, or may be, credentials.
const SECRET_PARTS: [&str; 10] =
    ["sig", "token", "key", "secret", "credential", "policy", "expires", "hmac", "private", "view_only"];

/// Names of parameters that sign a URL, so that the others are parts of the signature.
const SIGNATURES: [&str; 11] = [
    "access_token",
    "authtoken",
    "download_token",
    "hdnea",
    "hdnts",
    "hmac",
    "private_link",
    "q-signature",
    "sig",
    "temp_url_expires",
    "temp_url_sig",
];

/// Returns whether a URL has a signature in its query, which is a credential.
#[must_use]
pub fn is_signed(url: &str) -> bool {
    let (mut is_signed, mut has_token, mut has_end) = (false, false, false);
    for name in names(url) {
        is_signed |= name.contains("signature") || SIGNATURES.contains(&name.as_str());
        has_token |= matches!(name.as_str(), "token" | "st");
        has_end |= matches!(name.as_str(), "until" | "expires" | "e");
    }
    is_signed || (has_token && has_end)
}

/// Parameter that opens a private project, also beside others that name a file.
const VIEW_KEY: &str = "view_only";

/// Removes the query of a URL if it has a signature, and the key of a private project.
pub(super) fn remove_signature(url: &mut String) {
    if is_signed(url)
        && let Some(length) = url.find('?')
    {
        url.truncate(length);
    }
    remove_parameters(url, |name| name == VIEW_KEY);
}

/// Returns a URL of a list without its signature or the key of a private project. Another query may name the file.
#[must_use]
pub fn without_signature(url: &str) -> String {
    let mut url = url.to_owned();
    remove_signature(&mut url);
    url
}

/// Returns a URL of the way to a page or file without parameters that may be credentials.
#[must_use]
pub fn without_secrets(url: &str) -> String {
    let mut url = url.to_owned();
    remove_secrets(&mut url);
    url
}

/// Removes parameters that may be credentials from a URL.
pub(super) fn remove_secrets(url: &mut String) {
    remove_signature(url);
    remove_parameters(url, |name| SECRET_PARTS.iter().any(|part| name.contains(part)));
}

fn remove_parameters(url: &mut String, is_secret: impl Fn(&str) -> bool) {
    let Some(start) = url.find('?') else { return };
    let is_public = |pair: &&str| !is_secret(&name(pair));
    let (query, fragment) = url[start + 1..].split_once('#').unwrap_or((&url[start + 1..], ""));
    let kept: Vec<_> = query.split('&').filter(is_public).collect();
    if kept.len() < query.split('&').count() {
        let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
        let fragment = if fragment.is_empty() { String::new() } else { format!("#{fragment}") };
        *url = format!("{}{query}{fragment}", &url[..start]);
    }
}

fn names(url: &str) -> impl Iterator<Item = String> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    query.split('&').map(name)
}

fn name(pair: &str) -> String {
    let name = pair.split('=').next().unwrap_or_default();
    percent_encoding::percent_decode_str(name).decode_utf8_lossy().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::{is_signed, remove_signature, without_secrets, without_signature};

    #[test]
    fn signatures_of_services_are_recognized() {
        for query in [
            "temp_url_sig=S&temp_url_expires=1900000000",
            "until=2026-01-01T00:00:00.000&user=u&method=GET&token=S",
            "q-sign-algorithm=sha1&q-signature=S",
            "X-Oss-Signature=S",
            "X-Amz-Signature=S&X-Amz-Date=1",
            "x-goog-signature=S",
            "Expires=1&Signature=S&Key-Pair-Id=K",
            "hdnea=exp=1~hmac=S",
            "st=S&e=1",
            "sv=1&sig=S",
            "access_token=S",
            "download_token=S",
            "authtoken=S",
            "private_link=S",
        ] {
            let mut url = format!("https://h.example/a.csv?{query}");
            assert!(is_signed(&url), "{query}");
            remove_signature(&mut url);
            assert_eq!(url, "https://h.example/a.csv");
        }
        for query in ["persistentId=doi:10.1/A", "file=1&format=original", "version=2", ""] {
            assert!(!is_signed(&format!("https://h.example/a.csv?{query}")), "{query}");
        }
        assert_eq!(without_signature("https://h/f?action=get&view_only=S"), "https://h/f?action=get");
        assert_eq!(without_signature("https://h/f?view_only=S"), "https://h/f");
    }

    #[test]
    fn parameters_that_may_be_credentials_are_left_out() {
        for (url, public) in [
            ("https://h/records/7?token=S", "https://h/records/7"),
            ("https://h/a?view_only=S&x=1#p", "https://h/a?x=1#p"),
            ("https://h/a?x=1&API%5Fkey=S&y=2", "https://h/a?x=1&y=2"),
            ("https://h/d?persistentId=doi:10.1/A", "https://h/d?persistentId=doi:10.1/A"),
            ("https://h/a?b&c#d?token=1", "https://h/a?b&c#d?token=1"),
        ] {
            assert_eq!(without_secrets(url), public);
        }
    }
}
