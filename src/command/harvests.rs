//! `tidings harvests`: lists the harvests of a running gateway and the history of their runs, and requests runs.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;
use tidings::model::SourceName;

use super::{
    Failure,
    columns::{columns, text},
    gateway::GatewayArgs,
    print, runtime, say,
};

const EXAMPLES: &str = "\
Examples:
  tidings harvests list
  tidings harvests history upm
  tidings harvests run upm
  tidings harvests list --gateway https://tidings.example.org --json

The token needs the scope admin. docs/harvesting.md explains the columns.

Exit codes:
  0  done
  1  the gateway refused or cannot be reached; standard error says why
  2  wrong usage";

/// List the harvests of a running gateway, and request runs.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Harvests {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Print the JSON of the gateway, for programs.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    /// List all harvests, each with its present or newest run.
    List,
    /// List the runs of a harvest, newest first.
    History(NameArg),
    /// Request a run now. It begins within seconds, unless a run is in progress.
    Run(NameArg),
}

/// The argument that names a source.
#[derive(Args)]
struct NameArg {
    /// Name of the source.
    #[arg(value_name = "NAME", value_parser = SourceName::parse)]
    name: SourceName,
}

impl Harvests {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self { action, gateway, json } = self;
        let (at, gateway) = gateway.connect()?;
        let (method, path) = match &action {
            Action::List => (Method::GET, "/harvests".to_owned()),
            Action::History(NameArg { name }) => (Method::GET, format!("/harvests/{name}")),
            Action::Run(NameArg { name }) => (Method::POST, format!("/harvests/{name}/run")),
        };
        let runtime = runtime(tokio::runtime::Builder::new_current_thread())?;
        let response = runtime.block_on(gateway.request(method, &path, None));
        // Does not wait for a pending DNS lookup.
        runtime.shutdown_background();
        let response = response.map_err(|error| Failure::Failed(format!("{at}: {}", error.reason)))?;
        let text = match action {
            Action::Run(NameArg { name }) => {
                say(&format!("a run of the harvest of {name} is requested"));
                String::new()
            }
            _ if json => format!("{response:#}\n"),
            Action::List => harvest_table(&response),
            Action::History(_) => run_table(&response),
        };
        print(text.as_bytes())
    }
}

fn rows<'a>(value: &'a Value, member: &str) -> &'a [Value] {
    value[member].as_array().map_or(&[], Vec::as_slice)
}

/// Formats all harvests, one per line.
fn harvest_table(response: &Value) -> String {
    let harvests = rows(response, "harvests");
    if harvests.is_empty() {
        return "there are no harvests\n".to_owned();
    }
    let header = ["SOURCE", "STATE", "NEXT", "LAST RUN", "RESULT", "RECORDS", "CHANGES", ""];
    let rows = harvests.iter().map(|harvest| {
        let run = &harvest["run"];
        let error = &harvest["lastError"]["reason"];
        [
            text(&harvest["source"]),
            text(&harvest["state"]),
            text(&harvest["next"]),
            text(&run["started"]),
            text(&run["state"]),
            text(&run["records"]),
            text(&run["changes"]),
            text(if error.is_null() { &run["reason"] } else { error }),
        ]
    });
    columns(&header, &rows.collect::<Vec<_>>())
}

/// Formats the runs of a harvest, one per line.
fn run_table(response: &Value) -> String {
    let runs = rows(response, "runs");
    if runs.is_empty() {
        return "the harvest has not begun\n".to_owned();
    }
    let header = ["STARTED", "UPDATED", "RESULT", "PAGES", "RECORDS", "CHANGES", "QUARANTINED", "REPAIRED", ""];
    let members = ["started", "updated", "state", "pages", "records", "changes", "quarantined", "repaired", "reason"];
    let rows = runs.iter().map(|run| members.map(|member| text(&run[member])));
    columns(&header, &rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{harvest_table, run_table};

    #[test]
    fn harvests_and_runs_are_formatted() {
        let run = json!({
            "started": "2026-11-23T08:00:00.000Z", "updated": "2026-11-23T08:00:09.000Z", "state": "failed",
            "pages": 3, "records": 300, "changes": 2, "unchanged": 297, "quarantined": 1, "repaired": 0,
            "reason": "the repository is busy"
        });
        let list = json!({ "harvests": [
            { "source": "a", "state": "waiting", "next": "2026-11-23T09:00:00.000Z", "run": run },
            { "source": "b", "state": "running" }
        ]});
        let expected = "\
SOURCE  STATE    NEXT                      LAST RUN                  RESULT  RECORDS  CHANGES
a       waiting  2026-11-23T09:00:00.000Z  2026-11-23T08:00:00.000Z  failed  300      2        the repository is busy
b       running
";
        assert_eq!(harvest_table(&list), expected);
        let expected = "\
STARTED                   UPDATED                   RESULT  PAGES  RECORDS  CHANGES  QUARANTINED  REPAIRED
2026-11-23T08:00:00.000Z  2026-11-23T08:00:09.000Z  failed  3      300      2        1            0         the repository is busy
";
        assert_eq!(run_table(&json!({ "runs": [run] })), expected);
        assert_eq!(harvest_table(&json!({ "harvests": [] })), "there are no harvests\n");
        assert_eq!(run_table(&json!({ "runs": [] })), "the harvest has not begun\n");
    }
}
