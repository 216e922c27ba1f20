//! What a gateway says of subscriptions, for people.

use std::cmp::Ordering;

use serde_json::Value;

use super::super::http::printable;

/// The widest that a column of an address or a reason becomes, in characters.
const WIDEST: usize = 60;

/// Every subscription in a line.
pub(super) fn list(answer: &Value) -> String {
    let all = answer["subscriptions"].as_array().map_or(&[] as &[_], Vec::as_slice);
    if all.is_empty() {
        return "there are no subscriptions\n".to_owned();
    }
    let head = ["NAME", "STATE", "DELIVERY", "TO", "CURSOR", "BEHIND", "PER SECOND", "DEAD", "LAST ERROR"];
    let rows = all.iter().map(|one| {
        let definition = &one["definition"];
        [
            text(&one["name"]),
            text(&one["state"]),
            text(&definition["delivery"]),
            cut(&text(&definition["url"])),
            text(&one["cursor"]),
            text(&one["lag"]["changes"]),
            rate(&one["rate"]),
            text(&one["deadLetters"]),
            cut(&last_error(one)),
        ]
    });
    table(&head, &rows.collect::<Vec<_>>())
}

/// One subscription, a line for each thing about it.
pub(super) fn one(answer: &Value) -> String {
    let lag = &answer["lag"];
    let behind = match lag["seconds"].as_f64() {
        Some(seconds) => format!("{} changes, {seconds:.1} seconds", text(&lag["changes"])),
        None => format!("{} changes", text(&lag["changes"])),
    };
    let mut lines = vec![
        ("name", text(&answer["name"])),
        ("state", text(&answer["state"])),
        ("defined in", text(&answer["from"])),
        ("cursor", text(&answer["cursor"])),
        ("behind", behind),
        ("delivered", text(&answer["delivered"])),
        ("per second", rate(&answer["rate"])),
        ("dead letters", text(&answer["deadLetters"])),
        ("unroutable", text(&answer["unroutable"])),
        ("failures", text(&answer["failures"])),
        ("last delivered", text(&answer["lastDelivered"])),
        ("last error", last_error(answer)),
        ("next attempt", text(&answer["nextAttempt"])),
    ];
    if let Some(definition) = answer["definition"].as_object() {
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

/// Number of changes that a rewind has a subscription skip or send again; `None` where it stays where it was.
pub(super) fn moved(before: &Value, after: &Value) -> Option<String> {
    let number = |answer: &Value, member: &str| answer.pointer(member).and_then(Value::as_u64);
    let [from, to] = [number(before, "/cursor")?, number(after, "/cursor")?];
    let [behind_before, behind_after] = [number(before, "/lag/changes")?, number(after, "/lag/changes")?];
    match from.cmp(&to) {
        Ordering::Less => {
            let skipped = behind_before.saturating_sub(behind_after);
            Some(format!("it skips {skipped} changes, which are not sent to it (its cursor was {from} and is {to})"))
        }
        Ordering::Greater => {
            let again = behind_after.saturating_sub(behind_before);
            Some(format!("{again} changes are examined again (its cursor was {from} and is {to})"))
        }
        Ordering::Equal => None,
    }
}

/// Every attempt in a line.
pub(super) fn attempts(answer: &Value) -> String {
    let all = answer["attempts"].as_array().map_or(&[] as &[_], Vec::as_slice);
    if all.is_empty() {
        return "there are no attempts to show\n".to_owned();
    }
    let head = ["WHEN", "CHANGE", "COUNT", "OUTCOME", "STATUS", "MS", "ANSWER OR REASON"];
    let rows = all.iter().map(|one| {
        let said = text(&one["answer"]);
        [
            text(&one["at"]),
            text(&one["seq"]),
            text(&one["changes"]),
            text(&one["outcome"]),
            text(&one["status"]),
            text(&one["millis"]),
            cut(&if said.is_empty() { text(&one["reason"]) } else { said }),
        ]
    });
    table(&head, &rows.collect::<Vec<_>>())
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

/// A value without quotation marks, and without what would move the terminal's cursor.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => printable(text),
        other => printable(&other.to_string()),
    }
}

fn cut(text: &str) -> String {
    if text.chars().count() <= WIDEST {
        return text.to_owned();
    }
    text.chars().take(WIDEST - 1).chain(['…']).collect()
}

/// Columns as wide as they must be.
fn table<const N: usize>(head: &[&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(|name| name.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[String; N]| {
        let padded: Vec<_> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let head = head.map(str::to_owned);
    std::iter::once(&head).chain(rows).map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{attempts, list, one};

    const LIST: &str = "\
NAME   STATE     DELIVERY  TO                    CURSOR  BEHIND  PER SECOND  DEAD  LAST ERROR
index  retrying  webhook   https://a.example/in  41      3       0.5         1     2026-11-21T08:00:00Z it answered  [2J500
b      orphaned
";
    const ONE: &str = "\
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
last error          2026-11-21T08:00:00Z it answered  [2J500
definition
  delivery            webhook
  secrets             [\"(hidden)\"]
  url                 https://a.example/in
";
    const ATTEMPTS: &str = "\
WHEN                  CHANGE  COUNT  OUTCOME  STATUS  MS  ANSWER OR REASON
2026-11-21T08:00:00Z  42      1      retried  500     12  xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
";

    #[test]
    fn a_line_for_each() {
        let subscription = json!({
            "name": "index", "state": "retrying", "from": "api", "cursor": 41, "lag": { "changes": 3, "seconds": 1.25 },
            "rate": 0.5, "delivered": 7, "unroutable": 0, "deadLetters": 1, "failures": 2,
            "lastError": { "at": "2026-11-21T08:00:00Z", "reason": "it answered \u{1b}[2J500" },
            "definition": { "delivery": "webhook", "url": "https://a.example/in", "secrets": ["(hidden)"] }
        });
        let shown = list(&json!({ "subscriptions": [subscription, { "name": "b", "state": "orphaned" }] }));
        assert_eq!(shown, LIST);
        assert_eq!(one(&subscription), ONE);
        assert_eq!(list(&json!({ "subscriptions": [] })), "there are no subscriptions\n");
        let attempt = json!({
            "at": "2026-11-21T08:00:00Z", "id": "a", "seq": 42, "changes": 1, "millis": 12, "outcome": "retried",
            "status": 500, "answer": "x".repeat(100), "reason": "it answered 500"
        });
        assert_eq!(attempts(&json!({ "attempts": [attempt] })), ATTEMPTS);
        assert_eq!(attempts(&json!({ "attempts": [] })), "there are no attempts to show\n");
    }
}
