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
    Acknowledge, Command, Decoder, Frame, StompError, StompSettings, Version, encode,
    error::Step,
    socket::{self, ReadSocket, WriteSocket},
};
use crate::{broker::SocketGuard, web::Secret};

/// Timeout of a connection attempt, from name resolution to CONNECTED.
const CONNECT: Duration = Duration::from_secs(10);

/// Timeout of an operation of the broker, and of a write.
const OPERATION: Duration = Duration::from_secs(10);

/// Timeout of closing a connection gracefully.
const CLOSE: Duration = Duration::from_secs(2);

/// Requested heart-beat interval of both sides, in milliseconds.
const HEART_BEAT: u64 = 5000;

/// Maximum heart-beat interval, in milliseconds, because the number of a broker is an input. A broker that sends its
/// heart-beats more rarely, and no messages, loses the connection every two hours.
const MAX_HEART_BEAT: u64 = 3_600_000;

/// Maximum size of a read, in bytes.
const READ: usize = 64 * 1024;

/// Receipt identifiers.
const SUBSCRIBED: &str = "subscribed";
const GOODBYE: &str = "goodbye";

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
        let (mut reader, writer) = with_timeout(CONNECT, "open the connection", self.connect(max_body_bytes)).await?;
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
        let settings = Self { client_id: None, ..self.clone() };
        let connecting = settings.connect(READ);
        let (mut reader, writer) = with_timeout(CONNECT, "open the connection", connecting).await?;
        writer.close(&mut reader).await;
        Ok(())
    }

    async fn connect(&self, max_body_bytes: usize) -> Result<(Reader, Writer), StompError> {
        let (reading, mut writing, guard) = socket::open(self).await?;
        let (address, password) = (&self.address, self.address.password());
        let secret = password.map(|password| String::from_utf8_lossy(password.expose()));
        let beats = format!("{HEART_BEAT},{HEART_BEAT}");
        let mut headers = vec![
            ("accept-version", Version::ACCEPTED),
            ("host", address.vhost().unwrap_or(address.host())),
            ("heart-beat", &beats),
        ];
        headers.extend(address.user().map(|user| ("login", user)));
        headers.extend(secret.as_deref().map(|secret| ("passcode", secret)));
        headers.extend(self.client_id.as_deref().map(|id| ("client-id", id)));
        let mut connect = Vec::new();
        encode(&mut connect, Version::V1_2, Command::Connect, &headers, b"");
        writing.write_all(&connect).await.map_err(connection_lost)?;
        let mut reader = Reader {
            socket: reading,
            decoder: Decoder::new(Version::V1_2, max_body_bytes),
            buffer: BytesMut::new(),
            version: Version::V1_2,
            early_messages: VecDeque::new(),
            read_timeout: None,
            password: password.cloned(),
        };
        let connected = reader.wait_for_connected(Step::Connect).await?;
        let version = connected.header("version").unwrap_or("1.0");
        let version = Version::parse(version).ok_or_else(|| StompError::Version(version.to_owned()))?;
        let (sends, wants) = heart_beats(connected.header("heart-beat").unwrap_or_default());
        // Wait twice the broker's interval, because a broker may be late. Send at half of ours, because it may
        // be strict.
        reader.read_timeout = sends.map(|every| every * 2);
        reader.version = version;
        reader.decoder.set_version(version);
        let writer = Writer {
            socket: Mutex::new(writing),
            version,
            subscription: self.durable.clone().unwrap_or_else(|| "tidings".to_owned()),
            acknowledge: self.acknowledge,
            beat: wants.map(|every| every / 2),
            _guard: guard,
        };
        Ok((reader, writer))
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

/// Returns the heart-beat intervals that a CONNECTED negotiates: of the broker, and of the gateway. Each is
/// the longer one of what both sides want, up to a bound.
fn heart_beats(value: &str) -> (Option<Duration>, Option<Duration>) {
    let (sends, wants) = value.split_once(',').unwrap_or_default();
    let every = |value: &str| {
        let value: u64 = value.trim().parse().unwrap_or(0);
        (value > 0).then(|| Duration::from_millis(value.clamp(HEART_BEAT, MAX_HEART_BEAT)))
    };
    (every(sends), every(wants))
}

impl Reader {
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
    async fn wait_for_connected(&mut self, step: Step) -> Result<Frame, StompError> {
        loop {
            let frame = self.frame(step).await?;
            if frame.command == Command::Connected {
                return Ok(frame);
            }
        }
    }

    /// Discards frames until the receipt of DISCONNECT arrives or the connection ends.
    async fn drain(&mut self) {
        while let Ok(frame) = self.frame(Step::Work).await {
            if frame.command == Command::Receipt && frame.header("receipt-id") == Some(GOODBYE) {
                return;
            }
        }
    }

    async fn frame(&mut self, step: Step) -> Result<Frame, StompError> {
        loop {
            let decoded = self.decoder.decode(&mut self.buffer);
            if let Some(frame) = decoded.map_err(|malformed| StompError::malformed(step, malformed))? {
                return match frame.command {
                    Command::Error => Err(StompError::from_error_frame(step, &frame, self.password.as_ref())),
                    _ => Ok(frame),
                };
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
fn connection_lost(error: std::io::Error) -> StompError {
    StompError::ConnectionLost(error.to_string())
}

async fn with_timeout<T>(
    bound: Duration,
    operation: &'static str,
    future: impl Future<Output = Result<T, StompError>>,
) -> Result<T, StompError> {
    timeout(bound, future).await.unwrap_or(Err(StompError::Timeout { operation, after: bound }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::heart_beats;

    #[test]
    fn heart_beat_interval_is_the_longer_one_of_both_sides() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(heart_beats("5000,5000"), (seconds(5), seconds(5)));
        assert_eq!(heart_beats("20000,0"), (seconds(20), None));
        assert_eq!(heart_beats("1, 7000"), (seconds(5), seconds(7)));
        assert_eq!(heart_beats(""), (None, None));
    }

    #[test]
    fn heart_beat_interval_of_a_broker_is_bounded() {
        let hour = Some(Duration::from_secs(3600));
        assert_eq!(heart_beats("3600001,3599999"), (hour, Some(Duration::from_millis(3_599_999))));
        assert_eq!(heart_beats(&format!("{0},{0}", u64::MAX)), (hour, hour));
        assert_eq!(heart_beats(&format!("{0}0,-1", u64::MAX)), (None, None));
    }
}
