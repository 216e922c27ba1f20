//! Settings of the webhook delivery.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use serde_json::{Map, Value, json};
use utoipa::openapi::{ArrayBuilder, RefOr, Schema};

use super::{
    Webhook,
    shape::{RequestTable, Shape, redacted},
    signature::SigningKey,
};
use crate::{
    delivery::{
        AttemptLog, BoxFuture, ConfigResult, DefinitionContext, Delivery, DeliveryConfig, InvalidDefinition, Window,
        definition::FormatName, secret_url,
    },
    http_client::{self, OutboundUrl},
    journal::subscriptions::MadeBy,
    model::SubscriptionName,
    settings::{
        Content, Flag, Key, List, Seconds, SecretText, Setting, SettingError, SettingErrors, Table, Text, ValueType,
        Whole, joined, settings,
    },
    web::Secret,
};

settings! {
    /// Where the receiver is.
    struct ReceiverTable {
        /// URL to post messages to; or { file = "PATH" }, or { env = "NAME" }.
        url: SecretText,
        /// PEM file with the CA certificate of the receiver. Default: the CA certificates of the operating
        /// system.
        ca: Option<Text<PathBuf>>,
    }
}

settings! {
    /// How messages are signed. The secrets are read after the other settings.
    struct SigningTable {
        /// List of one or two signing secrets, as made by `tidings token --webhook`; each may be { file =
        /// "PATH" } or { env = "NAME" }. Not needed with `request`.
        secrets: Option<Secrets>,
        /// Shape of the requests, if the receiver reads no message of the gateway (docs/shapes.md). Needs the
        /// format json.
        request: Option<RequestTable>,
    }
}

settings! {
    /// How messages are sent.
    pub(super) struct WebhookTable {
        /// Whether a message waits for the confirmation of the previous one. Default: true.
        pub(super) is_ordered as "ordered": Flag = true,
        /// Maximum number of messages in flight if `ordered` is false, 1 to 256. Default: 16.
        pub(super) window: Option<Whole<usize, 1, 256>>,
        /// Maximum number of changes in one message, 1 to 1000; more than 1 needs the format json or
        /// cloudevents. Default: 1.
        pub(super) max_batch: Whole<usize, 1, 1000> = 1,
        /// Maximum time to connect, 1 to 60. Default: 10.
        pub(super) connect as "connect_seconds": Seconds<1, 60> = Duration::from_secs(10),
        // Standard Webhooks recommends 15 to 30 seconds.
        /// Maximum time until the response, 1 to 300. Default: 15.
        pub(super) answer as "answer_seconds": Seconds<1, 300> = Duration::from_secs(15),
        // Five days, so that a receiver which fails over a long weekend recovers without a manual resume.
        /// Duration of continuous failures after which the subscription is paused, 0 to 31536000; 0 means
        /// never. Default: 432000, five days.
        pub(super) pause_after as "pause_after_seconds": Seconds<0, 31_536_000> = Duration::from_secs(5 * 24 * 60 * 60),
        /// Statuses, 400 to 499 except 410 and 429, that make a message a dead letter. Default: none.
        pub(super) refused_statuses: Statuses = BTreeSet::new(),
    }
}

/// Specifications of the settings.
pub(super) const KEYS: [Key; 11] = joined(&joined::<4>(ReceiverTable::KEYS, SigningTable::KEYS), WebhookTable::KEYS);

/// Maximum number of messages in flight, if they are not ordered.
const WINDOW: usize = 16;

/// Maximum number of bytes in flight.
const WINDOW_BYTES: usize = 8 * 1024 * 1024;

/// Extra time for the outcome of a message, beyond connecting and waiting for the response, to read the
/// beginning of the response body.
const BODY_ALLOWANCE: Duration = Duration::from_secs(10);

/// Time for the outcome of a message that takes a request for each item. Each request has its own time limits.
const MANY_REQUESTS: Duration = Duration::from_secs(3600);

/// Maximum number of bytes read from a response, without and with a shape, whose conditions read them.
const RESPONSE_BYTES: usize = 4 << 10;
const SHAPED_RESPONSE_BYTES: usize = 64 << 10;

/// Maximum number of secrets: the old one and the new one during a rotation.
const MAX_SECRETS: usize = 2;

/// Validated settings.
pub(super) struct WebhookSettings {
    pub(super) to: OutboundUrl,
    pub(super) keys: Vec<SigningKey>,
    pub(super) client: http_client::ClientSettings,
    pub(super) window: Window,
    pub(super) table: WebhookTable,
    pub(super) shape: Option<Shape>,
    /// The setting `request`, without secrets.
    request: Option<Value>,
}

impl WebhookSettings {
    /// Returns what a response must not show: parts of the URL, and the headers that are secrets.
    pub(super) fn secrets(&self) -> Vec<Secret> {
        self.to.secrets().into_iter().chain(self.shape.iter().flat_map(|shape| shape.secrets.iter().cloned())).collect()
    }
}

pub(super) fn parse(definition: &Setting, context: &DefinitionContext<'_>) -> ConfigResult {
    Ok(Arc::new(WebhookConfig(Arc::new(read_settings(definition, context)?))))
}

pub(super) fn read_settings(
    definition: &Setting,
    context: &DefinitionContext<'_>,
) -> Result<WebhookSettings, InvalidDefinition> {
    let ReceiverTable { url: url_setting, ca } = ReceiverTable::read_part(definition)?;
    let url = secret_url::read_url(&url_setting, context)?;
    let to = OutboundUrl::parse(&String::from_utf8_lossy(url.expose()), context.guard);
    let to = to.map_err(|error| InvalidDefinition::new("url", error.to_string()))?;
    if to.is_redacted() {
        return Err(InvalidDefinition::new("url", "its query is the placeholder (hidden); give the full URL"));
    }
    if to.has_user() && context.made_by == MadeBy::Api && url_setting.json().is_string() {
        return Err(InvalidDefinition::new(
            "url",
            "it has a user, which may be a token and would be stored in the journal",
        ));
    }
    let ca = context.ca_file(ca)?;
    let table = WebhookTable::read_part(definition)?;
    if table.is_ordered && table.window.is_some() {
        return Err(InvalidDefinition::new(
            "window",
            "ordered messages are sent one at a time; leave it out, or set ordered = false",
        ));
    }
    let SigningTable { secrets, request } = SigningTable::read_part(definition)?;
    let request_setting = definition.at("request");
    let secrets = match (secrets, &request) {
        (Some(secrets), _) => secrets,
        (None, Some(_)) => Vec::new(),
        (None, None) => return Err(Secrets::missing(&definition.at("secrets")).into()),
    };
    if request.is_some() && definition.get::<FormatName>("format")?.is_none_or(|format| format.name != "json") {
        return Err(InvalidDefinition::new("format", "templates read the format json; set format = \"json\""));
    }
    let redacted_request = definition.entry("request").ok().filter(Setting::is_given).map(|given| redacted(&given));
    let shape = request.map(|request| Shape::parse(request, &request_setting, &to, table.max_batch, context));
    let shape = shape.transpose()?;
    let one_request = table.connect + table.answer + BODY_ALLOWANCE;
    let is_one_request = shape.as_ref().is_none_or(Shape::is_one_request);
    let outcome_timeout = if is_one_request { one_request } else { one_request.max(MANY_REQUESTS) };
    let window = Window {
        messages: if table.is_ordered { 1 } else { table.window.unwrap_or(WINDOW) },
        changes: table.max_batch,
        bytes: WINDOW_BYTES,
        outcome_timeout,
    };
    let client = http_client::ClientSettings {
        ca,
        connect_timeout: table.connect,
        response_timeout: table.answer,
        max_body_bytes: if shape.is_some() { SHAPED_RESPONSE_BYTES } else { RESPONSE_BYTES },
        ..http_client::ClientSettings::new(context.guard.clone())
    };
    let keys = keys(&secrets, definition, context)?;
    Ok(WebhookSettings { to, keys, client, window, table, shape, request: redacted_request })
}

fn keys(
    secrets: &[Setting],
    table: &Setting,
    context: &DefinitionContext<'_>,
) -> Result<Vec<SigningKey>, InvalidDefinition> {
    let key = |(at, secret): (usize, &Setting)| {
        let place = table.at(&format!("secrets.{at}"));
        let secret = secret_url::read_secret(&place, secret, context)?;
        Ok(SigningKey::parse(&secret).map_err(|reason| place.invalid(reason))?)
    };
    secrets.iter().enumerate().map(key).collect()
}

/// One or two secrets, each given directly or by reference.
struct Secrets;

impl ValueType for Secrets {
    type Value = Vec<Setting>;
    const CONTENT: Content = Content::Secret;

    fn read(setting: &Setting) -> Result<Vec<Setting>, SettingErrors> {
        match setting.elements() {
            Ok(secrets) if secrets.is_empty() || secrets.len() > MAX_SECRETS => {
                let reason = format!("there are {}; give one, or two during a rotation", secrets.len());
                Err(setting.invalid(reason).into())
            }
            Ok(secrets) => Ok(secrets),
            Err(_) => Err(setting.invalid("give a list of one or two secrets to sign with").into()),
        }
    }

    fn missing(setting: &Setting) -> SettingError {
        setting.invalid("it is missing; give a list of one or two secrets, as `tidings token --webhook` makes them")
    }

    fn schema() -> Schema {
        let list = ArrayBuilder::new().items(RefOr::T(SecretText::schema()));
        list.min_items(Some(1)).max_items(Some(MAX_SECRETS)).into()
    }
}

/// Statuses that reject a message. Only statuses about the message are allowed: 410 ends the subscription, and 429, 5xx and
/// redirects do not judge the message.
pub(super) struct Statuses;

impl ValueType for Statuses {
    type Value = BTreeSet<u16>;

    fn read(setting: &Setting) -> Result<BTreeSet<u16>, SettingErrors> {
        let statuses: Vec<u16> = setting.structure()?;
        match statuses.iter().find(|status| !(400..500).contains(*status) || matches!(status, 410 | 429)) {
            Some(status) => {
                let reason =
                    format!("{status} does not reject a message; give statuses from 400 to 499 except 410 and 429");
                Err(setting.invalid(reason).into())
            }
            None => Ok(statuses.into_iter().collect()),
        }
    }

    fn schema() -> Schema {
        List::<Whole<u16, 400, 499>>::schema()
    }
}

/// Configuration of the webhook delivery.
struct WebhookConfig(Arc<WebhookSettings>);

impl DeliveryConfig for WebhookConfig {
    fn build(&self, _: &SubscriptionName, attempts: &Arc<AttemptLog>) -> Box<dyn Delivery> {
        Box::new(Webhook::new(Arc::clone(&self.0), attempts))
    }

    fn probe<'s>(&'s self, _: &'s str) -> Option<BoxFuture<'s, Result<(), String>>> {
        let WebhookSettings { client, to, .. } = &*self.0;
        Some(Box::pin(async { http_client::probe(client.clone(), to).await.map_err(|error| error.to_string()) }))
    }

    fn max_batch(&self) -> usize {
        self.0.window.changes
    }

    fn pause_after(&self) -> Option<Duration> {
        Some(self.0.table.pause_after).filter(|pause| !pause.is_zero())
    }

    fn redacted(&self) -> Map<String, Value> {
        let WebhookSettings { to, keys, client, window, table, request, .. } = &*self.0;
        let settings_json = json!({
            "url": to.to_string(),
            "secrets": (!keys.is_empty()).then(|| keys.iter().map(|_| "(hidden)").collect::<Vec<_>>()),
            "request": request,
            "ca": client.ca,
            "ordered": table.is_ordered,
            "window": (!table.is_ordered).then_some(window.messages),
            "max_batch": table.max_batch,
            "connect_seconds": table.connect.as_secs(),
            "answer_seconds": table.answer.as_secs(),
            "pause_after_seconds": table.pause_after.as_secs(),
            "refused_statuses": table.refused_statuses,
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

    use super::{DefinitionContext, MadeBy, Map, Setting, Value, json, parse};
    use crate::http_client::{AllowList, OutboundPolicy};

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn parse_redacted(made_by: MadeBy, settings: Value) -> Result<Map<String, Value>, String> {
        let guard = match made_by {
            MadeBy::Config => OutboundPolicy::unrestricted(),
            MadeBy::Api | MadeBy::Hub => OutboundPolicy::restricted(AllowList::default()),
        };
        let variable = |name: &str| (name == "TIDINGS_SECRET_A").then(|| OsString::from(SECRET));
        match parse(&Setting::definition(settings), &DefinitionContext { made_by, variable: &variable, guard: &guard })
        {
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
            (config, json!({ "url": "https://a.example/" }), "secrets: it is missing"),
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
