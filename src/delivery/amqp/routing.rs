//! Routing keys of messages, from a template.

use lapin::types::ShortString;

use crate::model::{Change, ItemChangeKind};

/// Maximum number of bytes in an AMQP routing key.
const MAX_KEY_BYTES: usize = 255;

/// Maximum number of bytes in a source name and in a kind.
const MAX_SOURCE_BYTES: usize = 64;
const MAX_KIND_BYTES: usize = 6;

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
    /// Parses a template. Its placeholders are `{source}` and `{kind}`. The kind is `add`, `update`, `delete`
    /// or `state` if that applies to every item of the change that is on time, `late` if none is on time, else `mixed`.
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
        let max_bytes: usize = parts.iter().map(Part::max_bytes).sum();
        if max_bytes > MAX_KEY_BYTES {
            return Err(format!("its keys may have {max_bytes} bytes; AMQP allows {MAX_KEY_BYTES}"));
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the routing key of a change.
    pub(super) fn fill(&self, change: &Change) -> ShortString {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Kind => ItemChangeKind::word(change).to_owned(),
            Part::Source => change.modification.origin.source.to_string(),
        };
        ShortString::from(self.parts.iter().map(part).collect::<String>())
    }
}

impl Part {
    fn max_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Kind => MAX_KIND_BYTES,
            Self::Source => MAX_SOURCE_BYTES,
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
    fn routing_key_contains_kind_and_source() {
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
            (item(r#""change":"DELETE","late":["existence"]"#), "content.late.fedora3"),
            (item(r#""stateAfter":"ACTIVE","late":["state"]"#), "content.late.fedora3"),
            (format!("{add},{}", item(r#""change":"DELETE","late":["existence"]"#)), "content.add.fedora3"),
        ] {
            assert_eq!(template.fill(&change(&items)).as_str(), key);
        }
        assert_eq!(RoutingKey::parse("").unwrap().fill(&change(&add)).as_str(), "");
    }

    #[test]
    fn invalid_templates_are_rejected() {
        for (template, expected) in [
            ("content.{object}", "there is no {object}; there are {kind} and {source}"),
            ("content.{kind", "its braces do not match"),
            ("content.}kind{", "its braces do not match"),
            (&format!("{}{{source}}", "x".repeat(192)), "its keys may have 256 bytes; AMQP allows 255"),
        ] {
            let refusal = RoutingKey::parse(template).unwrap_err();
            assert!(refusal.starts_with(expected), "{refusal}");
        }
    }
}
