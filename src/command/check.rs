//! `tidings check`: checks the configuration and prints a summary of the gateway that it describes.

mod connections;

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use chrono::{DateTime, Utc};
use clap::Args;
use serde_json::Value;
use tidings::{
    app::{self, ServeError},
    config::{Config, Connection, Flags, SourceConfig, listen_address},
    delivery::Definition,
    files::FileStoreLocation,
    http_client::check_ca_certificates,
    journal::store::{StoreContent, StoreLocation, inspect, is_in_use},
    lookup::Mode,
    model::SourceName,
    web::Tls,
};

use super::{ConfigFile, Failure, print_text, runtime, say};

const EXAMPLES: &str = "\
Examples:
  tidings check --config tidings.toml
  sudo tidings check --environment /etc/tidings/environment --connect

A problem would stop `serve`, or with --connect a source or a subscription. A warning would not. Both have the words of \
`serve`.

Exit codes:
  0  there is no problem; there may be warnings
  1  there is a problem; standard error says which
  2  wrong usage or configuration";

/// Check the configuration and print what the gateway would serve.
///
/// The command opens what `serve` opens: the certificates, the journal and its folder, with --connect also the socket
/// address, the brokers, the servers of webhooks and the folders. It starts and writes nothing, and the gateway may keep
/// running.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Check {
    #[command(flatten)]
    config: ConfigFile,
    /// Socket address to listen on; overrides the configuration, as for `serve`.
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// Folder of the journal; overrides the configuration, as for `serve`.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Allow a public socket address without access control, as for `serve`.
    #[arg(long)]
    insecure: bool,
    /// Also try what needs the network or another disk: the socket address, the brokers of sources and subscriptions with
    /// their users, queues, exchanges and topics, the servers of webhooks with their certificates, and the folders of
    /// harvests, each within ten seconds or the `connect_seconds` of a webhook. Nothing is declared, consumed or sent, and
    /// no webhook gets a request.
    #[arg(long)]
    connect: bool,
}

impl Check {
    pub(super) fn run(self) -> Result<(), Failure> {
        let flags = Flags { listen: self.listen, data: self.data, insecure: self.insecure };
        let config = self.config.load(&flags)?.all()?;
        let connection = app::connection_options(&config.store, config.journal.ca.as_deref());
        let journal = connection.map_err(|error| format!("journal.ca: {error}"));
        let journal = journal.and_then(|options| inspect(&config.store, &options).map_err(|error| error.to_string()));
        let tls = config.server.tls.as_ref().map(|files| Tls::load(&files.certificate, &files.key)).transpose();
        let expires = tls.as_ref().ok().and_then(|tls| tls.as_ref()?.expires());
        let summary = summary(&config, journal.as_ref().ok(), expires);
        print_text(&summary.map_err(|error| Failure::Failed(error.to_string()))?)?;
        let mut warnings = app::warnings(&config);
        warnings.extend(tls.as_ref().ok().and_then(|tls| tls.as_ref()?.warning()));
        let mut problems: Vec<_> = tls.err().map(|error| format!("server.tls: {error}")).into_iter().collect();
        problems.extend(unusable_ca_certificates(&config));
        problems.extend(journal.err());
        let runtime = runtime(tokio::runtime::Builder::new_multi_thread())?;
        if self.connect {
            // A listener belongs to the runtime that is entered.
            let entered = runtime.enter();
            problems.extend(unusable_address(&config));
            drop(entered);
            let (tried, unusable) = runtime.block_on(connections::try_all(&config));
            print_text(&format!("tried         {tried}\n"))?;
            problems.extend(unusable);
        }
        runtime.shutdown_background();
        warnings.extend(source_warnings(&config));
        warnings.extend(shared_objects(&config));
        warnings.iter().chain(&problems).for_each(|text| say(text));
        match problems.len() {
            0 => Ok(()),
            1 => Err(Failure::Failed("1 problem found".to_owned())),
            several => Err(Failure::Failed(format!("{several} problems found"))),
        }
    }
}

fn summary(
    config: &Config,
    journal: Option<&StoreContent>,
    expires: Option<DateTime<Utc>>,
) -> Result<String, fmt::Error> {
    let mut summary = String::new();
    writeln!(summary, "listen        {}", config.server.listen)?;
    writeln!(summary, "public URL    {}", config.server.public_url_at(config.server.listen).as_str())?;
    writeln!(summary, "TLS           {}", tls(config, expires))?;
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
    match config.segments.location(&config.store, &config.journal.data) {
        Some(location @ FileStoreLocation::S3(_)) => writeln!(summary, "segments      {location}")?,
        Some(FileStoreLocation::Folder(_)) | None => {}
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

fn tls(config: &Config, expires: Option<DateTime<Utc>>) -> String {
    let until = expires.map(|end| format!(" (until {})", end.format("%F"))).unwrap_or_default();
    match &config.server.tls {
        Some(files) => {
            format!("the certificate {}{until}, the key {}", files.certificate.display(), files.key.display())
        }
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
    let tokens = match tokens.as_slice() {
        _ if config.access.is_open() => "open to anyone who can reach it".to_owned(),
        [] => "by signature only; no tokens".to_owned(),
        names => format!("by token: {}", names.join(", ")),
    };
    match config.access.public() {
        Some(public) => {
            let surfaces: Vec<_> = public.surfaces.iter().map(|surface| surface.name()).collect();
            format!("{tokens}; to everybody: {}", surfaces.join(", "))
        }
        None => tokens,
    }
}

/// Returns the warnings about messages that a broker may lose.
fn source_warnings(config: &Config) -> Vec<String> {
    let warning = |(name, source): (&SourceName, &SourceConfig)| {
        let text = source.transport.broker()?.warning()?;
        Some(format!("source {name}: {text}"))
    };
    config.sources.iter().filter_map(warning).collect()
}

/// Returns a message if the gateway cannot listen. The port of a running gateway on the same journal is no problem.
fn unusable_address(config: &Config) -> Option<String> {
    let error = app::check_address(config.server.listen).err()?;
    let is_running = match &config.store {
        StoreLocation::Folder(folder) => is_in_use(folder),
        // Nodes have no lock that tells which of them has the port.
        StoreLocation::Postgres(_) => true,
    };
    let is_taken = matches!(&error, ServeError::Listen { error, .. } if error.kind() == io::ErrorKind::AddrInUse);
    (!(is_running && is_taken)).then(|| error.to_string())
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

/// Returns a message for each file of CA certificates that cannot be used.
fn unusable_ca_certificates(config: &Config) -> Vec<String> {
    let source_files = config.sources.iter().flat_map(|(name, source)| {
        ca_certificates(source).into_iter().map(move |(key, path)| (format!("sources.{name}.{key}"), path.to_owned()))
    });
    let subscription_files = config.subscriptions.iter().filter_map(|(name, definition)| {
        subscription_ca_certificate(definition).map(|path| (format!("subscriptions.{name}.ca"), path))
    });
    let files = Some(config.files.location(&config.journal.data));
    let segments = config.segments.location(&config.store, &config.journal.data);
    let buckets = [("files.s3.ca", files), ("segments.s3.ca", segments)].map(|(key, location)| match location {
        Some(FileStoreLocation::S3(settings)) => settings.ca.map(|path| (key.to_owned(), path)),
        Some(FileStoreLocation::Folder(_)) | None => None,
    });
    let problem = |(key, path): (String, PathBuf)| Some(format!("{key}: {}", check_ca_certificates(&path).err()?));
    source_files.chain(subscription_files).chain(buckets.into_iter().flatten()).filter_map(problem).collect()
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
