//! Source transport `stomp`: a queue or a topic of a broker that speaks STOMP, such as the brokers of Fedora
//! and Islandora.

mod message;

use std::{convert::Infallible, fmt::Display, path::Path, pin::Pin};

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use self::message::read_frame;
use super::consumer::{Broker, BrokerSettings, OpenConnection, SourceConsumer};
use crate::{
    intake::{ReceivedMessage, SourceName},
    stomp::{Body, Delivery, Frame, Reader, StompError, StompSettings, Writer},
};

/// Minimum size limit of the decoder, in bytes. Bodies up to this size go to the quarantine even if they are
/// too large for the dialect; larger bodies are dropped.
const KEPT_BODY_BYTES: usize = 16 * 1024 * 1024;

/// A destination to read, and the maximum size of a message for the dialect, in bytes.
struct StompDestination {
    settings: StompSettings,
    max_body_bytes: usize,
}

impl BrokerSettings for StompSettings {
    fn describe(&self) -> String {
        format!("{} of {}", self.destination, self.address)
    }

    fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    fn warning(&self) -> Option<&'static str> {
        (self.is_topic() && self.durable.is_none())
            .then_some("the subscription is not durable: messages that are sent to the topic while Tidings is disconnected are lost")
    }

    fn exclusive_name(&self) -> Option<String> {
        let client_id = self.client_id.as_deref()?;
        Some(format!("client id {client_id:?} at {}", self.address))
    }

    fn probe<'s>(&'s self, _name: &'s str) -> BoxFuture<'s, Result<(), String>> {
        Box::pin(async move { StompSettings::probe(self).await.map_err(|error| error.to_string()) })
    }

    fn read(&self, source: SourceConsumer<()>, stop: CancellationToken) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let destination = StompDestination { settings: self.clone(), max_body_bytes: source.max_body_bytes };
        Box::pin(source.read(destination, stop))
    }
}

impl Broker for StompDestination {
    type Error = StompError;
    type Message = Frame;
    /// The identifier for the acknowledgement.
    type AckToken = String;
    type Reader = Reader;
    type Acker = Writer;

    fn queue_name(&self) -> impl Display {
        &self.settings.destination
    }

    fn broker_url(&self) -> impl Display {
        &self.settings.address
    }

    fn prefetch(&self) -> u16 {
        self.settings.prefetch
    }

    /// STOMP has no connection name; the client id belongs to the durable subscription.
    async fn open(&self, _name: &str, prefetch: u16) -> Result<OpenConnection<Reader, Writer>, StompError> {
        let (reader, acker) = self.settings.open(self.max_body_bytes.max(KEPT_BODY_BYTES), prefetch).await?;
        Ok(OpenConnection { reader, acker, warning: None })
    }

    async fn next(reader: &mut Reader) -> Result<(String, Frame), StompError> {
        let Delivery { frame, ack_id } = reader.next().await?;
        Ok((ack_id, frame))
    }

    fn size(message: &Frame) -> usize {
        match &message.body {
            Body::Whole(body) | Body::LongHead(_, body) => body.len(),
            Body::TooLarge(_) => 0,
        }
    }

    fn receive(message: Frame, max_body_bytes: usize, source: &SourceName) -> ReceivedMessage {
        read_frame(message, max_body_bytes, source)
    }

    async fn acknowledge(writer: &Writer, ack_ids: &[String]) -> Result<(), StompError> {
        writer.acknowledge(ack_ids).await
    }

    async fn keep_alive(writer: &Writer, _: &(dyn Fn(Option<String>) + Send + Sync)) -> Infallible {
        writer.beat().await
    }

    /// Does nothing. Messages that arrive before the receipt of DISCONNECT are dropped, and the broker
    /// delivers them again. UNSUBSCRIBE would gain nothing, and some brokers would delete the durable
    /// subscription.
    async fn end(_: &mut Reader) -> Result<(), StompError> {
        Ok(())
    }

    async fn close(mut reader: Reader, writer: Writer) {
        writer.close(&mut reader).await;
    }

    fn is_transient(error: &StompError) -> bool {
        error.is_transient()
    }

    fn is_unexplained(error: &StompError) -> bool {
        matches!(error, StompError::ConnectionLost(_) | StompError::Frame(_))
    }
}
