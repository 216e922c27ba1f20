//! `tidings serve`: the gateway itself.

use std::{
    io::{self, IsTerminal},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use tidings::config::{Flags, Log, LogFormat};
use tracing_subscriber::{EnvFilter, filter::filter_fn, prelude::*};

use super::{ConfigFile, Failure, runtime};

const EXAMPLES: &str = "\
Examples:
  tidings serve
  tidings serve --config tidings.toml
  tidings serve --listen 127.0.0.1:9000 --data /var/lib/tidings
  TIDINGS_LOG__FILTER=debug tidings serve

An address that others can reach needs access control: `tidings token` makes a token and prints what
to put into the configuration.

SIGHUP has the certificate and key of [server.tls] read again.
It stops on SIGTERM and Ctrl-C: what was accepted is finished first.

Exit codes:
  0  stopped as told
  1  failed; standard error says why
  2  wrong usage or configuration";

/// Take events in and serve the changes.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Serve {
    #[command(flatten)]
    config: ConfigFile,
    /// The address and port to listen on, as in 127.0.0.1:8395; counts before the configuration.
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// The folder of the journal; counts before the configuration.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Listen without access control even where others can reach it.
    #[arg(long)]
    insecure: bool,
}

/// Time after which an idle thread for blocking work ends. The allocator keeps freed memory for each thread, which came to
/// 200 MB after large answers with the usual ten seconds.
const IDLE_THREAD: Duration = Duration::from_millis(100);

impl Serve {
    pub(super) fn run(self) -> Result<(), Failure> {
        let flags = Flags { listen: self.listen, data: self.data, insecure: self.insecure };
        let config = self.config.load(&flags)?;
        log_to_stderr(&config.log);
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.thread_keep_alive(IDLE_THREAD);
        let served = runtime(builder)?.block_on(tidings::app::serve(config));
        served.map_err(|error| Failure::Failed(error.to_string()))
    }
}

fn log_to_stderr(log: &Log) {
    let filter = EnvFilter::new(&log.filter);
    let colours = io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // It writes every frame, with passwords and bodies; what goes wrong there is told by what waits for it.
    let is_shown = filter_fn(|line| !line.target().starts_with("lapin"));
    match log.format {
        LogFormat::Text => lines.with_ansi(colours).finish().with(is_shown).init(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).finish().with(is_shown).init(),
    }
}
