//! `Link` headers (RFC 8288), as far as a walk reads them: targets and their relations.

use axum::http::{HeaderMap, header::LINK};

/// The targets of that relation.
pub(super) fn targets<'h>(headers: &'h HeaderMap, relation: &'h str) -> impl Iterator<Item = &'h str> {
    let values = headers.get_all(LINK).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(links).filter(move |(_, parameters)| has_relation(parameters, relation)).map(|(target, _)| target)
}

/// The links of one header: each a target and its parameters. A target may have commas in it, and a value in
/// quotation marks too.
fn links(value: &str) -> Vec<(&str, &str)> {
    let mut links = Vec::new();
    let mut rest = value;
    while let Some(start) = rest.find('<') {
        let behind = &rest[start + 1..];
        let Some(end) = behind.find('>') else { break };
        let parameters = &behind[end + 1..];
        let mut is_quoted = false;
        let next = parameters.find(|c| {
            is_quoted ^= c == '"';
            c == ',' && !is_quoted
        });
        let (parameters, others) = parameters.split_at(next.unwrap_or(parameters.len()));
        links.push((&behind[..end], parameters));
        rest = others;
    }
    links
}

fn has_relation(parameters: &str, relation: &str) -> bool {
    let relations = parameters.split(';').filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("rel").then(|| value.trim().trim_matches('"'))
    });
    relations.flat_map(str::split_whitespace).any(|found| found.eq_ignore_ascii_case(relation))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue, header::LINK};

    use super::targets;

    #[test]
    fn links_are_found_among_others() {
        let mut headers = HeaderMap::new();
        for value in [
            r#"<http://www.w3.org/ns/ldp#Resource>; rel="type", <http://h/a,b>;rel=type;title="x, y""#,
            r#"<http://h/x/fcr:metadata>; rel="describedby"; anchor="http://h/x""#,
            r#"<http://h/two>; title="rel=type"; rel="describedby  TYPE""#,
            "<broken",
        ] {
            headers.append(LINK, HeaderValue::from_static(value));
        }
        let found = |relation| targets(&headers, relation).collect::<Vec<_>>();
        assert_eq!(found("type"), ["http://www.w3.org/ns/ldp#Resource", "http://h/a,b", "http://h/two"]);
        assert_eq!(found("describedby"), ["http://h/x/fcr:metadata", "http://h/two"]);
        assert!(found("acl").is_empty());
    }
}
