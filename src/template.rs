//! Templates of the configuration, which make texts from the facts of a change or a message.
//!
//! The language is that of Jinja, without files and macros (crate `minijinja`). The place for which a template makes its
//! text decides how values are escaped, so that no value can leave its place: [`Place`]. A name that is not there is an
//! error where it is written out, and false or empty where it is asked for.

mod filters;
mod json_facts;

use std::io;

use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior, escape_formatter,
    value::{Serde, Value, ValueKind},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

pub use json_facts::{InvalidPointer, JsonPointer};

/// Maximum size of a template in bytes.
const MAX_SOURCE_BYTES: usize = 64 << 10;

/// Maximum number of steps of one rendering. A step also pays for 64 bytes that are written.
const STEPS: u64 = 2_000_000;

/// Maximum nesting of calls in one rendering.
const DEPTH: usize = 50;

/// Name of every template, which no message shows.
const NAME: &str = "template";

/// Characters that a value keeps in a path: the unreserved ones of RFC 3986 section 2.3.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Place that a template makes its text for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A text without rules. Values are written as they are.
    Text,
    /// JSON, or lines of JSON. Values are written as JSON: texts with quotation marks, lists and objects whole.
    Json,
    /// XML or HTML. The characters of markup are escaped.
    Markup,
    /// The path or the query of a URL. Values are percent-encoded, slashes included.
    Path,
}

/// Reason why a template is wrong, or why it makes no text of certain facts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template is too long.
    #[error("it has more than {MAX_SOURCE_BYTES} bytes")]
    TooLong,
    /// The template cannot be parsed or rendered.
    #[error("line {line} of the template: {reason}")]
    Wrong {
        /// Line of the template, from 1.
        line: usize,
        /// Reason why the template cannot be parsed.
        reason: String,
    },
    /// The template writes a fact that is not there.
    #[error("line {line} of the template: it names something that is not there")]
    Missing {
        /// Line of the template, from 1.
        line: usize,
    },
    /// The text is too long.
    #[error("the text has more than {0} bytes")]
    TooLarge(usize),
    /// The template does too much.
    #[error("it takes more than {STEPS} steps")]
    TooManySteps,
}

/// A template that has been parsed.
#[derive(Debug)]
pub struct Template(Environment<'static>);

/// A condition in the language of the templates, such as `change.purge or "DELETE" in changes`.
#[derive(Debug)]
pub struct Condition(Template);

/// Facts that a template can name. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Facts(Value);

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// Fails if the template is too long or is wrong.
    pub fn parse(source: &str, place: Place) -> Result<Self, TemplateError> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(TemplateError::TooLong);
        }
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Chainable);
        environment.set_fuel(Some(STEPS));
        environment.set_recursion_limit(DEPTH);
        environment.set_auto_escape_callback(move |_| place.escape());
        environment.set_formatter(write_value);
        environment.add_filter("path", filters::uri_path);
        environment.add_filter("authority", filters::uri_authority);
        environment.add_filter("segments", filters::segments);
        environment.add_filter("form_decoded", filters::form_decoded);
        environment.add_template_owned(NAME, source.to_owned()).map_err(|error| TemplateError::of(&error))?;
        check_names(&environment)?;
        Ok(Self(environment))
    }

    /// Makes the text of these facts, of at most so many bytes.
    ///
    /// # Errors
    /// Fails if the template names a fact that is not there, applies a filter to a value of the wrong type, or exceeds a
    /// bound.
    pub fn render(&self, facts: &Facts, max_bytes: usize) -> Result<String, TemplateError> {
        let mut text = BoundedText { bytes: Vec::new(), max_bytes, is_exceeded: false };
        let template = self.0.get_template(NAME).map_err(|error| TemplateError::of(&error))?;
        let rendered = template.render_captured_to(facts.0.clone(), &mut text);
        match rendered.map(drop) {
            _ if text.is_exceeded => Err(TemplateError::TooLarge(max_bytes)),
            Err(error) => Err(TemplateError::of(&error)),
            // The engine writes whole texts.
            Ok(()) => Ok(String::from_utf8_lossy(&text.bytes).into_owned()),
        }
    }
}

impl Condition {
    /// Parses a condition.
    ///
    /// # Errors
    /// Fails if the condition is too long or is wrong.
    pub fn parse(source: &str) -> Result<Self, TemplateError> {
        // An expression is the whole of a condition, so that no text of it ends the block early.
        Environment::new().compile_expression(source).map_err(|error| TemplateError::of(&error))?;
        Template::parse(&format!("{{% if {source} %}}yes{{% endif %}}"), Place::Text).map(Self)
    }

    /// Returns whether the facts fulfil the condition. A fact that is not there counts as false.
    ///
    /// # Errors
    /// Fails if an operator or a filter meets a value of the wrong type, or a bound is exceeded.
    pub fn holds(&self, facts: &Facts) -> Result<bool, TemplateError> {
        self.0.render(facts, 16).map(|text| !text.is_empty())
    }
}

impl Facts {
    /// Creates facts from the members of a value that serialises as a JSON object.
    #[must_use]
    pub fn new(members: &impl Serialize) -> Self {
        Self(Value::from(Serde(members)))
    }

    /// Adds facts, in place of those with the same names.
    #[must_use]
    pub fn with(&self, more: &Self) -> Self {
        Self(minijinja::context! { ..more.0.clone(), ..self.0.clone() })
    }
}

impl Place {
    fn escape(self) -> AutoEscape {
        match self {
            Self::Text => AutoEscape::None,
            Self::Json => AutoEscape::Json,
            Self::Markup => AutoEscape::Html,
            Self::Path => AutoEscape::Custom("path".into()),
        }
    }
}

impl TemplateError {
    fn of(error: &Error) -> Self {
        if error.kind() == ErrorKind::OutOfFuel {
            return Self::TooManySteps;
        }
        let (kind, line) = (error.kind(), error.line().unwrap_or(1));
        match error.detail() {
            Some(detail) => Self::Wrong { line, reason: format!("{kind}: {detail}") },
            None if kind == ErrorKind::UndefinedError => Self::Missing { line },
            None => Self::Wrong { line, reason: kind.to_string() },
        }
    }
}

/// Looks for names of filters, tests and functions that do not exist, as far as a rendering without facts meets them.
fn check_names(environment: &Environment<'static>) -> Result<(), TemplateError> {
    let mut without_facts = environment.clone();
    // A fact that is not there must not end the rendering.
    without_facts.set_formatter(|_, _, _| Ok(()));
    let template = without_facts.get_template(NAME).map_err(|error| TemplateError::of(&error))?;
    let is_name = |error: &Error| {
        matches!(error.kind(), ErrorKind::UnknownFilter | ErrorKind::UnknownTest | ErrorKind::UnknownFunction)
    };
    match template.render_captured_to((), &mut io::sink()) {
        Err(error) if is_name(&error) => Err(TemplateError::of(&error)),
        _ => Ok(()),
    }
}

/// Writes a value as its place demands.
fn write_value(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    let is_path = matches!(state.auto_escape(), AutoEscape::Custom(_));
    match value.kind() {
        ValueKind::Undefined => Err(ErrorKind::UndefinedError.into()),
        _ if !is_path => escape_formatter(out, state, value),
        _ if value.is_safe() => Ok(out.write_str(value.as_str().unwrap_or_default())?),
        _ => Ok(out.write_str(&utf8_percent_encode(&value.to_string(), PATH).to_string())?),
    }
}

/// A text that stops to grow at a bound.
struct BoundedText {
    bytes: Vec<u8>,
    max_bytes: usize,
    is_exceeded: bool,
}

impl io::Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.max_bytes {
            self.is_exceeded = true;
            return Err(io::Error::other("the text is too long"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Condition, Facts, Place, Template, TemplateError};

    fn render(source: &str, place: Place) -> Result<String, String> {
        let facts = Facts::new(&json!({
            "uri": "http://h.example:8080/a b/é?x=1&y=2", "text": "say \"<hi>\"\n/../", "list": ["a", 1],
            "number": u64::MAX, "nothing": null, "yes": true
        }));
        let rendered = Template::parse(source, place).and_then(|template| template.render(&facts, 200));
        rendered.map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_escaped_for_their_place() {
        for (place, source, expected) in [
            (Place::Text, "{{ text }}", "say \"<hi>\"\n/../"),
            (Place::Json, "{{ text }}", r#""say \"<hi>\"\n/../""#),
            (Place::Json, "{{ list }}{{ number }}{{ nothing }}{{ yes }}", r#"["a",1]18446744073709551615nulltrue"#),
            (Place::Json, "{{ text ~ uri }}", r#""say \"<hi>\"\n/../http://h.example:8080/a b/é?x=1&y=2""#),
            (Place::Markup, "<a>{{ text }}</a>", "<a>say &quot;&lt;hi&gt;&quot;\n&#x2f;..&#x2f;</a>"),
            (Place::Path, "/x/{{ text }}?n={{ number }}", "/x/say%20%22%3Chi%3E%22%0A%2F..%2F?n=18446744073709551615"),
            (Place::Path, "{{ uri|path }}", "/a%20b/%C3%A9?x=1&y=2"),
            (Place::Path, "/purge/{{ uri|authority }}{{ uri|path }}", "/purge/h.example:8080/a%20b/%C3%A9?x=1&y=2"),
            (Place::Text, "{{ uri|authority }}", "h.example:8080"),
            (Place::Text, "{% if missing.x == 1 or missing.y.z %}{{ missing.x }}{% else %}none{% endif %}", "none"),
            (Place::Text, "{% for x in missing.x %}{{ x }}{% else %}none{% endfor %}", "none"),
            (
                Place::Path,
                "s3://b/{{ 'a/b+c%2Bd&e=%C3%A9/'|form_decoded|segments }}",
                "s3://b/a/b%20c%2Bd%26e%3D%C3%A9/",
            ),
        ] {
            assert_eq!(render(source, place).as_deref(), Ok(expected), "{source}");
        }
    }

    #[test]
    fn errors_name_the_line_and_the_cause() {
        for (source, expected) in [
            ("\n\n{{ missing }}", "line 3 of the template: it names something that is not there"),
            ("{{ missing.member }}", "line 1 of the template: it names something that is not there"),
            ("a\n{% if %}", "line 2 of the template: syntax error"),
            ("{{ list|shout }}", "line 1 of the template: unknown filter"),
            ("{{ text|path }}", "line 1 of the template: invalid operation: it is not a URI"),
            ("{% include 'x' %}", "line 1 of the template: syntax error"),
            ("{{ 'x' * 300 }}", "the text has more than 200 bytes"),
            ("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", "it takes more than"),
        ] {
            let error = render(source, Place::Text).unwrap_err();
            assert!(error.starts_with(expected), "{source}: {error}");
            let error = render(source, Place::Path).unwrap_err();
            assert!(error.starts_with(expected), "{source}: {error}");
        }
        let long = "x".repeat(70_000);
        assert_eq!(Template::parse(&long, Place::Text).unwrap_err(), TemplateError::TooLong);
    }

    #[test]
    fn a_condition_is_false_for_what_is_not_there() {
        let facts = Facts::new(&json!({ "change": { "purge": true, "items": ["a"] } }));
        let holds = |source| Condition::parse(source).unwrap().holds(&facts).unwrap();
        assert!(holds("change.purge and 'a' in change.items"));
        assert!(!holds("change.late"));
        assert!(!holds("response.json.errors"));
        let with = facts.with(&Facts::new(&json!({ "response": { "json": { "errors": 1 } } })));
        assert!(Condition::parse("response.json.errors and change.purge").unwrap().holds(&with).unwrap());
        assert!(Condition::parse("a %} b").is_err());
    }
}
