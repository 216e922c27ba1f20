//! Errors of Kafka operations, classified by who has to act.

use std::time::Duration;

use rskafka::{
    BackoffError, ConnectionError,
    client::error::{Error, ProtocolError, RequestContext, RequestError},
};

use crate::{
    broker::{InvalidCaCertificates, SocketError},
    text::line,
};

/// Maximum length of a library's text in an error, in characters.
const MAX_QUOTED_CHARS: usize = 300;

/// Reason why an operation failed. The client is not used again after any of them, unless its documentation says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KafkaError {
    /// The broker did not respond in time.
    #[error("the broker did not respond within {} seconds when asked to {operation}; check `brokers` and `tls`", .after.as_secs())]
    Timeout {
        /// The operation, as an infinitive.
        operation: &'static str,
        /// The timeout.
        after: Duration,
    },
    /// No broker accepts a connection.
    #[error(
        "no broker can be reached: {0}; check `brokers`, and the addresses that the brokers advertise (advertised.listeners)"
    )]
    Unreachable(String),
    /// The connection broke.
    #[error("the connection to a broker broke: {0}")]
    ConnectionLost(String),
    /// The broker refused the user, the password or the mechanism.
    #[error("the broker refused the gateway ({0}); fix `sasl`, `user` or `password`, or the user in the broker")]
    Refused(String),
    /// No TLS connection can be established.
    #[error(
        "no encrypted connection can be made: {0}; check that the port speaks TLS, and name the CA certificate of the brokers in `ca`"
    )]
    Tls(String),
    /// The CA certificates cannot be read.
    #[error(transparent)]
    CaCertificates(#[from] InvalidCaCertificates),
    /// The topic does not exist, or the user may not see it.
    #[error(
        "the cluster shows no topic {0:?}; create it, correct its name, or grant the user the permission to describe and read it"
    )]
    UnknownTopic(String),
    /// The user lacks a permission.
    #[error("the user lacks a permission in the cluster ({0}); grant it")]
    Forbidden(String),
    /// The partition does not have this offset.
    #[error("the partition does not have the offset ({0})")]
    OffsetOutOfRange(String),
    /// The response cannot be decoded. The connection still works.
    #[error("records cannot be decoded: {0}")]
    Unreadable(String),
    /// The broker refuses records of this size.
    #[error("the broker refuses the records as too large")]
    TooLarge,
    /// The broker refuses the records for good.
    #[error("the broker refuses the records ({0})")]
    InvalidRecords(String),
    /// The cluster cannot execute the request at present.
    #[error("the cluster cannot execute the request at present: {0}")]
    Unavailable(String),
}

impl KafkaError {
    /// True if the same operation may succeed soon without anyone's intervention.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Unreachable(_) | Self::ConnectionLost(_) | Self::Unavailable(_) => true,
            Self::Refused(_)
            | Self::Tls(_)
            | Self::CaCertificates(_)
            | Self::UnknownTopic(_)
            | Self::Forbidden(_)
            | Self::OffsetOutOfRange(_)
            | Self::Unreadable(_)
            | Self::TooLarge
            | Self::InvalidRecords(_) => false,
        }
    }
}

impl From<SocketError> for KafkaError {
    fn from(error: SocketError) -> Self {
        match error {
            SocketError::Unreachable(reason) => Self::Unreachable(reason),
            SocketError::Tls(reason) => Self::Tls(reason),
            SocketError::CaCertificates(error) => Self::CaCertificates(error),
        }
    }
}

/// Awaits a call of the library for at most `after`.
pub(super) async fn within<T>(
    operation: &'static str,
    after: Duration,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, KafkaError> {
    match tokio::time::timeout(after, call).await {
        Ok(outcome) => outcome.map_err(classify),
        Err(_) => Err(KafkaError::Timeout { operation, after }),
    }
}

fn classify(error: Error) -> KafkaError {
    match error {
        Error::Connection(error) => of_connection(error),
        Error::Request(error) => of_request(&error),
        Error::RetryFailed(error) => of_attempts(error),
        Error::ServerError { protocol_error, request, .. } => of_broker(protocol_error, &request),
        Error::InvalidResponse(reason) => KafkaError::ConnectionLost(quoted(&reason)),
        other => KafkaError::Unavailable(quoted(&other.to_string())),
    }
}

fn of_connection(error: ConnectionError) -> KafkaError {
    match error {
        ConnectionError::Metadata(error) => of_request(&error),
        ConnectionError::RetryFailed(error) => of_attempts(error),
        ConnectionError::SaslFailed(error) => KafkaError::Refused(quoted(&error.to_string())),
        other => of_text(&other.to_string()),
    }
}

/// Classifies the last error of several attempts.
fn of_attempts(BackoffError::DeadlineExceded { source, .. }: BackoffError) -> KafkaError {
    match source.downcast::<Error>() {
        Ok(error) => classify(*error),
        Err(source) => match source.downcast::<RequestError>() {
            Ok(error) => of_request(&error),
            Err(source) => of_text(&source.to_string()),
        },
    }
}

/// Classifies an error by its text, because the library hides the types of connection errors.
fn of_text(text: &str) -> KafkaError {
    let is_any = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if is_any(&["Sasl", "SASL"]) {
        KafkaError::Refused(quoted(text))
    } else if is_any(&["certificate", "tls", "TLS", "received corrupt message", "Invalid Hostname"]) {
        KafkaError::Tls(quoted(text))
    } else {
        KafkaError::Unreachable(quoted(text))
    }
}

fn of_request(error: &RequestError) -> KafkaError {
    match error {
        RequestError::ReadError(_) | RequestError::ReadVersionedError(_) | RequestError::TooMuchData { .. } => {
            KafkaError::Unreadable(quoted(&error.to_string()))
        }
        other => KafkaError::ConnectionLost(quoted(&other.to_string())),
    }
}

fn of_broker(error: ProtocolError, request: &RequestContext) -> KafkaError {
    let place = match request {
        RequestContext::Topic(topic) => format!("topic {topic}"),
        RequestContext::Partition(topic, partition) => format!("partition {partition} of {topic}"),
        RequestContext::Fetch { topic_name, partition_id, offset, .. } => {
            format!("offset {offset} of partition {partition_id} of {topic_name}")
        }
        _ => String::new(),
    };
    let reason = format!("{error:?}, {place}");
    match error {
        ProtocolError::OffsetOutOfRange => KafkaError::OffsetOutOfRange(reason),
        ProtocolError::TopicAuthorizationFailed
        | ProtocolError::ClusterAuthorizationFailed
        | ProtocolError::TransactionalIdAuthorizationFailed => KafkaError::Forbidden(reason),
        ProtocolError::SaslAuthenticationFailed
        | ProtocolError::UnsupportedSaslMechanism
        | ProtocolError::IllegalSaslState => KafkaError::Refused(reason),
        ProtocolError::MessageTooLarge | ProtocolError::RecordListTooLarge => KafkaError::TooLarge,
        ProtocolError::InvalidRecord
        | ProtocolError::InvalidTimestamp
        | ProtocolError::PolicyViolation
        | ProtocolError::UnsupportedForMessageFormat
        | ProtocolError::UnsupportedCompressionType => KafkaError::InvalidRecords(reason),
        _ => KafkaError::Unavailable(reason),
    }
}

fn quoted(text: &str) -> String {
    line(text, MAX_QUOTED_CHARS).to_string()
}
