//! Settings of a source that reads a queue or a topic over STOMP.

use std::{ffi::OsString, sync::Arc};

use super::{
    certificate::ca_certificate,
    error::ConfigErrors,
    secret,
    transport::{Connection, PREFETCH, Prefetch, TransportKind},
};
use crate::{
    settings::{Choice, Choose, SecretText, Setting, Table, Text, TextType, settings},
    stomp::{Acknowledge, StompSettings, address, parse_destination, parse_header},
};

/// The transport `stomp`: a queue or a topic of a broker that supports STOMP.
pub(super) static STOMP: TransportKind = TransportKind {
    name: "stomp",
    keys: &[StompTable::KEYS],
    read: |table, environment| Ok(Connection::Broker(Arc::new(read(table, environment)?))),
};

settings! {
    struct StompTable {
        /// Broker: "stomp://USER:PASSWORD@HOST:PORT", or "stomp+ssl" for TLS; given as for "amqp". Append the
        /// virtual host if the broker has one (RabbitMQ), as in /%2f. Defaults: port 61613 (TLS: 61614), no
        /// user.
        url: SecretText,
        /// PEM file with the CA certificate of the broker, for TLS. Default: the CA certificates of the operating system.
        ca: Option<Text>,
        /// "/queue/NAME" or "/topic/NAME", or another destination of the broker, such as "/exchange/NAME/KEY"
        /// of RabbitMQ. A name alone is refused.
        destination: Destination,
        /// Name of a durable subscription to a topic. Without one, messages that are sent to the topic while
        /// Tidings is stopped are lost. Default: none.
        durable: Option<Header>,
        /// Client id of the connection. Only one connection at a time may use it. Default: the same as
        /// `durable`.
        client_id: Option<Header>,
        /// Maximum number of messages that are received before the first is stored, 1 to 65535. All of them
        /// may be in memory, so choose less if messages are large. Default: 1000.
        prefetch: Prefetch = PREFETCH,
        /// "cumulative": one acknowledgement covers a message and all earlier ones; "individual": one for
        /// each message. Default: "cumulative".
        acknowledge: Choice<Acknowledge> = Acknowledge::Cumulative,
    }
}

impl Choose for Acknowledge {
    const WHAT: &'static str = "way to acknowledge";
}

/// Reads the settings from the table of a source.
fn read(table: &Setting, environment: &[(OsString, OsString)]) -> Result<StompSettings, ConfigErrors> {
    let StompTable { url, ca, destination, durable, client_id, prefetch, acknowledge } = StompTable::read_part(table)?;
    let address = address(&secret::text(&url, environment)?).map_err(|error| url.invalid(error.to_string()))?;
    let ca = ca_certificate(ca, address.is_encrypted(), "stomp+ssl", table)?;
    if durable.is_some() && destination.starts_with("/queue/") {
        let reason =
            "only a subscription to a topic can be durable, and a queue keeps its messages anyway; leave it out";
        return Err(table.at("durable").invalid(reason).into());
    }
    // A broker identifies a durable subscription by its name and the client id.
    let client_id = client_id.or_else(|| durable.clone());
    Ok(StompSettings { address, ca, destination, durable, client_id, prefetch, acknowledge })
}

/// A text that is sent as a header.
struct Header;

impl TextType for Header {
    type Value = String;

    fn parse(text: &str) -> Result<String, String> {
        parse_header(text).map_err(|error| error.to_string())
    }
}

/// A queue, a topic or another destination of a broker.
struct Destination;

impl TextType for Destination {
    type Value = String;

    fn parse(text: &str) -> Result<String, String> {
        parse_destination(text).map_err(|error| error.to_string())
    }
}
