//! The routing key of a message, by a template.

use lapin::types::ShortString;

use crate::model::{Change, ItemChangeKind};

/// AMQP's bound on a routing key, in bytes.
const LONGEST: usize = 255;

/// The longest name of a source, and the longest word for a kind, in bytes.
const LONGEST_SOURCE: usize = 64;
const LONGEST_KIND: usize = 6;

/// A template such as `content.{kind}.{source}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RoutingKey {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Kind,
    Source,
}

impl RoutingKey {
    /// Reads a template. What stands between braces is `kind` (`add`, `update`, `delete` or `state`
    /// where that happened to every item of the change, else `mixed`) or `source`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let there_are = "there are {kind} and {source}";
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            parts.push(Part::Text(rest[..at].to_owned()));
            let placeholder = rest[at..].strip_prefix('{').and_then(|inside| inside.split_once('}'));
            let (name, after) = placeholder.ok_or_else(|| format!("its braces do not match; {there_are}"))?;
            parts.push(match name {
                "kind" => Part::Kind,
                "source" => Part::Source,
                other => return Err(format!("there is no {{{other}}}; {there_are}")),
            });
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        let longest: usize = parts.iter().map(Part::longest).sum();
        if longest > LONGEST {
            return Err(format!("a key may have {longest} bytes by it; AMQP takes {LONGEST}"));
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// The key of a change.
    pub(super) fn fill(&self, change: &Change) -> ShortString {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Kind => ItemChangeKind::word(&change.modification.items).to_owned(),
            Part::Source => change.modification.origin.source.to_string(),
        };
        ShortString::from(self.parts.iter().map(part).collect::<String>())
    }
}

impl Part {
    fn longest(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Kind => LONGEST_KIND,
            Self::Source => LONGEST_SOURCE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, RoutingKey};

    fn change(items: &str) -> Change {
        let json = format!(
            r#"{{"seq":7,"id":"urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48","source":"fedora3","object":"http://h/1",
                "received":"2026-01-02T03:04:05.006Z","time":"2011-01-02T03:04:05Z","user":{{"name":"u"}},
                "description":"","items":[{items}]}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn a_key_tells_what_happened_and_from_where() {
        let item = |what: &str| {
            format!(r#"{{"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa3","uri":"http://h/2",{what}}}"#)
        };
        let (add, delete) = (item(r#""change":"ADD""#), item(r#""change":"DELETE""#));
        let state = item(r#""stateAfter":"ACTIVE""#);
        let template = RoutingKey::parse("content.{kind}.{source}").unwrap();
        for (items, key) in [
            (add.clone(), "content.add.fedora3"),
            (format!("{delete},{delete}"), "content.delete.fedora3"),
            (state.clone(), "content.state.fedora3"),
            (format!("{add},{state}"), "content.mixed.fedora3"),
        ] {
            assert_eq!(template.fill(&change(&items)).as_str(), key);
        }
        assert_eq!(RoutingKey::parse("").unwrap().fill(&change(&add)).as_str(), "");
    }

    #[test]
    fn what_cannot_be_filled_is_refused_at_once() {
        for (template, told) in [
            ("content.{object}", "there is no {object}; there are {kind} and {source}"),
            ("content.{kind", "its braces do not match"),
            ("content.}kind{", "its braces do not match"),
            (&format!("{}{{source}}", "x".repeat(192)), "a key may have 256 bytes by it; AMQP takes 255"),
        ] {
            let refusal = RoutingKey::parse(template).unwrap_err();
            assert!(refusal.starts_with(told), "{refusal}");
        }
    }
}
