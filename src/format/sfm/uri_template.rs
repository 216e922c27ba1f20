//! URI templates with one variable (RFC 6570, level 1), one for each kind of thing.

use percent_encoding::utf8_percent_encode;

use super::{super::routing::SystemUrl, rejection};
use crate::format::{NOT_UNRESERVED, Rejection};
use crate::model::Uri;

/// A template that builds a URI from an identifier.
#[derive(Clone, Debug)]
pub(super) struct UriTemplate {
    /// Literal parts, with the variable between each two. The first part includes the base URL if the template
    /// is relative.
    literals: Vec<String>,
}

impl UriTemplate {
    /// Parses a template whose only variable is `{variable}`. It may be absolute or relative to `base`.
    ///
    /// # Errors
    /// Fails with a sentence if the template has another variable or none, or gives no URI.
    pub(super) fn parse(raw: &str, variable: &str, base: &SystemUrl) -> Result<Self, String> {
        let mut literals = Vec::new();
        let mut rest = raw;
        while let Some((literal, behind)) = rest.split_once('{') {
            let (name, behind) = behind.split_once('}').ok_or_else(|| format!("{raw:?} has a {{ without its }}"))?;
            if name != variable {
                return Err(format!("{raw:?} has the variable {{{name}}}; the only one here is {{{variable}}}"));
            }
            literals.push(literal.to_owned());
            rest = behind;
        }
        if literals.is_empty() {
            return Err(format!("{raw:?} has no {{{variable}}}, so that all would have the same URI"));
        }
        literals.push(rest.to_owned());
        let mut template = Self { literals };
        if template.expand("1").is_ok() {
            return Ok(template);
        }
        // A leading slash cannot come from the variable, because it would be encoded.
        template.literals[0] = base.below(&template.literals[0]);
        template.expand("1").map(|_| template).map_err(|error| format!("{raw:?} makes no URI: {error}"))
    }

    fn expand(&self, value: &str) -> Result<Uri, crate::model::InvalidUri> {
        let value = utf8_percent_encode(value, NOT_UNRESERVED).to_string();
        Uri::parse(&self.literals.join(&value))
    }

    /// Returns the URI for the identifier at the JSON pointer `pointer`.
    ///
    /// # Errors
    /// Fails if the URI is too long.
    pub(super) fn of(&self, id: &str, pointer: &str) -> Result<Uri, Rejection> {
        self.expand(id).map_err(|error| rejection(pointer, format!("this makes no URI: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::{SystemUrl, UriTemplate};

    fn base() -> SystemUrl {
        SystemUrl::parse("https://sfm.example.org/").unwrap()
    }

    #[test]
    fn identifier_is_encoded_as_one_segment() {
        let relative = UriTemplate::parse("/api/v1/harvests/{id}/", "id", &base()).unwrap();
        for (id, uri) in [
            ("sfmui:45", "https://sfm.example.org/api/v1/harvests/sfmui%3A45/"),
            ("../a?b#c", "https://sfm.example.org/api/v1/harvests/..%2Fa%3Fb%23c/"),
            ("é {id}", "https://sfm.example.org/api/v1/harvests/%C3%A9%20%7Bid%7D/"),
        ] {
            assert_eq!(relative.of(id, "/id").unwrap().as_str(), uri);
        }
        for (template, uri) in
            [("{id}", "https://sfm.example.org/%2Fa"), ("//w/{id}", "https://sfm.example.org/w/%2Fa")]
        {
            assert_eq!(UriTemplate::parse(template, "id", &base()).unwrap().of("/a", "/id").unwrap().as_str(), uri);
        }
        let absolute = UriTemplate::parse("urn:sfm:harvest:{id}", "id", &base()).unwrap();
        assert_eq!(absolute.of("45", "/id").unwrap().as_str(), "urn:sfm:harvest:45");
        let refused = relative.of(&"x".repeat(3000), "/id").unwrap_err();
        assert!(refused.to_string().starts_with("/id: this makes no URI: it has"), "{refused}");
    }

    #[test]
    fn invalid_template_is_rejected_with_a_sentence() {
        for (raw, complaint) in [
            ("harvests/", "has no {id}"),
            ("harvests/{pk}/", "has the variable {pk}; the only one here is {id}"),
            ("harvests/{id", "has a { without its }"),
            ("harvests/{id}/{type}", "has the variable {type}"),
            ("harvests/{+id}", "has the variable {+id}"),
            ("har vests/{id}", "makes no URI: a URI cannot contain ' '"),
            ("harvests/{id}}", "makes no URI: a URI cannot contain '}'"),
        ] {
            let error = UriTemplate::parse(raw, "id", &base()).unwrap_err();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
