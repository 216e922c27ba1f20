//! Connections to brokers and receivers, and the folders of harvests: each is tried as `serve` uses it, many at once.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream};
use tidings::config::{Config, Connection};

/// Maximum time to try a broker or a folder.
const TIME: Duration = Duration::from_secs(10);

/// Maximum number of things that are tried at once, because each needs an open file.
const AT_ONCE: usize = 100;

/// Name under which brokers see the command.
const CLIENT: &str = "tidings check";

/// Kind of a thing that is tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Broker,
    Receiver,
    Folder,
}

/// Numbers of the things that were tried.
pub(super) struct Tried {
    brokers: usize,
    receivers: usize,
    folders: usize,
}

/// Trial of one thing. The error is for people.
struct Trial {
    thing: String,
    kind: Kind,
    result: BoxFuture<'static, Result<(), String>>,
}

impl Kind {
    /// Returns the error of something that is silent for [`TIME`]; `None` if the trial has a limit of its own, as that of a
    /// receiver, which is configured.
    fn silence(self) -> Option<String> {
        let seconds = TIME.as_secs();
        match self {
            Self::Broker => Some(format!("the broker did not respond within {seconds} seconds")),
            Self::Folder => Some(format!("the file system did not respond within {seconds} seconds")),
            Self::Receiver => None,
        }
    }
}

impl Trial {
    /// Tries the thing, and returns a message if it cannot be used.
    async fn problem(self) -> Option<String> {
        let Self { thing, kind, result } = self;
        let result = match kind.silence() {
            Some(silence) => tokio::time::timeout(TIME, result).await.unwrap_or(Err(silence)),
            None => result.await,
        };
        Some(format!("{thing}: {}", result.err()?))
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { brokers, receivers, folders } = self;
        let number = |number: &usize, noun: &str| format!("{number} {noun}{}", if *number == 1 { "" } else { "s" });
        let (brokers, receivers) = (number(brokers, "broker"), number(receivers, "webhook"));
        write!(f, "{brokers}, {receivers} and {}; nothing was declared, consumed or sent", number(folders, "folder"))
    }
}

/// Tries everything, and returns a message for each thing that cannot be used, in the order of the configuration.
pub(super) async fn try_all(config: &Config) -> (Tried, Vec<String>) {
    let trials = trials(config);
    let of = |kind| trials.iter().filter(|trial| trial.kind == kind).count();
    let tried = Tried { brokers: of(Kind::Broker), receivers: of(Kind::Receiver), folders: of(Kind::Folder) };
    let problems = stream::iter(trials).map(Trial::problem).buffered(AT_ONCE);
    (tried, problems.filter_map(std::future::ready).collect().await)
}

fn trials(config: &Config) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, source) in &config.sources {
        let thing = format!("source {name}");
        match &source.transport.connection {
            Connection::Broker(broker) => {
                let broker = Arc::clone(broker);
                let result = Box::pin(async move { broker.probe(CLIENT).await });
                trials.push(Trial { thing, kind: Kind::Broker, result });
            }
            Connection::Harvest(harvest) => {
                let check = harvest.kind.check_folder();
                trials.extend(check.map(|result| Trial { thing, kind: Kind::Folder, result }));
            }
            Connection::Hook | Connection::Datasets(_) => {}
        }
    }
    for (name, definition) in &config.subscriptions {
        let kind = if definition.delivery.name == "webhook" { Kind::Receiver } else { Kind::Broker };
        if definition.probe(CLIENT).is_none() {
            continue;
        }
        let definition = Arc::clone(definition);
        let result = async move {
            match definition.probe(CLIENT) {
                Some(probing) => probing.await,
                None => Ok(()),
            }
        };
        trials.push(Trial { thing: format!("subscription {name}"), kind, result: Box::pin(result) });
    }
    trials
}
