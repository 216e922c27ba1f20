//! `tidings check`: is the configuration right, and what would be served?

use std::{
    fmt::{self, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::Value;
use tidings::{
    config::{Config, Flags, SourceConfig},
    delivery::Definition,
    http_client::check_authority,
    journal::store::sqlite::inspect::{Found, inspect},
    lookup::Mode,
    web::Tls,
};

use super::{ConfigFile, EXIT_CODES, Failure, print, say};

/// Check the configuration and print what would be served.
///
/// The certificates and the folder that the configuration names are looked at too. Nothing is started or written, and the
/// gateway may run meanwhile.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Check {
    #[command(flatten)]
    config: ConfigFile,
    /// As for `serve`.
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// As for `serve`.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// As for `serve`.
    #[arg(long)]
    insecure: bool,
}

impl Check {
    pub(super) fn run(self) -> Result<(), Failure> {
        let flags = Flags { listen: self.listen, data: self.data, insecure: self.insecure };
        let config = self.config.load(&flags)?;
        let found = inspect(&config.journal.data);
        let told = tell(&config, found.as_ref().ok()).map_err(|error| Failure::Failed(error.to_string()))?;
        print(told.as_bytes())?;
        let mut wrong = wrong_files(&config);
        wrong.extend(found.err().map(|error| error.to_string()));
        warning(&config).iter().for_each(|warning| say(warning));
        wrong.iter().for_each(|reason| say(reason));
        match wrong.len() {
            0 => Ok(()),
            1 => Err(Failure::Failed("1 thing is wrong".to_owned())),
            several => Err(Failure::Failed(format!("{several} things are wrong"))),
        }
    }
}

fn tell(config: &Config, found: Option<&Found>) -> Result<String, fmt::Error> {
    let mut told = String::new();
    writeln!(told, "listen        {}", config.server.listen)?;
    writeln!(told, "public URL    {}", config.server.public_url_at(config.server.listen).as_str())?;
    writeln!(told, "TLS           {}", tls(config))?;
    let new = if found == Some(&Found::Nothing) { " (a new journal)" } else { "" };
    writeln!(told, "data          {}{new}", config.journal.data.display())?;
    writeln!(told, "access        {}", access(config))?;
    if config.sources.is_empty() {
        writeln!(told, "sources       none is enabled")?;
    }
    for (name, source) in &config.sources {
        let (transport, dialect) = (source.transport.name, source.dialect.name);
        let signed = if source.signature.is_some() { ", signed" } else { "" };
        let hook = || format!("/hooks/{name}{signed}");
        let from = source.transport.broker.as_ref().map_or_else(hook, |broker| broker.describe());
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

fn tls(config: &Config) -> String {
    match &config.server.tls {
        Some(files) => format!("the certificate {}, the key {}", files.certificate.display(), files.key.display()),
        None => "none, nothing is encrypted".to_owned(),
    }
}

fn access(config: &Config) -> String {
    let expired: Vec<_> = config.access.expired().collect();
    let tokens = config
        .access
        .tokens()
        .map(|name| if expired.contains(&name) { format!("{name} (expired)") } else { name.to_owned() });
    let tokens: Vec<_> = tokens.collect();
    match tokens.as_slice() {
        _ if config.access.is_open() => "open to whoever reaches it".to_owned(),
        [] => "by signature alone; no token".to_owned(),
        names => format!("by token: {}", names.join(", ")),
    }
}

/// A setting that is allowed, and perhaps not meant.
fn warning(config: &Config) -> Option<String> {
    let url = config.server.lacks_public_url().then(|| config.server.url_on_this_machine())?;
    Some(format!(
        "server.public_url is not set: links in the feed and in answers lead to {url}, which only this machine reaches"
    ))
}

/// Certificates that cannot be used.
fn wrong_files(config: &Config) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some(Err(error)) = config.server.tls.as_ref().map(|files| Tls::load(&files.certificate, &files.key)) {
        wrong.push(format!("server.tls: {error}"));
    }
    let of_sources = config.sources.iter().flat_map(|(name, source)| {
        authorities(source).into_iter().map(move |(key, path)| (format!("sources.{name}.{key}"), path.to_owned()))
    });
    let of_subscriptions = config.subscriptions.iter().filter_map(|(name, definition)| {
        authority_of(definition).map(|path| (format!("subscriptions.{name}.ca"), path))
    });
    wrong.extend(
        of_sources
            .chain(of_subscriptions)
            .filter_map(|(key, path)| check_authority(&path).err().map(|error| format!("{key}: {error}"))),
    );
    wrong
}

/// The files of authorities that a source is configured with, and their keys.
fn authorities(source: &SourceConfig) -> Vec<(&'static str, &Path)> {
    let of_the_broker = source.transport.broker.as_ref().and_then(|broker| broker.ca());
    let of_the_repository = source.repository.as_ref().and_then(|repository| repository.ca.as_deref());
    let named = [("ca", of_the_broker), ("repository.ca", of_the_repository)];
    named.into_iter().filter_map(|(key, path)| Some((key, path?))).collect()
}

fn authority_of(definition: &Definition) -> Option<PathBuf> {
    definition.shown().get("ca").and_then(Value::as_str).map(PathBuf::from)
}
