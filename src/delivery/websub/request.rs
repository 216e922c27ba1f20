//! Parses a subscriber's request to the hub (WebSub section 5.1), a form. Unknown parameters are ignored, as
//! the Recommendation requires.

use url::form_urlencoded;

use crate::{
    http_client::{InvalidOutboundUrl, OutboundPolicy, OutboundUrl},
    text::line,
    web::Secret,
};

/// Maximum number of bytes in a secret; the Recommendation requires fewer than 200.
const MAX_SECRET_BYTES: usize = 199;

/// Maximum number of bytes in a topic, equal to that of a callback URL.
const MAX_TOPIC_BYTES: usize = 2048;

/// A request of a subscriber.
#[derive(Clone, Debug)]
pub struct HubRequest {
    pub(super) mode: Mode,
    pub(super) callback: OutboundUrl,
    /// The topic as the subscriber spelled it.
    pub(super) topic: String,
    /// Requested lease in seconds.
    pub(super) lease: Option<u64>,
    pub(super) secret: Option<Secret>,
}

/// Requested action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Subscribe.
    Subscribe,
    /// Unsubscribe.
    Unsubscribe,
}

impl Mode {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Subscribe => "subscribe",
            Self::Unsubscribe => "unsubscribe",
        }
    }
}

/// Error in a request. No message contains the callback or the secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    /// A parameter is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A parameter occurs more than once.
    #[error("{0} is given more than once")]
    Duplicate(&'static str),
    /// The mode is unknown.
    #[error("hub.mode is {0:?}; give subscribe or unsubscribe")]
    Mode(String),
    /// The mode is `publish`, which this hub does not support.
    #[error("hub.mode is publish, but this hub publishes only the feed of this gateway")]
    Publish,
    /// The callback is not an allowed URL.
    #[error("hub.callback: {0}")]
    Callback(#[from] InvalidOutboundUrl),
    /// The topic is too long.
    #[error("hub.topic has more than {MAX_TOPIC_BYTES} bytes")]
    TopicTooLong,
    /// The topic does not belong to this hub.
    #[error("hub.topic: {0}")]
    Topic(String),
    /// The lease is not a positive integer.
    #[error("hub.lease_seconds is not a positive whole number")]
    Lease,
    /// The secret is empty or too long.
    #[error("hub.secret must have 1 to {MAX_SECRET_BYTES} bytes")]
    Secret,
}

impl InvalidRequest {
    /// Returns the name of the invalid parameter.
    #[must_use]
    pub fn parameter(&self) -> &'static str {
        match self {
            Self::Missing(name) | Self::Duplicate(name) => name,
            Self::Mode(_) | Self::Publish => "hub.mode",
            Self::Callback(_) => "hub.callback",
            Self::TopicTooLong | Self::Topic(_) => "hub.topic",
            Self::Lease => "hub.lease_seconds",
            Self::Secret => "hub.secret",
        }
    }
}

const CALLBACK: &str = "hub.callback";
const MODE: &str = "hub.mode";
const TOPIC: &str = "hub.topic";
const LEASE: &str = "hub.lease_seconds";
const SECRET: &str = "hub.secret";

/// Values of the known parameters.
#[derive(Default)]
struct Form {
    values: [Option<String>; 5],
}

impl Form {
    const NAMES: [&'static str; 5] = [CALLBACK, MODE, TOPIC, LEASE, SECRET];

    fn read(body: &[u8]) -> Result<Self, InvalidRequest> {
        let mut form = Self::default();
        for (key, value) in form_urlencoded::parse(body) {
            let slot = Self::NAMES.into_iter().zip(&mut form.values).find(|(name, _)| *name == key);
            let Some((name, slot)) = slot else { continue };
            if slot.replace(value.into_owned()).is_some() {
                return Err(InvalidRequest::Duplicate(name));
            }
        }
        Ok(form)
    }

    fn remove(&mut self, name: &'static str) -> Option<String> {
        let at = Self::NAMES.iter().position(|known| *known == name)?;
        self.values[at].take()
    }

    fn require(&mut self, name: &'static str) -> Result<String, InvalidRequest> {
        self.remove(name).filter(|value| !value.is_empty()).ok_or(InvalidRequest::Missing(name))
    }
}

impl HubRequest {
    /// Parses the body of a request.
    ///
    /// # Errors
    /// Fails if a parameter is missing or invalid, or `guard` does not allow the callback.
    pub fn read(body: &[u8], guard: &OutboundPolicy) -> Result<Self, InvalidRequest> {
        let mut form = Form::read(body)?;
        let mode = match form.require(MODE)?.as_str() {
            "subscribe" => Mode::Subscribe,
            "unsubscribe" => Mode::Unsubscribe,
            "publish" => return Err(InvalidRequest::Publish),
            other => return Err(InvalidRequest::Mode(line(other, 64).to_string())),
        };
        let callback = OutboundUrl::parse(&form.require(CALLBACK)?, guard)?;
        let topic = form.require(TOPIC)?;
        if topic.len() > MAX_TOPIC_BYTES {
            return Err(InvalidRequest::TopicTooLong);
        }
        // An `unsubscribe` request may contain a lease, which is ignored.
        let lease = form.remove(LEASE).filter(|lease| mode == Mode::Subscribe && !lease.is_empty());
        let lease = lease.map(|lease| lease.parse().ok().filter(|seconds| *seconds > 0).ok_or(InvalidRequest::Lease));
        let secret = form.remove(SECRET).map(|secret| match secret.len() {
            1..=MAX_SECRET_BYTES => Ok(Secret::new(secret)),
            _ => Err(InvalidRequest::Secret),
        });
        Ok(Self { mode, callback, topic, lease: lease.transpose()?, secret: secret.transpose()? })
    }
}

#[cfg(test)]
mod tests {
    use super::{HubRequest, InvalidRequest, Mode, OutboundPolicy};

    fn read(body: &str) -> Result<HubRequest, InvalidRequest> {
        HubRequest::read(body.as_bytes(), &OutboundPolicy::unrestricted())
    }

    const GOOD: &str = "hub.mode=subscribe&hub.callback=http%3A%2F%2Fh%2Fcb%3Fa%3D1&hub.topic=http%3A%2F%2Fg%2Ffeed";

    #[test]
    fn unknown_parameters_are_ignored() {
        let request = read(&format!("hub.verify=async&{GOOD}&hub.lease_seconds=60&hub.secret=s%C3%A9&x=y")).unwrap();
        assert_eq!(request.mode, Mode::Subscribe);
        assert_eq!(request.callback.expose().as_str(), "http://h/cb?a=1");
        assert_eq!((request.topic.as_str(), request.lease), ("http://g/feed", Some(60)));
        assert_eq!(request.secret.unwrap().expose(), "sé".as_bytes());
    }

    #[test]
    fn invalid_parameter_is_named() {
        let long = "x".repeat(200);
        let topic = format!("hub.mode=subscribe&hub.callback=http://h&hub.topic={}", "x".repeat(2049));
        for (body, parameter) in [
            ("", "hub.mode"),
            ("hub.mode=subscribe", "hub.callback"),
            ("hub.mode=subscribe&hub.callback=http://h/", "hub.topic"),
            ("hub.mode=&hub.callback=http://h/&hub.topic=http://g", "hub.mode"),
            ("hub.mode=publish&hub.url=http://g/feed", "hub.mode"),
            ("hub.mode=SUBSCRIBE&hub.callback=http://h/&hub.topic=http://g", "hub.mode"),
            ("hub.mode=subscribe&hub.callback=/cb&hub.topic=http://g", "hub.callback"),
            ("hub.mode=subscribe&hub.callback=ftp://h/cb&hub.topic=http://g", "hub.callback"),
            (&topic, "hub.topic"),
            (&format!("{GOOD}&hub.lease_seconds=0"), "hub.lease_seconds"),
            (&format!("{GOOD}&hub.lease_seconds=-1"), "hub.lease_seconds"),
            (&format!("{GOOD}&hub.lease_seconds=1.5"), "hub.lease_seconds"),
            (&format!("{GOOD}&hub.secret={long}"), "hub.secret"),
            (&format!("{GOOD}&hub.secret="), "hub.secret"),
            (&format!("{GOOD}&hub.topic=http://other"), "hub.topic"),
        ] {
            let wrong = read(body).unwrap_err();
            assert_eq!(wrong.parameter(), parameter, "{body}: {wrong}");
            assert!(!wrong.to_string().contains(&long));
        }
        assert!(read(&format!("{GOOD}&hub.secret={}", "x".repeat(199))).is_ok());
    }

    #[test]
    fn unsubscribe_ignores_the_lease() {
        let request =
            read(&GOOD.replace("=subscribe", "=unsubscribe").replace("&hub.topic", "&hub.lease_seconds=x&hub.topic"));
        assert_eq!(request.unwrap().lease, None);
    }
}
