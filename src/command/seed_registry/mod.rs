//! `tidings seed-registry`: crawls the repository of a source and fills the registry of the running gateway.
//!
//! This process crawls the repository, with the settings of the configuration file. It sends the objects to the gateway
//! part by part, each part with the position of the crawl. The gateway stores the position; the command stores nothing.

mod progress;
mod upload;

use std::sync::Arc;

use clap::Args;
use tidings::{
    config::{ConfigParts, SourceConfig},
    format::{RepositoryKind, dialects_with_repository},
    lookup::{
        LookupError, Repository,
        crawl::{CrawlError, CrawlOptions, Crawler, RateLimit},
    },
    model::SourceName,
};
use tokio_util::sync::CancellationToken;
use url::Url;

use self::{
    progress::{CrawlProgress, Tally},
    upload::{CrawlStart, Uploader},
};
use super::{
    Failure,
    gateway::{Gateway, GatewayArgs, GatewayError},
    http::http_url,
    print_text, runtime, say,
};

const EXAMPLES: &str = "\
Examples:
  tidings seed-registry --source fedora3 --emit
  tidings seed-registry --source fedora3 --silent
  tidings seed-registry --source fedora --emit --config tidings.toml --rate 20
  TIDINGS_TOKEN=tdg_… tidings seed-registry --source fedora --silent --gateway https://h.example.org
  tidings seed-registry --source fedora3 --restart --emit

Choose --emit or --silent before the first crawl. With --emit subscribers receive a change for each existing object, \
which an empty index needs. With --silent they receive nothing, and a later crawl cannot publish these objects; a reader \
that needs them starts from /snapshot.

Before the crawl, start the gateway and create a queue or a durable subscription at the broker of the repository. Changes \
during the crawl then arrive as messages, which take precedence over the results of the crawl. The URL and the \
credentials of the repository are in [sources.NAME.repository]. The token needs the scope admin. docs/seeding.md explains \
the rest.

Run the command again to resume an interrupted crawl. The first Ctrl-C finishes the part in flight. The last line on \
standard output is the summary:
  walked 1200 objects: 1150 filled, 0 changes, 50 known, 0 left out

Exit codes:
  0  the crawl is complete
  1  the crawl was interrupted, or objects were left out; standard error says why
  2  wrong usage or configuration";

/// Fill the registry of a running gateway with the objects of a repository.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct SeedRegistry {
    /// Name of the source.
    #[arg(long, value_name = "NAME", value_parser = SourceName::parse)]
    source: SourceName,
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Start from the beginning instead of resuming an interrupted crawl.
    #[arg(long)]
    restart: bool,
    #[command(flatten)]
    publish: PublishChoice,
    /// Maximum number of requests to the repository per second.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: Option<u32>,
    /// Base URL of the repository in its messages, from which the URIs of objects are made. Default: from the
    /// configuration.
    #[arg(long, value_name = "URL", value_parser = http_url)]
    base_url: Option<Url>,
    /// Maximum number of retries of a request to the repository or the gateway.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1000))]
    retries: u32,
    /// Leave out objects for which the repository returns errors, and report them. Otherwise the crawl ends at the
    /// first.
    #[arg(long)]
    leave_out_failing: bool,
}

/// Whether the crawled objects are published. There is no default, because the choice is final: an object that the
/// registry contains is not published by a later crawl.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct PublishChoice {
    /// Publish a change for each object that is not in the registry yet, to subscribers and readers of the feed.
    #[arg(long)]
    emit: bool,
    /// Fill the registry without publishing changes. These objects cannot be published later.
    #[arg(long)]
    silent: bool,
}

impl SeedRegistry {
    pub(super) fn run(self) -> Result<(), Failure> {
        let config = self.gateway.config()?;
        let source = self.source(&config)?;
        let (gateway, to) = self.gateway.connect_with(&config)?;
        let runtime = runtime(tokio::runtime::Builder::new_current_thread())?;
        let outcome = runtime.block_on(self.crawl(&source, &to, &gateway));
        // Does not wait for a pending DNS lookup.
        runtime.shutdown_background();
        outcome
    }

    /// Returns the configuration of the source if its repository can be crawled.
    fn source(&self, config: &ConfigParts) -> Result<SourceConfig, Failure> {
        let name = &self.source;
        let Some(source) = config.source(name)? else {
            let known = config.source_names()?.join(", ");
            return Err(Failure::Usage(format!(
                "there is no source {name} in the configuration, or it is not enabled; there are {known}"
            )));
        };
        match source.dialect.repository {
            Some(RepositoryKind { not_crawlable: None, .. }) => Ok(source),
            Some(RepositoryKind { not_crawlable: Some(reason), .. }) => {
                Err(Failure::Usage(format!("the source {name} cannot be crawled: {reason}")))
            }
            None => Err(Failure::Usage(format!(
                "the source {name} has the dialect {}, whose repositories cannot be crawled; only {} can",
                source.dialect.name,
                dialects_with_repository(|repository| repository.not_crawlable.is_none())
            ))),
        }
    }

    async fn crawl(&self, source: &SourceConfig, gateway: &Gateway, url: &Url) -> Result<(), Failure> {
        let name = &self.source;
        let settings = source.repository.clone().ok_or_else(|| {
            Failure::Usage(format!(
                "the repository of the source {name} is not configured; give its url in [sources.{name}.repository]"
            ))
        })?;
        let stop = CancellationToken::new();
        let mut uploader = Uploader::new(gateway, name, self.publish.emit, self.retries, stop.clone());
        let start = uploader.start(self.restart).await.map_err(|GatewayError { reason, is_transient, .. }| {
            let advice =
                if is_transient { "; is it running? `tidings serve` starts it, --gateway names another" } else { "" };
            Failure::Failed(format!("cannot get the position of the crawl from the gateway at {url}: {reason}{advice}"))
        })?;
        let position = match start {
            CrawlStart::Finished { objects, updated_at } => {
                say(&format!("the crawl was completed on {updated_at}; give --restart to crawl again"));
                return print_text(&format!("walked {objects} objects before\n"));
            }
            CrawlStart::Resume { objects, position } => {
                say(&format!("resuming after {objects} objects; give --restart to start from the beginning"));
                Some(position)
            }
            CrawlStart::Beginning => None,
        };
        let repository = Repository::new(name, settings).await.map_err(|error| Failure::Failed(error.to_string()))?;
        let options = CrawlOptions {
            base_url: self.base_url.as_ref().map(|url| url.as_str().to_owned()),
            rate_limit: RateLimit { per_second: self.rate },
            retries: self.retries,
            skip_failing: self.leave_out_failing,
            ..CrawlOptions::default()
        };
        let crawler = Crawler::new(repository, options, position.as_deref()).map_err(|error| self.failure(&error))?;
        let progress = Arc::new(CrawlProgress::new());
        let listener = tokio::spawn(progress::listen_for_ctrl_c(stop.clone(), Arc::clone(&progress)));
        let mut tally = Tally::default();
        let outcome = self.run_crawl(crawler, &mut uploader, &progress, &mut tally, &stop).await;
        listener.abort();
        progress.finish();
        if self.publish.emit && tally.known > 0 {
            let known = tally.known;
            say(&format!("{known} objects were in the registry already and are not published; /snapshot lists them"));
        }
        print_text(&format!("{tally}\n"))?;
        outcome?;
        if tally.left_out > 0 {
            return Err(Failure::Failed(format!("{} objects were left out", tally.left_out)));
        }
        Ok(())
    }

    /// Crawls the next part while the current one is uploaded.
    async fn run_crawl(
        &self,
        mut crawler: Crawler,
        uploader: &mut Uploader<'_>,
        progress: &CrawlProgress,
        tally: &mut Tally,
        stop: &CancellationToken,
    ) -> Result<(), Failure> {
        let stopped = || Err(Failure::Failed("stopped; run the same command again to resume".to_owned()));
        let mut current = tokio::select! {
            part = crawler.next() => part,
            () = stop.cancelled() => return stopped(),
        };
        loop {
            let part = current.map_err(|error| self.failure(&error))?;
            let done = part.done;
            for skipped in &part.skipped {
                progress.note(&format!("{} is left out: {}", skipped.name, skipped.reason));
            }
            tally.left_out += part.skipped.len();
            let next = async {
                if done {
                    return None;
                }
                tokio::select! {
                    part = crawler.next() => Some(part),
                    () = stop.cancelled() => None,
                }
            };
            let (posted, next) = tokio::join!(uploader.post(part), next);
            let posted = posted.map_err(|why| {
                Failure::Failed(format!("the gateway did not accept a part: {why}; run the command again to resume"))
            })?;
            tally.add(&posted);
            progress.update(tally.crawled());
            match next {
                Some(next) => current = next,
                None if done => return Ok(()),
                None => return stopped(),
            }
        }
    }

    fn failure(&self, error: &CrawlError) -> Failure {
        let name = &self.source;
        let advice = match error {
            CrawlError::Request { error: LookupError::Status(_), .. } => {
                "fix that, or leave such objects out with --leave-out-failing; run the command again to resume"
                    .to_owned()
            }
            CrawlError::Request { error: LookupError::InvalidResponse(_), .. } => {
                format!(
                    "is the url of [sources.{name}.repository] the URL of its REST API? Run the command again to resume"
                )
            }
            CrawlError::Request { error: LookupError::NoResponse(_), .. } => {
                format!("is it running, at the url of [sources.{name}.repository]? Run the command again to resume")
            }
            CrawlError::InvalidPosition
            | CrawlError::InvalidBaseUrl(_)
            | CrawlError::UnknownBaseUrl(_)
            | CrawlError::NoRepository(_) => {
                return Failure::Failed(error.to_string());
            }
            _ => "run the command again to resume".to_owned(),
        };
        Failure::Failed(format!("{error}; {advice}"))
    }
}
