//! `tidings subscriptions`: lists and manages the subscriptions of a running gateway.
//!
//! The command uses the HTTP API of the gateway, which validates every request.

mod table;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use tidings::{delivery::StartPosition, model::SubscriptionName};

use super::{
    Failure, Output,
    definition::{self, Assignment, assignment},
    gateway::GatewayArgs,
    print, runtime, say,
};

const EXAMPLES: &str = "\
Examples:
  tidings subscriptions list
  tidings subscriptions list --config /etc/tidings/tidings.toml
  tidings subscriptions list --gateway https://tidings.example.org
  tidings subscriptions show index
  tidings subscriptions attempts index
  tidings subscriptions add index definition.json
  tidings subscriptions add index --set delivery=webhook --set format=json \\
      --set url=https://indexer.example.org/changes --set secrets.0.env=TIDINGS_SECRET_INDEX \\
      --set filter.visibility=true
  tidings subscriptions pause index
  tidings subscriptions rewind index --to beginning
  tidings subscriptions test index
  tidings subscriptions send index 4711
  tidings subscriptions skip index 4712
  TIDINGS_TOKEN=tdg_… tidings subscriptions remove index

The token needs the scope admin. A definition has the same keys as [subscriptions.NAME] in the configuration file; \
docs/subscriptions.md lists them. Subscriptions that are defined in the configuration file can be paused, resumed and \
rewound here, but only added and removed in the file.

Exit codes:
  0  done
  1  the gateway refused or cannot be reached, or the receiver did not accept a change that was sent; standard error says why
  2  wrong usage";

/// List and manage the subscriptions of a running gateway.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Subscriptions {
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
    /// List all subscriptions with their status.
    List,
    /// Show the status and the definition of a subscription.
    Show(NameArg),
    /// List the recent delivery attempts, newest first.
    Attempts(NameArg),
    /// Create a subscription or replace its definition; an existing subscription keeps its cursor.
    Add {
        #[command(flatten)]
        subscription: NameArg,
        /// File with the definition as a JSON object; - is standard input.
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// Key of the definition, as KEY=VALUE or TABLE.KEY=VALUE; overrides the file. A value that is not JSON is
        /// text. May be given several times.
        #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment, required_unless_present = "file")]
        set: Vec<Assignment>,
    },
    /// Stop deliveries until the subscription is resumed.
    Pause(NameArg),
    /// Resume deliveries of a subscription that is paused, has ended or failed, or waits for its next attempt.
    Resume(NameArg),
    /// Move the cursor back or forward. Moving forward skips changes; the command prints how many.
    Rewind {
        #[command(flatten)]
        subscription: NameArg,
        /// Position: beginning, now, the number of a change, or a time as in 2026-01-02T03:04:05Z.
        #[arg(long, value_name = "POSITION", value_parser = rewind_target)]
        to: Value,
    },
    /// Send the newest change to the receiver now, and print its answer. The cursor does not move, so the receiver may get
    /// the change twice.
    Test(NameArg),
    /// Send one change to the receiver now, whatever the cursor is, and print its answer.
    Send {
        #[command(flatten)]
        subscription: NameArg,
        /// Number of the change.
        #[arg(value_name = "CHANGE")]
        change: u64,
    },
    /// Skip the change that the receiver does not accept: it becomes a dead letter, and the delivery continues after it.
    Skip {
        #[command(flatten)]
        subscription: NameArg,
        /// Number of the change; `show` prints it as "stuck at".
        #[arg(value_name = "CHANGE")]
        change: u64,
    },
    /// Send a part of the journal again, beside the running delivery. The messages are marked as repeats.
    Replay {
        #[command(flatten)]
        subscription: NameArg,
        /// The first change: beginning, its number, or a time as in 2026-01-02T03:04:05Z.
        #[arg(long, value_name = "POSITION", value_parser = rewind_target)]
        from: Value,
        /// Number of the last change. Default: the newest one.
        #[arg(long, value_name = "CHANGE")]
        to: Option<u64>,
        /// Condition of a filter, as KEY=VALUE, for example changes.0=ADD. May be given several times.
        #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
        filter: Vec<Assignment>,
    },
    /// Delete a subscription with its cursor and its dead letters.
    Remove(NameArg),
}

/// The argument that names a subscription.
#[derive(Args)]
struct NameArg {
    /// Name of the subscription.
    #[arg(value_name = "NAME", value_parser = SubscriptionName::parse)]
    name: SubscriptionName,
}

/// Parses the target of a rewind. The API accepts the number of a change only as a JSON number.
fn rewind_target(text: &str) -> Result<Value, String> {
    let target = text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number));
    serde_json::from_value::<StartPosition>(target.clone()).map(|_| target).map_err(|error| error.to_string())
}

impl Subscriptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self { action, gateway, json } = self;
        let (at, gateway) = gateway.connect()?;
        let request = action.request()?;
        let runtime = runtime(tokio::runtime::Builder::new_current_thread())?;
        let response = runtime.block_on(gateway.request(request.method, &request.path, request.body));
        // Does not wait for a pending DNS lookup.
        runtime.shutdown_background();
        let response = response.map_err(|error| Failure::Failed(format!("{at}: {}", error.reason)))?;
        if let Some(confirmation) = request.confirmation {
            say(&confirmation);
        }
        if let Some(moved) = table::rewind_summary(&response) {
            say(&moved);
        }
        let failure = table::send_failure(&response);
        match response {
            Value::Null => Ok(()),
            response if json => print(&Output::Json(&format!("{response:#}\n"))),
            response => print(&Output::Text(&(request.show)(&response))),
        }?;
        failure.map_or(Ok(()), |reason| Err(Failure::Failed(reason)))
    }
}

/// Request to the gateway for one action.
struct GatewayRequest {
    method: Method,
    path: String,
    body: Option<Value>,
    /// Formats the response.
    show: fn(&Value) -> String,
    /// Message after success.
    confirmation: Option<String>,
}

impl Action {
    fn request(self) -> Result<GatewayRequest, Failure> {
        let path = |subscription: &NameArg, below: &str| format!("/subscriptions/{}{below}", subscription.name);
        let get = |path, show| GatewayRequest { method: Method::GET, path, body: None, show, confirmation: None };
        let post = |subscription: &NameArg, below: &str, confirmation: &str| GatewayRequest {
            method: Method::POST,
            path: path(subscription, below),
            body: None,
            show: table::details,
            confirmation: Some(format!("the subscription {} {confirmation}", subscription.name)),
        };
        let send = |subscription: &NameArg, body| GatewayRequest {
            body: Some(body),
            show: table::sent,
            confirmation: None,
            ..post(subscription, "/send", "")
        };
        Ok(match self {
            Self::List => get("/subscriptions".to_owned(), table::list),
            Self::Show(subscription) => get(path(&subscription, ""), table::details),
            Self::Attempts(subscription) => get(path(&subscription, "/attempts"), table::attempts),
            Self::Add { subscription, file, set } => {
                let body = definition::build(file.as_deref(), set).map_err(Failure::Usage)?;
                GatewayRequest { method: Method::PUT, body: Some(body), ..post(&subscription, "", "is stored") }
            }
            Self::Pause(subscription) => post(&subscription, "/pause", "is paused"),
            Self::Resume(subscription) => post(&subscription, "/resume", "is resumed"),
            Self::Rewind { subscription, to } => {
                GatewayRequest { body: Some(json!({ "to": to })), ..post(&subscription, "/rewind", "is rewound") }
            }
            Self::Test(subscription) => send(&subscription, json!({})),
            Self::Send { subscription, change } => send(&subscription, json!({ "change": change })),
            Self::Replay { subscription, from, to, filter } => {
                let filter = definition::build(None, filter).map_err(Failure::Usage)?;
                let mut body = json!({ "from": from, "filter": filter });
                if let Some(to) = to {
                    body["to"] = json!(to);
                }
                GatewayRequest {
                    body: Some(body),
                    show: table::replayed,
                    ..post(&subscription, "/replay", "repeats changes")
                }
            }
            Self::Skip { subscription, change } => GatewayRequest {
                body: Some(json!({ "change": change })),
                ..post(&subscription, "/skip", &format!("skips change {change}, which is a dead letter now"))
            },
            Self::Remove(subscription) => {
                GatewayRequest { method: Method::DELETE, ..post(&subscription, "", "is deleted") }
            }
        })
    }
}
