//! How a change is shown, a line each.

use clap::ValueEnum;
use serde::Deserialize;

use super::events::Event;
use crate::command::http::printable;

/// How changes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Shown {
    /// Number, time of receipt, what happened, source, object, how many items.
    Text,
    /// The change as it came, a JSON object a line.
    Json,
}

/// What a line for people tells of a change.
#[derive(Deserialize)]
struct Told {
    received: Option<String>,
    source: String,
    object: String,
    items: Vec<serde::de::IgnoredAny>,
}

impl Shown {
    /// The line, with its end.
    pub(super) fn line(self, event: &Event) -> String {
        match self {
            // Outside of texts, which have none, JSON takes a space for a newline.
            Self::Json => format!("{}\n", event.data.replace(['\n', '\r'], " ")),
            Self::Text => format!("{}\n", printable(&text(event))),
        }
    }
}

fn text(event: &Event) -> String {
    let Event { kind, data, id } = event;
    let Ok(Told { received, source, object, items }) = serde_json::from_str(data) else {
        return format!("{id}  {kind}  {data}");
    };
    let received = received.unwrap_or_default();
    let items = if items.len() == 1 { "1 item".to_owned() } else { format!("{} items", items.len()) };
    format!("{id}  {received}  {kind:<6}  {source}  {object}  {items}")
}

#[cfg(test)]
mod tests {
    use super::{Event, Shown};

    #[test]
    fn a_change_is_one_line() {
        let event = |data: &str| Event { kind: "add".to_owned(), data: data.to_owned(), id: "7".to_owned() };
        let change = event(
            "{\"received\":\"2026-01-02T03:04:05.006Z\",\n\"source\":\"s\",\"object\":\"http://h/1\",\"items\":[{},{}]}",
        );
        assert_eq!(Shown::Text.line(&change), "7  2026-01-02T03:04:05.006Z  add     s  http://h/1  2 items\n");
        let json = Shown::Json.line(&change);
        assert!(json.ends_with("]}\n") && json.matches('\n').count() == 1, "{json:?}");
        assert_eq!(Shown::Text.line(&event("\u{1b}[2J\nx")), "7  add   [2J x\n");
    }
}
