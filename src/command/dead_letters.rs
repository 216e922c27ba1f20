//! `tidings dead-letters`: lists the messages that the receiver of a subscription has refused, and sends or deletes many of them.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;
use tidings::model::SubscriptionName;

use super::{
    Failure, Output,
    bulk::{CommandError, Conditions, MessageList, SHOWN, for_each, lines, report, with_gateway},
    columns::{columns, text},
    gateway::{Gateway, GatewayArgs},
    print, print_text,
    progress::Progress,
};

const EXAMPLES: &str = "\
Examples:
  tidings dead-letters list index
  tidings dead-letters list index --reason 'too long'
  tidings dead-letters show index 17
  tidings dead-letters retry index 17 18
  tidings dead-letters retry index --since 2026-11-28T00:00:00Z
  tidings dead-letters retry index --all
  tidings dead-letters drop index --before 2026-11-01T00:00:00Z

retry has the subscription send the messages again, in order, beside new changes; a message that is refused again stays. A \
command that is interrupted can be given again. The token needs the scope admin.

Exit codes:
  0  done
  1  the gateway refused or cannot be reached; standard error says why
  2  wrong usage";

/// List the messages that a receiver has refused for good, and send them again or drop them.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DeadLetters {
    #[command(flatten)]
    gateway: GatewayArgs,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List dead letters, newest first.
    List {
        /// Name of the subscription.
        #[arg(value_name = "NAME", value_parser = SubscriptionName::parse)]
        name: SubscriptionName,
        #[command(flatten)]
        conditions: Conditions,
        /// Maximum number of dead letters.
        #[arg(long, value_name = "N", default_value_t = SHOWN)]
        limit: usize,
        /// Print JSON, one dead letter on each line, for programs.
        #[arg(long)]
        json: bool,
    },
    /// Print a dead letter with its change, as JSON.
    Show {
        /// Name of the subscription.
        #[arg(value_name = "NAME", value_parser = SubscriptionName::parse)]
        name: SubscriptionName,
        /// Identifier of the dead letter.
        id: u64,
    },
    /// Send dead letters again. Those that are accepted are removed.
    Retry(Selection),
    /// Delete dead letters for good.
    Drop(Selection),
}

/// Dead letters to send or drop.
#[derive(Args)]
struct Selection {
    /// Name of the subscription.
    #[arg(value_name = "NAME", value_parser = SubscriptionName::parse)]
    name: SubscriptionName,
    /// Identifiers of dead letters.
    #[arg(value_name = "ID", conflicts_with_all = ["reason", "since", "before", "all"])]
    ids: Vec<u64>,
    #[command(flatten)]
    conditions: Conditions,
    /// All dead letters of the subscription.
    #[arg(long, conflicts_with_all = ["reason", "since", "before"])]
    all: bool,
}

impl DeadLetters {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self { gateway, action } = self;
        with_gateway(&gateway, async |gateway| action.run(&gateway).await)
    }
}

impl Action {
    async fn run(self, gateway: &Gateway) -> Result<(), CommandError> {
        match self {
            Self::List { name, conditions, limit, json } => {
                let letters = list(&name).select(gateway, &conditions, limit, Some).await?;
                Ok(match json {
                    true => print(&Output::Json(&lines(&letters))),
                    false => print(&Output::Text(&table(&letters))),
                }?)
            }
            Self::Show { name, id } => {
                let letter = gateway.request(Method::GET, &format!("{}/{id}", path(&name)), None).await?;
                Ok(print(&Output::Json(&format!("{letter:#}\n")))?)
            }
            Self::Retry(selection) => selection.each(gateway, Method::POST, "/replay", "sent again").await,
            Self::Drop(selection) => selection.each(gateway, Method::DELETE, "", "dropped").await,
        }
    }
}

impl Selection {
    /// Sends a request for each selected dead letter, the oldest first, or one for all.
    async fn each(
        self,
        gateway: &Gateway,
        method: Method,
        suffix: &str,
        verb: &'static str,
    ) -> Result<(), CommandError> {
        let Self { name, ids, conditions, all } = self;
        let path = path(&name);
        if all {
            let response = gateway.request(method, &format!("{path}{suffix}"), None).await?;
            return Ok(print_text(&format!("{} {verb}\n", text(&response["affected"])))?);
        }
        let ids = match (ids.is_empty(), conditions.is_empty()) {
            (false, _) => ids,
            (true, false) => list(&name).ids(gateway, &conditions).await?,
            (true, true) => {
                let reason = "name the dead letters: give identifiers, --reason, --since, --before or --all";
                return Err(Failure::Usage(reason.to_owned()).into());
            }
        };
        let done = for_each(gateway, &path, &ids, method, suffix, &Progress::new(verb)).await;
        Ok(report(verb, done?)?)
    }
}

fn path(name: &SubscriptionName) -> String {
    format!("/subscriptions/{name}/dead-letters")
}

fn list(name: &SubscriptionName) -> MessageList {
    MessageList { path: path(name), items: "deadLetters", time: "refused" }
}

/// Formats dead letters as a table.
fn table(letters: &[Value]) -> String {
    if letters.is_empty() {
        return "there are no dead letters\n".to_owned();
    }
    let row = |letter: &Value| ["id", "seq", "refused", "attempts", "replay", "reason"].map(|key| text(&letter[key]));
    columns(&["ID", "CHANGE", "REFUSED", "ATTEMPTS", "REPLAY", "REASON"], &letters.iter().map(row).collect::<Vec<_>>())
}
