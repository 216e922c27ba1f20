//! `tidings seed-registry`: walk through a source's repository, and have the running gateway fill its registry with what
//! is there.
//!
//! The repository is asked from here, with the settings of the configuration file; what was found goes to the gateway, a
//! part at a time, each with the place up to which the walk is. The gateway keeps the place, so this command keeps nothing.

mod parts;
mod shown;

use std::sync::Arc;

use clap::Args;
use tidings::{
    config::{Config, Flags, SourceConfig},
    format::{RepositoryKind, dialects_with_repository},
    lookup::{
        LookupError, Repository,
        walk::{Manner, Pace, Walk, WalkError},
    },
    model::SourceName,
    web::Secret,
};
use tokio_util::sync::CancellationToken;
use url::Url;

use self::{
    parts::{Begun, Parts},
    shown::{Shown, Tally},
};
use super::{
    ConfigFile, Failure,
    gateway::{Gateway, NoAnswer, of_the_configuration},
    http::{http_url, token},
    print, runtime, say,
};

const EXAMPLES: &str = "\
Examples:
  tidings seed-registry --source fedora3 --emit
  tidings seed-registry --source fedora3 --silent
  tidings seed-registry --source fedora --emit --config tidings.toml --rate 20
  TIDINGS_TOKEN=tdg_… tidings seed-registry --source fedora --silent --gateway https://tidings.example.org
  tidings seed-registry --source fedora3 --restart --emit

Choose before the first walk: with --emit subscribers get a change for each object that is there, as an index that
starts empty needs it; with --silent they do not, and cannot get them by a walk later. Whoever has missed them
starts from /snapshot.

Have the gateway run first, with a durable subscription or a queue at the repository's broker: what
changes during the walk is then told by messages, and they count before what the walk saw.
Where the repository is and who asks it stands in [sources.NAME.repository]. The token needs the
scope admin. docs/seeding.md has the rest.

A walk that was cut off goes on where it was when the command is run again. Ctrl-C lets the part in
flight finish. The last line on standard output is the summary:
  walked 1200 objects: 1150 filled, 0 changes, 50 known, 0 left out

Exit codes:
  0  the walk is at its end
  1  it was cut off, or something was left out; standard error says why
  2  wrong usage or configuration";

/// Fill the registry of a running gateway with what a source's repository holds.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct SeedRegistry {
    /// The source.
    #[arg(long, value_name = "NAME", value_parser = SourceName::parse)]
    source: SourceName,
    #[command(flatten)]
    config: ConfigFile,
    /// The gateway; without it, the one that the configuration has listening on this machine.
    #[arg(long, env = "TIDINGS_GATEWAY", value_name = "URL", value_parser = http_url)]
    gateway: Option<Url>,
    /// The token to send. Others on this machine can see arguments, and not the environment.
    #[arg(long, env = "TIDINGS_TOKEN", hide_env_values = true, value_parser = token)]
    token: Option<Secret>,
    /// Begin anew, and do not go on where an earlier walk was cut off.
    #[arg(long)]
    restart: bool,
    #[command(flatten)]
    telling: Telling,
    /// How many requests the repository gets in a second at the most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: Option<u32>,
    /// What messages of the repository call it, where that is not what the configuration says: objects are named so.
    #[arg(long, value_name = "URL", value_parser = http_url)]
    base_url: Option<Url>,
    /// How often a request is tried again, at the repository and at the gateway.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1000))]
    retries: u32,
    /// Leave out what the repository fails to answer for, and say so. Otherwise the walk ends there.
    #[arg(long)]
    leave_out_failing: bool,
}

/// Whether subscribers learn of the objects. There is no default, since the choice cannot be changed later: what the
/// registry knows makes no change any more.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Telling {
    /// Publish a change for each object that the registry does not know. Subscribers and readers of the feed get them.
    #[arg(long)]
    emit: bool,
    /// Fill the registry and publish nothing. Objects that are filled in so cannot be published later.
    #[arg(long)]
    silent: bool,
}

impl SeedRegistry {
    pub(super) fn run(self) -> Result<(), Failure> {
        let config = self.config.load(&Flags::default())?;
        let source = self.source(&config)?;
        let gateway = self.gateway.clone().map_or_else(|| of_the_configuration(&config), Ok)?;
        let to = Gateway::new(&gateway, self.token.as_ref()).map_err(Failure::Usage)?;
        let runtime = runtime(tokio::runtime::Builder::new_current_thread())?;
        let ended = runtime.block_on(self.walk(source, &to, &gateway));
        // A look-up of a name that nobody waits for any more would keep it.
        runtime.shutdown_background();
        ended
    }

    /// The source, with a repository that can be walked through.
    fn source<'c>(&self, config: &'c Config) -> Result<&'c SourceConfig, Failure> {
        let name = &self.source;
        let Some(source) = config.sources.get(name) else {
            let known: Vec<_> = config.sources.keys().map(SourceName::as_str).collect();
            let known = known.join(", ");
            return Err(Failure::Usage(format!(
                "there is no source {name} in the configuration, or it is not enabled; there are {known}"
            )));
        };
        match source.dialect.repository {
            Some(RepositoryKind { not_walkable: None, .. }) => Ok(source),
            Some(RepositoryKind { not_walkable: Some(reason), .. }) => {
                Err(Failure::Usage(format!("the source {name} cannot be walked through: {reason}")))
            }
            None => Err(Failure::Usage(format!(
                "the source {name} has the dialect {}, and what sends that cannot be walked through; sources of {} can",
                source.dialect.name,
                dialects_with_repository(|repository| repository.not_walkable.is_none())
            ))),
        }
    }

    async fn walk(&self, source: &SourceConfig, gateway: &Gateway, at: &Url) -> Result<(), Failure> {
        let name = &self.source;
        let settings = source.repository.clone().ok_or_else(|| {
            Failure::Usage(format!(
                "it is not said where the repository of the source {name} is; give its url in [sources.{name}.repository]"
            ))
        })?;
        let stop = CancellationToken::new();
        let mut parts = Parts::new(gateway, name, self.telling.emit, self.retries, stop.clone());
        let begun = parts.begin(self.restart).await.map_err(|NoAnswer { why, is_transient }| {
            let advice =
                if is_transient { "; is it running? `tidings serve` starts it, --gateway names another" } else { "" };
            Failure::Failed(format!("the gateway at {at} does not tell where the walk begins: {why}{advice}"))
        })?;
        let place = match begun {
            Begun::AtTheEnd { objects, moved } => {
                say(&format!("the walk came to its end on {moved}; --restart walks again"));
                return print(format!("walked {objects} objects before\n").as_bytes());
            }
            Begun::GoesOn { objects, place } => {
                say(&format!("going on after {objects} objects; --restart begins anew"));
                Some(place)
            }
            Begun::Anew => None,
        };
        let repository = Repository::new(name, settings).await.map_err(|error| Failure::Failed(error.to_string()))?;
        let manner = Manner {
            base_url: self.base_url.as_ref().map(|url| url.as_str().to_owned()),
            pace: Pace { per_second: self.rate },
            retries: self.retries,
            leave_out_failing: self.leave_out_failing,
            ..Manner::default()
        };
        let walk = Walk::new(repository, manner, place.as_deref()).map_err(|error| self.explained(&error))?;
        let shown = Arc::new(Shown::new());
        let listener = tokio::spawn(shown::listen_for_ctrl_c(stop.clone(), Arc::clone(&shown)));
        let mut tally = Tally::default();
        let ended = self.go(walk, &mut parts, &shown, &mut tally, &stop).await;
        listener.abort();
        shown.finish();
        if self.telling.emit && tally.known > 0 {
            let known = tally.known;
            say(&format!("{known} objects were known already and are not published; /snapshot lists them"));
        }
        print(format!("{tally}\n").as_bytes())?;
        ended?;
        if tally.left_out > 0 {
            return Err(Failure::Failed(format!("{} objects were left out", tally.left_out)));
        }
        Ok(())
    }

    /// While one part goes to the gateway the next is walked through.
    async fn go(
        &self,
        mut walk: Walk,
        parts: &mut Parts<'_>,
        shown: &Shown,
        tally: &mut Tally,
        stop: &CancellationToken,
    ) -> Result<(), Failure> {
        let stopped = || Err(Failure::Failed("stopped; run the same command again to go on".to_owned()));
        let mut coming = tokio::select! {
            part = walk.next() => part,
            () = stop.cancelled() => return stopped(),
        };
        loop {
            let part = coming.map_err(|error| self.explained(&error))?;
            let done = part.done;
            for left_out in &part.left_out {
                shown.aside(&format!("{} is left out: {}", left_out.name, left_out.why));
            }
            tally.left_out += part.left_out.len();
            let next = async {
                if done {
                    return None;
                }
                tokio::select! {
                    part = walk.next() => Some(part),
                    () = stop.cancelled() => None,
                }
            };
            let (posted, next) = tokio::join!(parts.post(part), next);
            let posted = posted.map_err(|why| {
                Failure::Failed(format!("the gateway does not take what was found: {why}; run it again to go on"))
            })?;
            tally.add(&posted);
            shown.tell(tally.walked());
            match next {
                Some(next) => coming = next,
                None if done => return Ok(()),
                None => return stopped(),
            }
        }
    }

    fn explained(&self, error: &WalkError) -> Failure {
        let name = &self.source;
        let advice = match error {
            WalkError::Asked { error: LookupError::Status(_), .. } => {
                "mend that, or leave such out with --leave-out-failing; run it again to go on".to_owned()
            }
            WalkError::Asked { error: LookupError::Nonsense(_), .. } => {
                format!("is the url of [sources.{name}.repository] that of its REST API? Run it again to go on")
            }
            WalkError::Asked { error: LookupError::Silent(_), .. } => {
                format!("is it running, at the url of [sources.{name}.repository]? Run it again to go on")
            }
            WalkError::Place | WalkError::BaseUrl(_) | WalkError::Foreign(_) | WalkError::NoRepository(_) => {
                return Failure::Failed(error.to_string());
            }
            _ => "run it again to go on".to_owned(),
        };
        Failure::Failed(format!("{error}; {advice}"))
    }
}
