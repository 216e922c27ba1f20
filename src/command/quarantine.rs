//! `tidings quarantine`: lists the messages that no dialect could parse, and parses or deletes many of them.

use std::time::Duration;

use clap::{Args, Subcommand};
use reqwest::{Method, StatusCode};
use serde_json::Value;
use tidings::model::{SourceName, Timestamp};

use super::{
    Failure, Output,
    columns::{columns, text},
    gateway::{Gateway, GatewayArgs, GatewayError},
    http::backoff,
    print, print_text,
    progress::Progress,
    runtime, say,
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

/// Number of messages on a page of the list.
const PAGE: usize = 1000;

/// Number of messages that `list` shows, unless another one is given.
const SHOWN: usize = 100;

/// Number of reasons that `retry` shows for messages that still cannot be parsed.
const SHOWN_REASONS: usize = 5;

/// Number of attempts for each message while the gateway cannot be reached or is not ready.
const ATTEMPTS: u32 = 6;

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
    /// Only messages whose reason contains this text.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only messages that were received at this time or later.
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Timestamp>,
    /// Only messages that were received before this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    before: Option<Timestamp>,
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

fn time(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text).map_err(|error| error.to_string())
}

impl Quarantine {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self { gateway, action } = self;
        let (at, gateway) = gateway.connect()?;
        let runtime = runtime(tokio::runtime::Builder::new_current_thread())?;
        let result = runtime.block_on(action.run(&gateway));
        // Does not wait for a pending DNS lookup.
        runtime.shutdown_background();
        match result {
            Ok(()) => Ok(()),
            Err(CommandError::Gateway(error)) => Err(Failure::Failed(format!("{at}: {}", error.reason))),
            Err(CommandError::Failure(failure)) => Err(failure),
        }
    }
}

/// Reason why the command fails.
enum CommandError {
    Gateway(GatewayError),
    Failure(Failure),
}

impl From<GatewayError> for CommandError {
    fn from(error: GatewayError) -> Self {
        Self::Gateway(error)
    }
}

impl From<Failure> for CommandError {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl Action {
    async fn run(self, gateway: &Gateway) -> Result<(), CommandError> {
        match self {
            Self::List { filter, limit, json } => {
                let messages = filter.select(gateway, limit, Some).await?;
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
                let done = for_each(gateway, &ids, Method::POST, "/retry", &progress).await;
                Ok(report("accepted", done?)?)
            }
            Self::Drop(selection) => {
                let ids = selection.ids(gateway).await?;
                let progress = Progress::new("dropped");
                let done = for_each(gateway, &ids, Method::DELETE, "", &progress).await;
                Ok(report("dropped", done?)?)
            }
        }
    }
}

impl Filter {
    fn is_empty(&self) -> bool {
        let Self { source, reason, since, before } = self;
        source.is_none() && reason.is_none() && since.is_none() && before.is_none()
    }

    fn selects(&self, message: &Value) -> bool {
        let received = || message["received"].as_str().and_then(|time| Timestamp::parse(time).ok());
        self.source.as_ref().is_none_or(|source| message["source"] == source.as_str())
            && self.reason.as_ref().is_none_or(|part| message["reason"].as_str().is_some_and(|all| all.contains(part)))
            && self.since.is_none_or(|since| received().is_some_and(|received| received >= since))
            && self.before.is_none_or(|before| received().is_some_and(|received| received < before))
    }

    /// Returns `part` of at most `limit` selected messages, newest first.
    async fn select<T>(
        &self,
        gateway: &Gateway,
        limit: usize,
        part: impl Fn(Value) -> Option<T>,
    ) -> Result<Vec<T>, GatewayError> {
        let (mut selected, mut path) = (Vec::new(), format!("/quarantine?limit={PAGE}"));
        loop {
            let mut page = gateway.request(Method::GET, &path, None).await?;
            let messages = page["messages"].as_array_mut().map(std::mem::take).unwrap_or_default();
            let messages = messages.into_iter().filter(|message| self.selects(message));
            selected.extend(messages.filter_map(&part).take(limit - selected.len()));
            match page["next"].as_u64() {
                Some(next) if selected.len() < limit => path = format!("/quarantine?limit={PAGE}&before={next}"),
                _ => return Ok(selected),
            }
        }
    }
}

impl Selection {
    /// Returns the identifiers of the messages, the oldest first.
    async fn ids(&self, gateway: &Gateway) -> Result<Vec<u64>, CommandError> {
        if !self.ids.is_empty() {
            return Ok(self.ids.clone());
        }
        if self.filter.is_empty() && !self.all {
            let reason = "name the messages: give identifiers, --source, --reason, --since, --before or --all";
            return Err(Failure::Usage(reason.to_owned()).into());
        }
        // Of a message only the identifier stays in memory.
        let mut ids = self.filter.select(gateway, usize::MAX, |message| message["id"].as_u64()).await?;
        ids.reverse();
        Ok(ids)
    }
}

/// What became of messages.
#[derive(Debug, Default, PartialEq, Eq)]
struct Done {
    done: u64,
    /// Messages that somebody else has removed meanwhile.
    missing: u64,
    left: u64,
    /// Reasons for the first messages that are left.
    reasons: Vec<String>,
}

/// Sends a request for each message, in order.
async fn for_each(
    gateway: &Gateway,
    ids: &[u64],
    method: Method,
    suffix: &str,
    progress: &Progress,
) -> Result<Done, GatewayError> {
    let mut done = Done::default();
    for (number, id) in ids.iter().enumerate() {
        match request(gateway, method.clone(), &format!("/quarantine/{id}{suffix}")).await {
            Ok(()) => done.done += 1,
            Err(error) if error.status == Some(StatusCode::NOT_FOUND) => done.missing += 1,
            Err(error) if error.status.is_some_and(|status| status.is_client_error()) => {
                done.left += 1;
                if done.reasons.len() < SHOWN_REASONS {
                    done.reasons.push(format!("{id}: {}", error.reason));
                }
            }
            Err(error) => {
                progress.finish();
                let of = ids.len();
                say(&format!("stopped after {number} of {of} messages; give the command again to continue"));
                return Err(error);
            }
        }
        progress.update(number as u64 + 1, ids.len() as u64);
    }
    progress.finish();
    Ok(done)
}

/// Sends a request, and repeats it while the gateway cannot be reached or is not ready.
async fn request(gateway: &Gateway, method: Method, path: &str) -> Result<(), GatewayError> {
    let mut backoff = backoff();
    loop {
        match gateway.request(method.clone(), path, None).await {
            Err(error) if error.is_transient && backoff.failures() < ATTEMPTS => {
                let wait = backoff.next_wait().max(Duration::from_millis(100));
                tokio::time::sleep(wait).await;
            }
            result => return result.map(drop),
        }
    }
}

/// Prints what became of messages.
fn report(verb: &str, Done { done, missing, left, reasons }: Done) -> Result<(), Failure> {
    let missing = if missing > 0 { format!(", {missing} were gone already") } else { String::new() };
    print_text(&format!("{done} {verb}, {left} left{missing}\n"))?;
    if left == 0 {
        return Ok(());
    }
    let more = if left > reasons.len() as u64 { "\nand others" } else { "" };
    Err(Failure::Failed(format!("messages are left:\n{}{more}", reasons.join("\n"))))
}

/// Formats messages as JSON, one on each line.
fn lines(messages: &[Value]) -> String {
    messages.iter().map(|message| format!("{message}\n")).collect()
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

    use super::{Filter, SourceName, table, time};

    #[test]
    fn filters_select_by_source_reason_and_time() {
        let message = json!({
            "id": 1, "received": "2026-11-28T08:00:00.000Z", "source": "sfm", "reason": "this is not XML", "size": 4,
            "place": "message"
        });
        let selects = |filter: Filter| filter.selects(&message);
        assert!(selects(Filter::default()));
        assert!(selects(Filter { source: SourceName::parse("sfm").ok(), ..Filter::default() }));
        assert!(!selects(Filter { source: SourceName::parse("other").ok(), ..Filter::default() }));
        assert!(selects(Filter { reason: Some("not XML".to_owned()), ..Filter::default() }));
        assert!(!selects(Filter { reason: Some("JSON".to_owned()), ..Filter::default() }));
        let at = |text| time(text).ok();
        assert!(selects(Filter { since: at("2026-11-28T08:00:00Z"), ..Filter::default() }));
        assert!(!selects(Filter { before: at("2026-11-28T08:00:00Z"), ..Filter::default() }));
        let expected = "\
ID  RECEIVED                  SOURCE  BYTES  PLACE    REASON
1   2026-11-28T08:00:00.000Z  sfm     4      message  this is not XML
";
        assert_eq!(table(&[message]), expected);
    }
}
