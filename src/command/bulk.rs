//! Operations on many messages that a gateway lists page by page, such as those of the quarantine: select some of them, and
//! send a request for each, the oldest first.

use std::time::Duration;

use clap::Args;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use tidings::model::Timestamp;

use super::{
    Failure,
    gateway::{Gateway, GatewayArgs, GatewayError},
    http::backoff,
    print_text,
    progress::Progress,
    runtime, say,
};

/// Number of messages on a page of a list.
const PAGE: usize = 1000;

/// Number of messages that a list shows, unless another one is given.
pub(super) const SHOWN: usize = 100;

/// Number of reasons that are shown for messages that are left.
const SHOWN_REASONS: usize = 5;

/// Number of attempts for each message while the gateway cannot be reached or is not ready.
const ATTEMPTS: u32 = 6;

/// Conditions on messages, all of which must hold.
#[derive(Args, Default)]
pub(super) struct Conditions {
    /// Only messages whose reason contains this text.
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: Option<String>,
    /// Only messages of this time or later: when they were received or, of dead letters, last refused.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) since: Option<Timestamp>,
    /// Only messages before this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) before: Option<Timestamp>,
}

/// Parses a time argument.
pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text).map_err(|error| error.to_string())
}

impl Conditions {
    /// Returns whether there is no condition.
    pub(super) fn is_empty(&self) -> bool {
        let Self { reason, since, before } = self;
        reason.is_none() && since.is_none() && before.is_none()
    }

    /// Returns whether a message fulfils all conditions. `time` is the member with its time.
    pub(super) fn select(&self, message: &Value, time: &str) -> bool {
        let at = || message[time].as_str().and_then(|time| Timestamp::parse(time).ok());
        self.reason.as_ref().is_none_or(|part| message["reason"].as_str().is_some_and(|all| all.contains(part)))
            && self.since.is_none_or(|since| at().is_some_and(|at| at >= since))
            && self.before.is_none_or(|before| at().is_some_and(|at| at < before))
    }
}

/// A list of messages at a gateway, newest first.
pub(super) struct MessageList {
    /// Path with its query, which may be empty.
    pub(super) path: String,
    /// Member of a page with the messages.
    pub(super) items: &'static str,
    /// Member of a message with its time.
    pub(super) time: &'static str,
}

impl MessageList {
    /// Returns `part` of at most `limit` messages that fulfil the conditions, newest first.
    pub(super) async fn select<T>(
        &self,
        gateway: &Gateway,
        conditions: &Conditions,
        limit: usize,
        part: impl Fn(Value) -> Option<T>,
    ) -> Result<Vec<T>, GatewayError> {
        let joint = if self.path.contains('?') { '&' } else { '?' };
        let page_path = format!("{}{joint}limit={PAGE}", self.path);
        let (mut selected, mut path) = (Vec::new(), page_path.clone());
        loop {
            let mut page = gateway.request(Method::GET, &path, None).await?;
            let messages = page[self.items].as_array_mut().map(std::mem::take).unwrap_or_default();
            let messages = messages.into_iter().filter(|message| conditions.select(message, self.time));
            selected.extend(messages.filter_map(&part).take(limit - selected.len()));
            match page["next"].as_u64() {
                Some(next) if selected.len() < limit => path = format!("{page_path}&before={next}"),
                _ => return Ok(selected),
            }
        }
    }

    /// Returns the identifiers of the messages that fulfil the conditions, the oldest first.
    pub(super) async fn ids(&self, gateway: &Gateway, conditions: &Conditions) -> Result<Vec<u64>, GatewayError> {
        // Of a message only the identifier stays in memory.
        let mut ids = self.select(gateway, conditions, usize::MAX, |message| message["id"].as_u64()).await?;
        ids.reverse();
        Ok(ids)
    }
}

/// Reason why a command fails.
pub(super) enum CommandError {
    /// The gateway refused, or cannot be reached.
    Gateway(GatewayError),
    /// Another reason.
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

/// Runs `work` with a client for the gateway of the arguments.
pub(super) fn with_gateway(
    args: &GatewayArgs,
    work: impl AsyncFnOnce(Gateway) -> Result<(), CommandError>,
) -> Result<(), Failure> {
    let (at, gateway) = args.connect()?;
    let runtime = runtime(tokio::runtime::Builder::new_current_thread())?;
    let result = runtime.block_on(work(gateway));
    // Does not wait for a pending DNS lookup.
    runtime.shutdown_background();
    match result {
        Ok(()) => Ok(()),
        Err(CommandError::Gateway(error)) => Err(Failure::Failed(format!("{at}: {}", error.reason))),
        Err(CommandError::Failure(failure)) => Err(failure),
    }
}

/// Number of messages by outcome.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    done: u64,
    /// Messages that somebody else has removed meanwhile.
    missing: u64,
    left: u64,
    /// Reasons for the first messages that are left.
    reasons: Vec<String>,
}

/// Sends a request to the path of each message below `path`, in order.
pub(super) async fn for_each(
    gateway: &Gateway,
    path: &str,
    ids: &[u64],
    method: Method,
    suffix: &str,
    progress: &Progress,
) -> Result<Done, GatewayError> {
    let mut done = Done::default();
    for (number, id) in ids.iter().enumerate() {
        match request(gateway, method.clone(), &format!("{path}/{id}{suffix}")).await {
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
pub(super) fn report(verb: &str, Done { done, missing, left, reasons }: Done) -> Result<(), Failure> {
    let missing = if missing > 0 { format!(", {missing} were gone already") } else { String::new() };
    print_text(&format!("{done} {verb}, {left} left{missing}\n"))?;
    if left == 0 {
        return Ok(());
    }
    let more = if left > reasons.len() as u64 { "\nand others" } else { "" };
    Err(Failure::Failed(format!("messages are left:\n{}{more}", reasons.join("\n"))))
}

/// Formats messages as JSON, one on each line.
pub(super) fn lines(messages: &[Value]) -> String {
    messages.iter().map(|message| format!("{message}\n")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Conditions, time};

    #[test]
    fn conditions_select_by_reason_and_time() {
        let message = json!({ "received": "2026-11-28T08:00:00.000Z", "reason": "this is not XML" });
        let selects = |conditions: Conditions| conditions.select(&message, "received");
        assert!(selects(Conditions::default()));
        assert!(selects(Conditions { reason: Some("not XML".to_owned()), ..Conditions::default() }));
        assert!(!selects(Conditions { reason: Some("JSON".to_owned()), ..Conditions::default() }));
        let at = |text| time(text).ok();
        assert!(selects(Conditions { since: at("2026-11-28T08:00:00Z"), ..Conditions::default() }));
        assert!(!selects(Conditions { before: at("2026-11-28T08:00:00Z"), ..Conditions::default() }));
    }
}
