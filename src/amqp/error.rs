//! Why a broker does not do as it is asked, and who has to act.

use std::time::Duration;

use lapin::ErrorKind;

use crate::broker::{InvalidAuthority, SocketError};

/// AMQP's reply codes that say something of their own (AMQP 0-9-1 section 1.2).
mod code {
    pub(super) const ACCESS_REFUSED: u16 = 403;
    pub(super) const NOT_FOUND: u16 = 404;
    pub(super) const RESOURCE_LOCKED: u16 = 405;
    pub(super) const PRECONDITION_FAILED: u16 = 406;
    pub(super) const NOT_ALLOWED: u16 = 530;
}

/// Why a broker did not do as it was asked. After any of them the connection is not used again.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AmqpError {
    /// It does not answer.
    #[error("the broker did not answer within {} seconds when asked to {asked}", .after.as_secs())]
    Silent {
        /// What it was asked.
        asked: &'static str,
        /// How long it was waited for.
        after: Duration,
    },
    /// There is no way to it, or nobody there.
    #[error("the broker cannot be reached: {0}")]
    Unreachable(String),
    /// The connection was there and is gone.
    #[error("the connection to the broker broke: {0}")]
    Broken(String),
    /// The broker ended the connection or the channel.
    #[error("the broker ended it: {0}")]
    Closed(String),
    /// The broker ended the consumer: mostly since its queue was deleted.
    #[error("the broker cancelled the consumer: its queue is gone, or has moved to another node")]
    Cancelled,
    /// User or password are wrong.
    #[error("the broker refused the user or the password ({0}); mend them in the url, or in the broker")]
    Credentials(String),
    /// There is no such virtual host, or the user may not use it.
    #[error("the broker refused the virtual host ({0}); mend it in the url, or add it and let the user in")]
    VirtualHost(String),
    /// The user may not do that.
    #[error("the user may not do that ({0}); give it the permission in the broker")]
    Forbidden(String),
    /// There is no such exchange or queue.
    #[error("the broker has no such thing ({0}); make it there, or set declare = true")]
    NotFound(String),
    /// There is an exchange or a queue of that name, and it is of another kind.
    #[error("the broker has it otherwise ({0}); settle the difference, or set declare = false to take it as it is")]
    Different(String),
    /// Somebody else has the queue for himself.
    #[error("another connection has the queue for itself ({0})")]
    Locked(String),
    /// The queue is a stream.
    #[error(
        "the queue is a stream, and streams are not read: each connection would begin at its end, and miss what came before; name a quorum or a classic queue, and have the broker copy the messages to it"
    )]
    Stream,
    /// No encrypted connection can be made.
    #[error("no encrypted connection can be made: {0}; see to the broker's certificate, or name its authority in `ca`")]
    Tls(String),
    /// The authority's certificates cannot be read.
    #[error(transparent)]
    Authority(InvalidAuthority),
}

/// What was being done: the same answer of a broker means one thing here and another there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The connection was being made.
    Connect,
    /// Exchanges and queues were being declared or looked for.
    Declare,
    /// Messages were moving.
    Work,
}

impl From<SocketError> for AmqpError {
    fn from(error: SocketError) -> Self {
        match error {
            SocketError::Unreachable(reason) => Self::Unreachable(reason),
            SocketError::Tls(reason) => Self::Tls(reason),
            SocketError::Authority(error) => Self::Authority(error),
        }
    }
}

impl AmqpError {
    /// Whether the same may work soon without anybody doing anything. Where it is false, somebody must
    /// act, in the broker or in the configuration; it is tried on, since that may happen in the broker.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Silent { .. } | Self::Unreachable(_) | Self::Broken(_) | Self::Closed(_) | Self::Cancelled => true,
            Self::Credentials(_)
            | Self::VirtualHost(_)
            | Self::Forbidden(_)
            | Self::NotFound(_)
            | Self::Different(_)
            | Self::Locked(_)
            | Self::Stream
            | Self::Tls(_)
            | Self::Authority(_) => false,
        }
    }

    /// What the library's error means at that step.
    pub(super) fn at(step: Step, error: &lapin::Error) -> Self {
        match error.kind() {
            ErrorKind::ProtocolError(told) => {
                let reason = told.get_message().to_string();
                match (told.get_id(), step) {
                    (code::ACCESS_REFUSED, Step::Connect) => Self::Credentials(reason),
                    (code::NOT_ALLOWED, Step::Connect) => Self::VirtualHost(reason),
                    (code::ACCESS_REFUSED, _) => Self::Forbidden(reason),
                    (code::NOT_FOUND, Step::Declare) => Self::NotFound(reason),
                    (code::PRECONDITION_FAILED, Step::Declare) => Self::Different(reason),
                    (code::RESOURCE_LOCKED, _) => Self::Locked(reason),
                    _ => Self::Closed(reason),
                }
            }
            ErrorKind::IOError(reason) if step == Step::Connect => Self::Unreachable(reason.to_string()),
            _ => Self::Broken(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use lapin::{ErrorKind, protocol::AMQPError};

    use super::{AmqpError, Step};

    #[test]
    fn the_same_answer_means_another_thing_at_another_step() {
        let told = |id, step| {
            let error = AMQPError::from_id(id, "TOLD".into()).unwrap();
            AmqpError::at(step, &ErrorKind::ProtocolError(error).into())
        };
        assert!(matches!(told(403, Step::Connect), AmqpError::Credentials(_)));
        assert!(matches!(told(403, Step::Declare), AmqpError::Forbidden(_)));
        assert!(matches!(told(530, Step::Connect), AmqpError::VirtualHost(_)));
        assert!(matches!(told(404, Step::Declare), AmqpError::NotFound(_)));
        assert!(matches!(told(406, Step::Declare), AmqpError::Different(_)));
        // As when a broker ends a consumer that took too long to acknowledge.
        assert!(told(406, Step::Work).is_transient());
        assert!(told(320, Step::Work).is_transient());
        assert!(told(404, Step::Declare).to_string().contains("(TOLD)"));
    }
}
