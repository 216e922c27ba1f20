//! Why a broker does not do as it is asked, and who has to act.

use std::time::Duration;

use super::{Body, Frame};
use crate::{
    broker::{InvalidAuthority, SocketError},
    web::Secret,
};

/// How much is repeated of what a broker says, in characters.
const TOLD: usize = 300;

/// Why octets are not STOMP.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A frame begins with no command of STOMP.
    #[error("a frame begins with {0:?}")]
    Command(String),
    /// A header has no colon.
    #[error("a header has no colon")]
    NoColon,
    /// A head has a NUL in it.
    #[error("a frame has a NUL among its headers")]
    NulInHead,
    /// The command and the headers of a frame are too long.
    #[error("the headers of a frame have more than {} bytes", super::HEAD_BYTES)]
    LongHead,
    /// A `content-length` is no number.
    #[error("the content-length of a frame is no number")]
    ContentLength,
    /// A body is not followed by a NUL.
    #[error("a frame does not end where its content-length says")]
    NoEnd,
}

impl Malformed {
    /// A frame begins so; as much of it is kept as a person needs to know what it is.
    #[must_use]
    pub fn command(line: &[u8]) -> Self {
        Self::Command(plain(&String::from_utf8_lossy(&line[..line.len().min(40)])))
    }
}

/// Why a broker did not do as it was asked. After any of them the connection is not used again.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StompError {
    /// It does not answer.
    #[error("the broker did not answer within {} seconds when asked to {asked}", .after.as_secs())]
    Silent {
        /// What it was asked.
        asked: &'static str,
        /// How long it was waited for.
        after: Duration,
    },
    /// Its heart-beats have stopped.
    #[error("the broker sent nothing for {} seconds, not even a heart-beat", .0.as_secs())]
    NoHeartBeat(Duration),
    /// There is no way to it, or nobody there.
    #[error("the broker cannot be reached: {0}")]
    Unreachable(String),
    /// The connection was there and is gone.
    #[error("the connection to the broker broke: {0}")]
    Broken(String),
    /// The broker ended it, with an ERROR frame.
    #[error("the broker ended it: {0}")]
    Ended(String),
    /// The broker lets nobody in under this name.
    #[error("the broker refused the gateway ({0}); mend user, password or virtual host in the url, or in the broker")]
    Refused(String),
    /// The client id, or the durable subscription, is in use.
    #[error(
        "another connection has the client id or the durable subscription ({0}); one that broke is let go of by the broker after a while, and else give this source a client_id of its own"
    )]
    InUse(String),
    /// The broker gives no messages of the destination.
    #[error(
        "the broker does not send the messages of the destination ({0}); mend `destination`, or give the user the permission in the broker"
    )]
    Destination(String),
    /// Whoever is there speaks another version.
    #[error("the broker speaks STOMP {0} and neither 1.1 nor 1.2")]
    Version(String),
    /// Whoever is there does not speak STOMP, or wrongly.
    #[error("what came is not STOMP: {0}; see to it that the port is the broker's for STOMP")]
    NotStomp(Malformed),
    /// A frame cannot be read, although others before it could.
    #[error("a frame of the broker cannot be read: {0}")]
    Frame(Malformed),
    /// No encrypted connection can be made.
    #[error("no encrypted connection can be made: {0}; see to the broker's certificate, or name its authority in `ca`")]
    Tls(String),
    /// The authority's certificates cannot be read.
    #[error(transparent)]
    Authority(#[from] InvalidAuthority),
}

/// What was being done: the same answer of a broker means one thing here and another there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The connection was being made.
    Connect,
    /// A destination was being subscribed to.
    Subscribe,
    /// Messages were moving.
    Work,
}

impl From<SocketError> for StompError {
    fn from(error: SocketError) -> Self {
        match error {
            SocketError::Unreachable(reason) => Self::Unreachable(reason),
            SocketError::Tls(reason) => Self::Tls(reason),
            SocketError::Authority(error) => Self::Authority(error),
        }
    }
}

impl StompError {
    /// Octets that are not STOMP came at that step.
    pub(super) fn malformed(step: Step, malformed: Malformed) -> Self {
        match step {
            Step::Connect => Self::NotStomp(malformed),
            Step::Subscribe | Step::Work => Self::Frame(malformed),
        }
    }

    /// Whether the same may work soon without anybody doing anything. Where it is false, somebody must
    /// act, in the broker or in the configuration; it is tried on, since that may happen in the broker.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Silent { .. }
            | Self::NoHeartBeat(_)
            | Self::Unreachable(_)
            | Self::Broken(_)
            | Self::Ended(_)
            | Self::InUse(_) => true,
            Self::Refused(_)
            | Self::Destination(_)
            | Self::Version(_)
            | Self::NotStomp(_)
            | Self::Frame(_)
            | Self::Tls(_)
            | Self::Authority(_) => false,
        }
    }

    /// What an ERROR frame means at that step. Should it repeat the password, that is taken out.
    pub(super) fn told(step: Step, frame: &Frame, password: Option<&Secret>) -> Self {
        let told = told(frame);
        let password = password.map(|password| String::from_utf8_lossy(password.expose()));
        let told = match password {
            Some(password) if !password.is_empty() => told.replace(password.as_ref(), "…"),
            _ => told,
        };
        // ActiveMQ's words; no broker has codes.
        let in_use = ["already connected", "in use for client"].iter().any(|words| told.contains(words));
        match step {
            Step::Connect | Step::Subscribe if in_use => Self::InUse(told),
            Step::Connect => Self::Refused(told),
            Step::Subscribe => Self::Destination(told),
            Step::Work => Self::Ended(told),
        }
    }
}

/// What an ERROR frame says: its header `message`, and the first line of its body where that is no more of the
/// same (RabbitMQ) and not the trace of a Java program (ActiveMQ).
fn told(frame: &Frame) -> String {
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

/// What a peer says, fit to be shown: one line, no control characters, no more than so much.
fn plain(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(TOLD).collect();
    line.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{super::Command, Body, Frame, Step, StompError};
    use crate::web::Secret;

    fn error(step: Step, message: &str, body: &'static str) -> StompError {
        let headers = vec![("message".to_owned(), message.to_owned())];
        let frame = Frame { command: Command::Error, headers, body: Body::Whole(body.into()) };
        StompError::told(step, &frame, Some(&Secret::new("hush")))
    }

    #[test]
    fn an_error_is_told_in_the_brokers_words_without_a_trace_or_a_password() {
        let trace = "java.lang.SecurityException: User name [x] or password is invalid.\n\tat org.apache\n";
        for (message, body, told) in [
            ("User name [x] or password is invalid.", trace, "(User name [x] or password is invalid.)"),
            ("Bad CONNECT", "Access refused for user 'x'\n", "(Bad CONNECT: Access refused for user 'x')"),
            ("", "", "(without a reason)"),
            ("hush is\nwrong", "", "(… is wrong)"),
        ] {
            let error = error(Step::Connect, message, body);
            assert!(error.to_string().contains(told) && !error.is_transient(), "{error}");
        }
    }

    #[test]
    fn the_same_words_mean_another_thing_at_another_step() {
        let in_use = "Broker: b - Client: tidings already connected from tcp://127.0.0.1:1";
        assert!(matches!(error(Step::Connect, in_use, ""), StompError::InUse(_)));
        assert!(matches!(error(Step::Subscribe, "not authorized", ""), StompError::Destination(_)));
        assert!(error(Step::Work, "not authorized", "").is_transient());
    }
}
