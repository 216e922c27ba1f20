//! The real gateway program with default settings, one source and one subscription.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use super::queue_pair::QueuePair;

/// Running gateway.
pub(crate) struct GatewayProcess(Child);

impl GatewayProcess {
    /// Starts the gateway with the journal in `folder`, which is created if it does not exist.
    pub(crate) fn start(queues: &QueuePair<'_>, folder: &Path) -> Self {
        let config = folder.join("tidings.toml");
        fs::write(&config, tables(queues)).unwrap();
        let mut serve = Command::new(env!("CARGO_BIN_EXE_tidings"));
        serve
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder.join("data"))
            .arg("--config")
            .arg(&config);
        let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the gateway does not start: see {}", config.display());
        Self(child)
    }

    pub(crate) fn process(&self) -> u32 {
        self.0.id()
    }

    /// Stops the gateway by SIGTERM and waits for its end.
    pub(crate) fn stop(mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// Returns the tables of the source and the subscription.
pub(crate) fn tables(queues: &QueuePair<'_>) -> String {
    let (url, kind) = (queues.vhost.url(), queues.kind);
    let (exchange, queue, changes, out) = (QueuePair::EXCHANGE, QueuePair::IN, QueuePair::CHANGES, QueuePair::OUT);
    format!(
        "[sources.sfm]\ntransport = \"amqp\"\ndialect = \"sfm\"\nurl = \"{url}\"\nexchange = \"{exchange}\"\n\
         queue = \"{queue}\"\nqueue_type = \"{kind}\"\nsettings = {{ base_url = \"https://sfm.example.org\" }}\n\
         [subscriptions.index]\ndelivery = \"amqp\"\nstart = \"beginning\"\nurl = \"{url}\"\n\
         exchange = \"{changes}\"\nqueues = [{{ name = \"{out}\", bindings = [\"#\"], type = \"{kind}\" }}]\n"
    )
}
