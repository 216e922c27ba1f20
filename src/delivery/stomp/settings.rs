//! Settings of the STOMP delivery.

use std::{path::PathBuf, sync::Arc, time::Duration};

use axum::http::HeaderValue;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::Stomp;
use crate::{
    delivery::{
        AttemptLog, ConfigResult, DefinitionContext, Delivery, DeliveryConfig, InvalidDefinition, Window,
        attempts::without_secrets, guarded_resolver::guarded_resolver, secret_url,
    },
    model::{SubscriptionName, Uri},
    settings::{Key, Seconds, SecretText, Setting, Table, Text, TextType, Whole, settings},
    stomp::{Connector, StompError, address, parse_destination},
    web::Secret,
};

settings! {
    /// Address of the broker, and destination, headers and bounds of the messages.
    pub(super) struct StompTable {
        /// Broker: stomp://USER:PASSWORD@HOST:PORT, or stomp+ssl for TLS; or { file = "PATH" }, or { env = "NAME" }.
        /// Append the virtual host if the broker has one (RabbitMQ), as in /%2f. Defaults: port 61613 (TLS: 61614), no
        /// user.
        url: SecretText,
        /// PEM file with the CA certificate of the broker, for TLS. Default: the CA certificates of the operating
        /// system.
        ca: Option<Text<PathBuf>>,
        /// "/queue/NAME" or "/topic/NAME", or another destination of the broker, such as "/exchange/NAME/KEY" of
        /// RabbitMQ.
        pub(super) destination: Destination,
        /// REST URL of the repository, for the header `org.fcrepo.jms.baseURL`. Default: the parent of an object that is
        /// below it, otherwise the URL of its host.
        pub(super) base_url: Option<Text<Uri>>,
        /// Value of the header `Authorization` of each message, for consumers that pass it to another service; or { file =
        /// "PATH" }, or { env = "NAME" }. The broker stores it, and shows it to everybody who reads the messages. Default:
        /// no such header.
        authorization: Option<SecretText>,
        /// Maximum number of unconfirmed messages, 1 to 65535. Default: 1000.
        pub(super) window: Whole<usize, 1, 65_535> = 1000,
        /// Maximum size of unconfirmed messages, in bytes, 1024 to 1073741824. Default: 8388608.
        pub(super) window_bytes: Whole<usize, 1024, 1_073_741_824> = 8 * 1024 * 1024,
        /// Maximum time to send a message and receive its receipt, in seconds, 1 to 3600. Default: 30.
        pub(super) confirm as "confirm_seconds": Seconds<1, 3600> = Duration::from_secs(30),
        // The default limit of ActiveMQ (`maxDataLength`).
        /// Size above which a message becomes a dead letter, in bytes, 1024 to 1073741824. Default: 104857600.
        pub(super) max_message_bytes: Whole<usize, 1024, 1_073_741_824> = 100 * 1024 * 1024,
    }
}

/// Specifications of the settings.
pub(super) const KEYS: &[Key] = StompTable::KEYS;

/// A queue, a topic or another destination of a broker.
pub(super) struct Destination;

impl TextType for Destination {
    type Value = String;

    fn parse(text: &str) -> Result<String, String> {
        parse_destination(text).map_err(|error| error.to_string())
    }
}

/// Validated settings.
pub(super) struct StompSettings {
    pub(super) broker: Connector,
    pub(super) window: Window,
    /// Value of the header `Authorization` of a message.
    pub(super) authorization: Option<Secret>,
    pub(super) table: StompTable,
}

impl StompSettings {
    /// Describes an error without the secret of the messages, which some brokers repeat.
    pub(super) fn describe(&self, error: &StompError) -> String {
        without_secrets(&error.to_string(), &self.authorization)
    }
}

pub(super) fn parse(table: &Setting, context: &DefinitionContext<'_>) -> ConfigResult {
    Ok(Arc::new(StompConfig(Arc::new(read_settings(table, context)?))))
}

fn read_settings(table: &Setting, context: &DefinitionContext<'_>) -> Result<StompSettings, InvalidDefinition> {
    let table = StompTable::read_part(table)?;
    let url = secret_url::read_url(&table.url, context)?;
    let address = address(&String::from_utf8_lossy(url.expose()));
    let address = address.map_err(|error| InvalidDefinition::new("url", error.to_string()))?;
    let allowed = context.guard.check_named(address.host(), address.is_encrypted());
    allowed.map_err(|error| InvalidDefinition::new("url", error.to_string()))?;
    let ca = context.ca_file(table.ca.clone())?;
    if ca.is_some() && !address.is_encrypted() {
        let reason = "the connection is not encrypted; give url the scheme stomp+ssl, or leave ca out";
        return Err(InvalidDefinition::new("ca", reason));
    }
    let authorization = table.authorization.as_ref().map(|setting| authorization(setting, context)).transpose()?;
    let broker = Connector { address, ca, client_id: None, resolver: guarded_resolver(context.guard.clone()) };
    let window =
        Window { messages: table.window, changes: 1, bytes: table.window_bytes, outcome_timeout: table.confirm };
    Ok(StompSettings { broker, window, authorization, table })
}

/// Maximum length of the header `Authorization`, in bytes: ActiveMQ ends a connection with a line of more than 10 KiB, and
/// HTTP servers accept less.
const MAX_AUTHORIZATION_BYTES: usize = 8 * 1024;

/// Reads the value of the header `Authorization`.
fn authorization(setting: &Setting, context: &DefinitionContext<'_>) -> Result<Secret, InvalidDefinition> {
    let secret = secret_url::read_secret(setting, setting, context)?;
    if secret.expose().len() > MAX_AUTHORIZATION_BYTES {
        return Err(setting.invalid(format!("it has more than {MAX_AUTHORIZATION_BYTES} bytes")).into());
    }
    let is_carried =
        HeaderValue::from_bytes(secret.expose()).is_ok_and(|value| value.to_str().is_ok_and(|it| !it.is_empty()));
    match is_carried {
        true => Ok(secret),
        false => Err(setting.invalid("it is empty, or has characters that no header carries").into()),
    }
}

/// Configuration of the STOMP delivery.
struct StompConfig(Arc<StompSettings>);

impl DeliveryConfig for StompConfig {
    fn build(&self, _: &SubscriptionName, _: &Arc<AttemptLog>) -> Box<dyn Delivery> {
        Box::new(Stomp { settings: Arc::clone(&self.0), publisher: None })
    }

    fn probe<'s>(&'s self, _: &'s str) -> Option<BoxFuture<'s, Result<(), String>>> {
        Some(Box::pin(async { self.0.broker.probe().await.map_err(|error| error.to_string()) }))
    }

    fn redacted(&self) -> Map<String, Value> {
        let StompSettings { broker, table, .. } = &*self.0;
        let settings_json = json!({
            "url": broker.address.to_string(),
            "ca": broker.ca,
            "destination": table.destination,
            "base_url": table.base_url,
            "window": table.window,
            "window_bytes": table.window_bytes,
            "confirm_seconds": table.confirm.as_secs(),
            "max_message_bytes": table.max_message_bytes,
        });
        match settings_json {
            Value::Object(members) => members.into_iter().filter(|(_, value)| !value.is_null()).collect(),
            _ => Map::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::{DefinitionContext, Setting, StompConfig, StompSettings, read_settings};
    use crate::{
        delivery::{DeliveryConfig, InvalidDefinition},
        http_client::OutboundPolicy,
        journal::subscriptions::MadeBy,
        stomp::StompError,
    };

    fn parsed(settings: Value) -> Result<Value, InvalidDefinition> {
        parsed_for(MadeBy::Config, settings)
    }

    fn parsed_for(made_by: MadeBy, settings: Value) -> Result<Value, InvalidDefinition> {
        let settings = settings_for(made_by, settings)?;
        Ok(StompConfig(Arc::new(settings)).redacted().into())
    }

    fn settings_for(made_by: MadeBy, settings: Value) -> Result<StompSettings, InvalidDefinition> {
        let guard = OutboundPolicy::unrestricted();
        let variable = |name: &str| (name != "NO").then(|| "stomp+ssl://me:hush-hush@h".into());
        let context = DefinitionContext { made_by, variable: &variable, guard: &guard };
        read_settings(&Setting::definition(settings), &context)
    }

    #[test]
    fn password_is_not_shown() {
        let shown = parsed(json!({ "url": { "env": "X" }, "destination": "/topic/t", "ca": "/x.pem" })).unwrap();
        assert_eq!((&shown["url"], &shown["window"]), (&json!("stomp+ssl://me@h:61614"), &json!(1000)));
        assert!(!shown.to_string().contains("hush"));
    }

    #[test]
    fn invalid_settings_are_refused() {
        for (more, key) in [
            (json!({ "ca": "/x.pem" }), "ca"),
            (json!({ "destination": "changes" }), "destination"),
            (json!({ "destination": "/queue/a\nb" }), "destination"),
            (json!({ "base_url": "/rest" }), "base_url"),
            (json!({ "url": "tcp://me:hush@h:61616" }), "url"),
            (json!({ "window": 0 }), "window"),
            (json!({ "authorization": "Bearer hush\r\nx: y" }), "authorization"),
            (json!({ "authorization": "" }), "authorization"),
            (json!({ "authorization": "a".repeat(8193) }), "authorization"),
            (json!({ "authorization": { "env": "NO" } }), "authorization"),
        ] {
            let mut settings = json!({ "url": "stomp://h", "destination": "/queue/q" });
            settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let error = parsed(settings).unwrap_err();
            assert!(error.key == key && !error.to_string().contains("hush"), "{error}");
        }
    }

    #[test]
    fn authorization_is_a_secret() {
        let given = json!({ "url": "stomp://h", "destination": "/queue/q", "authorization": "Bearer hush" });
        assert!(!parsed(given.clone()).unwrap().to_string().contains("hush"));
        let settings = settings_for(MadeBy::Config, given.clone()).unwrap();
        let repeated = StompError::NotAccepted("full: Authorization:Bearer hush".to_owned());
        assert_eq!(settings.describe(&repeated), "the broker did not accept the message: full: Authorization:(secret)");
        let error = parsed_for(MadeBy::Api, given).unwrap_err();
        assert!(error.key == "authorization" && !error.to_string().contains("hush"), "{error}");
        let named = json!({ "env": "TIDINGS_SECRET_TOKEN" });
        let named = json!({ "url": "stomp://h", "destination": "/queue/q", "authorization": named });
        assert!(parsed_for(MadeBy::Api, named).is_ok());
    }
}
