//! Opens a connection: socket, CONNECT, and the negotiated version and heart-beats.

use std::{path::PathBuf, time::Duration};

use tokio::{io::AsyncWriteExt, time::timeout};

use super::{
    Command, Publisher, StompError, Version,
    connection::{READ, Reader, connection_lost},
    encode,
    error::Step,
    socket::{self, WriteSocket},
};
use crate::broker::{Endpoint, Resolver, SocketGuard};

/// Timeout of a connection attempt, from name resolution to CONNECTED.
const CONNECT: Duration = Duration::from_secs(10);

/// Timeout of closing a connection gracefully.
pub(super) const CLOSE: Duration = Duration::from_secs(2);

/// Requested heart-beat interval of both sides, in milliseconds.
const HEART_BEAT: u64 = 5000;

/// Maximum heart-beat interval, in milliseconds, because the number of a broker is an input. A broker that sends its
/// heart-beats more rarely, and no messages, loses the connection every two hours.
const MAX_HEART_BEAT: u64 = 3_600_000;

/// Receipt identifier of DISCONNECT.
pub(super) const GOODBYE: &str = "goodbye";

/// URL and credentials of a broker.
#[derive(Clone)]
pub struct Connector {
    /// URL of the broker.
    pub address: Endpoint,
    /// PEM file of the CA certificates that the broker's certificate is checked against; `None` for those of
    /// the operating system.
    pub ca: Option<PathBuf>,
    /// Client id of the connection. A broker allows one connection for each.
    pub client_id: Option<String>,
    /// Resolves the broker's host to the socket addresses that the connection may use.
    pub resolver: Resolver,
}

/// An open connection.
pub(super) struct Opened {
    pub(super) reader: Reader,
    pub(super) socket: WriteSocket,
    pub(super) version: Version,
    /// Interval of the heart-beats to the broker; `None` if it wants none.
    pub(super) beat: Option<Duration>,
    /// Closes the socket when it is dropped.
    pub(super) guard: SocketGuard,
}

impl Connector {
    /// Connects with the user and the password, and disconnects.
    ///
    /// # Errors
    /// Fails if the connection is refused or times out.
    pub async fn probe(&self) -> Result<(), StompError> {
        self.publisher().await?.close().await;
        Ok(())
    }

    /// Connects to send messages.
    ///
    /// # Errors
    /// Fails if the connection is refused or times out.
    pub async fn publisher(&self) -> Result<Publisher, StompError> {
        Ok(Publisher::start(self.open(READ).await?))
    }

    /// Connects. Bodies of more than `max_body_bytes` bytes from the broker are dropped.
    pub(super) async fn open(&self, max_body_bytes: usize) -> Result<Opened, StompError> {
        with_timeout(CONNECT, "open the connection", self.connect(max_body_bytes)).await
    }

    async fn connect(&self, max_body_bytes: usize) -> Result<Opened, StompError> {
        let (reading, mut socket, guard) = socket::open(self).await?;
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
        socket.write_all(&connect).await.map_err(connection_lost)?;
        let mut reader = Reader::new(reading, max_body_bytes, password.cloned());
        let connected = reader.wait_for_connected(Step::Connect).await?;
        let version = connected.header("version").unwrap_or("1.0");
        let version = Version::parse(version).ok_or_else(|| StompError::Version(version.to_owned()))?;
        let (sends, wants) = heart_beats(connected.header("heart-beat").unwrap_or_default());
        // Wait twice the broker's interval, because a broker may be late. Send at half of ours, because it may
        // be strict.
        reader.negotiated(version, sends.map(|every| every * 2));
        Ok(Opened { reader, socket, version, beat: wants.map(|every| every / 2), guard })
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

pub(super) async fn with_timeout<T>(
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
