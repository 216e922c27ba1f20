//! URLs of enclosures without their signatures.
//!
//! A signed URL gives access for a time, so a publisher makes another one for each response. The file is the same, and
//! the signature is a credential that no subscriber needs to see. So the URL without the parameters of the signature is
//! the URI of the file, in records and in messages.

/// Parameters that are signatures or tokens, in lower case.
const SIGNATURES: [&str; 21] = [
    "access_token",
    "auth",
    "auth_key",
    "auth_token",
    "authkey",
    "hdnea",
    "hdntl",
    "hdnts",
    "hmac",
    "jwt",
    "sig",
    "sign",
    "signature",
    "token",
    "token-hash",
    "verify",
    "x-amz-security-token",
    "x-amz-signature",
    "x-goog-signature",
    "x-oss-signature",
    "__token__",
];

/// Parameters that belong to a signature, in lower case: its time, its key and its scope at Amazon, CloudFront, Google,
/// Azure, Alibaba and Patreon. They count only beside a signature.
const COMPANIONS: [&str; 26] = [
    "awsaccesskeyid",
    "exp",
    "expire",
    "expires",
    "expiry",
    "googleaccessid",
    "key-pair-id",
    "nonce",
    "ossaccesskeyid",
    "policy",
    "se",
    "sip",
    "skoid",
    "sktid",
    "skt",
    "ske",
    "sks",
    "skv",
    "sp",
    "spr",
    "sr",
    "st",
    "sv",
    "timestamp",
    "token-time",
    "ts",
];

/// Beginnings of the names of parameters that belong to a signature, in lower case.
const COMPANION_PREFIXES: [&str; 3] = ["x-amz-", "x-goog-", "x-oss-"];

/// Returns a URL without the parameters of its signature; `None` if it has no signature. Everything else stays as it is
/// written.
pub(super) fn unsigned(url: &str) -> Option<String> {
    let (rest, fragment) = match url.split_once('#') {
        Some((rest, fragment)) => (rest, Some(fragment)),
        None => (url, None),
    };
    let (path, query) = rest.split_once('?')?;
    let name = |parameter: &str| parameter.split('=').next().unwrap_or_default().to_ascii_lowercase();
    let parameters = || query.split('&').flat_map(|part| part.split("&amp;"));
    if !parameters().any(|parameter| SIGNATURES.contains(&name(parameter).as_str())) {
        return None;
    }
    let is_companion =
        |name: &str| COMPANIONS.contains(&name) || COMPANION_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let others: Vec<_> = parameters()
        .filter(|parameter| {
            let name = name(parameter);
            !SIGNATURES.contains(&name.as_str()) && !is_companion(&name)
        })
        .collect();
    let mut unsigned = path.to_owned();
    if !others.is_empty() {
        unsigned.push('?');
        unsigned.push_str(&others.join("&"));
    }
    if let Some(fragment) = fragment {
        unsigned.push('#');
        unsigned.push_str(fragment);
    }
    Some(unsigned)
}

#[cfg(test)]
mod tests {
    use super::unsigned;

    #[test]
    fn signature_and_its_companions_are_removed() {
        for (url, expected) in [
            ("https://h/a.mp3?token=1", "https://h/a.mp3"),
            ("https://h/a.mp3?id=7&Token=1&x=%20", "https://h/a.mp3?id=7&x=%20"),
            ("https://h/a?Expires=1&Signature=b%2F&Key-Pair-Id=k#t=1", "https://h/a#t=1"),
            ("https://h/a?X-Amz-Algorithm=a&X-Amz-Date=d&X-Amz-Signature=s&versionId=2", "https://h/a?versionId=2"),
            ("https://h/a?sv=1&se=2&sr=b&sp=r&sig=x", "https://h/a"),
        ] {
            assert_eq!(unsigned(url).as_deref(), Some(expected), "{url}");
        }
    }

    #[test]
    fn other_queries_stay() {
        for url in ["https://h/a", "https://h/a?id=7", "https://h/a?expires=1", "https://h/a?sp=1#?token=1", ""] {
            assert_eq!(unsigned(url), None, "{url}");
        }
    }
}
