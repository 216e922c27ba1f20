//! A connection to a broker that is subscribed to a destination. Every wait for the broker ends, but the one
//! for the next message, and that one ends when the heart-beats do.

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
    socket::{self, Reading, Writing},
};
use crate::{broker::SocketGuard, web::Secret};

/// How long a connection may take to be made, from the name of the host to the CONNECTED.
const CONNECT: Duration = Duration::from_secs(10);

/// How long the broker may take to do what it is asked, or to take what it is sent.
const OPERATION: Duration = Duration::from_secs(10);

/// How long a connection may take to be closed in good order.
const CLOSE: Duration = Duration::from_secs(2);

/// How often either side is to say that it is there, in milliseconds.
const HEART_BEAT: u64 = 5000;

/// How much is read at once, at the most, in bytes.
const READ: usize = 64 * 1024;

/// The receipts that are asked for.
const SUBSCRIBED: &str = "subscribed";
const GOODBYE: &str = "goodbye";

/// A MESSAGE.
pub struct Delivered {
    /// The frame.
    pub frame: Frame,
    /// What it is acknowledged by.
    pub mark: String,
}

/// The side that reads.
pub struct Reader {
    socket: Reading,
    decoder: Decoder,
    buffer: BytesMut,
    version: Version,
    /// What came before the broker had said that it would come.
    early: VecDeque<Frame>,
    /// How long the broker may say nothing; `None` if it sends no heart-beats.
    silence: Option<Duration>,
    password: Option<Secret>,
}

/// The side that writes.
pub struct Writer {
    socket: Mutex<Writing>,
    version: Version,
    subscription: String,
    acknowledge: Acknowledge,
    /// How often the broker wants to hear something; `None` if it does not.
    beat: Option<Duration>,
    _guard: SocketGuard,
}

impl StompSettings {
    /// Connects, and subscribes to the destination, with up to `prefetch` messages before one is acknowledged. Bodies of
    /// more than `largest` bytes are left out.
    ///
    /// # Errors
    /// When any of it fails, or takes too long; nothing stays behind.
    pub async fn open(&self, largest: usize, prefetch: u16) -> Result<(Reader, Writer), StompError> {
        let (mut reader, writer) = within(CONNECT, "let the gateway in", self.connect(largest)).await?;
        let subscribed = async {
            writer.write(&self.subscribe(&writer, prefetch)).await?;
            reader.subscribed(prefetch).await
        };
        within(OPERATION, "send the messages of the destination", subscribed).await?;
        Ok((reader, writer))
    }

    async fn connect(&self, largest: usize) -> Result<(Reader, Writer), StompError> {
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
        writing.write_all(&connect).await.map_err(broken)?;
        let mut reader = Reader {
            socket: reading,
            decoder: Decoder::new(Version::V1_2, largest),
            buffer: BytesMut::new(),
            version: Version::V1_2,
            early: VecDeque::new(),
            silence: None,
            password: password.cloned(),
        };
        let connected = reader.answer(Step::Connect).await?;
        let version = connected.header("version").unwrap_or("1.0");
        let version = Version::parse(version).ok_or_else(|| StompError::Version(version.to_owned()))?;
        let (sends, wants) = heart_beats(connected.header("heart-beat").unwrap_or_default());
        // Twice its time, since a broker may be late; half of our time, since it may be strict.
        reader.silence = sends.map(|every| every * 2);
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
            // The one is ActiveMQ's, the other RabbitMQ's; each leaves alone what it does not know.
            ("activemq.prefetchSize", &prefetch),
            ("prefetch-count", &prefetch),
        ];
        if let Some(name) = &self.durable {
            // The first is ActiveMQ's, the second Artemis's, the rest RabbitMQ's, which keeps a queue for the name in `id`.
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

/// How often the broker says that it is there, and how often it wants to hear that of the gateway, by its CONNECTED:
/// each as seldom as either side wants it.
fn heart_beats(told: &str) -> (Option<Duration>, Option<Duration>) {
    let (sends, wants) = told.split_once(',').unwrap_or_default();
    let every = |told: &str| {
        let told: u64 = told.trim().parse().unwrap_or(0);
        (told > 0).then(|| Duration::from_millis(told.max(HEART_BEAT)))
    };
    (every(sends), every(wants))
}

impl Reader {
    /// The next MESSAGE. Dropping the future loses none.
    ///
    /// # Errors
    /// When the connection has ended, or the broker says nothing any more.
    pub async fn next(&mut self) -> Result<Delivered, StompError> {
        let frame = loop {
            let frame = match self.early.pop_front() {
                Some(frame) => frame,
                None => self.frame(Step::Work).await?,
            };
            if frame.command == Command::Message {
                break frame;
            }
        };
        let mark = match self.version {
            Version::V1_1 => "message-id",
            Version::V1_2 => "ack",
        };
        let mark = frame.header(mark).unwrap_or_default().to_owned();
        Ok(Delivered { frame, mark })
    }

    /// Waits until the broker has subscribed the gateway. It may send messages before it says so; when it has sent
    /// all that it may it has.
    async fn subscribed(&mut self, prefetch: u16) -> Result<(), StompError> {
        while self.early.len() < usize::from(prefetch) {
            let frame = self.frame(Step::Subscribe).await?;
            match frame.command {
                Command::Message => self.early.push_back(frame),
                Command::Receipt if frame.header("receipt-id") == Some(SUBSCRIBED) => break,
                _ => {}
            }
        }
        Ok(())
    }

    /// The answer to a CONNECT.
    async fn answer(&mut self, step: Step) -> Result<Frame, StompError> {
        loop {
            let frame = self.frame(step).await?;
            if frame.command == Command::Connected {
                return Ok(frame);
            }
        }
    }

    /// Throws away what comes until the broker has said goodbye, or is gone.
    async fn goodbye(&mut self) {
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
                    Command::Error => Err(StompError::told(step, &frame, self.password.as_ref())),
                    _ => Ok(frame),
                };
            }
            self.buffer.reserve(READ);
            let reading = self.socket.read_buf(&mut self.buffer);
            let read = match self.silence {
                Some(silence) => timeout(silence, reading).await.map_err(|_| StompError::NoHeartBeat(silence))?,
                None => reading.await,
            };
            if read.map_err(broken)? == 0 {
                let within = if self.decoder.is_within(&self.buffer) { " within a frame" } else { "" };
                return Err(StompError::Broken(format!("the broker closed it{within}")));
            }
        }
    }
}

impl Writer {
    /// Acknowledges the messages of these marks, in the order in which they came; all that came before them are
    /// acknowledged.
    ///
    /// # Errors
    /// When the connection is gone, or takes nothing for ten seconds. Then the broker delivers them again.
    pub async fn acknowledge(&self, marks: &[String]) -> Result<(), StompError> {
        let marks = match self.acknowledge {
            Acknowledge::Cumulative => &marks[marks.len().saturating_sub(1)..],
            Acknowledge::Individual => marks,
        };
        let mut frames = Vec::new();
        for mark in marks {
            let headers = match self.version {
                Version::V1_1 => [("message-id", mark.as_str()), ("subscription", &self.subscription)],
                Version::V1_2 => [("id", mark.as_str()), ("subscription", &self.subscription)],
            };
            encode(&mut frames, self.version, Command::Ack, &headers, b"");
        }
        self.write(&frames).await
    }

    /// Sends heart-beats, as often as the broker wants them. It never ends: a connection that breaks is found out
    /// where it is read.
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
            socket.write_all(octets).await.map_err(broken)?;
            socket.flush().await.map_err(broken)
        };
        within(OPERATION, "take what it is sent", written).await
    }

    /// Says goodbye, and waits until the broker has: then it has taken every acknowledgement. It takes two seconds
    /// at most.
    pub async fn close(&self, reader: &mut Reader) {
        let mut disconnect = Vec::new();
        encode(&mut disconnect, self.version, Command::Disconnect, &[("receipt", GOODBYE)], b"");
        let closed = async {
            if self.write(&disconnect).await.is_ok() {
                reader.goodbye().await;
            }
        };
        let _ = timeout(CLOSE, closed).await;
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it stands behind map_err")]
fn broken(error: std::io::Error) -> StompError {
    StompError::Broken(error.to_string())
}

async fn within<T>(
    bound: Duration,
    asked: &'static str,
    answered: impl Future<Output = Result<T, StompError>>,
) -> Result<T, StompError> {
    timeout(bound, answered).await.unwrap_or(Err(StompError::Silent { asked, after: bound }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::heart_beats;

    #[test]
    fn heart_beats_are_as_seldom_as_either_side_wants_them() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(heart_beats("5000,5000"), (seconds(5), seconds(5)));
        assert_eq!(heart_beats("20000,0"), (seconds(20), None));
        assert_eq!(heart_beats("1, 7000"), (seconds(5), seconds(7)));
        assert_eq!(heart_beats(""), (None, None));
    }
}
