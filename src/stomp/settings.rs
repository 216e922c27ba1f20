//! Settings of a STOMP destination.

use std::path::PathBuf;

use crate::broker::{Endpoint, InvalidEndpoint, Schemes};

/// URL schemes. ActiveMQ calls the scheme with TLS `stomp+ssl`. ActiveMQ has no default port for TLS; 61614 is
/// RabbitMQ's.
static SCHEMES: Schemes = Schemes {
    plain: &["stomp"],
    encrypted: &["stomp+ssl", "stomps"],
    port: 61613,
    encrypted_port: 61614,
    neither: "is none of stomp, stomp+ssl and stomps (tcp://…:61616 is OpenWire; ActiveMQ speaks STOMP at port 61613)",
};

/// Settings of a destination.
#[derive(Clone, Debug)]
pub struct StompSettings {
    /// URL of the broker.
    pub address: Endpoint,
    /// PEM file of the CA certificates that the broker's certificate is checked against; `None` for those of
    /// the operating system.
    pub ca: Option<PathBuf>,
    /// Queue or topic in the broker's notation: `/queue/NAME`, `/topic/NAME`.
    pub destination: String,
    /// Name of the durable subscription to a topic. The broker stores its messages while the gateway is away.
    pub durable: Option<String>,
    /// Client id of the connection.
    pub client_id: Option<String>,
    /// Maximum number of unacknowledged messages, 1 to 65535.
    pub prefetch: u16,
    /// Acknowledgement mode.
    pub acknowledge: Acknowledge,
}

named_values! {
    /// Acknowledgement mode.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Acknowledge {
        /// One acknowledgement for a message and all earlier ones (`ack:client`).
        Cumulative = "cumulative",
        /// One acknowledgement for each message (`ack:client-individual`).
        Individual = "individual",
    }
}

impl Acknowledge {
    /// Returns the value of the header `ack` in a SUBSCRIBE.
    pub(super) fn mode(self) -> &'static str {
        match self {
            Self::Cumulative => "client",
            Self::Individual => "client-individual",
        }
    }
}

impl StompSettings {
    /// True if the destination is a topic. The broker stores messages of a topic only for durable
    /// subscriptions.
    #[must_use]
    pub fn is_topic(&self) -> bool {
        is_topic(&self.destination)
    }
}

/// Prefixes of destinations in ActiveMQ, Artemis and RabbitMQ. Virtual topics are read from queues.
const PREFIXES: [&str; 10] = [
    "/queue/",
    "/topic/",
    "/exchange/",
    "/amq/queue/",
    "/temp-queue/",
    "/temp-topic/",
    "/reply-queue/",
    "/dsub/",
    "jms.queue.",
    "jms.topic.",
];

/// Maximum length of a setting that is sent as a header, in bytes, because brokers limit headers.
const MAX_HEADER_BYTES: usize = 1024;

/// Reason why a text cannot be a setting that is sent as a header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidHeader(String);

/// Checks a text that is sent as a header.
///
/// # Errors
/// Fails if the text is empty, too long, or has a control character.
pub fn parse_header(text: &str) -> Result<String, InvalidHeader> {
    let reason = match text {
        text if text.trim().is_empty() => "it is empty; give a name",
        text if text.len() > MAX_HEADER_BYTES => "it is longer than 1024 bytes",
        text if !is_header(text) => "it contains a line break or another control character",
        _ => return Ok(text.to_owned()),
    };
    Err(InvalidHeader(reason.to_owned()))
}

/// Checks a queue, a topic or another destination of a broker.
///
/// # Errors
/// Fails if the text does not name the kind of the destination, or is no header.
pub fn parse_destination(text: &str) -> Result<String, InvalidHeader> {
    let destination = parse_header(text)?;
    if is_destination(&destination) {
        return Ok(destination);
    }
    let name = destination.trim_start_matches('/');
    let name =
        ["queue://", "topic://", "queue/", "topic/"].iter().find_map(|kind| name.strip_prefix(kind)).unwrap_or(name);
    let name = if name.is_empty() { "NAME" } else { name };
    Err(InvalidHeader(format!(
        "{destination:?} does not say whether it is a topic or a queue, and ActiveMQ would treat it as a queue; give \
         /topic/{name} or /queue/{name}"
    )))
}

/// True if a destination names its kind. ActiveMQ would create a queue for a name without a prefix. A name
/// with `::` is Artemis's notation for an address and a queue.
fn is_destination(text: &str) -> bool {
    text.contains("::")
        || PREFIXES.iter().any(|prefix| text.strip_prefix(prefix).is_some_and(|name| !name.trim().is_empty()))
}

fn is_topic(destination: &str) -> bool {
    destination.starts_with("/topic/")
}

/// Reason why a text is no URL of a broker. The message does not repeat the text, which may contain a
/// password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; use one such as stomp://user:password@broker.example.org:61613")]
pub struct InvalidBrokerUrl(InvalidEndpoint);

/// Parses `stomp://USER:PASSWORD@HOST:PORT/VHOST`. User and password are optional, and so is the virtual host,
/// which RabbitMQ supports and ActiveMQ does not. The default port is 61613, or 61614 with TLS.
///
/// # Errors
/// Fails if the text is no such URL.
pub fn address(text: &str) -> Result<Endpoint, InvalidBrokerUrl> {
    let address = Endpoint::parse(text, &SCHEMES).map_err(InvalidBrokerUrl)?;
    let password = address.password().map(|password| String::from_utf8_lossy(password.expose()));
    if ![address.user(), password.as_deref(), address.vhost()].into_iter().flatten().all(is_header) {
        return Err(InvalidBrokerUrl(InvalidEndpoint("has a control character where it is percent-encoded")));
    }
    Ok(address)
}

/// True if a text may be the value of a header that is not escaped: it contains no control characters, such as
/// line breaks.
fn is_header(text: &str) -> bool {
    !text.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::{address, is_destination};

    #[test]
    fn destination_must_name_its_kind() {
        for good in ["/queue/a", "/topic/a", "/exchange/e/k", "/amq/queue/q", "/temp-queue/t", "jms.queue.q", "a::q"] {
            assert!(is_destination(good), "{good}");
        }
        for bad in ["fedora", "/fedora", "queue/a", "/queue/", "/topic", "queue://a", "topic://a"] {
            assert!(!is_destination(bad), "{bad}");
        }
    }

    #[test]
    fn url_has_default_ports_and_no_default_user() {
        for (text, display) in [
            ("stomp://h", "stomp://h:61613"),
            ("stomps://h", "stomp+ssl://h:61614"),
            ("stomp+ssl://me:hush@h:1/%2f", "stomp+ssl://me@h:1/%2F"),
        ] {
            let address = address(text).unwrap();
            assert_eq!(address.to_string(), display);
            assert_eq!(format!("{address:?}"), display);
        }
        assert_eq!(address("stomp://me:a%3ab@h").unwrap().password().unwrap().expose(), b"a:b");
    }

    #[test]
    fn invalid_url_is_refused_without_being_repeated() {
        for (text, reason) in [
            ("http://me:hush@h", "it is none of stomp, stomp+ssl and stomps ("),
            ("stomp://me:hu%0ash@h", "it has a control character where it is percent-encoded; "),
            ("stomp://hush@h", "it has a user without a password; "),
        ] {
            let error = address(text).unwrap_err().to_string();
            assert!(error.starts_with(reason) && !error.contains("hush"), "{error}");
        }
    }
}
