//! Tables of subscriptions and delivery attempts, for people.

use serde_json::Value;

use crate::command::columns::{columns, text};

/// Maximum width of a URL or a reason in a table, in characters.
const MAX_CELL_CHARS: usize = 60;

/// Formats all subscriptions, one per line.
pub(super) fn list(response: &Value) -> String {
    let all = response["subscriptions"].as_array().map_or(&[] as &[_], Vec::as_slice);
    if all.is_empty() {
        return "there are no subscriptions\n".to_owned();
    }
    let header = ["NAME", "STATE", "DELIVERY", "TO", "CURSOR", "BEHIND", "PER SECOND", "DEAD", "LAST ERROR"];
    let rows = all.iter().map(|one| {
        let definition = &one["definition"];
        [
            text(&one["name"]),
            text(&one["state"]),
            text(&definition["delivery"]),
            truncate(&text(&definition["url"])),
            text(&one["cursor"]),
            text(&one["lag"]["changes"]),
            rate(&one["rate"]),
            text(&one["deadLetters"]),
            truncate(&last_error(one)),
        ]
    });
    columns(&header, &rows.collect::<Vec<_>>())
}

/// Formats one subscription, one property per line.
pub(super) fn details(response: &Value) -> String {
    let lag = &response["lag"];
    let behind = match lag["seconds"].as_f64() {
        Some(seconds) => format!("{}, {seconds:.1} seconds", changes(&lag["changes"])),
        None => changes(&lag["changes"]),
    };
    let mut lines = vec![
        ("name", text(&response["name"])),
        ("state", text(&response["state"])),
        ("defined in", text(&response["from"])),
        ("cursor", text(&response["cursor"])),
        ("behind", behind),
        ("delivered", text(&response["delivered"])),
        ("per second", rate(&response["rate"])),
        ("dead letters", text(&response["deadLetters"])),
        ("unroutable", text(&response["unroutable"])),
        ("failures", text(&response["failures"])),
        ("last delivered", text(&response["lastDelivered"])),
        ("paused by", text(&response["pausedBy"])),
        ("failing since", text(&response["failingSince"])),
        ("stuck at", text(&response["stuckAt"])),
        ("last error", last_error(response)),
        ("next attempt", text(&response["nextAttempt"])),
    ];
    if let Some(definition) = response["definition"].as_object() {
        lines.push(("definition", String::new()));
        lines.extend(definition.iter().map(|(key, value)| (key.as_str(), text(value))));
    }
    let lines = lines.into_iter().filter(|(key, value)| *key == "definition" || !value.is_empty());
    let mut shown = String::new();
    let mut indent = "";
    for (key, value) in lines {
        shown += format!("{indent}{key:19} {value}").trim_end();
        shown.push('\n');
        if key == "definition" {
            indent = "  ";
        }
    }
    shown
}

/// Formats a number of changes.
fn changes(number: &Value) -> String {
    let noun = if *number == 1 { "change" } else { "changes" };
    format!("{} {noun}", text(number))
}

/// Describes the changes that a rewind skips or repeats; `None` if the response is not that of a rewind, or the cursor did not
/// move.
pub(super) fn rewind_summary(response: &Value) -> Option<String> {
    let number = |member: &str| response[member].as_u64();
    let (repeated, skipped) = (number("repeated")?, number("skipped")?);
    let cursor = text(&response["cursor"]);
    match (repeated, skipped) {
        (0, 0) => None,
        (0, skipped) => {
            let skipped = changes(&skipped.into());
            Some(format!("skipped {skipped}, which will not be delivered (the cursor is {cursor})"))
        }
        (repeated, _) => {
            let repeated = changes(&repeated.into());
            Some(format!("{repeated} will be examined again (the cursor is {cursor})"))
        }
    }
}

/// Formats the answer of a receiver to one change.
pub(super) fn sent(response: &Value) -> String {
    format!("change {}: {}\n", text(&response["change"]), text(&response["outcome"]))
}

/// Formats the number of changes that are sent again.
pub(super) fn replayed(response: &Value) -> String {
    format!("{} to send again\n", changes(&response["changes"]))
}

/// Returns why a receiver did not accept a change that was sent, if the response is about one.
pub(super) fn send_failure(response: &Value) -> Option<String> {
    response.get("outcome")?;
    response.get("reason").map(|reason| format!("the receiver did not accept it: {}", text(reason)))
}

/// Formats delivery attempts, one per line.
pub(super) fn attempts(response: &Value) -> String {
    let all = response["attempts"].as_array().map_or(&[] as &[_], Vec::as_slice);
    if all.is_empty() {
        return "there are no attempts to show\n".to_owned();
    }
    let header = ["WHEN", "CHANGE", "COUNT", "OUTCOME", "STATUS", "MS", "RESPONSE OR REASON"];
    let rows = all.iter().map(|one| {
        let response = text(&one["answer"]);
        [
            text(&one["at"]),
            text(&one["seq"]),
            text(&one["changes"]),
            text(&one["outcome"]),
            text(&one["status"]),
            text(&one["millis"]),
            truncate(&if response.is_empty() { text(&one["reason"]) } else { response }),
        ]
    });
    columns(&header, &rows.collect::<Vec<_>>())
}

fn last_error(one: &Value) -> String {
    match &one["lastError"] {
        Value::Null => String::new(),
        error => format!("{} {}", text(&error["at"]), text(&error["reason"])),
    }
}

fn rate(value: &Value) -> String {
    value.as_f64().map(|rate| format!("{rate:.1}")).unwrap_or_default()
}

fn truncate(text: &str) -> String {
    if text.chars().count() <= MAX_CELL_CHARS {
        return text.to_owned();
    }
    text.chars().take(MAX_CELL_CHARS - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{attempts, details, list};

    const LIST: &str = "\
NAME   STATE     DELIVERY  TO                    CURSOR  BEHIND  PER SECOND  DEAD  LAST ERROR
index  retrying  webhook   https://a.example/in  41      3       0.5         1     2026-11-21T08:00:00Z it answered \\u{1b}[2J500
b      orphaned
";
    const DETAILS: &str = "\
name                index
state               retrying
defined in          api
cursor              41
behind              3 changes, 1.2 seconds
delivered           7
per second          0.5
dead letters        1
unroutable          0
failures            2
last error          2026-11-21T08:00:00Z it answered \\u{1b}[2J500
definition
  delivery            webhook
  secrets             [\"(hidden)\"]
  url                 https://a.example/in
";
    const ATTEMPTS: &str = "\
WHEN                  CHANGE  COUNT  OUTCOME  STATUS  MS  RESPONSE OR REASON
2026-11-21T08:00:00Z  42      1      retried  500     12  xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
";

    #[test]
    fn subscriptions_and_attempts_are_formatted() {
        let subscription = json!({
            "name": "index", "state": "retrying", "from": "api", "cursor": 41, "lag": { "changes": 3, "seconds": 1.25 },
            "rate": 0.5, "delivered": 7, "unroutable": 0, "deadLetters": 1, "failures": 2,
            "lastError": { "at": "2026-11-21T08:00:00Z", "reason": "it answered \u{1b}[2J500" },
            "definition": { "delivery": "webhook", "url": "https://a.example/in", "secrets": ["(hidden)"] }
        });
        let shown = list(&json!({ "subscriptions": [subscription, { "name": "b", "state": "orphaned" }] }));
        assert_eq!(shown, LIST);
        assert_eq!(details(&subscription), DETAILS);
        assert_eq!(list(&json!({ "subscriptions": [] })), "there are no subscriptions\n");
        let attempt = json!({
            "at": "2026-11-21T08:00:00Z", "id": "a", "seq": 42, "changes": 1, "millis": 12, "outcome": "retried",
            "status": 500, "answer": "x".repeat(100), "reason": "it answered 500"
        });
        assert_eq!(attempts(&json!({ "attempts": [attempt] })), ATTEMPTS);
        assert_eq!(attempts(&json!({ "attempts": [] })), "there are no attempts to show\n");
    }
}
