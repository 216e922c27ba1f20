//! Parses responses of a Linked Data Platform (Fedora 4 to 6): the description of a resource as JSON-LD, and
//! the header `Link`. They supply what events lack.

use serde_json::Value;

use super::{Location, Rejection, utf8::utf8};
use crate::model::Uri;

/// Property with which Fedora 4 and 5 name the container of a resource.
const HAS_PARENT: &str = "http://fedora.info/definitions/v4/repository#hasParent";

/// Description of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceDescription {
    /// Types.
    pub types: Vec<Uri>,
    /// Container.
    pub parent: Option<Uri>,
}

/// Parses a description in expanded JSON-LD, as Fedora writes it (`[{"@id": …, "@type": […], …}]`). Nodes of
/// other resources are skipped.
///
/// # Errors
/// Rejects a body that is not JSON or not of that form.
pub fn parse_description(body: &[u8], resource: &str) -> Result<ResourceDescription, Rejection> {
    let text = utf8(body)?;
    let document: Value = serde_json::from_str(text)
        .map_err(|error| Rejection::malformed(Location::Message, format!("this is not well-formed JSON: {error}")))?;
    let nodes = match &document {
        Value::Array(nodes) => nodes.as_slice(),
        Value::Object(members) => match members.get("@graph") {
            Some(Value::Array(nodes)) => nodes.as_slice(),
            _ => std::slice::from_ref(&document),
        },
        _ => return Err(Rejection::unprocessable(Location::Message, "this is not a description in JSON-LD")),
    };
    let is_meant = |node: &&Value| {
        let id = node.get("@id").and_then(Value::as_str);
        id.is_some_and(|id| id.trim_end_matches('/') == resource.trim_end_matches('/'))
    };
    let mut described = ResourceDescription::default();
    for node in nodes.iter().filter(is_meant) {
        let types = each(node.get("@type")).filter_map(Value::as_str);
        described.types.extend(types.filter_map(|name| Uri::parse(name).ok()));
        let parents = each(node.get(HAS_PARENT)).filter_map(|parent| parent.get("@id")?.as_str());
        described.parent = parents.filter_map(|parent| Uri::parse(parent).ok()).next().or(described.parent);
    }
    Ok(described)
}

fn each(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    match value {
        Some(Value::Array(all)) => all.iter(),
        Some(one) => std::slice::from_ref(one).iter(),
        None => [].iter(),
    }
}

/// Returns the targets of links with this relation in `Link` headers (RFC 8288 section 3). Malformed links are
/// skipped.
pub fn link_targets<'h>(values: impl IntoIterator<Item = &'h str>, relation: &str) -> Vec<&'h str> {
    let mut targets = Vec::new();
    for value in values {
        let mut rest = value;
        while let Some((_, link)) = rest.split_once('<') {
            let Some((target, parameters)) = link.split_once('>') else { break };
            let end = end_of_link(parameters);
            if parameters[..end].split(';').any(|parameter| is_relation(parameter, relation)) {
                targets.push(target);
            }
            rest = &parameters[end..];
        }
    }
    targets
}

/// Returns the end of a link's parameters: the first comma outside quotation marks.
fn end_of_link(parameters: &str) -> usize {
    let mut is_quoted = false;
    for (at, byte) in parameters.bytes().enumerate() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => return at,
            _ => {}
        }
    }
    parameters.len()
}

fn is_relation(parameter: &str, relation: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else { return false };
    let value = value.trim().trim_matches('"');
    name.trim().eq_ignore_ascii_case("rel") && value.split(' ').any(|name| name.eq_ignore_ascii_case(relation))
}

#[cfg(test)]
mod tests {
    use super::{ResourceDescription, Uri, link_targets, parse_description};

    #[test]
    fn description_ignores_other_resources() {
        let body = r#"[{"@id":"http://h/rest/a/b","@type":["http://www.w3.org/ns/ldp#Container","http://pcdm.org/models#Object"],
            "http://fedora.info/definitions/v4/repository#hasParent":[{"@id":"http://h/rest/a"}],
            "http://purl.org/dc/terms/title":[{"@value":"A"}]},
            {"@id":"http://h/rest/a/b#other","@type":["http://example.org/Other"]}]"#;
        let uri = |text| Uri::parse(text).unwrap();
        let expected = ResourceDescription {
            types: vec![uri("http://www.w3.org/ns/ldp#Container"), uri("http://pcdm.org/models#Object")],
            parent: Some(uri("http://h/rest/a")),
        };
        assert_eq!(parse_description(body.as_bytes(), "http://h/rest/a/b/").unwrap(), expected);
        let graph = format!(r#"{{"@graph":{body}}}"#);
        assert_eq!(parse_description(graph.as_bytes(), "http://h/rest/a/b").unwrap(), expected);
        assert_eq!(parse_description(body.as_bytes(), "http://h/rest/a").unwrap(), ResourceDescription::default());
        for nonsense in ["<html/>", "7", "", "[{]"] {
            assert!(parse_description(nonsense.as_bytes(), "http://h/rest/a").is_err(), "{nonsense}");
        }
    }

    #[test]
    fn links_are_selected_by_relation() {
        let values = [
            r#"<http://www.w3.org/ns/ldp#Resource>;rel="type", <http://www.w3.org/ns/ldp#NonRDFSource>; rel=type"#,
            r#"<http://h/rest/a/fcr:metadata>; title="a, b; rel=\"x\""; rel="describedby""#,
            r#"<http://h/rest/a/fcr:acl>; rel="acl other""#,
            "nonsense; rel=type, <unfinished",
        ];
        let types = ["http://www.w3.org/ns/ldp#Resource", "http://www.w3.org/ns/ldp#NonRDFSource"];
        assert_eq!(link_targets(values, "type"), types);
        assert_eq!(link_targets(values, "other"), ["http://h/rest/a/fcr:acl"]);
        assert_eq!(link_targets(values, "describedby"), ["http://h/rest/a/fcr:metadata"]);
    }
}
