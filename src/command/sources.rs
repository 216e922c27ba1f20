//! `tidings sources`: lists the sources of a running gateway, and pauses, resumes and reconnects those that read a broker.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;
use tidings::model::SourceName;

use super::{
    Failure, Output,
    bulk::{CommandError, with_gateway},
    columns::{columns, text},
    gateway::{Gateway, GatewayArgs},
    print, say,
};

const EXAMPLES: &str = "\
Examples:
  tidings sources list
  tidings sources show sfm
  tidings sources pause sfm
  tidings sources resume sfm
  tidings sources reconnect sfm

A paused source leaves its messages with the broker, also after a restart of the gateway. Harvests have a command of their \
own: tidings harvests. The token needs the scope admin.

Exit codes:
  0  done
  1  the gateway refused or cannot be reached; standard error says why
  2  wrong usage";

/// List the sources of a running gateway, and pause, resume and reconnect them.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Sources {
    #[command(flatten)]
    gateway: GatewayArgs,
    #[command(subcommand)]
    action: Action,
    /// Print the JSON of the gateway, for programs.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    /// List all sources.
    List,
    /// Show one source.
    Show(NameArg),
    /// Leave the messages of a source with its broker until it is resumed.
    Pause(NameArg),
    /// Read the messages of a source again.
    Resume(NameArg),
    /// Close the connection of a source to its broker, and connect again without a wait.
    Reconnect(NameArg),
}

/// The argument that names a source.
#[derive(Args)]
struct NameArg {
    /// Name of the source.
    #[arg(value_name = "NAME", value_parser = SourceName::parse)]
    name: SourceName,
}

impl Sources {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self { gateway, action, json } = self;
        with_gateway(&gateway, async |gateway| action.run(&gateway, json).await)
    }
}

impl Action {
    async fn run(self, gateway: &Gateway, json: bool) -> Result<(), CommandError> {
        let (method, path, done) = match &self {
            Self::List => (Method::GET, "/sources".to_owned(), None),
            Self::Show(NameArg { name }) => (Method::GET, format!("/sources/{name}"), None),
            Self::Pause(NameArg { name }) => {
                (Method::POST, format!("/sources/{name}/pause"), Some((name, "is paused")))
            }
            Self::Resume(NameArg { name }) => {
                (Method::POST, format!("/sources/{name}/resume"), Some((name, "is resumed")))
            }
            Self::Reconnect(NameArg { name }) => {
                (Method::POST, format!("/sources/{name}/reconnect"), Some((name, "connects again")))
            }
        };
        let response = gateway.request(method, &path, None).await?;
        if let Some((name, done)) = done {
            say(&format!("the source {name} {done}"));
        }
        let sources = match &response["sources"] {
            Value::Array(all) => all.clone(),
            _ => vec![response.clone()],
        };
        Ok(match json {
            true => print(&Output::Json(&format!("{response:#}\n"))),
            false => print(&Output::Text(&table(&sources))),
        }?)
    }
}

/// Formats sources as a table.
fn table(sources: &[Value]) -> String {
    if sources.is_empty() {
        return "there are no sources\n".to_owned();
    }
    let row = |source: &Value| {
        let connection = &source["connection"];
        let rate = source["rate"].as_f64().map(|rate| format!("{rate:.1}")).unwrap_or_default();
        [
            text(&source["name"]),
            text(&source["transport"]),
            text(&source["dialect"]),
            text(&connection["state"]),
            text(&connection["downSince"]),
            text(&source["lastEvent"]),
            rate,
            text(&source["messages"]["quarantined"]),
            text(&source["destination"]),
        ]
    };
    let header =
        ["NAME", "TRANSPORT", "DIALECT", "STATE", "DOWN SINCE", "LAST EVENT", "PER SECOND", "QUARANTINED", "READS"];
    columns(&header, &sources.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::table;

    #[test]
    fn sources_are_a_table() {
        let hook = json!({
            "name": "sfm", "transport": "http", "dialect": "sfm", "lastEvent": "2026-11-28T08:00:00.000Z", "rate": 0.25,
            "messages": { "quarantined": 3 }
        });
        let broker = json!({
            "name": "islandora", "transport": "stomp", "dialect": "islandora", "rate": 0, "destination": "queue \"a\"",
            "connection": { "state": "waiting", "downSince": "2026-11-28T08:00:00.000Z" }, "messages": { "quarantined": 0 }
        });
        let expected = "\
NAME       TRANSPORT  DIALECT    STATE    DOWN SINCE                LAST EVENT                PER SECOND  QUARANTINED  READS
sfm        http       sfm                                           2026-11-28T08:00:00.000Z  0.2         3
islandora  stomp      islandora  waiting  2026-11-28T08:00:00.000Z                            0.0         0            queue \"a\"
";
        assert_eq!(table(&[hook, broker]), expected);
    }
}
