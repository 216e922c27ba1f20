//! Reads JSON-LD events from repositories: values with their locations, and types that may be short names,
//! prefixed names or full URIs.
//!
//! This is not a JSON-LD processor: it fetches no context, and members keep the names from ActivityStreams 2
//! and Fedora.

use std::{borrow::Cow, collections::HashMap};

use serde_json::Value;

use super::{Location, Rejection, json, utf8::utf8};
use crate::model::{Text, Timestamp, Uri};

/// Namespace of ActivityStreams 2 (Vocabulary, section 1.1), and its common misspelling.
pub(super) const ACTIVITY_STREAMS: [&str; 2] =
    ["https://www.w3.org/ns/activitystreams#", "http://www.w3.org/ns/activitystreams#"];

/// Prefixes that messages of Fedora and Islandora use without declaring them.
const WELL_KNOWN: [(&str, &str); 9] = [
    ("as", ACTIVITY_STREAMS[0]),
    ("dcterms", "http://purl.org/dc/terms/"),
    ("fedora", "http://fedora.info/definitions/v4/repository#"),
    ("foaf", "http://xmlns.com/foaf/0.1/"),
    ("ldp", "http://www.w3.org/ns/ldp#"),
    ("pcdm", "http://pcdm.org/models#"),
    ("prov", "http://www.w3.org/ns/prov#"),
    ("rdf", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"),
    ("rdfs", "http://www.w3.org/2000/01/rdf-schema#"),
];

/// Parses a JSON object in UTF-8, with or without a byte order mark.
///
/// # Errors
/// Rejects a body that is empty, not UTF-8, not JSON, nested deeper than serde_json's 128 levels, or not an
/// object.
pub(super) fn parse(body: &[u8]) -> Result<Value, Rejection> {
    let text = utf8(body)?;
    if text.trim().is_empty() {
        return Err(Rejection::malformed(Location::Message, "the body is empty; a JSON document was expected"));
    }
    let document: Value = serde_json::from_str(text).map_err(|error| not_well_formed(text, &error))?;
    if document.is_object() {
        Ok(document)
    } else {
        Err(Node::root(&document).unprocessable("this is not an event; a JSON object was expected"))
    }
}

fn not_well_formed(text: &str, error: &serde_json::Error) -> Rejection {
    // serde_json counts columns in bytes, and `Location` counts characters.
    let before: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let location = Location::in_text(text, before + error.column().saturating_sub(1));
    Rejection::malformed(location, json::syntax_reason(text, error))
}

/// A value in a JSON document, with its location.
#[derive(Clone, Debug)]
pub(super) struct Node<'a> {
    value: &'a Value,
    /// JSON pointer (RFC 6901).
    pointer: String,
}

impl<'a> Node<'a> {
    /// Returns the root of a document.
    pub(super) fn root(document: &'a Value) -> Self {
        Self { value: document, pointer: String::new() }
    }

    /// Returns a member; `None` if it is missing, null or blank.
    pub(super) fn member(&self, name: &str) -> Option<Self> {
        let value = self.value.as_object()?.get(name)?;
        self.nested(value, &name.replace('~', "~0").replace('/', "~1"))
    }

    /// Returns a required member.
    ///
    /// # Errors
    /// Fails if the member is missing, null or blank.
    pub(super) fn required(&self, name: &str) -> Result<Self, Rejection> {
        self.member(name).ok_or_else(|| self.unprocessable(format!("there is no {name:?} here")))
    }

    /// Returns the items of an array, without null and blank ones; for any other value, the value itself.
    pub(super) fn each(&self) -> Vec<Self> {
        match self.value {
            Value::Array(items) => {
                let items = items.iter().enumerate();
                items.filter_map(|(index, item)| self.nested(item, &index.to_string())).collect()
            }
            _ => vec![self.clone()],
        }
    }

    /// Returns the value itself, or the only item of an array.
    ///
    /// # Errors
    /// Fails if the array does not have exactly one item.
    pub(super) fn only(&self) -> Result<Self, Rejection> {
        match <[Self; 1]>::try_from(self.each()) {
            Ok([one]) => Ok(one),
            Err(several) => {
                Err(self.unprocessable(format!("there are {} values here; one was expected", several.len())))
            }
        }
    }

    /// Returns the text of a string or of a value object (JSON-LD 1.1 section 4.2.1); `None` for other values.
    pub(super) fn text(&self) -> Option<&'a str> {
        self.value.as_str().or_else(|| self.value.get("@value")?.as_str()).map(str::trim)
    }

    /// Returns the identifier: the member `id` or `@id` of an object, or a string itself, which is a reference.
    pub(super) fn id(&self) -> Option<Self> {
        if self.value.is_string() { Some(self.clone()) } else { self.member("id").or_else(|| self.member("@id")) }
    }

    /// Returns the identifier as a URI.
    ///
    /// # Errors
    /// Fails if there is none, or it is not an absolute URI.
    pub(super) fn id_uri(&self) -> Result<Uri, Rejection> {
        self.id().ok_or_else(|| self.unprocessable("there is no \"id\" here"))?.uri()
    }

    /// Returns the string as a URI.
    ///
    /// # Errors
    /// Fails if the value is not a string or not an absolute URI.
    pub(super) fn uri(&self) -> Result<Uri, Rejection> {
        let text = self.text().ok_or_else(|| self.unprocessable("this is not a URI; a string was expected"))?;
        Uri::parse(text).map_err(|error| self.unprocessable(error.to_string()))
    }

    /// Returns the string, or the number of seconds or milliseconds since 1970, as a timestamp.
    ///
    /// # Errors
    /// Fails if the value is not a date and time.
    pub(super) fn time(&self) -> Result<Timestamp, Rejection> {
        if let Some(time) = self.value.as_f64().and_then(Timestamp::from_number) {
            return Ok(time);
        }
        let text = self.text().ok_or_else(|| self.unprocessable("this is not a time; a string was expected"))?;
        Timestamp::parse(text).map_err(|error| self.unprocessable(error.to_string()))
    }

    /// Returns the names in `type` or `@type`, as written.
    pub(super) fn types(&self) -> Vec<&'a str> {
        let types = self.member("type").or_else(|| self.member("@type"));
        let types = types.iter().flat_map(Self::each);
        types.filter_map(|name| name.id()?.text()).collect()
    }

    /// Returns a member with text for people; `None` if it is not text, because the event must not be lost.
    pub(super) fn text_member(&self, name: &str) -> Option<Text> {
        self.member(name).and_then(|words| words.text().map(Text::new)).filter(|words| !words.is_empty())
    }

    /// Creates a rejection of this value.
    pub(super) fn unprocessable(&self, reason: impl Into<String>) -> Rejection {
        Rejection::unprocessable(self.location(), reason)
    }

    /// Returns the location of this value.
    pub(super) fn location(&self) -> Location {
        Location::Pointer(self.pointer.clone())
    }

    fn nested(&self, value: &'a Value, token: &str) -> Option<Self> {
        let says_nothing = value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty());
        (!says_nothing).then(|| Self { value, pointer: format!("{}/{token}", self.pointer) })
    }
}

/// Prefixes that a document declares in its `@context`.
pub(super) struct Context<'a>(HashMap<&'a str, &'a str>);

impl<'a> Context<'a> {
    /// Returns an empty context, for names in headers.
    pub(super) fn none() -> Self {
        Self(HashMap::new())
    }

    /// Reads the declarations of a document. Referenced contexts are not fetched.
    pub(super) fn of(root: &Node<'a>) -> Self {
        let contexts = root.member("@context").iter().flat_map(Node::each).collect::<Vec<_>>();
        let declarations = contexts.iter().filter_map(|context| context.value.as_object()).flatten();
        Self(declarations.filter_map(|(prefix, value)| Some((prefix.as_str(), value.as_str()?))).collect())
    }

    /// Returns the types for `names`, sorted and without duplicates, because Fedora 6 changes their order with
    /// every start. A name without a namespace is not a URI and is omitted.
    pub(super) fn types<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Vec<Uri> {
        let mut types: Vec<_> = names.into_iter().filter_map(|name| Uri::parse(&self.expand(name)).ok()).collect();
        types.sort();
        types.dedup();
        types
    }

    /// Expands a prefixed name (JSON-LD 1.1 section 4.1.5); returns other names unchanged.
    fn expand<'n>(&self, name: &'n str) -> Cow<'n, str> {
        let Some((prefix, local)) = name.split_once(':').filter(|(_, local)| !local.starts_with("//")) else {
            return Cow::Borrowed(name);
        };
        let well_known = || WELL_KNOWN.iter().find(|(known, _)| *known == prefix).map(|(_, namespace)| *namespace);
        let namespace = self.0.get(prefix).copied().or_else(well_known);
        namespace.map_or(Cow::Borrowed(name), |namespace| Cow::Owned(format!("{namespace}{local}")))
    }
}

/// Splits a name into its namespace or prefix, with the delimiter, and its last part: `("as:", "Create")`,
/// `("", "Create")`.
pub(super) fn namespace_and_local(name: &str) -> (&str, &str) {
    name.split_at(name.rfind(['#', '/', ':']).map_or(0, |delimiter| delimiter + 1))
}

/// Returns the ActivityStreams 2 term of a type in any notation.
pub(super) fn activity_streams_term(name: &str) -> Option<&str> {
    let (namespace, term) = namespace_and_local(name);
    (namespace.is_empty() || namespace == "as:" || ACTIVITY_STREAMS.contains(&namespace)).then_some(term)
}

/// Describes type names for a rejection: `the type a, b`, `no type`.
pub(super) fn describe_types(types: &[&str]) -> String {
    match types {
        [] => "no type".to_owned(),
        types => format!("the type {}", types.join(", ").chars().take(256).collect::<String>()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Context, Node, activity_streams_term, parse};

    #[test]
    fn invalid_json_is_rejected_with_location() {
        for (body, complaint) in [
            (&b" \n"[..], "the message: the body is empty"),
            (b"\xFF\xFE{\0", "UTF-16"),
            (b"{\n \"a\": \"\xff\"}", "line 2, column 8: the body is not UTF-8"),
            ("{\n \"é\": x}".as_bytes(), "line 2, column 7: this is not well-formed JSON: expected value"),
            (b"{\"a\": [1,", "line 1, column 9: this is not well-formed JSON: EOF while parsing"),
            (b"{} {}", "line 1, column 4: this is not well-formed JSON: trailing characters"),
            (b"\n <audit/>", "line 2, column 2: this is not well-formed JSON: expected value; it looks like XML"),
            (b"[{}]", "the JSON document: this is not an event; a JSON object was expected"),
            (b"\"Create\"", "a JSON object was expected"),
            ("[".repeat(10_000).as_bytes(), "recursion limit exceeded"),
        ] {
            let error = parse(body).unwrap_err().to_string();
            assert!(error.contains(complaint), "{error}");
        }
        assert_eq!(parse(b"\xEF\xBB\xBF{}").unwrap(), json!({}));
    }

    #[test]
    fn node_has_its_location() {
        let document = json!({"a/b": [null, {"~": 1}], "two": [1, 2], "none": []});
        let root = Node::root(&document);
        let item = root.member("a/b").unwrap().only().unwrap();
        assert_eq!(item.member("~").unwrap().uri().unwrap_err().location.to_string(), "/a~1b/1/~0");
        for (name, complaint) in [("two", "/two: there are 2 values"), ("none", "/none: there are 0 values")] {
            assert!(root.member(name).unwrap().only().unwrap_err().to_string().starts_with(complaint));
        }
        assert_eq!(root.required("c").unwrap_err().to_string(), "the JSON document: there is no \"c\" here");
    }

    #[test]
    fn null_and_blank_count_as_missing() {
        let document = json!({"a": null, "b": " ", "c": 0});
        let root = Node::root(&document);
        assert!(root.member("a").is_none() && root.member("b").is_none());
        assert_eq!(root.member("c").unwrap().time().unwrap().to_string(), "1970-01-01T00:00:00.000Z");
        assert!(Node::root(&json!(true)).time().is_err() && Node::root(&json!("noon")).time().is_err());
    }

    #[test]
    fn types_are_strings_references_or_arrays() {
        for types in [json!({"type": "a"}), json!({"@type": ["a"]}), json!({"type": [{"@id": "a"}, 1]})] {
            assert_eq!(Node::root(&types).types(), ["a"]);
        }
    }

    fn types(context: &Value, names: &[&str]) -> Vec<String> {
        let document = json!({ "@context": context });
        let context = Context::of(&Node::root(&document));
        context.types(names.iter().copied()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn types_are_full_sorted_and_unique_uris() {
        let context =
            json!(["https://www.w3.org/ns/activitystreams", {"ex": "http://example.org/#", "ldp": {"@id": 1}}]);
        assert_eq!(
            types(&context, &["ldp:RDFSource", "ex:B", "http://www.w3.org/ns/ldp#RDFSource", "Object", "urn:a"]),
            ["http://example.org/#B", "http://www.w3.org/ns/ldp#RDFSource", "urn:a"]
        );
    }

    #[test]
    fn document_may_redefine_a_known_prefix() {
        assert_eq!(types(&json!({"ldp": "urn:x#"}), &["ldp:A", "ldp://host/A"]), ["ldp://host/A", "urn:x#A"]);
    }

    #[test]
    fn activity_has_three_notations() {
        for name in ["Create", "as:Create", "https://www.w3.org/ns/activitystreams#Create"] {
            assert_eq!(activity_streams_term(name), Some("Create"));
        }
        assert_eq!(activity_streams_term("http://www.w3.org/ns/prov#Create"), None);
    }
}
