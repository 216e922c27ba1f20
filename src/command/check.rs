//! `tidings check`: checks the configuration and prints a summary of the gateway that it describes.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::Value;
use tidings::{
    app,
    config::{Config, Connection, Flags, SourceConfig},
    delivery::Definition,
    files::FileStoreLocation,
    http_client::check_ca_certificates,
    journal::store::{StoreContent, StoreLocation, inspect},
    lookup::Mode,
    web::Tls,
};

use super::{ConfigFile, EXIT_CODES, Failure, print_text, say};

/// Check the configuration and print what the gateway would serve.
///
/// The command also opens the certificates and the journal that the configuration names. It starts and writes
/// nothing, and the gateway may keep running.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Check {
    #[command(flatten)]
    config: ConfigFile,
    /// Socket address to listen on; overrides the configuration, as for `serve`.
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Folder of the journal; overrides the configuration, as for `serve`.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Allow a public socket address without access control, as for `serve`.
    #[arg(long)]
    insecure: bool,
}

impl Check {
    pub(super) fn run(self) -> Result<(), Failure> {
        let flags = Flags { listen: self.listen, data: self.data, insecure: self.insecure };
        let config = self.config.load(&flags)?.all()?;
        let connection = app::connection_options(&config.store, config.journal.ca.as_deref());
        let journal = connection.map_err(|error| format!("journal.ca: {error}"));
        let journal = journal.and_then(|options| inspect(&config.store, &options).map_err(|error| error.to_string()));
        let summary = summary(&config, journal.as_ref().ok()).map_err(|error| Failure::Failed(error.to_string()))?;
        print_text(&summary)?;
        let mut problems = unusable_certificates(&config);
        problems.extend(journal.err());
        warning(&config).into_iter().chain(shared_objects(&config)).for_each(|warning| say(&warning));
        problems.iter().for_each(|problem| say(problem));
        match problems.len() {
            0 => Ok(()),
            1 => Err(Failure::Failed("1 problem found".to_owned())),
            several => Err(Failure::Failed(format!("{several} problems found"))),
        }
    }
}

fn summary(config: &Config, journal: Option<&StoreContent>) -> Result<String, fmt::Error> {
    let mut summary = String::new();
    writeln!(summary, "listen        {}", config.server.listen)?;
    writeln!(summary, "public URL    {}", config.server.public_url_at(config.server.listen).as_str())?;
    writeln!(summary, "TLS           {}", tls(config))?;
    let new = if journal == Some(&StoreContent::Empty) { " (a new journal)" } else { "" };
    match &config.store {
        StoreLocation::Folder(folder) => writeln!(summary, "data          {}{new}", folder.display())?,
        StoreLocation::Postgres(url) => {
            writeln!(summary, "journal       {url}{new}")?;
            writeln!(summary, "data          {}", config.journal.data.display())?;
        }
    }
    if let location @ FileStoreLocation::S3(_) = config.files.location(&config.journal.data) {
        writeln!(summary, "files         {location}")?;
    }
    writeln!(summary, "access        {}", access(config))?;
    if config.sources.is_empty() {
        writeln!(summary, "sources       none enabled")?;
    }
    for (name, source) in &config.sources {
        let (transport, dialect) = (source.transport.name, source.dialect.name);
        let signed = if source.signature.is_some() { ", signed" } else { "" };
        let hook = || format!("/hooks/{name}{signed}");
        let from = match &source.transport.connection {
            Connection::Hook => hook(),
            Connection::Broker(broker) => broker.describe(),
            Connection::Harvest(harvest) => harvest.kind.describe(),
            Connection::Datasets(datasets) => datasets.describe(),
        };
        let lookup = match &source.repository {
            Some(repository) if source.lookup != Mode::Off => {
                format!(", looks up in {} ({})", repository.url, source.lookup.name())
            }
            _ => String::new(),
        };
        writeln!(summary, "source        {name}: {transport}, {dialect}, {from}{lookup}")?;
    }
    for (name, subscription) in &config.subscriptions {
        let (delivery, format) = (subscription.delivery.name, subscription.format.name);
        let definition = subscription.redacted();
        let url = definition.get("url").and_then(Value::as_str).unwrap_or_default();
        writeln!(summary, "subscription  {name}: {delivery}, {format}, to {url}")?;
    }
    Ok(summary)
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
        _ if config.access.is_open() => "open to anyone who can reach it".to_owned(),
        [] => "by signature only; no tokens".to_owned(),
        names => format!("by token: {}", names.join(", ")),
    }
}

/// Returns a warning about a setting that is valid but probably not intended.
fn warning(config: &Config) -> Option<String> {
    let url = config.server.lacks_public_url().then(|| config.server.url_on_this_machine())?;
    Some(format!(
        "server.public_url is not set: links in the feed and in responses lead to {url}, which only this machine can \
         reach; set it to the URL that readers use"
    ))
}

/// Returns a warning about each group of sources that have the same objects.
fn shared_objects(config: &Config) -> Vec<String> {
    let mut groups = BTreeMap::<_, Vec<_>>::new();
    for (name, source) in &config.sources {
        if let Connection::Harvest(harvest) = &source.transport.connection
            && let Some(objects) = &harvest.objects
        {
            groups.entry(objects).or_default().push((name.to_string(), harvest.kind.describe()));
        }
    }
    let groups = groups.into_values().filter(|sources| sources.len() > 1);
    let warning = |sources: Vec<(String, String)>| {
        let names: Vec<_> = sources.iter().map(|(name, _)| name.as_str()).collect();
        format!(
            "the sources {} have the same objects ({}), so each of them overwrites what another one reports; use one source \
             instead, over OAI-PMH with the sets of all",
            names.join(" and "),
            sources[0].1
        )
    };
    groups.map(warning).collect()
}

/// Returns a message for each certificate file that cannot be used.
fn unusable_certificates(config: &Config) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(Err(error)) = config.server.tls.as_ref().map(|files| Tls::load(&files.certificate, &files.key)) {
        problems.push(format!("server.tls: {error}"));
    }
    let source_files = config.sources.iter().flat_map(|(name, source)| {
        ca_certificates(source).into_iter().map(move |(key, path)| (format!("sources.{name}.{key}"), path.to_owned()))
    });
    let subscription_files = config.subscriptions.iter().filter_map(|(name, definition)| {
        subscription_ca_certificate(definition).map(|path| (format!("subscriptions.{name}.ca"), path))
    });
    let bucket = match config.files.location(&config.journal.data) {
        FileStoreLocation::S3(settings) => settings.ca.map(|path| ("files.s3.ca".to_owned(), path)),
        FileStoreLocation::Folder(_) => None,
    };
    problems.extend(
        source_files
            .chain(subscription_files)
            .chain(bucket)
            .filter_map(|(key, path)| check_ca_certificates(&path).err().map(|error| format!("{key}: {error}"))),
    );
    problems
}

/// Returns the CA certificate files of a source, each with the key of its setting.
fn ca_certificates(source: &SourceConfig) -> Vec<(&'static str, &Path)> {
    let transport_ca = match &source.transport.connection {
        Connection::Hook | Connection::Datasets(_) => None,
        Connection::Broker(broker) => broker.ca(),
        Connection::Harvest(harvest) => harvest.kind.ca(),
    };
    let repository_ca = source.repository.as_ref().and_then(|repository| repository.ca.as_deref());
    let files = [("ca", transport_ca), ("repository.ca", repository_ca)];
    files.into_iter().filter_map(|(key, path)| Some((key, path?))).collect()
}

fn subscription_ca_certificate(definition: &Definition) -> Option<PathBuf> {
    definition.redacted().get("ca").and_then(Value::as_str).map(PathBuf::from)
}
