//! Fake STOMP broker that follows a script, with correct or incorrect frames.

use std::{
    io::{BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use crate::support::{
    broker_process::PATIENCE,
    stomp_client::{Frame, frame, read},
};

/// Script for one connection, which is closed afterwards.
pub(crate) type Scene = Box<dyn Fn(&mut Peer) + Send>;

/// Headers of a CONNECTED frame.
pub(crate) const V1_2: [(&str, &str); 1] = [("version", "1.2")];

pub(crate) fn scene(scene: impl Fn(&mut Peer) + Send + 'static) -> Scene {
    Box::new(scene)
}

/// Listening broker. Its thread ends with the process.
pub(crate) struct FakeStompBroker {
    port: u16,
    frames: Arc<Mutex<Vec<Frame>>>,
}

/// Server's side of one connection.
pub(crate) struct Peer {
    socket: BufReader<TcpStream>,
    frames: Arc<Mutex<Vec<Frame>>>,
}

impl FakeStompBroker {
    /// Plays one scene for each connection, in order; the last scene is repeated.
    pub(crate) fn start(scenes: Vec<Scene>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let frames = Arc::new(Mutex::new(Vec::new()));
        let hearing = Arc::clone(&frames);
        std::thread::spawn(move || {
            let mut scenes = scenes.iter().peekable();
            let mut current = None;
            for socket in listener.incoming() {
                current = scenes.next().or(current);
                let socket = socket.unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                current.unwrap()(&mut Peer { socket: BufReader::new(socket), frames: Arc::clone(&hearing) });
            }
        });
        Self { port, frames }
    }

    pub(crate) fn url(&self) -> String {
        format!("stomp://me:hush-hush@127.0.0.1:{}", self.port)
    }

    /// Returns the received frames with that command, once for each header with that name.
    pub(crate) fn received_frames(&self, command: &str, header: &str) -> Vec<String> {
        let frames = self.frames.lock().unwrap();
        let matching = frames.iter().filter(|frame| frame.command == command);
        matching.map(|frame| frame.header(header).to_owned()).collect()
    }
}

impl Peer {
    /// Sends bytes; ignores errors because the client may have disconnected.
    pub(crate) fn send_bytes(&mut self, octets: &[u8]) {
        let _ = self.socket.get_mut().write_all(octets);
    }

    /// Waits for the next frame; returns `None` if the client has disconnected.
    pub(crate) fn next_frame(&mut self) -> Option<String> {
        let frame = read(&mut self.socket)?;
        let command = frame.command.clone();
        self.frames.lock().unwrap().push(frame);
        Some(command)
    }

    /// Reads until the client disconnects, and confirms its DISCONNECT.
    pub(crate) fn read_to_end(&mut self) {
        while let Some(command) = self.next_frame() {
            if command == "DISCONNECT" {
                self.send_bytes(&frame("RECEIPT", &[("receipt-id", "goodbye")], b""));
            }
        }
    }

    /// Waits for a byte outside a frame.
    pub(crate) fn next_byte(&mut self) -> Option<u8> {
        let mut octet = [0];
        self.socket.read_exact(&mut octet).ok().map(|()| octet[0])
    }

    /// Accepts the client with a CONNECTED frame that has these headers.
    pub(crate) fn accept(&mut self, headers: &[(&str, &str)]) {
        self.next_frame();
        self.send_bytes(&frame("CONNECTED", headers, b""));
        self.next_frame();
        self.send_bytes(&frame("RECEIPT", &[("receipt-id", "subscribed")], b""));
    }

    /// Sends a MESSAGE frame of STOMP 1.2.
    pub(crate) fn send(&mut self, mark: &str, headers: &[(&str, &str)], body: &[u8]) {
        let own = [("destination", "/queue/q"), ("message-id", mark), ("ack", mark), ("subscription", "tidings")];
        self.send_bytes(&frame("MESSAGE", &[&own, headers].concat(), body));
    }
}
