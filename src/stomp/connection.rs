//! Connection to a broker with a subscription to one destination. Every wait for the broker has a timeout,
//! except the wait for the next message, which ends when the heart-beats stop.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Mutex,
    time::timeout,
};

use super::{
    Acknowledge, Command, Decoder, Frame, StompError, StompSettings, Version,
    connector::{CLOSE, Connector, GOODBYE, Opened, with_timeout},
    encode,
    error::Step,
    socket::{ReadSocket, WriteSocket},
};
use crate::{
    broker::{SocketGuard, system_resolver},
    web::Secret,
};

/// Timeout of an operation of the broker, and of a write.
const OPERATION: Duration = Duration::from_secs(10);

/// Maximum size of a read, in bytes.
pub(super) const READ: usize = 64 * 1024;

/// Receipt identifier of SUBSCRIBE.
const SUBSCRIBED: &str = "subscribed";

/// A MESSAGE frame.
pub struct Delivery {
    /// The frame.
    pub frame: Frame,
    /// Identifier for the acknowledgement.
    pub ack_id: String,
}

/// The reading side of a connection.
pub struct Reader {
    socket: ReadSocket,
    decoder: Decoder,
    buffer: BytesMut,
    version: Version,
    /// Messages that arrived before the receipt of the subscription.
    early_messages: VecDeque<Frame>,
    /// Maximum time without data from the broker; `None` if it sends no heart-beats.
    read_timeout: Option<Duration>,
    password: Option<Secret>,
}

/// The writing side of a connection.
pub struct Writer {
    socket: Mutex<WriteSocket>,
    version: Version,
    subscription: String,
    acknowledge: Acknowledge,
    /// Interval of the heart-beats to the broker; `None` if it wants none.
    beat: Option<Duration>,
    _guard: SocketGuard,
}

impl StompSettings {
    /// Connects and subscribes to the destination, with up to `prefetch` unacknowledged messages. Bodies of
    /// more than `max_body_bytes` bytes are dropped.
    ///
    /// # Errors
    /// Fails if a step is refused or times out. The connection is closed then.
    pub async fn open(&self, max_body_bytes: usize, prefetch: u16) -> Result<(Reader, Writer), StompError> {
        let opened = self.connector().open(max_body_bytes).await?;
        let Opened { mut reader, socket, version, beat, guard } = opened;
        let writer = Writer {
            socket: Mutex::new(socket),
            version,
            subscription: self.durable.clone().unwrap_or_else(|| "tidings".to_owned()),
            acknowledge: self.acknowledge,
            beat,
            _guard: guard,
        };
        let subscribed = async {
            writer.write(&self.subscribe(&writer, prefetch)).await?;
            reader.subscribed(prefetch).await
        };
        with_timeout(OPERATION, "subscribe to the destination", subscribed).await?;
        Ok((reader, writer))
    }

    /// Connects with the user and the password, and disconnects. It subscribes to nothing, because a subscription takes
    /// messages, and uses no client id, which belongs to the gateway.
    ///
    /// # Errors
    /// Fails if the connection is refused or times out.
    pub async fn probe(&self) -> Result<(), StompError> {
        Self { client_id: None, ..self.clone() }.connector().probe().await
    }

    fn connector(&self) -> Connector {
        let Self { address, ca, client_id, .. } = self.clone();
        Connector { address, ca, client_id, resolver: system_resolver() }
    }

    fn subscribe(&self, writer: &Writer, prefetch: u16) -> Vec<u8> {
        let prefetch = prefetch.to_string();
        let mut headers = vec![
            ("id", writer.subscription.as_str()),
            ("destination", &self.destination),
            ("ack", self.acknowledge.mode()),
            ("receipt", SUBSCRIBED),
            // The first header is for ActiveMQ, the second for RabbitMQ. Brokers ignore unknown headers.
            ("activemq.prefetchSize", &prefetch),
            ("prefetch-count", &prefetch),
        ];
        if let Some(name) = &self.durable {
            // The first header is for ActiveMQ, the second for Artemis, the others for RabbitMQ, which names
            // the queue after `id`.
            headers.extend([
                ("activemq.subscriptionName", name.as_str()),
                ("durable-subscription-name", name),
                ("durable", "true"),
                ("auto-delete", "false"),
            ]);
        }
        let mut subscribe = Vec::new();
        encode(&mut subscribe, writer.version, Command::Subscribe, &headers, b"");
        subscribe
    }
}

impl Reader {
    /// Creates a reader that waits for the broker without a limit.
    pub(super) fn new(socket: ReadSocket, max_body_bytes: usize, password: Option<Secret>) -> Self {
        Self {
            socket,
            decoder: Decoder::new(Version::V1_2, max_body_bytes),
            buffer: BytesMut::new(),
            version: Version::V1_2,
            early_messages: VecDeque::new(),
            read_timeout: None,
            password,
        }
    }

    /// Sets what the CONNECTED frame has negotiated.
    pub(super) fn negotiated(&mut self, version: Version, read_timeout: Option<Duration>) {
        self.version = version;
        self.decoder.set_version(version);
        self.read_timeout = read_timeout;
    }

    /// Waits for the next MESSAGE. Dropping the future loses no message.
    ///
    /// # Errors
    /// Fails if the connection has ended, or the heart-beats have stopped.
    pub async fn next(&mut self) -> Result<Delivery, StompError> {
        let frame = loop {
            let frame = match self.early_messages.pop_front() {
                Some(frame) => frame,
                None => self.frame(Step::Work).await?,
            };
            if frame.command == Command::Message {
                break frame;
            }
        };
        let ack_id = match self.version {
            Version::V1_1 => "message-id",
            Version::V1_2 => "ack",
        };
        let ack_id = frame.header(ack_id).unwrap_or_default().to_owned();
        Ok(Delivery { frame, ack_id })
    }

    /// Waits for the receipt of the subscription. The broker may send messages before the receipt. If it has
    /// sent the whole prefetch, the subscription is established.
    async fn subscribed(&mut self, prefetch: u16) -> Result<(), StompError> {
        while self.early_messages.len() < usize::from(prefetch) {
            let frame = self.frame(Step::Subscribe).await?;
            match frame.command {
                Command::Message => self.early_messages.push_back(frame),
                Command::Receipt if frame.header("receipt-id") == Some(SUBSCRIBED) => break,
                _ => {}
            }
        }
        Ok(())
    }

    /// Waits for the CONNECTED frame.
    pub(super) async fn wait_for_connected(&mut self, step: Step) -> Result<Frame, StompError> {
        loop {
            let frame = self.frame(step).await?;
            if frame.command == Command::Connected {
                return Ok(frame);
            }
        }
    }

    /// Discards frames until the receipt of DISCONNECT arrives or the connection ends.
    pub(super) async fn drain(&mut self) {
        while let Ok(frame) = self.frame(Step::Work).await {
            if frame.command == Command::Receipt && frame.header("receipt-id") == Some(GOODBYE) {
                return;
            }
        }
    }

    async fn frame(&mut self, step: Step) -> Result<Frame, StompError> {
        let frame = self.any_frame(step).await?;
        match frame.command {
            Command::Error => Err(self.error(step, &frame)),
            _ => Ok(frame),
        }
    }

    /// Returns the meaning of an ERROR frame.
    pub(super) fn error(&self, step: Step, frame: &Frame) -> StompError {
        StompError::from_error_frame(step, frame, self.password.as_ref())
    }

    /// Waits for the next frame of any kind. Dropping the future loses no frame.
    pub(super) async fn any_frame(&mut self, step: Step) -> Result<Frame, StompError> {
        loop {
            let decoded = self.decoder.decode(&mut self.buffer);
            if let Some(frame) = decoded.map_err(|malformed| StompError::malformed(step, malformed))? {
                return Ok(frame);
            }
            self.buffer.reserve(READ);
            let reading = self.socket.read_buf(&mut self.buffer);
            let read = match self.read_timeout {
                Some(read_timeout) => {
                    timeout(read_timeout, reading).await.map_err(|_| StompError::NoHeartBeat(read_timeout))?
                }
                None => reading.await,
            };
            if read.map_err(connection_lost)? == 0 {
                let suffix = if self.decoder.is_within(&self.buffer) { " within a frame" } else { "" };
                return Err(StompError::ConnectionLost(format!("the broker closed it{suffix}")));
            }
        }
    }
}

impl Writer {
    /// Acknowledges the messages of these identifiers, in the order of their arrival. All earlier messages
    /// must be acknowledged.
    ///
    /// # Errors
    /// Fails if the connection is lost, or a write takes ten seconds. The broker delivers the messages again then.
    pub async fn acknowledge(&self, ack_ids: &[String]) -> Result<(), StompError> {
        let ack_ids = match self.acknowledge {
            Acknowledge::Cumulative => &ack_ids[ack_ids.len().saturating_sub(1)..],
            Acknowledge::Individual => ack_ids,
        };
        let mut frames = Vec::new();
        for ack_id in ack_ids {
            let headers = match self.version {
                Version::V1_1 => [("message-id", ack_id.as_str()), ("subscription", &self.subscription)],
                Version::V1_2 => [("id", ack_id.as_str()), ("subscription", &self.subscription)],
            };
            encode(&mut frames, self.version, Command::Ack, &headers, b"");
        }
        self.write(&frames).await
    }

    /// Sends heart-beats at the interval that the broker wants. It never returns, because the reading side
    /// detects a broken connection.
    pub async fn beat(&self) -> Infallible {
        if let Some(every) = self.beat {
            loop {
                tokio::time::sleep(every).await;
                if self.write(b"\n").await.is_err() {
                    break;
                }
            }
        }
        std::future::pending().await
    }

    async fn write(&self, octets: &[u8]) -> Result<(), StompError> {
        let written = async {
            let mut socket = self.socket.lock().await;
            socket.write_all(octets).await.map_err(connection_lost)?;
            socket.flush().await.map_err(connection_lost)
        };
        with_timeout(OPERATION, "accept the data that it is sent", written).await
    }

    /// Disconnects and waits for the receipt, which confirms that the broker has processed every
    /// acknowledgement. The timeout is two seconds.
    pub async fn close(&self, reader: &mut Reader) {
        let mut disconnect = Vec::new();
        encode(&mut disconnect, self.version, Command::Disconnect, &[("receipt", GOODBYE)], b"");
        let closed = async {
            if self.write(&disconnect).await.is_ok() {
                reader.drain().await;
            }
        };
        let _ = timeout(CLOSE, closed).await;
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is an argument of map_err")]
pub(super) fn connection_lost(error: std::io::Error) -> StompError {
    StompError::ConnectionLost(error.to_string())
}
