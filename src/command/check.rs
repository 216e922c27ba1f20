//! `tidings check`: is the configuration right, and what would be served?

use std::fmt::{self, Write};

use clap::Args;
use serde_json::Value;
use tidings::{
    config::{Config, Flags, Transport},
    lookup::Mode,
};

use super::{ConfigFile, EXIT_CODES, Failure, print};

/// Check the configuration and print what would be served.
///
/// Nothing is started or written.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Check {
    #[command(flatten)]
    config: ConfigFile,
}

impl Check {
    pub(super) fn run(self) -> Result<(), Failure> {
        let config = self.config.load(&Flags::default())?;
        let told = tell(&config).map_err(|error| Failure::Failed(error.to_string()))?;
        print(told.as_bytes())
    }
}

fn tell(config: &Config) -> Result<String, fmt::Error> {
    let mut told = String::new();
    writeln!(told, "listen        {}", config.server.listen)?;
    writeln!(told, "public URL    {}", config.server.public_url_at(config.server.listen).as_str())?;
    writeln!(told, "data          {}", config.journal.data.display())?;
    writeln!(told, "access        {}", access(config))?;
    if config.sources.is_empty() {
        writeln!(told, "sources       none is enabled")?;
    }
    for (name, source) in &config.sources {
        let (transport, dialect) = (source.transport.name(), source.dialect.name);
        let signed = if source.signature.is_some() { ", signed" } else { "" };
        let from = match &source.transport {
            Transport::Http => format!("/hooks/{name}{signed}"),
            Transport::Amqp(queue) => format!("the queue {} of {}", queue.queue, queue.address),
            Transport::Stomp(stomp) => format!("{} of {}", stomp.destination, stomp.address),
        };
        let asked = match &source.repository {
            Some(repository) if source.lookup != Mode::Off => {
                format!(", asks {} ({})", repository.url, source.lookup.name())
            }
            _ => String::new(),
        };
        writeln!(told, "source        {name}: {transport}, {dialect}, {from}{asked}")?;
    }
    for (name, subscription) in &config.subscriptions {
        let (delivery, format) = (subscription.delivery.name, subscription.format.name);
        let shown = subscription.shown();
        let url = shown.get("url").and_then(Value::as_str).unwrap_or_default();
        writeln!(told, "subscription  {name}: {delivery}, {format}, to {url}")?;
    }
    Ok(told)
}

fn access(config: &Config) -> String {
    let tokens: Vec<_> = config.access.tokens().collect();
    match tokens.as_slice() {
        _ if config.access.is_open() => "open to whoever reaches it".to_owned(),
        [] => "by signature alone; no token".to_owned(),
        names => format!("by token: {}", names.join(", ")),
    }
}
