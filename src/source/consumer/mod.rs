//! Consumer loop of a source that reads from a broker, independent of the protocol. Messages are read in
//! order, written in batches, and acknowledged when they are on disk, in the journal or in the quarantine.
//!
//! After any failure the connection is closed and a new one is opened after a wait, for as long as the gateway
//! runs. The broker delivers unacknowledged messages again, which makes no second change. While the journal
//! cannot be written, nothing is acknowledged and the broker sends no more than the prefetch.
//!
//! A protocol implements [`Broker`].

mod caution;
mod decompress;
mod enrichment;
mod session;

use std::{
    convert::Infallible,
    fmt::{Debug, Display},
    path::Path,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::{
    broker::{ConnectionState, ConnectionStatus, register_redeliveries},
    intake::{Intake, ReceivedMessage, Source, SourceName},
    retry::Backoff,
};

use self::{
    caution::{Caution, LastFailure, STABLE},
    session::Session,
};
pub(super) use decompress::decompress;

/// Initial wait after a failure. Jitter may shorten it by half.
const BASE_WAIT: Duration = Duration::from_millis(250);

/// Maximum wait before the next connection. Jitter may shorten it by half.
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// A place that messages are read from, in one protocol.
///
/// A connection has two sides, because messages are read while earlier ones are acknowledged.
pub trait Broker: Send + Sync + 'static {
    /// Reason why a connection failed.
    type Error: Display + Send + Sync;
    /// A message of the protocol.
    type Message: Send + 'static;
    /// Token that acknowledges a message.
    type AckToken: Send + Sync;
    /// The incoming side of a connection.
    type Reader: Send;
    /// The acknowledging side of a connection.
    type Acker: Send + Sync;

    /// Returns the name of the queue or topic, for the log.
    fn queue_name(&self) -> impl Display;

    /// Returns the URL of the broker without its password, for the log.
    fn broker_url(&self) -> impl Display;

    /// Returns the maximum number of unacknowledged messages.
    fn prefetch(&self) -> u16;

    /// Connects under a name that the broker shows, and subscribes with up to `prefetch` unacknowledged
    /// messages. Every step has a timeout.
    fn open(
        &self,
        name: &str,
        prefetch: u16,
    ) -> impl Future<Output = Result<OpenConnection<Self::Reader, Self::Acker>, Self::Error>> + Send;

    /// Waits for the next message, without a timeout. Dropping the future loses no message.
    fn next(
        reader: &mut Self::Reader,
    ) -> impl Future<Output = Result<(Self::AckToken, Self::Message), Self::Error>> + Send;

    /// Returns the size of the body of a message in memory, in bytes.
    fn size(message: &Self::Message) -> usize;

    /// Converts a message for the intake. A body of more than `max_body_bytes` bytes, compressed or decompressed,
    /// is unreadable.
    fn receive(message: Self::Message, max_body_bytes: usize, source: &SourceName) -> ReceivedMessage;

    /// Returns the position of the source after the messages of these tokens, if the gateway has to record it because the
    /// broker does not. The position is written in the transaction of the messages.
    fn position(_acker: &Self::Acker, _tokens: &[Self::AckToken]) -> Option<Arc<str>> {
        None
    }

    /// Acknowledges the messages of these tokens: all messages since the last acknowledged one, in order.
    fn acknowledge(
        acker: &Self::Acker,
        tokens: &[Self::AckToken],
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Sends heartbeats if the protocol requires them, and calls `warn` when the warning for the administrator
    /// changes. It never returns, because the incoming side detects a broken connection.
    fn keep_alive(
        acker: &Self::Acker,
        warn: &(dyn Fn(Option<String>) + Send + Sync),
    ) -> impl Future<Output = Infallible> + Send;

    /// Requests that the broker sends no more messages. Messages that still arrive are ignored.
    fn end(reader: &mut Self::Reader) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Closes the connection gracefully, with a timeout.
    fn close(reader: Self::Reader, acker: Self::Acker) -> impl Future<Output = ()> + Send;

    /// True if the operation that failed may succeed soon without anyone's intervention.
    fn is_transient(error: &Self::Error) -> bool;

    /// True if the broker gave no reason for the end of the connection, so that a message may be the cause.
    fn is_unexplained(error: &Self::Error) -> bool;
}

/// An open connection.
pub struct OpenConnection<R, A> {
    /// The incoming side.
    pub reader: R,
    /// The acknowledging side.
    pub acker: A,
    /// A warning for the administrator, if any.
    pub warning: Option<String>,
}

/// Validated settings of a broker source, in one protocol.
pub trait BrokerSettings: Debug + Send + Sync {
    /// Describes the place that messages are read from, with the URL of the broker without its password.
    fn describe(&self) -> String;

    /// Returns the file of the CA certificates that the broker's certificate is checked against, if one is
    /// configured.
    fn ca(&self) -> Option<&Path>;

    /// Returns a warning for the administrator if these settings may lose messages.
    fn warning(&self) -> Option<&'static str> {
        None
    }

    /// Describes the name under which the broker admits only one connection at a time; `None` if it has none.
    fn exclusive_name(&self) -> Option<String> {
        None
    }

    /// Connects to the broker under a name, and checks the settings as far as this changes nothing there. The error has the words
    /// in which the consumer logs it.
    fn probe<'s>(&'s self, name: &'s str) -> BoxFuture<'s, Result<(), String>>;

    /// Reads the messages of the source until `stop` is cancelled, with [`SourceConsumer::read`].
    fn read(&self, source: SourceConsumer<()>, stop: CancellationToken) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// The consumer of a source. `B` is the [`Broker`], or `()` before it is set up.
pub struct SourceConsumer<B> {
    /// The write path to the journal.
    pub intake: Intake,
    /// The source.
    pub source: Arc<Source>,
    /// The place that messages are read from.
    pub broker: B,
    /// Maximum size of a message for the dialect, in bytes, decompressed. A larger message goes to the
    /// quarantine.
    pub max_body_bytes: usize,
    /// State of the connection, for administrators.
    pub status: Arc<ConnectionStatus>,
}

impl SourceConsumer<()> {
    /// Reads the messages of `broker` until `stop` is cancelled.
    pub async fn read<B: Broker>(self, broker: B, stop: CancellationToken) {
        let Self { intake, source, broker: (), max_body_bytes, status } = self;
        SourceConsumer { intake, source, broker, max_body_bytes, status }.run(stop).await;
    }
}

impl<B: Broker> SourceConsumer<B> {
    /// Reads until `stop` is cancelled. Messages that were already read are then written and acknowledged; all
    /// others stay with the broker.
    async fn run(self, stop: CancellationToken) {
        register_redeliveries(self.source.name().as_str());
        let mut backoff = Backoff::new(BASE_WAIT, LONGEST_WAIT);
        let mut caution = Caution::default();
        let mut last_failure = LastFailure::default();
        while !stop.is_cancelled() {
            let session =
                Session::new(caution.prefetch(self.broker.prefetch()), caution.left(), last_failure.is_repeated);
            let (uptime, error) = match self.connect_and_read(&session, &stop).await {
                Ok(()) => {
                    caution.note(session.acknowledged());
                    continue;
                }
                Err(failed) => failed,
            };
            caution.note(session.acknowledged());
            let mut reason = error.to_string();
            if let (Some(_), 0) = (uptime, session.acknowledged())
                && B::is_unexplained(&error)
            {
                if caution.left().is_some() {
                    reason.push_str(&self.suspect_message());
                }
                caution.begin(self.broker.prefetch());
            }
            let wait = wait_after(&mut backoff, uptime.unwrap_or_default(), B::is_transient(&error));
            self.status.record_failure(ConnectionState::Waiting, &reason, wait);
            let again_ms = wait.as_millis();
            if last_failure.note(&reason, uptime.unwrap_or_default(), session.acknowledged()) {
                tracing::debug!(source = %self.source.name(), error = reason, again_ms, "still cannot read the source; retrying");
            } else {
                tracing::warn!(source = %self.source.name(), broker = %self.broker.broker_url(), error = reason, again_ms, "cannot read the source; retrying");
            }
            let _ = stop.run_until_cancelled(tokio::time::sleep(wait)).await;
        }
        self.status.set_state(ConnectionState::Stopped);
    }

    /// Names the message that may break the connection, when only one message was sent.
    fn suspect_message(&self) -> String {
        let place = self.broker.queue_name();
        format!(
            "; messages are read one at a time now, and the first one of {place} may be the cause: the journal ended with \
             change {} when the source was read last; inspect that message in the broker, and remove it",
            self.intake.head()
        )
    }

    /// Runs one connection from its beginning to its end. With an error it returns the lifetime of the
    /// connection, if there was one.
    async fn connect_and_read(
        &self,
        session: &Session,
        stop: &CancellationToken,
    ) -> Result<(), (Option<Duration>, B::Error)> {
        self.status.set_state(ConnectionState::Connecting);
        let name = format!("tidings sources.{}", self.source.name());
        let Some(connection) = stop.run_until_cancelled(self.broker.open(&name, session.prefetch)).await else {
            return Ok(());
        };
        let connection = connection.map_err(|error| (None, error))?;
        self.status.set_state(ConnectionState::Connected);
        self.warn(connection.warning.clone());
        if session.is_quiet() {
            tracing::debug!(source = %self.source.name(), prefetch = session.prefetch, "reading the source");
        } else {
            tracing::info!(source = %self.source.name(), place = %self.broker.queue_name(), broker = %self.broker.broker_url(), "reading the source");
        }
        let began = Instant::now();
        self.read(connection, session, stop).await.map_err(|error| (Some(began.elapsed()), error))
    }

    /// Shows and logs a warning, once while it stays the same.
    fn warn(&self, warning: Option<String>) {
        if self.status.set_warning(warning.clone())
            && let Some(warning) = warning
        {
            tracing::warn!(source = %self.source.name(), place = %self.broker.queue_name(), warning, "reading the source with a warning");
        }
    }
}

/// Returns the wait after a connection that worked for this time and failed. Failures before a stable
/// connection no longer count. An error that an administrator must fix leads to the maximum wait immediately.
fn wait_after(backoff: &mut Backoff, uptime: Duration, is_transient: bool) -> Duration {
    if uptime >= STABLE {
        backoff.reset();
    }
    if !is_transient {
        backoff.raise_to_cap();
    }
    backoff.next_wait()
}

#[cfg(test)]
mod tests {
    use super::{BASE_WAIT, Backoff, Duration, LONGEST_WAIT, STABLE, wait_after};

    #[test]
    fn waits_are_short_after_a_stable_connection_and_long_for_an_administrator() {
        let mut backoff = Backoff::new(BASE_WAIT, LONGEST_WAIT);
        for _ in 0..20 {
            wait_after(&mut backoff, Duration::ZERO, true);
        }
        assert!(wait_after(&mut backoff, STABLE / 2, true) >= LONGEST_WAIT / 2);
        assert!(wait_after(&mut backoff, STABLE, true) <= BASE_WAIT);
        assert!(wait_after(&mut backoff, STABLE, false) >= LONGEST_WAIT / 2);
    }
}
