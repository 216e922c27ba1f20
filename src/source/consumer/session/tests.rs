//! Tests of the error that a session returns when both of its sides fail.

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
    super::{Broker, OpenConnection, SourceConsumer},
    Session,
};
use crate::{
    broker::ConnectionStatus,
    format::{DIALECTS, Headers, Limits},
    intake::{Incoming, Intake, ReceivedMessage, Source, SourceName},
    journal::{
        Journal, JournalSettings,
        store::sqlite::{SqliteOptions, SqliteStore},
    },
};

/// Timeout of a session in these tests.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The side of the connection that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Reading,
    Acknowledgement,
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One step of the scripted reader.
#[derive(Clone, Copy)]
enum Step {
    Message,
    /// A message, after an acknowledgement has failed.
    MessageAfterFailure,
    /// The end of the connection, after an acknowledgement has failed.
    EndAfterFailure,
    /// No message while this call waits.
    Silence,
    /// The end of the connection.
    End,
}

struct ScriptedReader {
    steps: std::vec::IntoIter<Step>,
    acknowledgement_failed: Arc<Notify>,
}

struct ScriptedMessage;

struct FailingAcknowledgement(Arc<Notify>);

struct ScriptedBroker;

impl Broker for ScriptedBroker {
    type Error = Failure;
    type Message = ScriptedMessage;
    type AckToken = u8;
    type Reader = ScriptedReader;
    type Acker = FailingAcknowledgement;

    fn queue_name(&self) -> impl Display {
        "q"
    }

    fn broker_url(&self) -> impl Display {
        "h"
    }

    fn prefetch(&self) -> u16 {
        1
    }

    async fn open(&self, _: &str, _: u16) -> Result<OpenConnection<ScriptedReader, FailingAcknowledgement>, Failure> {
        Err(Failure::Reading)
    }

    async fn next(reader: &mut ScriptedReader) -> Result<(u8, ScriptedMessage), Failure> {
        let step = reader.steps.next().unwrap_or(Step::Silence);
        match step {
            Step::MessageAfterFailure | Step::EndAfterFailure => reader.acknowledgement_failed.notified().await,
            Step::Silence => std::future::pending().await,
            Step::Message | Step::End => {}
        }
        match step {
            Step::End | Step::EndAfterFailure => Err(Failure::Reading),
            _ => Ok((0, ScriptedMessage)),
        }
    }

    fn size(_: &ScriptedMessage) -> usize {
        1
    }

    fn receive(_: ScriptedMessage, _: usize, _: &SourceName) -> ReceivedMessage {
        ReceivedMessage::Readable(Incoming {
            content_type: None,
            headers: Headers::default(),
            body: Bytes::from_static(b"for the quarantine"),
            transport_id: None,
            redelivered: false,
            set: None,
        })
    }

    async fn acknowledge(FailingAcknowledgement(failed): &FailingAcknowledgement, _: &[u8]) -> Result<(), Failure> {
        failed.notify_one();
        Err(Failure::Acknowledgement)
    }

    async fn keep_alive(_: &FailingAcknowledgement, _: &(dyn Fn(Option<String>) + Send + Sync)) -> Infallible {
        std::future::pending().await
    }

    async fn end(_: &mut ScriptedReader) -> Result<(), Failure> {
        Ok(())
    }

    async fn close(_: ScriptedReader, _: FailingAcknowledgement) {}

    fn is_transient(_: &Failure) -> bool {
        true
    }

    fn is_unexplained(_: &Failure) -> bool {
        true
    }
}

/// Returns the error of a session.
async fn session_error(steps: impl Into<Vec<Step>>) -> Failure {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path(), SqliteOptions::default()).unwrap();
    let (journal, _writer) = Journal::start(store, JournalSettings::default()).unwrap();
    let kind = DIALECTS.iter().find(|kind| kind.name == "content-change").unwrap();
    let name = SourceName::parse("s").unwrap();
    let source = Source::new(name, kind, serde_json::json!({}), false, Limits::default()).unwrap();
    let source = SourceConsumer {
        intake: Intake::new(journal),
        source: Arc::new(source),
        broker: ScriptedBroker,
        max_body_bytes: 1000,
        status: Arc::new(ConnectionStatus::new("sources.s".to_owned())),
    };
    let acknowledgement_failed = Arc::new(Notify::new());
    let reader =
        ScriptedReader { steps: steps.into().into_iter(), acknowledgement_failed: Arc::clone(&acknowledgement_failed) };
    let connection = OpenConnection { reader, acker: FailingAcknowledgement(acknowledgement_failed), warning: None };
    let (session, stop) = (Session::new(1, None, false), CancellationToken::new());
    let read = timeout(TIMEOUT, source.read(connection, &session, &stop)).await;
    read.expect("the session ends by itself").unwrap_err()
}

#[tokio::test]
async fn end_of_the_connection_is_reported_even_if_an_acknowledgement_failed_first() {
    // The connection ends while earlier messages are still being written.
    assert_eq!(session_error([Step::Message, Step::EndAfterFailure]).await, Failure::Reading);
    // The connection ends after the failed acknowledgement has stopped the session.
    let late = [Step::Message, Step::MessageAfterFailure, Step::Silence, Step::End];
    assert_eq!(session_error(late).await, Failure::Reading);
    // The connection does not end.
    assert_eq!(session_error([Step::Message, Step::MessageAfterFailure]).await, Failure::Acknowledgement);
}
