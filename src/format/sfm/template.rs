//! The address of one kind of thing: a URI template (RFC 6570, level 1) with one variable.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{super::routing::SystemUrl, refused};
use crate::format::Rejection;
use crate::model::Uri;

/// A template that makes a URI of every identifier.
#[derive(Clone, Debug)]
pub(super) struct Template {
    /// The literal parts; the variable stands between each two. Where the template is relative, what it is relative to is
    /// in the first.
    literals: Vec<String>,
}

impl Template {
    /// Takes a template whose one variable is `{variable}`, relative to `base` or absolute.
    ///
    /// # Errors
    /// When it has another variable or none, or makes no URI; in a sentence.
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
        // The variable itself never begins with a slash: it would be encoded.
        template.literals[0] = base.below(&template.literals[0]);
        template.expand("1").map(|_| template).map_err(|error| format!("{raw:?} makes no URI: {error}"))
    }

    fn expand(&self, value: &str) -> Result<Uri, crate::model::InvalidUri> {
        let value = utf8_percent_encode(value, NOT_UNRESERVED).to_string();
        Uri::parse(&self.literals.join(&value))
    }

    /// The URI of what has the identifier, which stands at `pointer` of a message.
    ///
    /// # Errors
    /// When it is too long for a URI.
    pub(super) fn of(&self, id: &str, pointer: &str) -> Result<Uri, Rejection> {
        self.expand(id).map_err(|error| refused(pointer, format!("this makes no URI: {error}")))
    }
}

/// ASCII characters that are not unreserved (RFC 3986 section 2.3).
const NOT_UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[cfg(test)]
mod tests {
    use super::{SystemUrl, Template};

    fn base() -> SystemUrl {
        SystemUrl::parse("https://sfm.example.org/").unwrap()
    }

    #[test]
    fn an_identifier_is_one_segment_whatever_it_has() {
        let relative = Template::parse("/api/v1/harvests/{id}/", "id", &base()).unwrap();
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
            assert_eq!(Template::parse(template, "id", &base()).unwrap().of("/a", "/id").unwrap().as_str(), uri);
        }
        let absolute = Template::parse("urn:sfm:harvest:{id}", "id", &base()).unwrap();
        assert_eq!(absolute.of("45", "/id").unwrap().as_str(), "urn:sfm:harvest:45");
        let refused = relative.of(&"x".repeat(3000), "/id").unwrap_err();
        assert!(refused.to_string().starts_with("/id: this makes no URI: it has"), "{refused}");
    }

    #[test]
    fn a_wrong_template_is_refused_in_a_sentence() {
        for (raw, complaint) in [
            ("harvests/", "has no {id}"),
            ("harvests/{pk}/", "has the variable {pk}; the only one here is {id}"),
            ("harvests/{id", "has a { without its }"),
            ("harvests/{id}/{type}", "has the variable {type}"),
            ("harvests/{+id}", "has the variable {+id}"),
            ("har vests/{id}", "makes no URI: a URI cannot contain ' '"),
            ("harvests/{id}}", "makes no URI: a URI cannot contain '}'"),
        ] {
            let error = Template::parse(raw, "id", &base()).unwrap_err();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
