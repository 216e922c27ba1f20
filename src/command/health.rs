//! `tidings health`: whether a gateway answers, for containers and scripts that have no other client.

use std::time::Duration;

use clap::Args;
use reqwest::StatusCode;
use tidings::{config::Flags, http_client::trouble};
use url::Url;

use super::{
    ConfigFile, Failure,
    gateway::of_the_configuration,
    http::{client_for, http_url, told, why},
    print, runtime,
};

const EXAMPLES: &str = "\
Examples:
  tidings health
  tidings health --config /etc/tidings/tidings.toml --ready
  tidings health --gateway https://tidings.example.org

It asks /healthz, whether the process answers; with --ready /readyz, whether the journal can be written and
the sources are read. Neither needs a token.

Exit codes:
  0  it does
  1  it does not; standard error says why
  2  wrong usage or configuration";

/// Ask a gateway whether it is well.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Health {
    #[command(flatten)]
    config: ConfigFile,
    /// The gateway; without it, the one that the configuration has listening on this machine.
    #[arg(long, env = "TIDINGS_GATEWAY", value_name = "URL", value_parser = http_url)]
    gateway: Option<Url>,
    /// Ask whether it can do its work, and not only whether it answers.
    #[arg(long)]
    ready: bool,
    /// How long the answer may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=300))]
    timeout: u64,
}

impl Health {
    pub(super) fn run(self) -> Result<(), Failure> {
        let (gateway, is_of_the_configuration) = match self.gateway {
            Some(gateway) => (gateway, false),
            None => (of_the_configuration(&self.config.load(&Flags::default())?)?, true),
        };
        let path = if self.ready { "readyz" } else { "healthz" };
        let url = format!("{}/{path}", gateway.as_str().trim_end_matches('/'));
        // The certificate is for the public name, and nothing secret is sent to the gateway of this machine.
        let client = client_for(&gateway)
            .timeout(Duration::from_secs(self.timeout))
            .tls_danger_accept_invalid_certs(is_of_the_configuration)
            .build()
            .map_err(|error| Failure::Failed(trouble(&error)))?;
        let runtime = runtime(tokio::runtime::Builder::new_current_thread())?;
        let answer = runtime.block_on(async {
            let response = client.get(&url).send().await?;
            Ok((response.status(), told(response).await?))
        });
        // A look-up of a name that nobody waits for any more would keep it.
        runtime.shutdown_background();
        let failed = |reason: String| Failure::Failed(format!("{url}: {reason}"));
        match answer {
            Ok((StatusCode::OK, told)) => print(format!("{}\n", String::from_utf8_lossy(&told).trim()).as_bytes()),
            Ok((status, told)) => Err(failed(why(status, &told))),
            Err(error) => Err(failed(trouble(&error))),
        }
    }
}
