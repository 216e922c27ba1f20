//! The lines that `tidings top` shows: the verdict, and a section for the flow, the sources, the harvests and the
//! subscriptions.

use ratatui::{
    style::{Color, Modifier, Style},
    text::{Line, Span},
};
use serde_json::Value;
use tidings::model::Timestamp;

use super::{
    cells::{age, bars, fitted, folded, joined, sum},
    documents::{Documents, elements, named},
};
use crate::command::columns::text;

/// Columns of the bars of the last hour in a row of a table.
const ROW_BARS: usize = 15;

/// A section with its title.
pub(super) struct Section {
    pub(super) title: String,
    pub(super) lines: Vec<Line<'static>>,
}

/// Returns the line that begins the verdict, as `tidings status` does, and each problem in lines of at most so many columns,
/// the worst first.
pub(super) fn verdict(status: &Value, columns: usize) -> Vec<Line<'static>> {
    let problems = elements(&status["problems"]);
    let errors = problems.iter().filter(|problem| problem["level"] == "error").count();
    let number = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let (errors_text, warnings_text) = (number(errors, "error"), number(problems.len() - errors, "warning"));
    let state = format!("{}: {errors_text}, {warnings_text}", text(&status["status"]));
    let color = match (errors, problems.len()) {
        (0, 0) => Color::Green,
        (0, _) => Color::Yellow,
        _ => Color::Red,
    };
    let mut lines = vec![Line::styled(state, Style::new().fg(color).add_modifier(Modifier::BOLD))];
    lines.extend(problems.iter().flat_map(|problem| problem_lines(problem, columns)));
    lines
}

fn problem_lines(problem: &Value, columns: usize) -> Vec<Line<'static>> {
    let (mark, color) = if problem["level"] == "error" { ("✗ ", Color::Red) } else { ("▲ ", Color::Yellow) };
    let line = |(at, text): (usize, String)| {
        let mark = if at == 0 { Span::styled(mark, Style::new().fg(color)) } else { Span::raw("  ") };
        Line::from_iter([mark, Span::raw(text)])
    };
    folded(&text(&problem["text"]), columns.saturating_sub(2)).into_iter().enumerate().map(line).collect()
}

/// Returns all sections.
pub(super) fn sections(documents: &Documents, now: Timestamp) -> [Section; 4] {
    [flow(documents), sources(documents, now), harvests(documents, now), subscriptions(documents)]
}

/// Returns everything as text, for a file or a pipe.
pub(super) fn plain(documents: &Documents, now: Timestamp) -> String {
    let mut lines = verdict(&documents.status, usize::MAX);
    for Section { title, lines: of_section } in sections(documents, now) {
        lines.extend([Line::default(), Line::raw(title)]);
        lines.extend(of_section);
    }
    lines.iter().map(|line| format!("{}\n", line.to_string().trim_end())).collect()
}

fn flow(Documents { flow, status, .. }: &Documents) -> Section {
    let changes = &flow["changes"];
    let newest = elements(changes).iter().rev().filter_map(Value::as_u64).nth(1);
    let of_minute = newest.map_or(String::new(), |number| format!(", {number} in the last minute"));
    let journal = &status["journal"];
    let range = match &journal["head"] {
        head if head == 0 => "no changes".to_owned(),
        head => format!("changes {} to {}", text(&journal["first"]), text(head)),
    };
    let free = journal["freeBytes"].as_u64().map(|free| format!(", {} MB free", free / 1_000_000)).unwrap_or_default();
    let lines = vec![
        Line::from_iter([Span::raw("changes  "), Span::styled(bars(changes, 60), Style::new().fg(Color::Cyan))]),
        Line::raw(format!("         {} in the last hour{of_minute}", sum(changes))),
        Line::raw(format!("journal  {range}{free}")),
    ];
    Section { title: "FLOW".to_owned(), lines }
}

/// Returns a section with a table. The second cell of a row is a state, whose color says whether it is good.
fn table<const N: usize>(
    title: &str,
    header: [&str; N],
    columns: [usize; N],
    rows: impl Iterator<Item = [String; N]>,
) -> Section {
    let title = joined(std::array::from_fn(|at| if at == 0 { title } else { header[at] }), columns);
    let line = |cells: [String; N]| {
        let state = Style::new().fg(state_color(&cells[1]));
        let spans = cells.iter().zip(columns).enumerate().map(|(at, (cell, columns))| {
            let cell = format!("{}  ", fitted(cell, columns));
            if at == 1 { Span::styled(cell, state) } else { Span::raw(cell) }
        });
        Line::from_iter(spans)
    };
    let mut lines: Vec<_> = rows.map(line).collect();
    if lines.is_empty() {
        lines.push(Line::raw("none"));
    }
    Section { title, lines }
}

/// Returns the color of a state of a source, a harvest or a subscription.
fn state_color(state: &str) -> Color {
    match state {
        "connected" | "running" | "reading" => Color::Green,
        "retrying" | "failed" | "fell-behind" | "stopped" => Color::Red,
        "paused" | "ended" | "orphaned" | "connecting" => Color::Yellow,
        _ => Color::Reset,
    }
}

fn sources(documents: &Documents, now: Timestamp) -> Section {
    let row = |source: &Value| {
        let connection = &source["connection"];
        let state = match &connection["state"] {
            Value::Null if source["transport"] == "http" => "hook".to_owned(),
            Value::Null => text(&source["transport"]),
            state => text(state),
        };
        let changes = &named(&documents.flow["sources"], &source["name"])["changes"];
        let quarantined = text(&source["messages"]["quarantined"]);
        [
            text(&source["name"]),
            state,
            age(&source["lastEvent"], now),
            bars(changes, ROW_BARS),
            sum(changes).to_string(),
            quarantined,
        ]
    };
    let header = ["", "STATE", "LAST EVENT", "LAST HOUR", "CHANGES", "QUARANT."];
    let rows = elements(&documents.sources["sources"]).iter().map(row);
    table("SOURCES", header, [18, 10, 10, ROW_BARS, 8, 8], rows)
}

fn harvests(documents: &Documents, now: Timestamp) -> Section {
    let row = |harvest: &Value| {
        let run = &harvest["run"];
        [
            text(&harvest["source"]),
            text(&harvest["state"]),
            age(&harvest["next"], now),
            age(&run["updated"], now),
            text(&run["state"]),
            text(&run["records"]),
            text(&run["changes"]),
        ]
    };
    let header = ["", "STATE", "NEXT", "LAST RUN", "RESULT", "RECORDS", "CHANGES"];
    let rows = elements(&documents.harvests["harvests"]).iter().map(row);
    table("HARVESTS", header, [18, 9, 9, 8, 9, 7, 7], rows)
}

fn subscriptions(documents: &Documents) -> Section {
    let row = |subscription: &Value| {
        let delivered = &named(&documents.flow["subscriptions"], &subscription["name"])["delivered"];
        [
            text(&subscription["name"]),
            text(&subscription["state"]),
            text(&subscription["lag"]["changes"]),
            bars(delivered, ROW_BARS),
            sum(delivered).to_string(),
            text(&subscription["deadLetters"]),
        ]
    };
    let header = ["", "STATE", "BEHIND", "LAST HOUR", "SENT", "DEAD"];
    let rows = elements(&documents.subscriptions["subscriptions"]).iter().map(row);
    table("SUBSCRIPTIONS", header, [18, 11, 9, ROW_BARS, 8, 6], rows)
}
