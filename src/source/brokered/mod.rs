//! A source whose messages a broker delivers, whatever is spoken with it: they are taken in the order in
//! which they come, written in batches, and acknowledged when they are on disk, in the journal or in the
//! quarantine.
//!
//! What the connection does is supervised here: after any failure it is let go of, and a new one is made
//! after a while, for as long as the gateway runs. What was not acknowledged comes again, and makes no
//! second change. As long as the journal cannot be written nothing is acknowledged, and the broker sends
//! no more than the prefetch.
//!
//! What a protocol has to bring is a [`Broker`].

mod body;
mod caution;
mod looking;
mod session;

use std::{
    convert::Infallible,
    fmt::{Debug, Display},
    path::Path,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use crate::{
    broker::{ConnectionState, ConnectionStatus},
    intake::{Arrived, Intake, Source, SourceName},
    retry::Backoff,
};

use self::{
    caution::{Caution, STABLE, Trouble},
    session::Session,
};
pub(super) use body::whole;

/// First wait after a failure, at most.
const BASE_WAIT: Duration = Duration::from_millis(250);

/// Longest wait for a broker, at most.
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// Where messages come from, as one protocol knows it.
pub trait Broker: Send + Sync + 'static {
    /// Why a connection failed.
    type Error: Failed;
    /// What comes through a connection.
    type Arrivals: Arrivals<Error = Self::Error>;
    /// What goes back.
    type Acknowledging: Acknowledging<Error = Self::Error, Mark = <<Self::Arrivals as Arrivals>::Message as Message>::Mark>;

    /// What is read, for the log.
    fn place(&self) -> impl Display;

    /// The broker's address, without its password, for the log.
    fn address(&self) -> impl Display;

    /// How many messages come before one is acknowledged.
    fn prefetch(&self) -> u16;

    /// Connects and begins to read, under a name that the broker shows, with up to `prefetch` messages before one is
    /// acknowledged. Every step is bounded in time.
    fn open(
        &self,
        name: &str,
        prefetch: u16,
    ) -> impl Future<Output = Result<Opened<Self::Arrivals, Self::Acknowledging>, Self::Error>> + Send;

    /// Says goodbye, in bounded time.
    fn close(arrivals: Self::Arrivals, acknowledging: Self::Acknowledging) -> impl Future<Output = ()> + Send;
}

/// A connection that has been opened.
pub struct Opened<A, K> {
    /// Its messages.
    pub arrivals: A,
    /// Its way back.
    pub acknowledging: K,
    /// A warning for the administrator, if there is cause for one.
    pub warning: Option<String>,
}

/// Why a connection failed.
pub trait Failed: Display + Debug + Send + Sync {
    /// Whether the same may work soon without anybody doing anything.
    fn is_transient(&self) -> bool;

    /// Whether the connection ended for a reason that the broker did not give, so that a message may be the cause.
    fn is_unexplained(&self) -> bool;
}

/// The messages of a connection, as they come.
pub trait Arrivals: Send {
    /// A message.
    type Message: Message;
    /// Why it failed.
    type Error: Failed;

    /// The next message, however long that takes. Dropping the future loses none.
    fn next(&mut self) -> impl Future<Output = Result<Self::Message, Self::Error>> + Send;

    /// No further message is wanted; those that come nevertheless are not taken.
    fn end(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// A message as its protocol has it.
pub trait Message: Send + 'static {
    /// What it is acknowledged by.
    type Mark: Send + Sync;

    /// What it is acknowledged by.
    fn mark(&self) -> Self::Mark;

    /// How much memory it holds, in bytes.
    fn size(&self) -> usize;

    /// It, for the intake. A body of more than `largest` bytes, deflated or inflated, is for no dialect.
    fn arrived(self, largest: usize, source: &SourceName) -> Arrived;
}

/// The way back of a connection.
pub trait Acknowledging: Send + Sync {
    /// What a message is acknowledged by.
    type Mark: Send + Sync;
    /// Why it failed.
    type Error: Failed;

    /// Acknowledges the messages of these marks, which are all that came since the last that were
    /// acknowledged, in the order in which they came.
    fn acknowledge(&self, marks: &[Self::Mark]) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Says from time to time that this side is there, where the protocol wants that done, and calls `warn` with the
    /// warning for the administrator where that changes. It never ends: that a connection has broken is seen where it
    /// is read.
    fn keep_alive(&self, warn: &(dyn Fn(Option<String>) + Send + Sync)) -> impl Future<Output = Infallible> + Send;
}

/// Where messages come from, as the configuration has it: the settings of one protocol, checked.
pub trait BrokerSettings: Debug + Send + Sync {
    /// Describes the place that messages are read from, with the broker's address, without its password.
    fn describe(&self) -> String;

    /// The file of the authority that the broker's certificate is checked against, if one is configured.
    fn ca(&self) -> Option<&Path>;

    /// A warning for the administrator that settings as these may lose messages.
    fn warning(&self) -> Option<&'static str> {
        None
    }

    /// Reads the messages of that source until `stop` is cancelled, with [`BrokeredSource::read`].
    fn read(&self, source: BrokeredSource<()>, stop: CancellationToken) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// A source whose messages a broker delivers. `B` is the [`Broker`], once that is set up.
pub struct BrokeredSource<B> {
    /// The door.
    pub intake: Intake,
    /// The source.
    pub source: Arc<Source>,
    /// Where its messages come from.
    pub broker: B,
    /// The largest message that a dialect is given, in bytes, inflated; a larger one goes to the quarantine.
    pub largest: usize,
    /// Where its state is told.
    pub status: Arc<ConnectionStatus>,
}

impl BrokeredSource<()> {
    /// Reads what this broker delivers for the source until `stop` is cancelled.
    pub async fn read<B: Broker>(self, broker: B, stop: CancellationToken) {
        let Self { intake, source, broker: (), largest, status } = self;
        BrokeredSource { intake, source, broker, largest, status }.run(stop).await;
    }
}

impl<B: Broker> BrokeredSource<B> {
    /// Reads until `stop` is cancelled. Then what was taken is finished and acknowledged; what was not stays
    /// with the broker.
    async fn run(self, stop: CancellationToken) {
        let mut backoff = Backoff::new(BASE_WAIT, LONGEST_WAIT);
        let mut caution = Caution::default();
        let mut trouble = Trouble::default();
        while !stop.is_cancelled() {
            let session = Session::new(caution.prefetch(self.broker.prefetch()), caution.left(), trouble.is_repeated);
            let (worked, error) = match self.connect_and_read(&session, &stop).await {
                Ok(()) => {
                    caution.note(session.acknowledged());
                    continue;
                }
                Err(failed) => failed,
            };
            caution.note(session.acknowledged());
            let mut reason = error.to_string();
            if let (Some(_), 0) = (worked, session.acknowledged())
                && error.is_unexplained()
            {
                if caution.left().is_some() {
                    reason.push_str(&self.suspect());
                }
                caution.begin(self.broker.prefetch());
            }
            let again = wait_after(&mut backoff, worked.unwrap_or_default(), error.is_transient());
            self.status.failed(ConnectionState::Waiting, &reason, again);
            let again_ms = again.as_millis();
            if trouble.note(&reason, worked.unwrap_or_default(), session.acknowledged()) {
                tracing::debug!(source = %self.source.name(), error = reason, again_ms, "the source is still not read");
            } else {
                tracing::warn!(source = %self.source.name(), broker = %self.broker.address(), error = reason, again_ms, "the source is not read");
            }
            let _ = stop.run_until_cancelled(tokio::time::sleep(again)).await;
        }
        self.status.is(ConnectionState::Stopped);
    }

    /// Names the message that may be the cause where the connection fails and only one message was sent.
    fn suspect(&self) -> String {
        let place = self.broker.place();
        format!(
            "; one message at a time is read, and the first one of {place} may be the cause: the journal ended with \
             change {} when the source was read last; look at that message in the broker, and remove it there",
            self.intake.head()
        )
    }

    /// One connection, from its beginning to its end. With a failure comes for how long it worked, if it did.
    async fn connect_and_read(
        &self,
        session: &Session,
        stop: &CancellationToken,
    ) -> Result<(), (Option<Duration>, B::Error)> {
        self.status.is(ConnectionState::Connecting);
        let name = format!("tidings sources.{}", self.source.name());
        let Some(opened) = stop.run_until_cancelled(self.broker.open(&name, session.prefetch)).await else {
            return Ok(());
        };
        let opened = opened.map_err(|error| (None, error))?;
        self.status.is(ConnectionState::Connected);
        self.warn(opened.warning.clone());
        if session.is_quiet() {
            tracing::debug!(source = %self.source.name(), prefetch = session.prefetch, "the source is read");
        } else {
            tracing::info!(source = %self.source.name(), place = %self.broker.place(), broker = %self.broker.address(), "the source is read");
        }
        let began = Instant::now();
        self.read(opened, session, stop).await.map_err(|error| (Some(began.elapsed()), error))
    }

    /// Shows and logs a warning, once as long as it stays the same.
    fn warn(&self, warning: Option<String>) {
        if self.status.warn(warning.clone())
            && let Some(warning) = warning
        {
            tracing::warn!(source = %self.source.name(), place = %self.broker.place(), warning, "the source is read with a warning");
        }
    }
}

/// Returns the wait after a connection that worked for this time and failed. Failures before a stable connection no longer
/// count; the wait for an administrator is the longest from the start.
fn wait_after(backoff: &mut Backoff, worked: Duration, is_transient: bool) -> Duration {
    if worked >= STABLE {
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
