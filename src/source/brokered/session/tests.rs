//! Tests of the error that a session ends with, where both of its sides fail.

use std::{
    convert::Infallible,
    fmt::{self, Display, Formatter},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tokio::{sync::Notify, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    super::{Acknowledging, Arrivals, Broker, BrokeredSource, Failed, Message, Opened},
    Session,
};
use crate::{
    broker::ConnectionStatus,
    format::{DIALECTS, Headers, Limits},
    intake::{Arrived, Incoming, Intake, Source, SourceName},
    journal::{
        Journal, JournalSettings,
        store::sqlite::{SqliteOptions, SqliteStore},
    },
};

/// How long a session may take, so that one that never ends fails its test.
const PATIENCE: Duration = Duration::from_secs(60);

/// The side of the connection that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Arrivals,
    Acknowledgement,
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Failed for Failure {
    fn is_transient(&self) -> bool {
        true
    }

    fn is_unexplained(&self) -> bool {
        true
    }
}

/// One step of the arrivals.
#[derive(Clone, Copy)]
enum Step {
    Message,
    /// A message, as soon as an acknowledgement has failed.
    MessageAfterFailure,
    /// The end of the connection, as soon as an acknowledgement has failed.
    EndAfterFailure,
    /// Nothing for as long as this call waits.
    Silence,
    /// The end of the connection.
    End,
}

struct Steps {
    steps: std::vec::IntoIter<Step>,
    acknowledgement_failed: Arc<Notify>,
}

struct Unread;

struct FailingAcknowledgement(Arc<Notify>);

struct ScriptedBroker;

impl Broker for ScriptedBroker {
    type Error = Failure;
    type Arrivals = Steps;
    type Acknowledging = FailingAcknowledgement;

    fn place(&self) -> impl Display {
        "q"
    }

    fn address(&self) -> impl Display {
        "h"
    }

    fn prefetch(&self) -> u16 {
        1
    }

    async fn open(&self, _: &str, _: u16) -> Result<Opened<Steps, FailingAcknowledgement>, Failure> {
        Err(Failure::Arrivals)
    }

    async fn close(_: Steps, _: FailingAcknowledgement) {}
}

impl Arrivals for Steps {
    type Message = Unread;
    type Error = Failure;

    async fn next(&mut self) -> Result<Unread, Failure> {
        let step = self.steps.next().unwrap_or(Step::Silence);
        match step {
            Step::MessageAfterFailure | Step::EndAfterFailure => self.acknowledgement_failed.notified().await,
            Step::Silence => std::future::pending().await,
            Step::Message | Step::End => {}
        }
        match step {
            Step::End | Step::EndAfterFailure => Err(Failure::Arrivals),
            _ => Ok(Unread),
        }
    }

    async fn end(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

impl Message for Unread {
    type Mark = u8;

    fn mark(&self) -> u8 {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn arrived(self, _: usize, _: &SourceName) -> Arrived {
        Arrived::Whole(Incoming {
            content_type: None,
            headers: Headers::default(),
            body: Bytes::from_static(b"for the quarantine"),
            transport_id: None,
            redelivered: false,
        })
    }
}

impl Acknowledging for FailingAcknowledgement {
    type Mark = u8;
    type Error = Failure;

    async fn acknowledge(&self, _: &[u8]) -> Result<(), Failure> {
        self.0.notify_one();
        Err(Failure::Acknowledgement)
    }

    async fn keep_alive(&self, _: &(dyn Fn(Option<String>) + Send + Sync)) -> Infallible {
        std::future::pending().await
    }
}

/// The error that a session ends with.
async fn ended(steps: impl Into<Vec<Step>>) -> Failure {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path(), SqliteOptions::default()).unwrap();
    let (journal, _writer) = Journal::start(store, JournalSettings::default()).unwrap();
    let kind = DIALECTS.iter().find(|kind| kind.name == "content-change").unwrap();
    let name = SourceName::parse("s").unwrap();
    let source = Source::new(name, kind, serde_json::json!({}), false, Limits::default()).unwrap();
    let source = BrokeredSource {
        intake: Intake::new(journal),
        source: Arc::new(source),
        broker: ScriptedBroker,
        largest: 1000,
        status: Arc::new(ConnectionStatus::of("sources.s".to_owned())),
    };
    let acknowledgement_failed = Arc::new(Notify::new());
    let arrivals =
        Steps { steps: steps.into().into_iter(), acknowledgement_failed: Arc::clone(&acknowledgement_failed) };
    let opened = Opened { arrivals, acknowledging: FailingAcknowledgement(acknowledgement_failed), warning: None };
    let (session, stop) = (Session::new(1, None, false), CancellationToken::new());
    let read = timeout(PATIENCE, source.read(opened, &session, &stop)).await;
    read.expect("the session ends by itself").unwrap_err()
}

#[tokio::test]
async fn the_end_of_the_connection_is_reported_where_an_acknowledgement_failed_first() {
    // The end comes while the messages before it are still worked on.
    assert_eq!(ended([Step::Message, Step::EndAfterFailure]).await, Failure::Arrivals);
    // The end comes after the failed acknowledgement has ended all work.
    let late = [Step::Message, Step::MessageAfterFailure, Step::Silence, Step::End];
    assert_eq!(ended(late).await, Failure::Arrivals);
    // No end comes.
    assert_eq!(ended([Step::Message, Step::MessageAfterFailure]).await, Failure::Acknowledgement);
}
