//! What a Linked Data Platform (Fedora 4 to 6) answers: the description of a resource as JSON-LD, and the header `Link`.
//! It is read to complete what an event could not say.

use serde_json::Value;

use super::{Place, Rejection, utf8::utf8};
use crate::model::Uri;

/// The property by which Fedora 4 and 5 name the container of a resource.
const HAS_PARENT: &str = "http://fedora.info/definitions/v4/repository#hasParent";

/// What a description says of its resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// Its types.
    pub types: Vec<Uri>,
    /// Its container.
    pub parent: Option<Uri>,
}

/// Reads a description in expanded JSON-LD, as Fedora writes it (`[{"@id": …, "@type": […], …}]`); of nodes that are
/// something else only those that the resource has in it are passed over.
///
/// # Errors
/// When it is no JSON, or not of that form.
pub fn description(body: &[u8], resource: &str) -> Result<Described, Rejection> {
    let text = utf8(body)?;
    let document: Value = serde_json::from_str(text)
        .map_err(|error| Rejection::malformed(Place::Message, format!("this is not well-formed JSON: {error}")))?;
    let nodes = match &document {
        Value::Array(nodes) => nodes.as_slice(),
        Value::Object(members) => match members.get("@graph") {
            Some(Value::Array(nodes)) => nodes.as_slice(),
            _ => std::slice::from_ref(&document),
        },
        _ => return Err(Rejection::unprocessable(Place::Message, "this is no description in JSON-LD")),
    };
    let is_meant = |node: &&Value| {
        let id = node.get("@id").and_then(Value::as_str);
        id.is_some_and(|id| id.trim_end_matches('/') == resource.trim_end_matches('/'))
    };
    let mut described = Described::default();
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

/// The targets of the links of one relation, in the values of `Link` (RFC 8288 section 3). What is not well-formed is
/// passed over.
pub fn links<'h>(values: impl IntoIterator<Item = &'h str>, relation: &str) -> Vec<&'h str> {
    let mut found = Vec::new();
    for value in values {
        let mut rest = value;
        while let Some((_, link)) = rest.split_once('<') {
            let Some((target, parameters)) = link.split_once('>') else { break };
            let end = end_of_link(parameters);
            if parameters[..end].split(';').any(|parameter| is_relation(parameter, relation)) {
                found.push(target);
            }
            rest = &parameters[end..];
        }
    }
    found
}

/// Where the parameters of a link end: at a comma that is not in quotation marks.
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
    name.trim().eq_ignore_ascii_case("rel") && value.split(' ').any(|held| held.eq_ignore_ascii_case(relation))
}

#[cfg(test)]
mod tests {
    use super::{Described, Uri, description, links};

    #[test]
    fn a_description_is_of_its_resource_alone() {
        let body = r#"[{"@id":"http://h/rest/a/b","@type":["http://www.w3.org/ns/ldp#Container","http://pcdm.org/models#Object"],
            "http://fedora.info/definitions/v4/repository#hasParent":[{"@id":"http://h/rest/a"}],
            "http://purl.org/dc/terms/title":[{"@value":"A"}]},
            {"@id":"http://h/rest/a/b#other","@type":["http://example.org/Other"]}]"#;
        let uri = |text| Uri::parse(text).unwrap();
        let expected = Described {
            types: vec![uri("http://www.w3.org/ns/ldp#Container"), uri("http://pcdm.org/models#Object")],
            parent: Some(uri("http://h/rest/a")),
        };
        assert_eq!(description(body.as_bytes(), "http://h/rest/a/b/").unwrap(), expected);
        let graph = format!(r#"{{"@graph":{body}}}"#);
        assert_eq!(description(graph.as_bytes(), "http://h/rest/a/b").unwrap(), expected);
        assert_eq!(description(body.as_bytes(), "http://h/rest/a").unwrap(), Described::default());
        for nonsense in ["<html/>", "7", "", "[{]"] {
            assert!(description(nonsense.as_bytes(), "http://h/rest/a").is_err(), "{nonsense}");
        }
    }

    #[test]
    fn links_are_told_apart_by_their_relations() {
        let values = [
            r#"<http://www.w3.org/ns/ldp#Resource>;rel="type", <http://www.w3.org/ns/ldp#NonRDFSource>; rel=type"#,
            r#"<http://h/rest/a/fcr:metadata>; title="a, b; rel=\"x\""; rel="describedby""#,
            r#"<http://h/rest/a/fcr:acl>; rel="acl other""#,
            "nonsense; rel=type, <unfinished",
        ];
        let types = ["http://www.w3.org/ns/ldp#Resource", "http://www.w3.org/ns/ldp#NonRDFSource"];
        assert_eq!(links(values, "type"), types);
        assert_eq!(links(values, "other"), ["http://h/rest/a/fcr:acl"]);
        assert_eq!(links(values, "describedby"), ["http://h/rest/a/fcr:metadata"]);
    }
}
