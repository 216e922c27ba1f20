//! Settings of the webhook delivery.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::{Map, Value, json};

use super::{Webhook, signature::SigningKey};
use crate::{
    delivery::{
        AttemptLog, ConfigResult, DefinitionContext, Delivery, DeliveryConfig, InvalidDefinition, SettingSpec,
        ValueType, Window, definition::remove_key, secret_url,
    },
    http_client::{self, OutboundUrl},
    journal::subscriptions::MadeBy,
    model::SubscriptionName,
};

/// Specifications of the settings.
pub(super) const KEYS: [SettingSpec; 10] = [
    SettingSpec::required(
        "url",
        ValueType::Url,
        "URL that receives messages: https, or http if the gateway's operator allows it.",
    ),
    SettingSpec::required("secrets", ValueType::Secrets, "One or two signing secrets: whsec_ and a key in base64."),
    SettingSpec::new(
        "ca",
        ValueType::String,
        "PEM file with the CA certificate of the receiver; only in the configuration file.",
    ),
    SettingSpec::new("ordered", ValueType::Bool, "Send each message only after the one before it was delivered."),
    WINDOW,
    MAX_BATCH,
    CONNECT_SECONDS,
    ANSWER_SECONDS,
    PAUSE_AFTER_SECONDS,
    SettingSpec::new(
        "refused_statuses",
        ValueType::Statuses,
        "Response statuses that turn a message into a dead letter.",
    ),
];

const WINDOW: SettingSpec =
    SettingSpec::number("window", 1..=256, 16, "Maximum number of messages in flight, if they are not ordered.");

const MAX_BATCH: SettingSpec =
    SettingSpec::number("max_batch", 1..=1000, 1, "Maximum number of changes in one message.");

const CONNECT_SECONDS: SettingSpec = SettingSpec::number("connect_seconds", 1..=60, 10, "Maximum time to connect.");

/// Standard Webhooks recommends 15 to 30 seconds.
const ANSWER_SECONDS: SettingSpec =
    SettingSpec::number("answer_seconds", 1..=300, 15, "Maximum time to wait for the response.");

/// Five days, so that a receiver which fails over a long weekend recovers without a manual resume.
const PAUSE_AFTER_SECONDS: SettingSpec = SettingSpec::number(
    "pause_after_seconds",
    0..=31_536_000,
    5 * 24 * 60 * 60,
    "Time of failures after which the subscription is paused; 0 means never.",
);

/// Maximum number of bytes in flight.
const WINDOW_BYTES: usize = 8 * 1024 * 1024;

/// Extra time for the outcome of a message, beyond connecting and waiting for the response, to read the
/// beginning of the response body.
const BODY_ALLOWANCE: Duration = Duration::from_secs(10);

/// Maximum number of secrets: the old one and the new one during a rotation.
const MAX_SECRETS: usize = 2;

/// Validated settings.
pub(super) struct WebhookSettings {
    pub(super) to: OutboundUrl,
    pub(super) keys: Vec<SigningKey>,
    pub(super) client: http_client::ClientSettings,
    pub(super) window: Window,
    pub(super) refused: BTreeSet<u16>,
    is_ordered: bool,
    pause_after: Option<Duration>,
}

impl WebhookSettings {
    /// Returns whether a message waits for the response to its predecessor.
    pub(super) fn is_ordered(&self) -> bool {
        self.is_ordered
    }
}

pub(super) fn parse(mut table: Map<String, Value>, context: &DefinitionContext<'_>) -> ConfigResult {
    let is_by_value = table.get("url").is_some_and(Value::is_string);
    let url = secret_url::read_url("url", table.remove("url"), context)?;
    let to = OutboundUrl::parse(&String::from_utf8_lossy(url.expose()), context.guard);
    let to = to.map_err(|error| InvalidDefinition::new("url", error.to_string()))?;
    if to.is_redacted() {
        return Err(InvalidDefinition::new("url", "its query is the placeholder (hidden); give the full URL"));
    }
    if to.has_user() && context.made_by == MadeBy::Api && is_by_value {
        return Err(InvalidDefinition::new(
            "url",
            "it has a user, which may be a token and would be stored in the journal",
        ));
    }
    let ca = context.remove_ca_file(&mut table)?;
    let is_ordered = remove_key(&mut table, "ordered")?.unwrap_or(true);
    if is_ordered && table.get("window").is_some_and(|window| !window.is_null()) {
        return Err(InvalidDefinition::new(
            "window",
            "ordered messages are sent one at a time; leave it out, or set ordered = false",
        ));
    }
    let seconds = |seconds: usize| Duration::from_secs(seconds as u64);
    let connect = seconds(CONNECT_SECONDS.remove_integer(&mut table)?);
    let answer = seconds(ANSWER_SECONDS.remove_integer(&mut table)?);
    let pause_after = seconds(PAUSE_AFTER_SECONDS.remove_integer(&mut table)?);
    let window = Window {
        messages: if is_ordered { 1 } else { WINDOW.remove_integer(&mut table)? },
        changes: MAX_BATCH.remove_integer(&mut table)?,
        bytes: WINDOW_BYTES,
        outcome_timeout: connect + answer + BODY_ALLOWANCE,
    };
    Ok(Arc::new(WebhookConfig(Arc::new(WebhookSettings {
        to,
        keys: keys(table.remove("secrets"), context)?,
        client: http_client::ClientSettings {
            ca,
            connect_timeout: connect,
            response_timeout: answer,
            ..http_client::ClientSettings::new(context.guard.clone())
        },
        window,
        refused: refused(remove_key(&mut table, "refused_statuses")?.unwrap_or_default())?,
        is_ordered,
        pause_after: Some(pause_after).filter(|pause| !pause.is_zero()),
    }))))
}

fn keys(secrets: Option<Value>, context: &DefinitionContext<'_>) -> Result<Vec<SigningKey>, InvalidDefinition> {
    let Some(Value::Array(secrets)) = secrets else {
        return Err(InvalidDefinition::new("secrets", "give a list of one or two secrets to sign with"));
    };
    if secrets.is_empty() || secrets.len() > MAX_SECRETS {
        let reason = format!("there are {}; give one, or two during a rotation", secrets.len());
        return Err(InvalidDefinition::new("secrets", reason));
    }
    let key = |(at, secret): (usize, Value)| {
        let key = format!("secrets.{at}");
        let secret = secret_url::read_secret(&key, secret, context)?;
        SigningKey::parse(&secret).map_err(|reason| InvalidDefinition::new(key, reason))
    };
    secrets.into_iter().enumerate().map(key).collect()
}

/// Validates `refused_statuses`. Only statuses about the message are allowed: 410 ends the subscription, and
/// 429, 5xx and redirects do not judge the message.
fn refused(statuses: Vec<u16>) -> Result<BTreeSet<u16>, InvalidDefinition> {
    match statuses.iter().find(|status| !(400..500).contains(*status) || matches!(status, 410 | 429)) {
        Some(status) => {
            let reason =
                format!("{status} does not reject a message; give statuses from 400 to 499 except 410 and 429");
            Err(InvalidDefinition::new("refused_statuses", reason))
        }
        None => Ok(statuses.into_iter().collect()),
    }
}

/// Configuration of the webhook delivery.
struct WebhookConfig(Arc<WebhookSettings>);

impl DeliveryConfig for WebhookConfig {
    fn build(&self, _: &SubscriptionName, attempts: &Arc<AttemptLog>) -> Box<dyn Delivery> {
        Box::new(Webhook::new(Arc::clone(&self.0), attempts))
    }

    fn max_batch(&self) -> usize {
        self.0.window.changes
    }

    fn pause_after(&self) -> Option<Duration> {
        self.0.pause_after
    }

    fn redacted(&self) -> Map<String, Value> {
        let settings = &*self.0;
        let settings_json = json!({
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
        match settings_json {
            Value::Object(members) => members.into_iter().filter(|(_, value)| !value.is_null()).collect(),
            _ => Map::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{DefinitionContext, MadeBy, Map, Value, json, parse};
    use crate::http_client::{AllowList, OutboundPolicy};

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn parse_redacted(made_by: MadeBy, settings: Value) -> Result<Map<String, Value>, String> {
        let guard = match made_by {
            MadeBy::Config => OutboundPolicy::unrestricted(),
            MadeBy::Api | MadeBy::Hub => OutboundPolicy::restricted(AllowList::default()),
        };
        let variable = |name: &str| (name == "TIDINGS_SECRET_A").then(|| OsString::from(SECRET));
        let Value::Object(table) = settings else { panic!("give an object") };
        match parse(table, &DefinitionContext { made_by, variable: &variable, guard: &guard }) {
            Ok(config) => Ok(config.redacted()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn redacted_settings_contain_defaults_and_no_secrets() {
        let url = "http://user:hush@10.0.0.1/in?key=hush";
        let redacted =
            parse_redacted(MadeBy::Config, json!({ "url": url, "secrets": [SECRET, { "env": "TIDINGS_SECRET_A" }] }));
        let expected = json!({
            "url": "http://10.0.0.1/in?(hidden)", "secrets": ["(hidden)", "(hidden)"], "ordered": true, "max_batch": 1,
            "connect_seconds": 10, "answer_seconds": 15, "pause_after_seconds": 432_000, "refused_statuses": []
        });
        assert_eq!(Value::Object(redacted.unwrap()), expected);
    }

    #[test]
    fn errors_contain_no_secret() {
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
            (config, json!({ "url": "https://a/?(hidden)", "secrets": [SECRET] }), "url: its query is the placeholder"),
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
            (api, json!({ "url": "https://a.example/", "secrets": [SECRET] }), "secrets.0: it would be stored"),
            (api, json!({ "url": "https://a.example/", "secrets": [{ "env": "HOME" }] }), "secrets.0: only variables"),
            (api, json!({ "url": "https://a.example/", "secrets": [{ "file": "/x" }] }), "secrets.0: only the config"),
            (api, json!({ "url": "https://a.example/", "secrets": by_env, "ca": "/x" }), "ca: only the config"),
        ] {
            let error = parse_redacted(made_by, settings.clone()).unwrap_err();
            assert!(error.starts_with(expected), "{settings}: {error}");
            assert!(!error.contains("hush") && !error.contains("MfKQ"), "{error}");
        }
        assert!(parse_redacted(api, json!({ "url": "https://a.example/", "secrets": by_env })).is_ok());
    }
}
