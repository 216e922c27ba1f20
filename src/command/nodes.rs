//! `tidings nodes`: lists the nodes that share a journal, and their duties.

use clap::Args;
use reqwest::Method;
use serde_json::Value;

use super::{
    Failure, Output,
    columns::{columns, text},
    gateway::GatewayArgs,
    print, runtime,
};

const EXAMPLES: &str = "\
Examples:
  tidings nodes
  tidings nodes --duties
  tidings nodes --gateway https://tidings.example.org --json

Every node knows all nodes, so ask any of them. The token needs the scope admin.

Exit codes:
  0  done
  1  the gateway refused or cannot be reached; standard error says why
  2  wrong usage";

/// List the nodes that share a journal, and their duties.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Nodes {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// List the duties, each with its node.
    #[arg(long)]
    duties: bool,
    /// Print the JSON of the gateway, for programs.
    #[arg(long)]
    json: bool,
}

impl Nodes {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self { gateway, duties, json } = self;
        let (at, gateway) = gateway.connect()?;
        let runtime = runtime(tokio::runtime::Builder::new_current_thread())?;
        let response = runtime.block_on(gateway.request(Method::GET, "/nodes", None));
        // Does not wait for a pending DNS lookup.
        runtime.shutdown_background();
        let response = response.map_err(|error| Failure::Failed(format!("{at}: {}", error.reason)))?;
        match (json, duties) {
            (true, _) => print(&Output::Json(&format!("{response:#}\n"))),
            (false, true) => print(&Output::Text(&duty_table(&response))),
            (false, false) => print(&Output::Text(&node_table(&response))),
        }
    }
}

fn list<'a>(value: &'a Value, member: &str) -> &'a [Value] {
    value[member].as_array().map_or(&[], Vec::as_slice)
}

/// Formats all nodes, one per line.
fn node_table(response: &Value) -> String {
    let header = ["NAME", "ADDRESS", "VERSION", "SINCE", "RENEWED", "BEHIND", "DUTIES", ""];
    let rows = list(response, "nodes").iter().map(|node| {
        let note = if node["leaving"] == true { "leaving" } else { "" };
        [
            text(&node["name"]),
            text(&node["address"]),
            text(&node["version"]),
            text(&node["started"]),
            text(&node["renewed"]),
            text(&node["lag"]),
            list(node, "duties").len().to_string(),
            note.to_owned(),
        ]
    });
    columns(&header, &rows.collect::<Vec<_>>())
}

/// Formats all duties, one per line, in order of their names.
fn duty_table(response: &Value) -> String {
    let of_node = |node: &Value| {
        let row = |duty: &Value| [text(&duty["name"]), text(&node["name"]), text(&duty["since"])];
        list(node, "duties").iter().map(row).collect::<Vec<_>>()
    };
    let mut rows: Vec<_> = list(response, "nodes").iter().flat_map(of_node).collect();
    rows.sort();
    if rows.is_empty() {
        return "no node has a duty\n".to_owned();
    }
    columns(&["DUTY", "NODE", "SINCE"], &rows)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{duty_table, node_table};

    #[test]
    fn nodes_and_duties_are_formatted() {
        let response = json!({ "nodes": [
            {
                "name": "a", "address": "http://a:1", "version": "0.1.0", "started": "2026-11-23T08:00:00Z", "lag": 0,
                "leaving": true, "duties": [{ "name": "source/sfm", "since": "2026-11-23T08:00:01Z" }]
            },
            {
                "name": "b", "version": "0.1.0", "started": "2026-11-23T08:00:00Z", "renewed": "2026-11-23T09:00:00Z",
                "lag": 3, "duties": [{ "name": "retention", "since": "2026-11-23T08:00:02Z" }]
            }
        ]});
        let nodes = "\
NAME  ADDRESS     VERSION  SINCE                 RENEWED               BEHIND  DUTIES
a     http://a:1  0.1.0    2026-11-23T08:00:00Z                        0       1       leaving
b                 0.1.0    2026-11-23T08:00:00Z  2026-11-23T09:00:00Z  3       1
";
        assert_eq!(node_table(&response), nodes);
        let duties = "\
DUTY        NODE  SINCE
retention   b     2026-11-23T08:00:02Z
source/sfm  a     2026-11-23T08:00:01Z
";
        assert_eq!(duty_table(&response), duties);
        assert_eq!(duty_table(&json!({ "nodes": [] })), "no node has a duty\n");
    }
}
