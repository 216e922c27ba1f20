//! Errors of AMQP operations, classified by who has to act.

use std::time::Duration;

use lapin::ErrorKind;

use crate::broker::{InvalidCaCertificates, SocketError};

/// AMQP's reply codes with a meaning of their own here (AMQP 0-9-1 section 1.2).
mod code {
    pub(super) const ACCESS_REFUSED: u16 = 403;
    pub(super) const NOT_FOUND: u16 = 404;
    pub(super) const RESOURCE_LOCKED: u16 = 405;
    pub(super) const PRECONDITION_FAILED: u16 = 406;
    pub(super) const NOT_ALLOWED: u16 = 530;
}

/// Reason why an AMQP operation failed. The connection is not used again after any of them.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AmqpError {
    /// The broker did not respond in time.
    #[error("the broker did not respond within {} seconds when asked to {operation}", .after.as_secs())]
    Timeout {
        /// The operation, as an infinitive.
        operation: &'static str,
        /// The timeout.
        after: Duration,
    },
    /// The host cannot be resolved or accepts no connection.
    #[error("the broker cannot be reached: {0}")]
    Unreachable(String),
    /// The connection broke.
    #[error("the connection to the broker broke: {0}")]
    ConnectionLost(String),
    /// The broker closed the connection or the channel.
    #[error("the broker closed the connection: {0}")]
    ClosedByBroker(String),
    /// The broker cancelled the consumer, usually because its queue was deleted.
    #[error("the broker cancelled the consumer: its queue is gone, or has moved to another node")]
    Cancelled,
    /// The user or the password is wrong.
    #[error("the broker refused the user or the password ({0}); fix them in `url`, or in the broker")]
    Credentials(String),
    /// The virtual host does not exist, or the user has no access to it.
    #[error("the broker refused the virtual host ({0}); fix it in `url`, or create it and grant the user access")]
    VirtualHost(String),
    /// The user lacks a permission.
    #[error("the user lacks a permission ({0}); grant it in the broker")]
    Forbidden(String),
    /// The exchange or the queue does not exist.
    #[error("the exchange or the queue does not exist ({0}); create it, or set declare = true")]
    NotFound(String),
    /// The exchange or the queue exists with other properties.
    #[error(
        "the exchange or the queue exists with other properties ({0}); align the settings, or set declare = false to use it as it is"
    )]
    Mismatch(String),
    /// Another connection uses the queue exclusively.
    #[error("another connection uses the queue exclusively ({0})")]
    Locked(String),
    /// The queue is a stream.
    #[error(
        "the queue is a stream, and streams are not supported: each connection would start at its end and miss earlier messages; name a quorum or classic queue, and have the broker copy the messages to it"
    )]
    Stream,
    /// No TLS connection can be established.
    #[error(
        "no encrypted connection can be made: {0}; check the broker's certificate, or name its CA certificate in `ca`"
    )]
    Tls(String),
    /// The CA certificates cannot be read.
    #[error(transparent)]
    CaCertificates(InvalidCaCertificates),
}

/// Phase of a connection. The same reply code has different meanings in different phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Opening the connection.
    Connect,
    /// Declaring or checking exchanges and queues.
    Declare,
    /// Transferring messages.
    Work,
}

impl From<SocketError> for AmqpError {
    fn from(error: SocketError) -> Self {
        match error {
            SocketError::Unreachable(reason) => Self::Unreachable(reason),
            SocketError::Tls(reason) => Self::Tls(reason),
            SocketError::CaCertificates(error) => Self::CaCertificates(error),
        }
    }
}

impl AmqpError {
    /// True if the same operation may succeed soon without anyone's intervention. If false, an administrator
    /// must change the broker or the configuration. The gateway retries anyway, because the change may happen
    /// in the broker.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Timeout { .. }
            | Self::Unreachable(_)
            | Self::ConnectionLost(_)
            | Self::ClosedByBroker(_)
            | Self::Cancelled => true,
            Self::Credentials(_)
            | Self::VirtualHost(_)
            | Self::Forbidden(_)
            | Self::NotFound(_)
            | Self::Mismatch(_)
            | Self::Locked(_)
            | Self::Stream
            | Self::Tls(_)
            | Self::CaCertificates(_) => false,
        }
    }

    /// Classifies an error of the library by the phase in which it occurred.
    pub(super) fn at(step: Step, error: &lapin::Error) -> Self {
        match error.kind() {
            ErrorKind::ProtocolError(protocol_error) => {
                let reason = protocol_error.get_message().to_string();
                match (protocol_error.get_id(), step) {
                    (code::ACCESS_REFUSED, Step::Connect) => Self::Credentials(reason),
                    (code::NOT_ALLOWED, Step::Connect) => Self::VirtualHost(reason),
                    (code::ACCESS_REFUSED, _) => Self::Forbidden(reason),
                    (code::NOT_FOUND, Step::Declare) => Self::NotFound(reason),
                    (code::PRECONDITION_FAILED, Step::Declare) => Self::Mismatch(reason),
                    (code::RESOURCE_LOCKED, _) => Self::Locked(reason),
                    _ => Self::ClosedByBroker(reason),
                }
            }
            ErrorKind::IOError(reason) if step == Step::Connect => Self::Unreachable(reason.to_string()),
            _ => Self::ConnectionLost(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use lapin::{ErrorKind, protocol::AMQPError};

    use super::{AmqpError, Step};

    #[test]
    fn meaning_of_a_reply_code_depends_on_the_phase() {
        let protocol_error = |id, step| {
            let error = AMQPError::from_id(id, "TOLD".into()).unwrap();
            AmqpError::at(step, &ErrorKind::ProtocolError(error).into())
        };
        assert!(matches!(protocol_error(403, Step::Connect), AmqpError::Credentials(_)));
        assert!(matches!(protocol_error(403, Step::Declare), AmqpError::Forbidden(_)));
        assert!(matches!(protocol_error(530, Step::Connect), AmqpError::VirtualHost(_)));
        assert!(matches!(protocol_error(404, Step::Declare), AmqpError::NotFound(_)));
        assert!(matches!(protocol_error(406, Step::Declare), AmqpError::Mismatch(_)));
        // For example, a broker ends a consumer that takes too long to acknowledge.
        assert!(protocol_error(406, Step::Work).is_transient());
        assert!(protocol_error(320, Step::Work).is_transient());
        assert!(protocol_error(404, Step::Declare).to_string().contains("(TOLD)"));
    }
}
