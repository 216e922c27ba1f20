//! Host names and parts of paths that mean something without a request.

/// True for names that always resolve to the local host (RFC 6761 section 6.3).
pub(super) fn is_local(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}

/// Top-level domains that are not delegated to anybody: RFC 6761, RFC 6762 section 3 and appendix G, RFC 8375, and
/// `internal`, which ICANN has reserved for private use.
const PRIVATE_DOMAINS: [&str; 10] =
    ["localhost", "test", "local", "intranet", "internal", "private", "corp", "home", "lan", "home.arpa"];

/// True for names that only the operator's network resolves: a single label, or a name below a private domain.
pub(super) fn is_private_name(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    let is_below =
        |domain: &&str| name.strip_suffix(*domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    !name.contains('.') || PRIVATE_DOMAINS.iter().any(is_below)
}

/// Returns an estimate of the registrable domain: the last two labels, or three below suffixes such as `co.uk`
/// and `ac.at`.
pub(super) fn registrable(name: &str) -> &str {
    let name = name.trim_end_matches('.');
    let dots: Vec<_> = name.rmatch_indices('.').map(|(at, _)| at).collect();
    let is_country = dots.first().is_some_and(|last| name.len() - last - 1 == 2);
    let is_short = dots.first().zip(dots.get(1)).is_some_and(|(last, second)| last - second - 1 <= 3);
    let begins = dots.get(if is_country && is_short { 2 } else { 1 });
    begins.map_or(name, |at| &name[at + 1..])
}

/// True if a path segment may be a token: it is long, or mixes letters and digits unlike a word.
pub(super) fn looks_like_token(segment: &str) -> bool {
    let has = |is: fn(char) -> bool| segment.chars().any(is);
    let kinds = [has(|c| c.is_ascii_digit()), has(|c| c.is_ascii_lowercase()), has(|c| c.is_ascii_uppercase())];
    let kinds = kinds.into_iter().filter(|has| *has).count();
    match segment.len() {
        0..8 => false,
        8..20 => kinds >= 2,
        _ => true,
    }
}
