//! `tidings publish`: brings the published copy of a gateway up to date now.

use std::time::{Duration, Instant};

use clap::Args;
use reqwest::Method;
use serde_json::Value;

use super::{
    Failure,
    bulk::{CommandError, with_gateway},
    gateway::{Gateway, GatewayArgs},
    output::{cell, counted},
    print_text,
};

const EXAMPLES: &str = "\
Examples:
  tidings publish
  TIDINGS_TOKEN=tdg_… tidings publish --gateway https://tidings.example.org

The gateway writes the copy that its table [publish] describes at intervals by itself; the command asks for a run now and \
waits for its end. docs/publish.md has the settings of the gateway and of web servers. The token needs the scope admin.

Exit codes:
  0  the copy is up to date
  1  failed; standard error says why
  2  wrong usage or configuration";

/// Time between two looks at the state.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Bring the published copy of a gateway up to date.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Publish {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Maximum time to wait for the end, in seconds. The gateway continues after it.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    wait: u64,
}

impl Publish {
    pub(super) fn run(&self) -> Result<(), Failure> {
        with_gateway(&self.gateway, async |gateway| publish(&gateway, Duration::from_secs(self.wait)).await)
    }
}

async fn publish(gateway: &Gateway, wait: Duration) -> Result<(), CommandError> {
    let mut state = gateway.request(Method::POST, "/publication", None).await?;
    let number = |state: &Value, name: &str| state[name].as_u64().unwrap_or_default();
    let requested = number(&state, "requested");
    let end = Instant::now() + wait;
    while number(&state, "answered") < requested {
        if Instant::now() >= end {
            let seconds = wait.as_secs();
            let reason = format!(
                "the run has not ended within {seconds} s, and the gateway continues it; GET /publication shows its end, and \
                 --wait sets another time"
            );
            return Err(Failure::Failed(reason).into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
        state = gateway.request(Method::GET, "/publication", None).await?;
        if state["here"] != true || number(&state, "requested") < requested {
            let reason = "the gateway was restarted, or another node writes the copy now; give the command again";
            return Err(Failure::Failed(reason.to_owned()).into());
        }
    }
    let last = &state["last"];
    if let Some(error) = last["error"].as_str() {
        return Err(Failure::Failed(cell(error)).into());
    }
    print_text(&format!(
        "{} goes up to change {}: {} written, {} removed\n",
        cell(state["location"].as_str().unwrap_or_default()),
        number(last, "head"),
        counted(number(last, "documents"), "document"),
        counted(number(last, "removed"), "file"),
    ))?;
    Ok(())
}
