//! A destination to read: where it is, and how.

use std::path::PathBuf;

use crate::broker::{Endpoint, InvalidEndpoint, Schemes};

/// `stomp`, or for TLS `stomp+ssl`, as ActiveMQ has it, or `stomps`. ActiveMQ has no port of its own for the
/// encrypted one; 61614 is RabbitMQ's.
static SCHEMES: Schemes = Schemes {
    plain: &["stomp"],
    encrypted: &["stomp+ssl", "stomps"],
    port: 61613,
    encrypted_port: 61614,
    neither: "is none of stomp, stomp+ssl and stomps",
};

/// A destination as the configuration names it.
#[derive(Clone, Debug)]
pub struct StompSettings {
    /// The broker.
    pub address: Endpoint,
    /// A PEM file with the authority that the broker's certificate is checked against; what the operating
    /// system trusts, where there is none.
    pub ca: Option<PathBuf>,
    /// The queue or the topic, as the broker names it: `/queue/NAME`, `/topic/NAME`.
    pub destination: String,
    /// The name of the durable subscription to a topic: the broker keeps its messages while nobody reads.
    pub durable: Option<String>,
    /// Under which name the gateway connects.
    pub client_id: Option<String>,
    /// How many messages come before one is acknowledged, 1 to 65535.
    pub prefetch: u16,
    /// How messages are acknowledged.
    pub acknowledge: Acknowledge,
}

named_values! {
    /// How messages are acknowledged.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Acknowledge {
        /// One acknowledgement for a message and all before it (`ack:client`).
        Cumulative = "cumulative",
        /// One for each (`ack:client-individual`).
        Individual = "individual",
    }
}

impl Acknowledge {
    /// The name in a SUBSCRIBE.
    pub(super) fn mode(self) -> &'static str {
        match self {
            Self::Cumulative => "client",
            Self::Individual => "client-individual",
        }
    }
}

impl StompSettings {
    /// Whether the destination is a topic, whose messages the broker keeps for nobody who is not there, unless the
    /// subscription is durable.
    #[must_use]
    pub fn is_topic(&self) -> bool {
        is_topic(&self.destination)
    }
}

/// The beginnings of destinations that ActiveMQ, Artemis and RabbitMQ know. Virtual topics are read from queues.
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

/// Whether a destination says what it is. ActiveMQ takes a name alone for that of a queue, and makes the queue. A name
/// with `::` in it is one of Artemis's, of an address and a queue.
#[must_use]
pub fn is_destination(text: &str) -> bool {
    text.contains("::")
        || PREFIXES.iter().any(|prefix| text.strip_prefix(prefix).is_some_and(|name| !name.trim().is_empty()))
}

fn is_topic(destination: &str) -> bool {
    destination.starts_with("/topic/")
}

/// Why a text is no address of a broker. It does not repeat the text, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; give an address as in stomp://user:password@broker.example.org:61613")]
pub struct InvalidAddress(InvalidEndpoint);

/// Takes `stomp://USER:PASSWORD@HOST:PORT/VHOST`. User and password may be left out, and so may the virtual host,
/// which RabbitMQ has and ActiveMQ has not. The port is 61613 where none is given, 61614 with TLS.
///
/// # Errors
/// When it is something else.
pub fn address(text: &str) -> Result<Endpoint, InvalidAddress> {
    let address = Endpoint::parse(text, &SCHEMES).map_err(InvalidAddress)?;
    let password = address.password().map(|password| String::from_utf8_lossy(password.expose()));
    if ![address.user(), password.as_deref(), address.vhost()].into_iter().flatten().all(is_header) {
        return Err(InvalidAddress(InvalidEndpoint("has a control character where it is percent-encoded")));
    }
    Ok(address)
}

/// Whether a text may be the value of a header also where headers are not escaped: it has no line break and no
/// other control character.
#[must_use]
pub fn is_header(text: &str) -> bool {
    !text.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::{address, is_destination};

    #[test]
    fn a_destination_says_whether_it_is_a_queue_or_a_topic() {
        for good in ["/queue/a", "/topic/a", "/exchange/e/k", "/amq/queue/q", "/temp-queue/t", "jms.queue.q", "a::q"] {
            assert!(is_destination(good), "{good}");
        }
        for bad in ["fedora", "/fedora", "queue/a", "/queue/", "/topic", "queue://a", "topic://a"] {
            assert!(!is_destination(bad), "{bad}");
        }
    }

    #[test]
    fn an_address_has_the_ports_of_the_protocol_and_no_user_unless_told() {
        for (text, shown) in [
            ("stomp://h", "stomp://h:61613"),
            ("stomps://h", "stomp+ssl://h:61614"),
            ("stomp+ssl://me:hush@h:1/%2f", "stomp+ssl://me@h:1/%2F"),
        ] {
            let address = address(text).unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(format!("{address:?}"), shown);
        }
        assert_eq!(address("stomp://me:a%3ab@h").unwrap().password().unwrap().expose(), b"a:b");
    }

    #[test]
    fn what_is_none_is_refused_without_being_repeated() {
        for (text, told) in [
            ("http://me:hush@h", "it is none of stomp, stomp+ssl and stomps; "),
            ("stomp://me:hu%0ash@h", "it has a control character where it is percent-encoded; "),
            ("stomp://hush@h", "it has a user without a password; "),
        ] {
            let refused = address(text).unwrap_err().to_string();
            assert!(refused.starts_with(told) && !refused.contains("hush"), "{refused}");
        }
    }
}
