//! `tidings health`: health check of a gateway, for containers and scripts that have no other HTTP client.

use std::time::Duration;

use clap::Args;
use reqwest::StatusCode;
use tidings::http_client::describe_error;

use super::{
    Failure,
    gateway::{GatewayArgs, GatewayUrl},
    http::{Trust, client_for, describe_response, read_body},
    print_text, runtime,
};

const EXAMPLES: &str = "\
Examples:
  tidings health
  tidings health --config /etc/tidings/tidings.toml --ready
  tidings health --gateway https://tidings.example.org

The command requests /healthz, which succeeds when the process responds. With --ready it requests /readyz, which \
succeeds when the journal can be written and the sources are being read. Neither needs a token.

Exit codes:
  0  the gateway is healthy
  1  the gateway is not healthy or cannot be reached; standard error says why
  2  wrong usage or configuration";

/// Check whether a gateway is healthy.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Health {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Check that the gateway can do its work, not only that it responds.
    #[arg(long)]
    ready: bool,
    /// Maximum time until the response, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=300))]
    timeout: u64,
}

impl Health {
    pub(super) fn run(self) -> Result<(), Failure> {
        let GatewayUrl { url: gateway, is_configured } = self.gateway.url()?;
        let path = if self.ready { "readyz" } else { "healthz" };
        let url = format!("{}/{path}", gateway.as_str().trim_end_matches('/'));
        // The gateway of this machine is reached by IP address, which its certificate does not cover. Nothing secret
        // is sent, not even the token.
        let trust = if is_configured { Trust::Anybody } else { self.gateway.trust() };
        let client = client_for(&gateway, trust).map_err(Failure::Usage)?.timeout(Duration::from_secs(self.timeout));
        let client = client.build().map_err(|error| Failure::Failed(describe_error(&error)))?;
        let runtime = runtime(tokio::runtime::Builder::new_current_thread())?;
        let result = runtime.block_on(async {
            let response = client.get(&url).send().await?;
            Ok((response.status(), read_body(response).await?))
        });
        // Does not wait for a pending DNS lookup.
        runtime.shutdown_background();
        let failed = |reason: String| Failure::Failed(format!("{url}: {reason}"));
        match result {
            Ok((StatusCode::OK, body)) => print_text(&format!("{}\n", String::from_utf8_lossy(&body).trim())),
            Ok((status, body)) => Err(failed(describe_response(status, &body))),
            Err(error) => Err(failed(describe_error(&error))),
        }
    }
}
