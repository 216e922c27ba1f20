//! Fake AMQP 0-9-1 broker that supports a publisher. It confirms messages as a test asks, and so reproduces
//! failures that a RabbitMQ cluster shows only rarely.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::Value;

use crate::support::rabbitmq::nested;

/// Behaviour of a channel towards publishing, for the channel's whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChannelBehaviour {
    /// Refuses every message, like a channel that was opened while a quorum queue had no leader.
    Nacks,
    /// Accepts every message and confirms none.
    Silent,
    /// Confirms every message.
    Acks,
    /// Confirms every message, but stops reading for [`PAUSE`] once a message has begun.
    PausesReading,
    /// Returns the third of five messages, with a reply text and a routing key that are not UTF-8 and with
    /// headers nested 18 000 levels deep. Then confirms the first message, and after it all others together.
    ReturnsThirdMessage,
    /// Closes the channel with a reply text that is not UTF-8.
    ClosesWithInvalidText,
}

/// Listening broker. Its threads end with the process.
pub(crate) struct FakeAmqpBroker {
    port: u16,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    /// Behaviour of channels opened from now on.
    behaviour: ChannelBehaviour,
    published: Vec<(ChannelBehaviour, Value)>,
    connections: Vec<TcpStream>,
}

/// Methods by class and number, AMQP 0-9-1.
mod method {
    pub(super) const CONNECTION_START: [u8; 4] = [0, 10, 0, 10];
    pub(super) const CONNECTION_START_OK: [u8; 4] = [0, 10, 0, 11];
    pub(super) const CONNECTION_TUNE: [u8; 4] = [0, 10, 0, 30];
    pub(super) const CONNECTION_TUNE_OK: [u8; 4] = [0, 10, 0, 31];
    pub(super) const CONNECTION_OPEN: [u8; 4] = [0, 10, 0, 40];
    pub(super) const CONNECTION_OPEN_OK: [u8; 4] = [0, 10, 0, 41];
    pub(super) const CONNECTION_CLOSE: [u8; 4] = [0, 10, 0, 50];
    pub(super) const CONNECTION_CLOSE_OK: [u8; 4] = [0, 10, 0, 51];
    pub(super) const CHANNEL_OPEN: [u8; 4] = [0, 20, 0, 10];
    pub(super) const CHANNEL_OPEN_OK: [u8; 4] = [0, 20, 0, 11];
    pub(super) const CHANNEL_CLOSE: [u8; 4] = [0, 20, 0, 40];
    pub(super) const CHANNEL_CLOSE_OK: [u8; 4] = [0, 20, 0, 41];
    pub(super) const EXCHANGE_DECLARE: [u8; 4] = [0, 40, 0, 10];
    pub(super) const EXCHANGE_DECLARE_OK: [u8; 4] = [0, 40, 0, 11];
    pub(super) const QUEUE_DECLARE: [u8; 4] = [0, 50, 0, 10];
    pub(super) const QUEUE_DECLARE_OK: [u8; 4] = [0, 50, 0, 11];
    pub(super) const QUEUE_BIND: [u8; 4] = [0, 50, 0, 20];
    pub(super) const QUEUE_BIND_OK: [u8; 4] = [0, 50, 0, 21];
    pub(super) const CONFIRM_SELECT: [u8; 4] = [0, 85, 0, 10];
    pub(super) const CONFIRM_SELECT_OK: [u8; 4] = [0, 85, 0, 11];
    pub(super) const BASIC_PUBLISH: [u8; 4] = [0, 60, 0, 40];
    pub(super) const BASIC_RETURN: [u8; 4] = [0, 60, 0, 50];
    pub(super) const BASIC_ACK: [u8; 4] = [0, 60, 0, 80];
    pub(super) const BASIC_NACK: [u8; 4] = [0, 60, 0, 120];
}

/// Length of the pause of [`ChannelBehaviour::PausesReading`] in seconds. It exceeds the time limit of every operation on
/// the connection that sends no message.
const PAUSE: u64 = 12;

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;
const END: u8 = 0xce;

/// Heartbeat frame.
const ALIVE: [u8; 8] = [HEARTBEAT, 0, 0, 0, 0, 0, 0, END];

impl FakeAmqpBroker {
    pub(crate) fn start(behaviour: ChannelBehaviour) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Shared { behaviour, published: Vec::new(), connections: Vec::new() };
        let shared = Arc::new(Mutex::new(shared));
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let (socket, shared) = (socket.unwrap(), Arc::clone(&accepting));
                shared.lock().unwrap().connections.push(socket.try_clone().unwrap());
                // Errors are ignored: the client may close the connection at any time.
                std::thread::spawn(move || serve(socket, &shared));
            }
        });
        Self { port, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("amqp://127.0.0.1:{}", self.port)
    }

    /// Sets the behaviour of channels opened from now on; open channels keep theirs.
    pub(crate) fn set_behaviour(&self, behaviour: ChannelBehaviour) {
        self.shared.lock().unwrap().behaviour = behaviour;
    }

    /// Returns the JSON of the messages that were published on channels with that behaviour, in order.
    pub(crate) fn published(&self, behaviour: ChannelBehaviour) -> Vec<Value> {
        let shared = self.shared.lock().unwrap();
        shared.published.iter().filter(|(of, _)| *of == behaviour).map(|(_, body)| body.clone()).collect()
    }

    /// Closes every connection.
    pub(crate) fn cut(&self) {
        for socket in self.shared.lock().unwrap().connections.drain(..) {
            // Errors are ignored, because the client may have closed the connection already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// PublisherChannel channel of a connection.
struct PublisherChannel {
    behaviour: ChannelBehaviour,
    tag: u64,
    expected: u64,
    body: Vec<u8>,
    /// Identifiers of the messages.
    ids: Vec<Vec<u8>>,
}

fn serve(mut socket: TcpStream, shared: &Mutex<Shared>) -> io::Result<()> {
    let mut greeting = [0; 8];
    socket.read_exact(&mut greeting)?;
    assert_eq!(&greeting, b"AMQP\0\0\x09\x01");
    // Version, empty properties, mechanisms and locales.
    let start = [&[0, 9, 0, 0, 0, 0][..], &long_string("PLAIN"), &long_string("en_US")].concat();
    answer(&mut socket, 0, method::CONNECTION_START, &start)?;
    let mut publisher = PublisherChannel {
        behaviour: ChannelBehaviour::Silent,
        tag: 0,
        expected: 0,
        body: Vec::new(),
        ids: Vec::new(),
    };
    loop {
        let (kind, channel, payload) = frame(&mut socket)?;
        match kind {
            METHOD if !respond(&mut socket, channel, &payload, shared, &mut publisher)? => return Ok(()),
            METHOD => {}
            // Without a heartbeat in return the client would close the connection.
            HEARTBEAT => socket.write_all(&ALIVE)?,
            HEADER => {
                publisher.expected = u64::from_be_bytes(payload[4..12].try_into().unwrap());
                publisher.ids.push(message_id(&payload[14..]));
            }
            BODY => {
                if publisher.behaviour == ChannelBehaviour::PausesReading && publisher.body.is_empty() {
                    for _ in 0..PAUSE {
                        std::thread::sleep(Duration::from_secs(1));
                        socket.write_all(&ALIVE)?;
                    }
                }
                publisher.body.extend(payload);
                if publisher.body.len() as u64 == publisher.expected {
                    confirm(&mut socket, channel, shared, &mut publisher)?;
                }
            }
            other => panic!("a frame of type {other}"),
        }
    }
}

/// Responds to a method; returns false if the connection ends.
fn respond(
    socket: &mut TcpStream,
    channel: u16,
    payload: &[u8],
    shared: &Mutex<Shared>,
    publisher: &mut PublisherChannel,
) -> io::Result<bool> {
    let (method, arguments): ([u8; 4], &[u8]) = match payload[..4].try_into().unwrap() {
        // Unlimited channels, frames of 128 KiB, no heartbeat.
        method::CONNECTION_START_OK => (method::CONNECTION_TUNE, &[0, 0, 0, 2, 0, 0, 0, 0]),
        method::CONNECTION_TUNE_OK | method::BASIC_PUBLISH | method::CHANNEL_CLOSE_OK => return Ok(true),
        method::CONNECTION_OPEN => (method::CONNECTION_OPEN_OK, &[0]),
        method::CHANNEL_OPEN => {
            publisher.behaviour = shared.lock().unwrap().behaviour;
            (method::CHANNEL_OPEN_OK, &[0; 4])
        }
        method::CHANNEL_CLOSE => (method::CHANNEL_CLOSE_OK, &[]),
        method::EXCHANGE_DECLARE => (method::EXCHANGE_DECLARE_OK, &[]),
        // Queue name and two counts.
        method::QUEUE_DECLARE => (method::QUEUE_DECLARE_OK, &[0; 9]),
        method::QUEUE_BIND => (method::QUEUE_BIND_OK, &[]),
        method::CONFIRM_SELECT => (method::CONFIRM_SELECT_OK, &[]),
        method::CONNECTION_CLOSE => {
            answer(socket, channel, method::CONNECTION_CLOSE_OK, &[])?;
            return Ok(false);
        }
        other => panic!("the method {other:?}"),
    };
    answer(socket, channel, method, arguments)?;
    Ok(true)
}

fn confirm(
    socket: &mut TcpStream,
    channel: u16,
    shared: &Mutex<Shared>,
    publisher: &mut PublisherChannel,
) -> io::Result<()> {
    let body = serde_json::from_slice(&std::mem::take(&mut publisher.body)).unwrap();
    shared.lock().unwrap().published.push((publisher.behaviour, body));
    publisher.tag += 1;
    // Delivery tag and flags.
    let arguments = [&publisher.tag.to_be_bytes()[..], &[0]].concat();
    match publisher.behaviour {
        ChannelBehaviour::Acks | ChannelBehaviour::PausesReading => {
            answer(socket, channel, method::BASIC_ACK, &arguments)
        }
        ChannelBehaviour::Nacks => answer(socket, channel, method::BASIC_NACK, &arguments),
        ChannelBehaviour::ClosesWithInvalidText => {
            let arguments = [&[1, 150, 8][..], b"NO CAF\xe9!", &[0; 4]].concat();
            answer(socket, channel, method::CHANNEL_CLOSE, &arguments)
        }
        ChannelBehaviour::ReturnsThirdMessage if publisher.ids.len() == 5 => {
            let arguments = [&[1, 56, 9][..], b"NO_ROUTE\xe9", &[1], b"x", &[1], b"\xff"].concat();
            answer(socket, channel, method::BASIC_RETURN, &arguments)?;
            let (id, headers) = (&publisher.ids[2], nested(18_000));
            let size = u32::try_from(headers.len()).unwrap().to_be_bytes();
            // Class, body size of one byte, headers and message id.
            let properties = [&[0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x20, 0x80][..], &size, &headers];
            let header = [&properties.concat()[..], &[u8::try_from(id.len()).unwrap()], id].concat();
            send(socket, HEADER, channel, &header)?;
            send(socket, BODY, channel, b"x")?;
            for (tag, multiple) in [(1, 0), (5, 1)] {
                answer(socket, channel, method::BASIC_ACK, &[0, 0, 0, 0, 0, 0, 0, tag, multiple])?;
            }
            Ok(())
        }
        ChannelBehaviour::Silent | ChannelBehaviour::ReturnsThirdMessage => Ok(()),
    }
}

/// Returns the message id among the properties: it follows the content type, the headers and the delivery mode.
fn message_id(properties: &[u8]) -> Vec<u8> {
    let rest = &properties[1 + usize::from(properties[0])..];
    let headers = u32::from_be_bytes(*rest.first_chunk().unwrap()) as usize;
    let rest = &rest[4 + headers + 1..];
    rest[1..=usize::from(rest[0])].to_vec()
}

fn long_string(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_be_bytes()[..], text.as_bytes()].concat()
}

fn answer(socket: &mut TcpStream, channel: u16, method: [u8; 4], arguments: &[u8]) -> io::Result<()> {
    send(socket, METHOD, channel, &[&method, arguments].concat())
}

fn send(socket: &mut TcpStream, kind: u8, channel: u16, payload: &[u8]) -> io::Result<()> {
    let size = u32::try_from(payload.len()).unwrap().to_be_bytes();
    socket.write_all(&[&[kind][..], &channel.to_be_bytes(), &size, payload, &[END]].concat())
}

fn frame(socket: &mut TcpStream) -> io::Result<(u8, u16, Vec<u8>)> {
    let mut head = [0; 7];
    socket.read_exact(&mut head)?;
    let [kind, channel @ .., a, b, c, d] = head;
    let mut payload = vec![0; u32::from_be_bytes([a, b, c, d]) as usize + 1];
    socket.read_exact(&mut payload)?;
    assert_eq!(payload.pop(), Some(END));
    Ok((kind, u16::from_be_bytes(channel), payload))
}
