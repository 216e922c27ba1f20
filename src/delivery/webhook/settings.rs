//! What a subscription says about the URL that it posts to.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::{Map, Value, json};

use super::{Webhook, signature::SigningKey};
use crate::{
    delivery::{
        Attempts, Blueprint, Delivery, InvalidDefinition, Key, Maker, Read, Takes, Window, definition::take, secret_url,
    },
    http_client::{self, OutboundUrl},
    journal::subscriptions::MadeBy,
    model::SubscriptionName,
};

/// The keys of the settings.
pub(super) const KEYS: [Key; 10] = [
    Key::needed(
        "url",
        Takes::Address,
        "Where messages are posted to: https, or where the gateway's operator says so http.",
    ),
    Key::needed("secrets", Takes::Secrets, "One or two secrets to sign with: whsec_ and a key in base64."),
    Key::new(
        "ca",
        Takes::Text,
        "A PEM file with the authority of the receiver's certificate; in the configuration file alone.",
    ),
    Key::new("ordered", Takes::Switch, "Whether a message waits until the one before it has arrived."),
    WINDOW,
    MAX_BATCH,
    CONNECT_SECONDS,
    ANSWER_SECONDS,
    PAUSE_AFTER_SECONDS,
    Key::new("refused_statuses", Takes::Statuses, "Statuses of answers by which a message becomes a dead letter."),
];

const WINDOW: Key =
    Key::number("window", 1..=256, 16, "How many messages are on their way at once, where they are not ordered.");

const MAX_BATCH: Key = Key::number("max_batch", 1..=1000, 1, "How many changes go into one message.");

const CONNECT_SECONDS: Key = Key::number("connect_seconds", 1..=60, 10, "How long a connection may take to be made.");

/// Standard Webhooks advises 15 to 30 seconds.
const ANSWER_SECONDS: Key = Key::number("answer_seconds", 1..=300, 15, "How long an answer may take to come.");

/// Five days: a receiver that fails over a long weekend needs nobody to wake it up afterwards.
const PAUSE_AFTER_SECONDS: Key = Key::number(
    "pause_after_seconds",
    0..=31_536_000,
    5 * 24 * 60 * 60,
    "After how long a time of failures the subscription is paused; 0 is never.",
);

/// How many bytes of messages are on their way at once.
const WINDOW_BYTES: usize = 8 * 1024 * 1024;

/// How much longer than a connection and an answer the outcome of a message may take: the beginning of its body.
const SLACK: Duration = Duration::from_secs(10);

/// How many secrets there may be: the one that goes, and the one that comes.
const MOST_SECRETS: usize = 2;

/// The settings, checked.
pub(super) struct Settings {
    pub(super) to: OutboundUrl,
    pub(super) keys: Vec<SigningKey>,
    pub(super) client: http_client::ClientSettings,
    pub(super) window: Window,
    pub(super) refused: BTreeSet<u16>,
    is_ordered: bool,
    pause_after: Option<Duration>,
}

impl Settings {
    /// Whether a message waits until the one before it has arrived.
    pub(super) fn is_ordered(&self) -> bool {
        self.is_ordered
    }
}

pub(super) fn read(mut table: Map<String, Value>, maker: &Maker<'_>) -> Read {
    let is_by_value = table.get("url").is_some_and(Value::is_string);
    let url = secret_url::read("url", table.remove("url"), maker)?;
    let to = OutboundUrl::parse(&String::from_utf8_lossy(url.expose()), maker.guard);
    let to = to.map_err(|error| InvalidDefinition::new("url", error.to_string()))?;
    if to.is_redacted() {
        return Err(InvalidDefinition::new("url", "its query is what is shown of one; give the address as it is"));
    }
    if to.has_user() && maker.made_by == MadeBy::Api && is_by_value {
        return Err(InvalidDefinition::new(
            "url",
            "it has a user, which may be a token, and would be kept in the journal",
        ));
    }
    let ca = maker.take_authority(&mut table)?;
    let is_ordered = take(&mut table, "ordered")?.unwrap_or(true);
    if is_ordered && table.get("window").is_some_and(|window| !window.is_null()) {
        return Err(InvalidDefinition::new(
            "window",
            "ordered messages go one by one; leave it out, or set ordered = false",
        ));
    }
    let seconds = |seconds: usize| Duration::from_secs(seconds as u64);
    let connect = seconds(CONNECT_SECONDS.take(&mut table)?);
    let answer = seconds(ANSWER_SECONDS.take(&mut table)?);
    let pause_after = seconds(PAUSE_AFTER_SECONDS.take(&mut table)?);
    let window = Window {
        messages: if is_ordered { 1 } else { WINDOW.take(&mut table)? },
        changes: MAX_BATCH.take(&mut table)?,
        bytes: WINDOW_BYTES,
        patience: connect + answer + SLACK,
    };
    Ok(Arc::new(Blue(Arc::new(Settings {
        to,
        keys: keys(table.remove("secrets"), maker)?,
        client: http_client::ClientSettings {
            ca,
            connect_timeout: connect,
            response_timeout: answer,
            ..http_client::ClientSettings::new(maker.guard.clone())
        },
        window,
        refused: refused(take(&mut table, "refused_statuses")?.unwrap_or_default())?,
        is_ordered,
        pause_after: Some(pause_after).filter(|pause| !pause.is_zero()),
    }))))
}

fn keys(secrets: Option<Value>, maker: &Maker<'_>) -> Result<Vec<SigningKey>, InvalidDefinition> {
    let Some(Value::Array(secrets)) = secrets else {
        return Err(InvalidDefinition::new("secrets", "give a list of one or two secrets to sign with"));
    };
    if secrets.is_empty() || secrets.len() > MOST_SECRETS {
        let reason = format!("there are {}; give one, or two while receivers go from one to the other", secrets.len());
        return Err(InvalidDefinition::new("secrets", reason));
    }
    let key = |(at, secret): (usize, Value)| {
        let key = format!("secrets.{at}");
        let secret = secret_url::read_secret(&key, secret, maker)?;
        SigningKey::parse(&secret).map_err(|reason| InvalidDefinition::new(key, reason))
    };
    secrets.into_iter().enumerate().map(key).collect()
}

/// Those alone that say something about the message: with 410 the receiver has said what it wants, and a status of
/// its server (5xx) or a redirect says nothing about the message.
fn refused(statuses: Vec<u16>) -> Result<BTreeSet<u16>, InvalidDefinition> {
    match statuses.iter().find(|status| !(400..500).contains(*status) || matches!(status, 410 | 429)) {
        Some(status) => {
            let reason =
                format!("{status} says nothing against a message; give statuses from 400 to 499 but 410 and 429");
            Err(InvalidDefinition::new("refused_statuses", reason))
        }
        None => Ok(statuses.into_iter().collect()),
    }
}

/// The settings as a blueprint of the delivery.
struct Blue(Arc<Settings>);

impl Blueprint for Blue {
    fn build(&self, _: &SubscriptionName, attempts: &Arc<Attempts>) -> Box<dyn Delivery> {
        Box::new(Webhook::new(Arc::clone(&self.0), attempts))
    }

    fn max_batch(&self) -> usize {
        self.0.window.changes
    }

    fn pause_after(&self) -> Option<Duration> {
        self.0.pause_after
    }

    fn shown(&self) -> Map<String, Value> {
        let settings = &*self.0;
        let shown = json!({
            "url": settings.to.to_string(),
            "secrets": settings.keys.iter().map(|_| "(hidden)").collect::<Vec<_>>(),
            "ca": settings.client.ca,
            "ordered": settings.is_ordered,
            "window": (!settings.is_ordered).then_some(settings.window.messages),
            "max_batch": settings.window.changes,
            "connect_seconds": settings.client.connect_timeout.as_secs(),
            "answer_seconds": settings.client.response_timeout.as_secs(),
            "pause_after_seconds": settings.pause_after.unwrap_or_default().as_secs(),
            "refused_statuses": settings.refused,
        });
        match shown {
            Value::Object(shown) => shown.into_iter().filter(|(_, value)| !value.is_null()).collect(),
            _ => Map::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{MadeBy, Maker, Map, Value, json, read};
    use crate::http_client::{AllowList, OutboundPolicy};

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn told(made_by: MadeBy, settings: Value) -> Result<Map<String, Value>, String> {
        let guard = match made_by {
            MadeBy::Config => OutboundPolicy::unrestricted(),
            MadeBy::Api | MadeBy::Hub => OutboundPolicy::restricted(AllowList::default()),
        };
        let variable = |name: &str| (name == "TIDINGS_SECRET_A").then(|| OsString::from(SECRET));
        let Value::Object(table) = settings else { panic!("give an object") };
        match read(table, &Maker { made_by, variable: &variable, guard: &guard }) {
            Ok(blueprint) => Ok(blueprint.shown()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn it_is_shown_with_its_defaults_and_without_secrets() {
        let url = "http://user:hush@10.0.0.1/in?key=hush";
        let shown = told(MadeBy::Config, json!({ "url": url, "secrets": [SECRET, { "env": "TIDINGS_SECRET_A" }] }));
        let expected = json!({
            "url": "http://10.0.0.1/in?(hidden)", "secrets": ["(hidden)", "(hidden)"], "ordered": true, "max_batch": 1,
            "connect_seconds": 10, "answer_seconds": 15, "pause_after_seconds": 432_000, "refused_statuses": []
        });
        assert_eq!(Value::Object(shown.unwrap()), expected);
    }

    #[test]
    fn what_is_wrong_is_said_without_repeating_a_secret() {
        let (config, api) = (MadeBy::Config, MadeBy::Api);
        let by_env = json!([{ "env": "TIDINGS_SECRET_A" }]);
        for (made_by, settings, expected) in [
            (config, json!({ "secrets": [SECRET] }), "url: it is missing"),
            (config, json!({ "url": "https://a.example/" }), "secrets: give a list"),
            (config, json!({ "url": "https://a.example/", "secrets": SECRET }), "secrets: give a list"),
            (config, json!({ "url": "https://a.example/", "secrets": [] }), "secrets: there are 0"),
            (
                config,
                json!({ "url": "https://a.example/", "secrets": [SECRET, SECRET, SECRET] }),
                "secrets: there are 3",
            ),
            (config, json!({ "url": "https://a.example/", "secrets": ["hush"] }), "secrets.0: it is not whsec_"),
            (config, json!({ "url": "https://a.example/", "secrets": [SECRET, 7] }), "secrets.1: give the secret"),
            (config, json!({ "url": "amqp://a/", "secrets": [SECRET] }), "url: it begins with neither"),
            (config, json!({ "url": "https://a/?(hidden)", "secrets": [SECRET] }), "url: its query is what is shown"),
            (config, json!({ "url": "https://a/", "secrets": [SECRET], "window": 4 }), "window: ordered messages"),
            (
                config,
                json!({ "url": "https://a/", "secrets": [SECRET], "refused_statuses": [410] }),
                "refused_statuses: 410",
            ),
            (
                config,
                json!({ "url": "https://a/", "secrets": [SECRET], "refused_statuses": [500] }),
                "refused_statuses: 500",
            ),
            (config, json!({ "url": "https://a/", "secrets": [SECRET], "max_batch": 0 }), "max_batch: it is 0"),
            (api, json!({ "url": "http://a.example/", "secrets": by_env }), "url: it is not encrypted"),
            (api, json!({ "url": "https://[::1]/", "secrets": by_env }), "url: it leads to ::1"),
            (api, json!({ "url": "https://u:hush@a.example/", "secrets": by_env }), "url: it has a password"),
            (api, json!({ "url": "https://hush@a.example/", "secrets": by_env }), "url: it has a user"),
            (api, json!({ "url": "https://a.example/", "secrets": [SECRET] }), "secrets.0: it would be kept"),
            (api, json!({ "url": "https://a.example/", "secrets": [{ "env": "HOME" }] }), "secrets.0: only variables"),
            (api, json!({ "url": "https://a.example/", "secrets": [{ "file": "/x" }] }), "secrets.0: only the config"),
            (api, json!({ "url": "https://a.example/", "secrets": by_env, "ca": "/x" }), "ca: only the config"),
        ] {
            let error = told(made_by, settings.clone()).unwrap_err();
            assert!(error.starts_with(expected), "{settings}: {error}");
            assert!(!error.contains("hush") && !error.contains("MfKQ"), "{error}");
        }
        assert!(told(api, json!({ "url": "https://a.example/", "secrets": by_env })).is_ok());
    }
}
