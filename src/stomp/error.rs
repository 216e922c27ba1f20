//! Errors of STOMP operations, classified by who has to act.

use std::time::Duration;

use super::{Body, Frame};
use crate::{
    broker::{InvalidCaCertificates, SocketError},
    text::line,
    web::Secret,
};

/// Maximum length of a broker's text in an error, in characters.
const MAX_QUOTED_CHARS: usize = 300;

/// Reason why octets are no STOMP frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedFrame {
    /// The first line is no command of STOMP.
    #[error("a frame begins with {0:?}")]
    Command(String),
    /// A header has no colon.
    #[error("a header has no colon")]
    NoColon,
    /// The head contains a NUL.
    #[error("a frame has a NUL among its headers")]
    NulInHead,
    /// The command and the headers are too long.
    #[error("the headers of a frame have more than {} bytes", super::HEAD_BYTES)]
    LongHead,
    /// The `content-length` is no number.
    #[error("the content-length of a frame is no number")]
    ContentLength,
    /// No NUL follows the body.
    #[error("a frame does not end where its content-length says")]
    NoEnd,
}

impl MalformedFrame {
    /// Creates the error for an unknown command. Only its beginning is kept.
    #[must_use]
    pub fn command(line: &[u8]) -> Self {
        Self::Command(plain(&String::from_utf8_lossy(&line[..line.len().min(40)])))
    }
}

/// Reason why a STOMP operation failed. The connection is not used again after any of them.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StompError {
    /// The broker did not respond in time.
    #[error("the broker did not respond within {} seconds when asked to {operation}", .after.as_secs())]
    Timeout {
        /// The operation, as an infinitive.
        operation: &'static str,
        /// The timeout.
        after: Duration,
    },
    /// The heart-beats of the broker have stopped.
    #[error("the broker sent nothing for {} seconds, not even a heart-beat", .0.as_secs())]
    NoHeartBeat(Duration),
    /// The host cannot be resolved or accepts no connection.
    #[error("the broker cannot be reached: {0}")]
    Unreachable(String),
    /// The connection broke.
    #[error("the connection to the broker broke: {0}")]
    ConnectionLost(String),
    /// The broker closed the connection with an ERROR frame.
    #[error("the broker closed the connection: {0}")]
    ClosedByBroker(String),
    /// The broker refused the user, the password or the virtual host.
    #[error("the broker refused the gateway ({0}); fix user, password or virtual host in `url`, or in the broker")]
    Refused(String),
    /// The client id or the durable subscription is in use.
    #[error(
        "another connection uses the client id or the durable subscription ({0}); the broker releases a broken connection after a while; otherwise give this source its own client_id"
    )]
    InUse(String),
    /// The broker refused the subscription.
    #[error(
        "the broker does not send the messages of the destination ({0}); fix `destination`, or grant the user the permission in the broker"
    )]
    Destination(String),
    /// The broker refused a message because of its destination.
    #[error(
        "the broker accepts no messages for the destination ({0}); fix `destination`, or grant the user the permission in the broker"
    )]
    SendDestination(String),
    /// The broker did not accept a message, and may accept it later.
    #[error("the broker did not accept the message: {0}")]
    NotAccepted(String),
    /// The broker will not accept this message.
    #[error("the broker refuses the message: {0}")]
    MessageRefused(String),
    /// The peer speaks another version.
    #[error("the broker speaks STOMP {0} and neither 1.1 nor 1.2")]
    Version(String),
    /// The peer does not speak STOMP.
    #[error("the response is not STOMP: {0}; check that the port is the broker's STOMP port")]
    NotStomp(MalformedFrame),
    /// A frame cannot be decoded, although earlier ones could.
    #[error("a frame of the broker cannot be read: {0}")]
    Frame(MalformedFrame),
    /// No TLS connection can be established.
    #[error(
        "no encrypted connection can be made: {0}; check the broker's certificate, or name its CA certificate in `ca`"
    )]
    Tls(String),
    /// The CA certificates cannot be read.
    #[error(transparent)]
    CaCertificates(#[from] InvalidCaCertificates),
}

/// Phase of a connection. The same error of a broker has different meanings in different phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Opening the connection.
    Connect,
    /// Subscribing to a destination.
    Subscribe,
    /// Receiving messages.
    Work,
    /// Sending messages.
    Send,
}

impl From<SocketError> for StompError {
    fn from(error: SocketError) -> Self {
        match error {
            SocketError::Unreachable(reason) => Self::Unreachable(reason),
            SocketError::Tls(reason) => Self::Tls(reason),
            SocketError::CaCertificates(error) => Self::CaCertificates(error),
        }
    }
}

impl StompError {
    /// Creates the error for octets that are no STOMP.
    pub(super) fn malformed(step: Step, malformed: MalformedFrame) -> Self {
        match step {
            Step::Connect => Self::NotStomp(malformed),
            Step::Subscribe | Step::Work | Step::Send => Self::Frame(malformed),
        }
    }

    /// True if the same operation may succeed soon without anyone's intervention. If false, an administrator
    /// must change the broker or the configuration. The gateway retries anyway, because the change may happen
    /// in the broker.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Timeout { .. }
            | Self::NoHeartBeat(_)
            | Self::Unreachable(_)
            | Self::ConnectionLost(_)
            | Self::ClosedByBroker(_)
            | Self::NotAccepted(_)
            | Self::InUse(_) => true,
            Self::Refused(_)
            | Self::Destination(_)
            | Self::SendDestination(_)
            | Self::MessageRefused(_)
            | Self::Version(_)
            | Self::NotStomp(_)
            | Self::Frame(_)
            | Self::Tls(_)
            | Self::CaCertificates(_) => false,
        }
    }

    /// Classifies an ERROR frame by the phase in which it arrived. The password is removed from its text.
    pub(super) fn from_error_frame(step: Step, frame: &Frame, password: Option<&Secret>) -> Self {
        let reason = describe(frame);
        let password = password.map(|password| String::from_utf8_lossy(password.expose()));
        let reason = match password {
            Some(password) if !password.is_empty() => reason.replace(password.as_ref(), "…"),
            _ => reason,
        };
        // Texts of ActiveMQ; STOMP has no error codes.
        let says = |texts: &[&str]| texts.iter().any(|words| reason.contains(words));
        let in_use = says(&["already connected", "in use for client"]);
        match step {
            Step::Connect | Step::Subscribe if in_use => Self::InUse(reason),
            Step::Connect => Self::Refused(reason),
            Step::Subscribe => Self::Destination(reason),
            Step::Send if says(&MESSAGE_REFUSALS) => Self::MessageRefused(reason),
            Step::Send if says(&DESTINATION_REFUSALS) => Self::SendDestination(reason),
            Step::Send if frame.header("receipt-id").is_some() => Self::NotAccepted(reason),
            Step::Work | Step::Send => Self::ClosedByBroker(reason),
        }
    }
}

/// Texts about a message that the broker will refuse again: the limits `maxDataLength` and `maxFrameSize` of ActiveMQ.
const MESSAGE_REFUSALS: [&str; 2] = ["maximum data length was exceeded", "maximum frame size was exceeded"];

/// Texts about a destination that the user may not send to, of ActiveMQ, Artemis and RabbitMQ.
const DESTINATION_REFUSALS: [&str; 4] =
    ["not authorized", "does not have permission", "access refused", "ACCESS_REFUSED"];

/// Returns the text of an ERROR frame: its header `message` and the first line of its body. The line is
/// dropped if it repeats the header (RabbitMQ) or begins a Java stack trace (ActiveMQ).
fn describe(frame: &Frame) -> String {
    let message = frame.header("message").unwrap_or_default();
    let body = match &frame.body {
        Body::Whole(body) | Body::LongHead(_, body) => String::from_utf8_lossy(body),
        Body::TooLarge(_) => "".into(),
    };
    let first = body.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let is_trace = body.lines().any(|line| line.starts_with("\tat ")) || first.contains(message.trim());
    match (message.trim(), first) {
        ("", "") => "without a reason".to_owned(),
        ("", first) => plain(first),
        (message, "") => plain(message),
        (message, _) if is_trace => plain(message),
        (message, first) => plain(&format!("{message}: {first}")),
    }
}

/// Shows a peer's text in one line.
fn plain(text: &str) -> String {
    line(text.trim(), MAX_QUOTED_CHARS).to_string()
}

#[cfg(test)]
mod tests {
    use super::{super::Command, Body, Frame, Step, StompError};
    use crate::web::Secret;

    fn error(step: Step, message: &str, body: &'static str) -> StompError {
        let headers = vec![("message".to_owned(), message.to_owned())];
        let frame = Frame { command: Command::Error, headers, body: Body::Whole(body.into()) };
        StompError::from_error_frame(step, &frame, Some(&Secret::new("hush")))
    }

    #[test]
    fn error_frame_is_described_without_a_stack_trace_or_a_password() {
        let trace = "java.lang.SecurityException: User name [x] or password is invalid.\n\tat org.apache\n";
        for (message, body, reason) in [
            ("User name [x] or password is invalid.", trace, "(User name [x] or password is invalid.)"),
            ("Bad CONNECT", "Access refused for user 'x'\n", "(Bad CONNECT: Access refused for user 'x')"),
            ("", "", "(without a reason)"),
            ("hush is\nwrong", "", "(… is\\nwrong)"),
        ] {
            let error = error(Step::Connect, message, body);
            assert!(error.to_string().contains(reason) && !error.is_transient(), "{error}");
        }
    }

    #[test]
    fn meaning_of_an_error_frame_depends_on_the_phase() {
        let in_use = "Broker: b - Client: tidings already connected from tcp://127.0.0.1:1";
        assert!(matches!(error(Step::Connect, in_use, ""), StompError::InUse(_)));
        assert!(matches!(error(Step::Subscribe, "not authorized", ""), StompError::Destination(_)));
        assert!(error(Step::Work, "not authorized", "").is_transient());
        assert!(matches!(error(Step::Send, "User x is not authorized to write", ""), StompError::SendDestination(_)));
        assert!(matches!(error(Step::Send, "The maximum data length was exceeded", ""), StompError::MessageRefused(_)));
        assert!(matches!(error(Step::Send, "Usage Manager Store is Full", ""), StompError::ClosedByBroker(_)));
    }
}
