//! Parses the description of a resource of a Linked Data Platform (Fedora 4 to 6) as JSON-LD. It supplies what events lack.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{
    Limits, Location, Rejection, json,
    stated_dates::{DatePredicates, DateRole, DateStatements},
    uri_path::{Delimiters, encode_uri},
    utf8::utf8,
};
use crate::model::Uri;

/// Description of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceDescription {
    /// Whether the document is about the resource at all. Otherwise nothing is known about the resource.
    pub is_found: bool,
    /// Types.
    pub types: Vec<Uri>,
    /// Container.
    pub parent: Option<Uri>,
    /// Dates of the resource.
    pub dates: DateStatements,
}

/// Members of a node that are used, unparsed. The others are skipped.
#[derive(Deserialize)]
struct Node<'t> {
    #[serde(rename = "@id", borrow, default)]
    id: Option<&'t RawValue>,
    #[serde(rename = "@type", borrow, default)]
    types: Option<&'t RawValue>,
    #[serde(rename = "http://fedora.info/definitions/v4/repository#hasParent", borrow, default)]
    parents: Option<&'t RawValue>,
    #[serde(rename = "@graph", borrow, default)]
    graph: Option<&'t RawValue>,
    #[serde(rename = "@context", borrow, default)]
    context: Option<&'t RawValue>,
}

/// Parses a description in expanded JSON-LD, as Fedora writes it (`[{"@id": …, "@type": […], …}]`). Nodes of
/// other resources are skipped. Of the types, at most one more than `limits.types` is returned. The values of `predicates`
/// are dates of the resource. The names of compacted JSON-LD are not resolved, so its dates are unreadable.
///
/// The memory does not grow with the number of nodes and members, because only the values in use are stored.
///
/// # Errors
/// Rejects a body that is not JSON or not of that form.
pub fn parse_description(
    body: &[u8],
    resource: &str,
    predicates: &DatePredicates,
    limits: Limits,
) -> Result<ResourceDescription, Rejection> {
    let text = utf8(body)?;
    let malformed = |error: serde_json::Error| {
        let reason = json::syntax_reason(text, &error);
        Rejection::malformed(Location::Message, reason)
    };
    let mut described = ResourceDescription::default();
    let mut add = |node: &RawValue| match is_object(node) {
        true => described.add(node, resource, predicates, limits),
        false => Ok(()),
    };
    match text.trim_ascii_start().as_bytes().first() {
        Some(b'[') => each(text, add).map_err(malformed)?,
        Some(b'{') => {
            let document: &RawValue = serde_json::from_str(text).map_err(malformed)?;
            let Node { graph, context, .. } = serde_json::from_str(text).map_err(malformed)?;
            match graph.filter(|graph| is_list(graph)) {
                Some(graph) => each(graph.get(), add).map_err(malformed)?,
                None => add(document).map_err(malformed)?,
            }
            if context.is_some() && !predicates.is_empty() {
                described.dates.add_unreadable();
            }
        }
        _ => {
            serde_json::from_str::<IgnoredAny>(text).map_err(malformed)?;
            return Err(Rejection::unprocessable(Location::Message, "this is not a description in JSON-LD"));
        }
    }
    Ok(described)
}

impl ResourceDescription {
    /// Adds the facts of a node, if it is about the resource.
    fn add(
        &mut self,
        document: &RawValue,
        resource: &str,
        predicates: &DatePredicates,
        limits: Limits,
    ) -> serde_json::Result<()> {
        let node: Node<'_> = serde_json::from_str(document.get())?;
        let is_same = |id: &str| id.trim_end_matches('/') == resource.trim_end_matches('/');
        // Fedora writes the name of a resource as it is stored, and the gateway as the REST API spells it.
        let is_meant =
            |id: &str| is_same(id) || encode_uri(id, Delimiters::Meant).is_ok_and(|encoded| is_same(encoded.as_str()));
        if !node.id.and_then(text_of).is_some_and(|id| is_meant(&id)) {
            return Ok(());
        }
        self.is_found = true;
        if node.context.is_some() && !predicates.is_empty() {
            self.dates.add_unreadable();
        }
        each_or_only(node.types, |name| {
            let name = text_of(name).filter(|_| self.types.len() <= limits.types);
            self.types.extend(name.and_then(|name| Uri::parse(&name).ok()));
            Ok(())
        })?;
        let mut parent = None;
        each_or_only(node.parents, |reference| {
            if parent.is_none() && is_object(reference) {
                let Node { id, .. } = serde_json::from_str(reference.get())?;
                parent = id.and_then(text_of).and_then(|id| Uri::parse(&id).ok());
            }
            Ok(())
        })?;
        self.parent = parent.or(self.parent.take());
        if predicates.is_empty() {
            return Ok(());
        }
        each_member(document.get(), |name, values| match predicates.role(name) {
            Some(role) => each_or_only(Some(values), |value| {
                self.add_date(role, value);
                Ok(())
            }),
            None => Ok(()),
        })
    }
}

/// Members of a value of JSON-LD: a literal, or a reference to a resource.
#[derive(Deserialize)]
struct Value<'t> {
    #[serde(rename = "@id", borrow, default)]
    id: Option<&'t RawValue>,
    #[serde(rename = "@value", borrow, default)]
    value: Option<&'t RawValue>,
}

impl ResourceDescription {
    /// Adds a date, or a reference to the resource that has it. A value of another form costs itself, and not the response.
    fn add_date(&mut self, role: DateRole, value: &RawValue) {
        let (literal, reference) = match is_object(value) {
            true => match serde_json::from_str(value.get()) {
                Ok(Value { id, value }) => (value, id),
                Err(_) => (None, None),
            },
            false => (Some(value), None),
        };
        let place = reference.and_then(text_of).and_then(|place| Uri::parse(&place).ok());
        match (literal.and_then(text_of), place) {
            (Some(date), _) => self.dates.add(role, &date),
            (None, Some(place)) => self.dates.add_place(place),
            (None, None) => self.dates.add_unreadable(),
        }
    }
}

fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

fn is_list(value: &RawValue) -> bool {
    value.get().starts_with('[')
}

/// Returns the text of a value; `None` if it is something else.
fn text_of(value: &RawValue) -> Option<Cow<'_, str>> {
    let quoted = value.get().strip_prefix('"')?.strip_suffix('"')?;
    match quoted.contains('\\') {
        false => Some(Cow::Borrowed(quoted)),
        true => serde_json::from_str(value.get()).ok().map(Cow::Owned),
    }
}

/// Calls a function with each entry of a list, or with the only value.
fn each_or_only(
    value: Option<&RawValue>,
    mut entry: impl FnMut(&RawValue) -> serde_json::Result<()>,
) -> serde_json::Result<()> {
    match value {
        Some(list) if is_list(list) => each(list.get(), entry),
        Some(only) => entry(only),
        None => Ok(()),
    }
}

/// Calls a function with each entry of a list, which is not stored as a whole.
fn each(list: &str, entry: impl FnMut(&RawValue) -> serde_json::Result<()>) -> serde_json::Result<()> {
    struct Entries<F>(F);
    impl<'de, F: FnMut(&RawValue) -> serde_json::Result<()>> Visitor<'de> for Entries<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(mut self, mut entries: A) -> Result<(), A::Error> {
            while let Some(entry) = entries.next_element::<&RawValue>()? {
                (self.0)(entry).map_err(A::Error::custom)?;
            }
            Ok(())
        }
    }
    let mut document = serde_json::Deserializer::from_str(list);
    document.deserialize_seq(Entries(entry))?;
    document.end()
}

/// Calls a function with each member of an object, which is not stored as a whole.
fn each_member(object: &str, member: impl FnMut(&str, &RawValue) -> serde_json::Result<()>) -> serde_json::Result<()> {
    struct Members<F>(F);
    impl<'de, F: FnMut(&str, &RawValue) -> serde_json::Result<()>> Visitor<'de> for Members<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
            while let Some((name, value)) = members.next_entry::<String, &RawValue>()? {
                (self.0)(&name, value).map_err(A::Error::custom)?;
            }
            Ok(())
        }
    }
    serde_json::Deserializer::from_str(object).deserialize_map(Members(member))
}

#[cfg(test)]
mod tests {
    use super::{DatePredicates, DateRole, DateStatements, Limits, ResourceDescription, Uri, parse_description};

    fn described(body: &str, resource: &str) -> ResourceDescription {
        parse_description(body.as_bytes(), resource, &DatePredicates::default(), Limits::default()).unwrap()
    }

    #[test]
    fn description_ignores_other_resources() {
        let body = r#"[{"@id":"http://h/rest/a/b","@type":["http://www.w3.org/ns/ldp#Container","http://pcdm.org/models#Object"],
            "http://fedora.info/definitions/v4/repository#hasParent":[{"@id":"http://h/rest/a"}],
            "http://purl.org/dc/terms/title":[{"@value":"A"}]},
            {"@id":"http://h/rest/a/b#other","@type":["http://example.org/Other"]}]"#;
        let uri = |text| Uri::parse(text).unwrap();
        let expected = ResourceDescription {
            is_found: true,
            types: vec![uri("http://www.w3.org/ns/ldp#Container"), uri("http://pcdm.org/models#Object")],
            parent: Some(uri("http://h/rest/a")),
            dates: DateStatements::default(),
        };
        assert_eq!(described(body, "http://h/rest/a/b/"), expected);
        let graph = format!(r#" {{"@context":1,"@graph":{body}}}"#);
        assert_eq!(described(&graph, "http://h/rest/a/b"), expected);
        assert_eq!(described(body, "http://h/rest/a"), ResourceDescription::default());
        for nonsense in ["<html/>", "7", "", "[{]", "[{}", "[]]", r#"{"@graph":[}"#, r#"{"@id":"a"}}"#] {
            let (body, predicates) = (nonsense.as_bytes(), DatePredicates::default());
            let refused = parse_description(body, "http://h/rest/a", &predicates, Limits::default()).unwrap_err();
            assert!(refused.to_string().len() < 200, "{nonsense}: {refused}");
        }
    }

    #[test]
    fn members_of_a_description_have_several_forms() {
        let uri = |text| Uri::parse(text).unwrap();
        let body = r#"{"@type":"http://h/T","http://fedora.info/definitions/v4/repository#hasParent":
            {"@id":"http:\/\/h\/p"},"@id":"http:\u002f/h/a"}"#;
        let read = described(body, "http://h/a");
        assert_eq!((read.types, read.parent), (vec![uri("http://h/T")], Some(uri("http://h/p"))));
        let body = r#"[0,"x",null,{"@id":[1],"@type":[{},7,"http://h/T"]},
            {"@id":"http://h/a","@type":[{},7,"no URI","http://h/T"],"@graph":{}}]"#;
        assert_eq!(described(body, "http://h/a").types, [uri("http://h/T")]);
    }

    #[test]
    fn values_of_date_predicates_are_dates_or_places() {
        const TWICE: &str = r#"{"@value":"2030","@value":"2031"}"#;
        let uri = |text| Uri::parse(text).unwrap();
        let predicates = DatePredicates { from: vec![uri("p:from"), uri("p:has")], until: vec![uri("p:until")] };
        let body = r#"[{"@id":"http://h/a","p:from":[{"@value":"2030-01-02","@type":"xsd:date"}],"p:until":"2031",
            "p:has":{"@id":"http://h/embargo"},"p:other":[{"@value":"2040-01-01"}]},
            {"@id":"http://h/b","p:from":"2050-01-01"}]"#;
        let read = |body: &str| {
            parse_description(body.as_bytes(), "http://h/a", &predicates, Limits::default()).unwrap().dates
        };
        let mut expected = DateStatements::default();
        expected.add(DateRole::From, "2030-01-02");
        expected.add(DateRole::Until, "2031-01-01");
        expected.add_place(uri("http://h/embargo"));
        assert_eq!(read(body), expected);
        for value in [r#"7"#, r#"{"@value":2030}"#, r#"{"@id":"no URI"}"#, r#"{}"#, r#""soon""#, r#"[["2030"]]"#, TWICE]
        {
            let dates = read(&format!(r#"[{{"@id":"http://h/a","p:from":[{value}]}}]"#));
            assert!(dates.has_unreadable(), "{value}");
        }
        assert_eq!(described(body, "http://h/a").dates, DateStatements::default(), "no predicates are configured");
        // The names of these are those of their context.
        for compacted in [
            r#"{"@context":{"from":"p:from"},"@id":"http://h/a","from":"2030"}"#,
            r#"{"@context":"http://h/context","@graph":[{"@id":"http://h/a","from":"2030"}]}"#,
            r#"[{"@context":{"from":"p:from"},"@id":"http://h/a","from":"2030"}]"#,
        ] {
            assert!(read(compacted).has_unreadable(), "{compacted}");
            assert!(!described(compacted, "http://h/a").dates.has_unreadable(), "no predicates are configured");
        }
    }

    #[test]
    fn name_of_a_resource_has_two_spellings() {
        for id in ["http://h/Sk\u{f8}yen 1", "http://h/Sk%c3%b8yen%201/", "http://h/Sk%C3%B8yen%201"] {
            let body = format!(r#"[{{"@id":"{id}","@type":["http://h/T"]}}]"#);
            assert!(described(&body, "http://h/Sk%C3%B8yen%201").is_found, "{id}");
        }
        assert!(!described(r#"[{"@id":"http://h/Skoyen"}]"#, "http://h/Sk%C3%B8yen").is_found);
    }

    #[test]
    fn number_of_types_is_bounded() {
        let body = format!(r#"[{{"@id":"http://h/a","@type":[{}"http://h/T"]}}]"#, r#""http://h/T","#.repeat(10_000));
        let limits = Limits { types: 3, ..Limits::default() };
        let described = parse_description(body.as_bytes(), "http://h/a", &DatePredicates::default(), limits).unwrap();
        // One more than allowed, so that the change is refused.
        assert_eq!(described.types.len(), 4);
    }
}
