//! `tidings subscriptions`: look at the subscriptions of a running gateway, and say how they go on.
//!
//! It asks the gateway over HTTP, as anybody with the token could: what can be done, and what is refused and why,
//! is the gateway's to say.

mod definition;
mod shown;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use tidings::{config::Flags, model::SubscriptionName, web::Secret};
use url::Url;

use self::definition::{Key, key};
use super::{
    ConfigFile, Failure,
    gateway::{Gateway, NoAnswer, of_the_configuration},
    http::{http_url, token},
    print, runtime, say,
};

const EXAMPLES: &str = "\
Examples:
  tidings subscriptions list
  tidings subscriptions list --config /etc/tidings/tidings.toml
  tidings subscriptions list --gateway https://tidings.example.org
  tidings subscriptions show index
  tidings subscriptions attempts index
  tidings subscriptions add index definition.json
  tidings subscriptions add index --set delivery=webhook --set format=json \\
      --set url=https://indexer.example.org/changes --set secrets.0.env=TIDINGS_SECRET_INDEX \\
      --set filter.visibility=true
  tidings subscriptions pause index
  tidings subscriptions rewind index --to beginning
  TIDINGS_TOKEN=tdg_… tidings subscriptions remove index

The token needs the scope admin. A definition has the keys of [subscriptions.NAME] in the
configuration file; docs/subscriptions.md has them all. Subscriptions of the configuration file can
be paused, resumed and rewound, and are added and removed in the file.

Exit codes:
  0  done
  1  the gateway refused or cannot be reached; standard error says why
  2  wrong usage";

/// Look at the subscriptions of a running gateway, and say how they go on.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Subscriptions {
    #[command(subcommand)]
    order: Order,
    #[command(flatten)]
    config: ConfigFile,
    /// The gateway; without it, the one that the configuration has listening on this machine.
    #[arg(long, global = true, env = "TIDINGS_GATEWAY", value_name = "URL", value_parser = http_url)]
    gateway: Option<Url>,
    /// The token to send. Others on this machine can see arguments, and not the environment.
    #[arg(long, global = true, env = "TIDINGS_TOKEN", hide_env_values = true, value_parser = token)]
    token: Option<Secret>,
    /// Show the gateway's JSON, for programs.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Order {
    /// Every subscription, and how it is doing.
    List,
    /// One subscription with its definition.
    Show(Named),
    /// The last attempts to deliver, newest first.
    Attempts(Named),
    /// Make one, or give one another definition; then it keeps its place.
    Add {
        #[command(flatten)]
        named: Named,
        /// A file with the definition as a JSON object; - is standard input.
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// A key of the definition, as KEY=VALUE or TABLE.KEY=VALUE; the value is JSON, or else text. May be
        /// given several times, and counts before what is in the file.
        #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key, required_unless_present = "file")]
        set: Vec<Key>,
    },
    /// Send nothing more until it is resumed.
    Pause(Named),
    /// Go on, also after it has ended, failed or waited.
    Resume(Named),
    /// Go on from somewhere else, back or forward. Forward it skips changes, and says how many.
    Rewind {
        #[command(flatten)]
        named: Named,
        /// Where: beginning, now, the number of a change, or a time as in 2026-01-02T03:04:05Z.
        #[arg(long, value_name = "WHERE")]
        to: String,
    },
    /// Delete it, with its place and its dead letters.
    Remove(Named),
}

/// Which subscription.
#[derive(Args)]
struct Named {
    /// Its name.
    #[arg(value_name = "NAME", value_parser = SubscriptionName::parse)]
    name: SubscriptionName,
}

impl Subscriptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self { order, config, gateway, token, json } = self;
        let at = match gateway {
            Some(gateway) => gateway,
            None => {
                let at = of_the_configuration(&config.load(&Flags::default())?)?;
                // Another gateway may be there than the one that is meant.
                say(&format!("the gateway is {at}"));
                at
            }
        };
        let gateway = Gateway::new(&at, token.as_ref()).map_err(Failure::Usage)?;
        let asked = order.asked()?;
        let runtime = runtime(tokio::runtime::Builder::new_current_thread())?;
        let answer = runtime.block_on(async {
            let before = match &asked.compared {
                Some(path) => Some(gateway.ask(Method::GET, path, None).await?),
                None => None,
            };
            let answer = gateway.ask(asked.method, &asked.path, asked.body).await?;
            Ok::<_, NoAnswer>((before, answer))
        });
        // A look-up of a name that nobody waits for any more would keep it.
        runtime.shutdown_background();
        let (before, answer) = answer.map_err(|no_answer| Failure::Failed(format!("{at}: {}", no_answer.why)))?;
        if let Some(done) = asked.done {
            say(&done);
        }
        if let Some(moved) = before.and_then(|before| shown::moved(&before, &answer)) {
            say(&moved);
        }
        let text = match answer {
            Value::Null => String::new(),
            answer if json => format!("{answer:#}\n"),
            answer => (asked.show)(&answer),
        };
        print(text.as_bytes())
    }
}

/// What is asked of the gateway.
struct Asked {
    method: Method,
    path: String,
    body: Option<Value>,
    /// How its answer is shown.
    show: fn(&Value) -> String,
    /// What is said when it is done.
    done: Option<String>,
    /// Path of a subscription whose cursor is compared with that of the answer.
    compared: Option<String>,
}

impl Order {
    fn asked(self) -> Result<Asked, Failure> {
        let one = |named: &Named, below: &str| format!("/subscriptions/{}{below}", named.name);
        let look = |path, show| Asked { method: Method::GET, path, body: None, show, done: None, compared: None };
        let act = |named: &Named, below: &str, done: &str| Asked {
            method: Method::POST,
            path: one(named, below),
            body: None,
            show: shown::one,
            done: Some(format!("the subscription {} {done}", named.name)),
            compared: None,
        };
        Ok(match self {
            Self::List => look("/subscriptions".to_owned(), shown::list),
            Self::Show(named) => look(one(&named, ""), shown::one),
            Self::Attempts(named) => look(one(&named, "/attempts"), shown::attempts),
            Self::Add { named, file, set } => {
                let body = definition::of(file.as_deref(), set).map_err(Failure::Usage)?;
                Asked { method: Method::PUT, body: Some(body), ..act(&named, "", "is there") }
            }
            Self::Pause(named) => act(&named, "/pause", "is paused"),
            Self::Resume(named) => act(&named, "/resume", "goes on"),
            Self::Rewind { named, to } => {
                // The number of a change is a number.
                let to = to.parse::<u64>().map_or_else(|_| json!(to), |number| json!(number));
                let compared = Some(one(&named, ""));
                Asked { body: Some(json!({ "to": to })), compared, ..act(&named, "/rewind", "goes on there") }
            }
            Self::Remove(named) => Asked { method: Method::DELETE, ..act(&named, "", "is gone") },
        })
    }
}
