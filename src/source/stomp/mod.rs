//! A queue or a topic of a broker that speaks STOMP, as a source: where Fedora and Islandora send their events.

mod arrival;

use std::{convert::Infallible, fmt::Display, path::Path, pin::Pin};

use tokio_util::sync::CancellationToken;

use self::arrival::arrived;
use super::brokered::{Acknowledging, Arrivals, Broker, BrokerSettings, BrokeredSource, Failed, Message, Opened};
use crate::{
    intake::{Arrived, SourceName},
    stomp::{Body, Delivered, Reader, StompError, StompSettings, Writer},
};

/// The largest body that is kept, in bytes, where a dialect is given none so large: it goes to the quarantine as it
/// came. A larger one is left out.
const KEPT: usize = 16 * 1024 * 1024;

/// A destination that is read, and the largest message that a dialect is given, in bytes.
struct Destination {
    settings: StompSettings,
    largest: usize,
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
            .then_some("the subscription is not durable: what the topic is sent while Tidings is away is lost")
    }

    fn read(&self, source: BrokeredSource<()>, stop: CancellationToken) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let destination = Destination { settings: self.clone(), largest: source.largest };
        Box::pin(source.read(destination, stop))
    }
}

impl Broker for Destination {
    type Error = StompError;
    type Arrivals = Reader;
    type Acknowledging = Writer;

    fn place(&self) -> impl Display {
        &self.settings.destination
    }

    fn address(&self) -> impl Display {
        &self.settings.address
    }

    fn prefetch(&self) -> u16 {
        self.settings.prefetch
    }

    /// The broker is told no name but the client id, which a durable subscription hangs on.
    async fn open(&self, _name: &str, prefetch: u16) -> Result<Opened<Reader, Writer>, StompError> {
        let (arrivals, acknowledging) = self.settings.open(self.largest.max(KEPT), prefetch).await?;
        Ok(Opened { arrivals, acknowledging, warning: None })
    }

    async fn close(mut reader: Reader, writer: Writer) {
        writer.close(&mut reader).await;
    }
}

impl Failed for StompError {
    fn is_transient(&self) -> bool {
        StompError::is_transient(self)
    }

    fn is_unexplained(&self) -> bool {
        matches!(self, StompError::Broken(_) | StompError::Frame(_))
    }
}

impl Arrivals for Reader {
    type Message = Delivered;
    type Error = StompError;

    async fn next(&mut self) -> Result<Delivered, StompError> {
        Reader::next(self).await
    }

    /// What comes until the broker has said goodbye is thrown away, and comes again. UNSUBSCRIBE would gain nothing,
    /// and some brokers take it for the end of a durable subscription.
    async fn end(&mut self) -> Result<(), StompError> {
        Ok(())
    }
}

impl Message for Delivered {
    type Mark = String;

    fn mark(&self) -> String {
        self.mark.clone()
    }

    fn size(&self) -> usize {
        match &self.frame.body {
            Body::Whole(body) | Body::LongHead(_, body) => body.len(),
            Body::TooLarge(_) => 0,
        }
    }

    fn arrived(self, largest: usize, source: &SourceName) -> Arrived {
        arrived(self.frame, largest, source)
    }
}

impl Acknowledging for Writer {
    type Mark = String;
    type Error = StompError;

    async fn acknowledge(&self, marks: &[String]) -> Result<(), StompError> {
        Writer::acknowledge(self, marks).await
    }

    async fn keep_alive(&self, _: &(dyn Fn(Option<String>) + Send + Sync)) -> Infallible {
        self.beat().await
    }
}
