//! Output lines of `tidings tail`.

use clap::ValueEnum;
use serde::Deserialize;

use super::event_stream::Event;
use crate::command::output::{Output, cell};

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LineFormat {
    /// Number, time of receipt, kind, source, object and number of items of the change.
    Text,
    /// The change as it was received, one JSON object per line.
    Json,
}

/// Members of a change that the text format prints.
#[derive(Deserialize)]
struct ChangeSummary {
    received: Option<String>,
    source: String,
    object: String,
    items: Vec<serde::de::IgnoredAny>,
}

impl LineFormat {
    /// Returns lines as the output of the command.
    pub(super) fn output(self, lines: &str) -> Output<'_> {
        match self {
            Self::Json => Output::Json(lines),
            Self::Text => Output::Text(lines),
        }
    }

    /// Returns the line for an event, with its line break.
    pub(super) fn line(self, event: &Event) -> String {
        match self {
            // JSON strings contain no raw line break, and elsewhere a space is equivalent.
            Self::Json => format!("{}\n", event.data.replace(['\n', '\r'], " ")),
            Self::Text => format!("{}\n", cell(&text(event))),
        }
    }
}

fn text(event: &Event) -> String {
    let Event { kind, data, id } = event;
    let Ok(ChangeSummary { received, source, object, items }) = serde_json::from_str(data) else {
        return format!("{id}  {kind}  {data}");
    };
    let received = received.unwrap_or_default();
    let items = if items.len() == 1 { "1 item".to_owned() } else { format!("{} items", items.len()) };
    format!("{id}  {received}  {kind:<6}  {source}  {object}  {items}")
}

#[cfg(test)]
mod tests {
    use super::{Event, LineFormat};

    #[test]
    fn a_change_is_one_line() {
        let event = |data: &str| Event { kind: "add".to_owned(), data: data.to_owned(), id: "7".to_owned() };
        let change = event(
            "{\"received\":\"2026-01-02T03:04:05.006Z\",\n\"source\":\"s\",\"object\":\"http://h/1\",\"items\":[{},{}]}",
        );
        assert_eq!(LineFormat::Text.line(&change), "7  2026-01-02T03:04:05.006Z  add     s  http://h/1  2 items\n");
        let json = LineFormat::Json.line(&change);
        assert!(json.ends_with("]}\n") && json.matches('\n').count() == 1, "{json:?}");
        assert_eq!(LineFormat::Text.line(&event("\u{1b}[2J\nx")), "7  add  \\u{1b}[2J\\nx\n");
    }
}
