//! What a subscriber asks of the hub (WebSub section 5.1): a form, read leniently where the Recommendation
//! wants it so, since parameters that a hub does not understand are to be ignored.

use url::form_urlencoded;

use crate::{
    http_client::{InvalidOutboundUrl, OutboundPolicy, OutboundUrl},
    web::Secret,
};

/// The longest secret, in bytes: it is to have less than 200.
const LONGEST_SECRET: usize = 199;

/// The longest topic, in bytes: as long as the longest address of a callback.
const LONGEST_TOPIC: usize = 2048;

/// What a subscriber asks for.
#[derive(Clone, Debug)]
pub struct Request {
    pub(super) mode: Mode,
    pub(super) callback: OutboundUrl,
    /// The topic as the subscriber spelt it.
    pub(super) topic: String,
    /// For how long, in seconds, where that is told.
    pub(super) lease: Option<u64>,
    pub(super) secret: Option<Secret>,
}

/// Whether somebody wants to be told, or no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// They want to be told.
    Subscribe,
    /// They want no more.
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

/// Why a request cannot be taken. None repeats the callback or the secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    /// A parameter is not there.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A parameter is there more than once.
    #[error("{0} is given more than once")]
    Twice(&'static str),
    /// The mode is none.
    #[error("hub.mode is {0:?}; give subscribe or unsubscribe")]
    Mode(String),
    /// Publishers have no say here.
    #[error("hub.mode is publish, and this hub publishes nothing but the feed of this gateway")]
    Publish,
    /// The callback is none.
    #[error("hub.callback: {0}")]
    Callback(#[from] InvalidOutboundUrl),
    /// The topic is too long.
    #[error("hub.topic has more than {LONGEST_TOPIC} bytes")]
    LongTopic,
    /// The topic is none of this hub.
    #[error("hub.topic: {0}")]
    Topic(String),
    /// The time is none.
    #[error("hub.lease_seconds is not a whole number from 1")]
    Lease,
    /// The secret is empty or too long.
    #[error("hub.secret has to have 1 to {LONGEST_SECRET} bytes")]
    Secret,
}

impl InvalidRequest {
    /// The parameter that is wrong.
    #[must_use]
    pub fn parameter(&self) -> &'static str {
        match self {
            Self::Missing(name) | Self::Twice(name) => name,
            Self::Mode(_) | Self::Publish => "hub.mode",
            Self::Callback(_) => "hub.callback",
            Self::LongTopic | Self::Topic(_) => "hub.topic",
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

/// The parameters as they came.
#[derive(Default)]
struct Form {
    values: [Option<String>; 5],
}

impl Form {
    const NAMES: [&'static str; 5] = [CALLBACK, MODE, TOPIC, LEASE, SECRET];

    fn read(body: &[u8]) -> Result<Self, InvalidRequest> {
        let mut form = Self::default();
        for (name, value) in form_urlencoded::parse(body) {
            let known = Self::NAMES.into_iter().zip(&mut form.values).find(|(known, _)| *known == name);
            let Some((known, held)) = known else { continue };
            if held.replace(value.into_owned()).is_some() {
                return Err(InvalidRequest::Twice(known));
            }
        }
        Ok(form)
    }

    fn take(&mut self, name: &'static str) -> Option<String> {
        let at = Self::NAMES.iter().position(|known| *known == name)?;
        self.values[at].take()
    }

    fn need(&mut self, name: &'static str) -> Result<String, InvalidRequest> {
        self.take(name).filter(|value| !value.is_empty()).ok_or(InvalidRequest::Missing(name))
    }
}

impl Request {
    /// Reads the body of a request, a form.
    ///
    /// # Errors
    /// When a parameter is missing or wrong, or the callback leads where the `guard` lets nothing go.
    pub fn read(body: &[u8], guard: &OutboundPolicy) -> Result<Self, InvalidRequest> {
        let mut form = Form::read(body)?;
        let mode = match form.need(MODE)?.as_str() {
            "subscribe" => Mode::Subscribe,
            "unsubscribe" => Mode::Unsubscribe,
            "publish" => return Err(InvalidRequest::Publish),
            other => return Err(InvalidRequest::Mode(other.chars().filter(|c| !c.is_control()).take(64).collect())),
        };
        let callback = OutboundUrl::parse(&form.need(CALLBACK)?, guard)?;
        let topic = form.need(TOPIC)?;
        if topic.len() > LONGEST_TOPIC {
            return Err(InvalidRequest::LongTopic);
        }
        // Who ends a subscription may tell a time, and it means nothing.
        let lease = form.take(LEASE).filter(|lease| mode == Mode::Subscribe && !lease.is_empty());
        let lease = lease.map(|lease| lease.parse().ok().filter(|seconds| *seconds > 0).ok_or(InvalidRequest::Lease));
        let secret = form.take(SECRET).map(|secret| match secret.len() {
            1..=LONGEST_SECRET => Ok(Secret::new(secret)),
            _ => Err(InvalidRequest::Secret),
        });
        Ok(Self { mode, callback, topic, lease: lease.transpose()?, secret: secret.transpose()? })
    }
}

#[cfg(test)]
mod tests {
    use super::{InvalidRequest, Mode, OutboundPolicy, Request};

    fn read(body: &str) -> Result<Request, InvalidRequest> {
        Request::read(body.as_bytes(), &OutboundPolicy::unrestricted())
    }

    const GOOD: &str = "hub.mode=subscribe&hub.callback=http%3A%2F%2Fh%2Fcb%3Fa%3D1&hub.topic=http%3A%2F%2Fg%2Ffeed";

    #[test]
    fn what_it_does_not_understand_is_ignored() {
        let request = read(&format!("hub.verify=async&{GOOD}&hub.lease_seconds=60&hub.secret=s%C3%A9&x=y")).unwrap();
        assert_eq!(request.mode, Mode::Subscribe);
        assert_eq!(request.callback.expose().as_str(), "http://h/cb?a=1");
        assert_eq!((request.topic.as_str(), request.lease), ("http://g/feed", Some(60)));
        assert_eq!(request.secret.unwrap().expose(), "sé".as_bytes());
    }

    #[test]
    fn what_is_wrong_is_named() {
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
    fn a_time_means_nothing_to_who_ends_it() {
        let request =
            read(&GOOD.replace("=subscribe", "=unsubscribe").replace("&hub.topic", "&hub.lease_seconds=x&hub.topic"));
        assert_eq!(request.unwrap().lease, None);
    }
}
