//! `tidings quarantine`: lists the messages that no dialect could parse, and parses or deletes many of them.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;
use tidings::model::SourceName;

use super::{
    Failure, Output,
    bulk::{CommandError, Conditions, MessageList, SHOWN, for_each, lines, report, with_gateway},
    columns::{columns, text},
    gateway::{Gateway, GatewayArgs},
    print,
    progress::Progress,
};

const EXAMPLES: &str = "\
Examples:
  tidings quarantine list
  tidings quarantine list --source sfm --reason 'is not XML'
  tidings quarantine show 17
  tidings quarantine retry 17 18
  tidings quarantine retry --source sfm
  tidings quarantine retry --all
  tidings quarantine drop --source sfm --before 2026-11-01T00:00:00Z

retry and drop begin with the oldest message. A command that is interrupted can be given again: it continues with the \
messages that are left. The token needs the scope admin.

Exit codes:
  0  done
  1  messages are left that still cannot be parsed, or the gateway refused or cannot be reached; standard error says why
  2  wrong usage";

/// List the messages that no dialect could parse, and retry or drop them.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Quarantine {
    #[command(flatten)]
    gateway: GatewayArgs,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List messages, newest first.
    List {
        #[command(flatten)]
        filter: Filter,
        /// Maximum number of messages.
        #[arg(long, value_name = "N", default_value_t = SHOWN)]
        limit: usize,
        /// Print JSON, one message on each line, for programs.
        #[arg(long)]
        json: bool,
    },
    /// Print a message with its headers and its body, as JSON.
    Show {
        /// Identifier of the message.
        id: u64,
    },
    /// Parse messages again. Those that are accepted leave the quarantine.
    Retry(Selection),
    /// Delete messages for good.
    Drop(Selection),
}

/// Conditions on messages, all of which must hold.
#[derive(Args, Default)]
struct Filter {
    /// Only messages of this source.
    #[arg(long, value_name = "NAME", value_parser = SourceName::parse)]
    source: Option<SourceName>,
    #[command(flatten)]
    conditions: Conditions,
}

/// Messages to retry or drop.
#[derive(Args)]
struct Selection {
    /// Identifiers of messages.
    #[arg(value_name = "ID", conflicts_with_all = ["source", "reason", "since", "before", "all"])]
    ids: Vec<u64>,
    #[command(flatten)]
    filter: Filter,
    /// All messages.
    #[arg(long, conflicts_with_all = ["source", "reason", "since", "before"])]
    all: bool,
}

impl Quarantine {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self { gateway, action } = self;
        with_gateway(&gateway, async |gateway| action.run(&gateway).await)
    }
}

impl Action {
    async fn run(self, gateway: &Gateway) -> Result<(), CommandError> {
        match self {
            Self::List { filter, limit, json } => {
                let messages = filter.list().select(gateway, &filter.conditions, limit, Some).await?;
                Ok(match json {
                    true => print(&Output::Json(&lines(&messages))),
                    false => print(&Output::Text(&table(&messages))),
                }?)
            }
            Self::Show { id } => {
                let message = gateway.request(Method::GET, &format!("/quarantine/{id}"), None).await?;
                Ok(print(&Output::Json(&format!("{message:#}\n")))?)
            }
            Self::Retry(selection) => {
                let ids = selection.ids(gateway).await?;
                let progress = Progress::new("retried");
                let done = for_each(gateway, "/quarantine", &ids, Method::POST, "/retry", &progress).await;
                Ok(report("accepted", done?)?)
            }
            Self::Drop(selection) => {
                let ids = selection.ids(gateway).await?;
                let progress = Progress::new("dropped");
                let done = for_each(gateway, "/quarantine", &ids, Method::DELETE, "", &progress).await;
                Ok(report("dropped", done?)?)
            }
        }
    }
}

impl Filter {
    /// Returns the list with the messages of the source.
    fn list(&self) -> MessageList {
        let query = self.source.as_ref().map(|source| format!("?source={source}")).unwrap_or_default();
        MessageList { path: format!("/quarantine{query}"), items: "messages", time: "received" }
    }
}

impl Selection {
    /// Returns the identifiers of the messages, the oldest first.
    async fn ids(&self, gateway: &Gateway) -> Result<Vec<u64>, CommandError> {
        let Self { ids, filter, all } = self;
        if !ids.is_empty() {
            return Ok(ids.clone());
        }
        if filter.source.is_none() && filter.conditions.is_empty() && !all {
            let reason = "name the messages: give identifiers, --source, --reason, --since, --before or --all";
            return Err(Failure::Usage(reason.to_owned()).into());
        }
        Ok(filter.list().ids(gateway, &filter.conditions).await?)
    }
}

/// Formats messages as a table.
fn table(messages: &[Value]) -> String {
    if messages.is_empty() {
        return "no message is in the quarantine\n".to_owned();
    }
    let row = |message: &Value| ["id", "received", "source", "size", "place", "reason"].map(|key| text(&message[key]));
    columns(&["ID", "RECEIVED", "SOURCE", "BYTES", "PLACE", "REASON"], &messages.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::table;

    #[test]
    fn messages_are_a_table() {
        let message = json!({
            "id": 1, "received": "2026-11-28T08:00:00.000Z", "source": "sfm", "reason": "this is not XML", "size": 4,
            "place": "message"
        });
        let expected = "\
ID  RECEIVED                  SOURCE  BYTES  PLACE    REASON
1   2026-11-28T08:00:00.000Z  sfm     4      message  this is not XML
";
        assert_eq!(table(&[message]), expected);
    }
}
