//! `tidings serve`: runs the gateway.

use std::{
    error::Error,
    io::{self, IsTerminal},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use tidings::{
    app::ConfigSource,
    config::{Config, Fingerprint, Flags, LogConfig, LogFormat, listen_address},
};
use tracing_subscriber::{EnvFilter, filter::filter_fn, prelude::*};

use super::{
    ConfigFile, Failure,
    log_writer::{LogWriter, Notation},
    runtime,
    stop_signal::stop_signal,
};

const EXAMPLES: &str = "\
Examples:
  tidings serve
  tidings serve --config tidings.toml
  tidings serve --listen 127.0.0.1:9000 --data /var/lib/tidings
  TIDINGS_LOG__FILTER=debug tidings serve

A public socket address requires access control: `tidings token` makes a token and prints the lines for the configuration.

SIGHUP reads the configuration again, with the certificate of [server.tls]. SIGTERM and Ctrl-C stop the gateway after it has finished \
the requests that it has accepted.

Exit codes:
  0  stopped by a signal
  1  failed; standard error says why
  2  wrong usage or configuration";

/// Run the gateway: receive events and serve the changes.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Serve {
    #[command(flatten)]
    config: ConfigFile,
    /// Socket address to listen on, as in 127.0.0.1:8395; overrides the configuration.
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// Folder of the journal; overrides the configuration.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Begin a new journal although the folder had one whose file is missing or empty. The new one uses none of its
    /// numbers. An existing journal is never replaced.
    #[arg(long)]
    new_journal: bool,
    /// Allow a public socket address without access control, for a proxy in front that controls access.
    #[arg(long)]
    insecure: bool,
}

/// Time after which an idle thread for blocking work ends. The default of ten seconds cost 200 MB after large
/// responses, because the allocator retains freed memory for each thread.
const IDLE_THREAD: Duration = Duration::from_millis(100);

/// Time for work on blocking threads to end after the gateway has stopped. A thread that waits for the operating system,
/// such as for a file of a dead network disk, ends with the process.
const UNFINISHED_WORK: Duration = Duration::from_millis(500);

impl Serve {
    pub(super) fn run(self) -> Result<(), Failure> {
        let flags = Flags { listen: self.listen, data: self.data, insecure: self.insecure };
        let parts = self.config.load(&flags)?;
        let fingerprint = parts.fingerprint();
        let mut config = parts.all()?;
        config.begin_new_journal = self.new_journal;
        let set_filter = log_to_stderr(&config.log);
        let layers =
            ConfigLayers { file: self.config, flags, log: config.log.clone(), grace: config.server.grace, set_filter };
        let stop = stop_signal(config.server.grace)
            .map_err(|error| Failure::Failed(format!("cannot start the thread that waits for signals: {error}")))?;
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.thread_keep_alive(IDLE_THREAD);
        let runtime = runtime(builder)?;
        let served = runtime.block_on(tidings::app::serve(config, fingerprint, Box::new(layers), stop));
        runtime.shutdown_timeout(UNFINISHED_WORK);
        served.map_err(|error| Failure::Failed(error.to_string()))
    }
}

/// The layers of the configuration, which a reload reads again.
struct ConfigLayers {
    file: ConfigFile,
    flags: Flags,
    /// Log of the process.
    log: LogConfig,
    /// Grace time of the process.
    grace: Duration,
    set_filter: SetFilter,
}

impl ConfigSource for ConfigLayers {
    fn load(&self) -> Result<(Config, Fingerprint), Box<dyn Error + Send + Sync>> {
        let parts = self.file.load(&self.flags)?;
        let fingerprint = parts.fingerprint();
        Ok((parts.all()?, fingerprint))
    }

    fn apply(&self, config: &Config) -> Vec<&'static str> {
        (self.set_filter)(filter(&config.log));
        let mut lasting = Vec::new();
        lasting.extend((config.log.format != self.log.format).then_some("log.format"));
        lasting.extend((config.server.grace > self.grace).then_some("server.grace_seconds"));
        lasting
    }
}

/// Sets the filter of the log.
type SetFilter = Box<dyn Fn(EnvFilter) + Send + Sync>;

fn filter(log: &LogConfig) -> EnvFilter {
    // The client of Kafka logs each step and each failed attempt; the gateway logs the outcome.
    EnvFilter::new(format!("rskafka=off,{}", log.filter))
}

fn log_to_stderr(log: &LogConfig) -> SetFilter {
    let colours = io::stderr().is_terminal();
    let notation = match log.format {
        LogFormat::Text => Notation::Text { colours },
        LogFormat::Json => Notation::Json,
    };
    // The subscriber would report a line that cannot be written on the same stderr, and panic because that fails too.
    let lines = tracing_subscriber::fmt().log_internal_errors(false);
    let lines = lines.with_env_filter(filter(log)).with_writer(move || LogWriter::new(notation));
    // lapin logs every frame, with passwords and bodies. Its errors are logged by its callers.
    let not_lapin = filter_fn(|line| !line.target().starts_with("lapin"));
    match log.format {
        LogFormat::Text => {
            let lines = lines.with_ansi(colours).with_filter_reloading();
            let filter = lines.reload_handle();
            lines.finish().with(not_lapin).init();
            // Fails only without a subscriber, and this one lasts.
            Box::new(move |new| drop(filter.reload(new)))
        }
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_current_span(false).with_filter_reloading();
            let filter = lines.reload_handle();
            lines.finish().with(not_lapin).init();
            Box::new(move |new| drop(filter.reload(new)))
        }
    }
}
