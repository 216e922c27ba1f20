//! `tidings status`: shows how a gateway does and what is wrong with it, for people, for Nagios and for containers.

use clap::Args;
use reqwest::Method;
use serde_json::Value;

use super::{
    Failure, Output,
    columns::text,
    gateway::GatewayArgs,
    output::{cell, print},
    runtime, say,
};

const EXAMPLES: &str = "\
Examples:
  tidings status
  tidings status --gateway https://tidings.example.org
  tidings status --json | jq '.problems[]'

The first line is for monitoring, as Nagios and Icinga read it. docs/status.md lists all problems. The token needs the scope \
admin.

Exit codes:
  0  there is no problem
  1  there are warnings
  2  something does not work, the gateway refused or cannot be reached, or the command is used wrongly";

/// Show the problems of a gateway, each with its remedy.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Status {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Print the JSON of the gateway, for programs.
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self { gateway, json } = self;
        let (at, gateway) = gateway.connect()?;
        let runtime = runtime(tokio::runtime::Builder::new_current_thread())?;
        let status = runtime.block_on(gateway.request(Method::GET, "/status", None));
        // Does not wait for a pending DNS lookup.
        runtime.shutdown_background();
        let status = match status {
            Ok(status) => status,
            Err(error) => {
                say(&format!("{at}: {}", error.reason));
                return Err(Failure::Printed(2));
            }
        };
        match json {
            true => print(&Output::Json(&format!("{status:#}\n"))),
            false => print(&Output::Text(&summary(&status))),
        }?;
        match problems(&status).iter().map(|problem| problem["level"] == "error").max() {
            None => Ok(()),
            Some(false) => Err(Failure::Printed(1)),
            Some(true) => Err(Failure::Printed(2)),
        }
    }
}

fn problems(status: &Value) -> &[Value] {
    status["problems"].as_array().map_or(&[], Vec::as_slice)
}

/// Formats the status: one line for monitoring, each problem with what mends it, and the parts of the gateway.
fn summary(status: &Value) -> String {
    let (errors, warnings): (Vec<_>, Vec<_>) = problems(status).iter().partition(|problem| problem["level"] == "error");
    let number = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let (state, found) = (text(&status["status"]), [number(errors.len(), "error"), number(warnings.len(), "warning")]);
    let mut lines = vec![format!("{state}: {}", found.join(", "))];
    for problem in errors.into_iter().chain(warnings) {
        let [level, since, what, action] = ["level", "since", "text", "action"].map(|member| text(&problem[member]));
        lines.push(format!("\n{level} since {since}: {what}\n  {action}"));
    }
    let journal = &status["journal"];
    let changes = match &journal["head"] {
        head if head == 0 => "no changes".to_owned(),
        head => format!("changes {} to {}", text(&journal["first"]), text(head)),
    };
    let free = journal["freeBytes"].as_u64().map(|free| format!(", {} MB free", free / 1_000_000)).unwrap_or_default();
    let (version, started) = (text(&status["version"]), text(&status["started"]));
    lines.push(format!("\nversion        {version}, started {started}\njournal        {changes}{free}"));
    for (title, member) in [
        ("connections", "connections"),
        ("lookups", "lookups"),
        ("harvests", "harvests"),
        ("datasets", "datasets"),
        ("subscriptions", "subscriptions"),
        ("subscribers", "subscribers"),
    ] {
        let numbers = status[member].as_object().into_iter().flatten();
        let numbers: Vec<_> = numbers.map(|(state, number)| format!("{} {}", text(number), cell(state))).collect();
        if !numbers.is_empty() {
            lines.push(format!("{title:<14} {}", numbers.join(", ")));
        }
    }
    if let Some(stored) = status["files"]["bytes"].as_u64().filter(|bytes| *bytes > 0) {
        let free = status["files"]["freeBytes"].as_u64();
        let free = free.map(|free| format!(", {} MB free", free / 1_000_000)).unwrap_or_default();
        lines.push(format!("files          {} MB stored{free}", stored.div_ceil(1_000_000)));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::summary;

    #[test]
    fn status_begins_with_a_line_for_monitoring() {
        let status = json!({
            "status": "degraded",
            "problems": [
                {
                    "level": "error", "code": "source-not-read", "thing": "source/sfm", "since": "2026-11-28T08:00:00Z",
                    "text": "the source sfm is not read: refused", "action": "start the broker"
                },
                {
                    "level": "warning", "code": "dead-letters", "thing": "subscription/index",
                    "since": "2026-11-28T09:00:00Z", "text": "2 messages", "action": "replay them"
                }
            ],
            "version": "0.1.0", "started": "2026-11-28T07:00:00Z",
            "journal": { "first": 1, "head": 20, "freeBytes": 5_000_000 },
            "connections": { "connected": 1, "waiting": 1 }, "harvests": {}, "datasets": { "failed": 2 },
            "files": { "bytes": 12_000_001, "freeBytes": 5_000_000 }, "subscriptions": { "running": 3 }
        });
        let expected = "\
degraded: 1 error, 1 warning

error since 2026-11-28T08:00:00Z: the source sfm is not read: refused
  start the broker

warning since 2026-11-28T09:00:00Z: 2 messages
  replay them

version        0.1.0, started 2026-11-28T07:00:00Z
journal        changes 1 to 20, 5 MB free
connections    1 connected, 1 waiting
datasets       2 failed
subscriptions  3 running
files          13 MB stored, 5 MB free
";
        assert_eq!(summary(&status), expected);
    }
}
