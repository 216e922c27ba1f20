//! `tidings harvests`: lists and manages the harvests of a running gateway.
//!
//! The command uses the HTTP API of the gateway, which validates every request.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;
use tidings::model::SourceName;

use super::{
    Failure, Output,
    columns::{columns, text},
    definition::{self, Assignment, assignment},
    gateway::GatewayArgs,
    harvest_progress::run_and_wait,
    print,
    repository::{Question, ask},
    runtime, say,
};

const EXAMPLES: &str = "\
Examples:
  tidings harvests list
  tidings harvests history upm
  tidings harvests run upm
  tidings harvests run upm --wait
  tidings harvests run upm --full
  tidings harvests retire upm
  tidings harvests records upm
  tidings harvests sets https://repository.example.org/oai
  tidings harvests formats upm
  tidings harvests add upm --set transport=oai-pmh --set dialect=oai-pmh \\
      --set url=https://repository.example.org/oai --set every=1h
  tidings harvests add upm definition.json
  tidings harvests pause upm
  tidings harvests remove upm
  tidings harvests list --gateway https://tidings.example.org --json

The token needs the scope admin. The commands sets and formats ask the repository itself, and need no gateway. A definition has the same keys as [sources.NAME] in the configuration file; \
docs/harvesting.md lists them and explains the columns. Sources of the configuration file can be paused and resumed \
here, but only added and removed in the file.

Exit codes:
  0  done
  1  the gateway refused or cannot be reached; standard error says why
  2  wrong usage";

/// List and manage the harvests of a running gateway.
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
    Run {
        #[command(flatten)]
        source: NameArg,
        /// Wait until the run has ended, and show its progress. The exit code is 1 if the run fails.
        #[arg(long)]
        wait: bool,
        /// List all records again, also those that are older than the mark of the last run.
        #[arg(long)]
        full: bool,
    },
    /// Count the records that exist, by set, to compare them with the repository.
    Records(NameArg),
    /// List the sets of a repository with OAI-PMH: the values of the setting sets.
    Sets(PlaceArg),
    /// List the metadata formats of a repository with OAI-PMH: the values of the setting metadata_prefix.
    Formats(PlaceArg),
    /// Delete the records of former settings: of another url or metadata_prefix.
    Retire(NameArg),
    /// Make a harvest, which begins at once.
    Add {
        #[command(flatten)]
        source: NameArg,
        /// File with the definition as a JSON object; - is standard input.
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// Key of the definition, as KEY=VALUE or TABLE.KEY=VALUE; overrides the file. A value that is not JSON is
        /// text. May be given several times.
        #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment, required_unless_present = "file")]
        set: Vec<Assignment>,
    },
    /// Remove a harvest with its position and its history. Its changes stay in the journal.
    Remove(NameArg),
    /// Begin no run until the harvest is resumed. A run in progress stops after the present page.
    Pause(NameArg),
    /// Resume a paused harvest.
    Resume(NameArg),
}

/// The argument that names a source.
#[derive(Args)]
struct NameArg {
    /// Name of the source.
    #[arg(value_name = "NAME", value_parser = SourceName::parse)]
    name: SourceName,
}

/// The argument that names a repository.
#[derive(Args)]
struct PlaceArg {
    /// Base URL of the repository, or the name of a source in the configuration.
    #[arg(value_name = "URL|NAME")]
    place: String,
}

impl Harvests {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self { action, gateway, json } = self;
        match &action {
            Action::Sets(PlaceArg { place }) => return ask(Question::Sets, place, || gateway.config(), json),
            Action::Formats(PlaceArg { place }) => return ask(Question::Formats, place, || gateway.config(), json),
            _ => {}
        }
        let (at, gateway) = gateway.connect()?;
        let runtime = runtime(tokio::runtime::Builder::new_current_thread())?;
        if let Action::Run { source, wait: true, full } = &action {
            let ended = runtime.block_on(run_and_wait(&gateway, &source.name, *full));
            runtime.shutdown_background();
            return ended;
        }
        let (method, path, body) = action.request()?;
        let response = runtime.block_on(gateway.request(method, &path, body));
        // Does not wait for a pending DNS lookup.
        runtime.shutdown_background();
        let response = response.map_err(|error| Failure::Failed(format!("{at}: {}", error.reason)))?;
        if let Some(confirmation) = action.confirmation() {
            say(&confirmation);
        }
        match action {
            Action::List | Action::History(_) | Action::Records(_) | Action::Add { .. } if json => {
                print(&Output::Json(&format!("{response:#}\n")))
            }
            Action::List => print(&Output::Text(&harvest_table(&response))),
            Action::History(_) => print(&Output::Text(&run_table(&response))),
            Action::Records(_) => print(&Output::Text(&record_table(&response))),
            _ => Ok(()),
        }
    }
}

impl Action {
    /// Returns the method, the path and the body of the request for the action.
    fn request(&self) -> Result<(Method, String, Option<Value>), Failure> {
        let post = |source: &NameArg, what: &str| (Method::POST, format!("/harvests/{}/{what}", source.name), None);
        Ok(match self {
            Self::List => (Method::GET, "/harvests".to_owned(), None),
            Self::History(source) => (Method::GET, format!("/harvests/{}", source.name), None),
            Self::Records(source) => (Method::GET, format!("/harvests/{}/records", source.name), None),
            Self::Sets(_) | Self::Formats(_) => return Err(Failure::Usage("this needs no gateway".to_owned())),
            Self::Run { source, full: true, .. } => post(source, "run?full=true"),
            Self::Run { source, .. } => post(source, "run"),
            Self::Retire(source) => post(source, "retire"),
            Self::Pause(source) => post(source, "pause"),
            Self::Resume(source) => post(source, "resume"),
            Self::Remove(source) => (Method::DELETE, format!("/harvests/{}", source.name), None),
            Self::Add { source, file, set } => {
                let mut body = definition::build(file.as_deref(), set.clone()).map_err(Failure::Usage)?;
                body["name"] = source.name.as_str().into();
                (Method::POST, "/harvests".to_owned(), Some(body))
            }
        })
    }

    /// Returns the message after success.
    fn confirmation(&self) -> Option<String> {
        let (source, what) = match self {
            Self::List | Self::History(_) | Self::Records(_) | Self::Sets(_) | Self::Formats(_) => return None,
            Self::Run { source, .. } => return Some(format!("a run of the harvest of {} is requested", source.name)),
            Self::Retire(source) => {
                return Some(format!("a run that deletes the former records of {} is requested", source.name));
            }
            Self::Add { source, .. } => (source, "made"),
            Self::Remove(source) => (source, "removed"),
            Self::Pause(source) => (source, "paused"),
            Self::Resume(source) => (source, "resumed"),
        };
        Some(format!("the harvest of {} is {what}", source.name))
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

/// Formats the numbers of a harvest's records: one line for each set, and one for all.
fn record_table(response: &Value) -> String {
    let header = ["SET", "LIVE", "DELETED", "WAITING"];
    let sets = rows(response, "sets").iter().filter(|set| set["set"] != "");
    let rows = sets.map(|set| [text(&set["set"]), text(&set["live"]), text(&set["deleted"]), String::new()]);
    let all = ["(all)".to_owned(), text(&response["live"]), String::new(), text(&response["waiting"])];
    columns(&header, &rows.chain([all]).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{harvest_table, record_table, run_table};

    #[test]
    fn records_are_counted_by_set() {
        let counts = json!({ "live": 4, "waiting": 1, "sets": [{ "set": "a", "live": 3, "deleted": 2 }] });
        let expected = "\
SET    LIVE  DELETED  WAITING
a      3     2
(all)  4              1
";
        assert_eq!(record_table(&counts), expected);
    }

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
