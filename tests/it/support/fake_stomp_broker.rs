//! A peer that speaks STOMP as a test wants it to, well or badly.

use std::{
    io::{BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use crate::support::{
    broker_process::PATIENCE,
    stomp_client::{Frame, frame, read},
};

/// What is done with a connection; it is closed afterwards.
pub(crate) type Scene = Box<dyn Fn(&mut Peer) + Send>;

/// A listening peer. Its thread ends with the process.
pub(crate) struct FakeStomp {
    port: u16,
    heard: Arc<Mutex<Vec<Frame>>>,
}

/// One connection of it.
pub(crate) struct Peer {
    socket: BufReader<TcpStream>,
    heard: Arc<Mutex<Vec<Frame>>>,
}

impl FakeStomp {
    /// Plays a scene to each connection, in order; the last again and again.
    pub(crate) fn plays(scenes: Vec<Scene>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hearing = Arc::clone(&heard);
        std::thread::spawn(move || {
            let mut scenes = scenes.iter().peekable();
            let mut current = None;
            for socket in listener.incoming() {
                current = scenes.next().or(current);
                let socket = socket.unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                current.unwrap()(&mut Peer { socket: BufReader::new(socket), heard: Arc::clone(&hearing) });
            }
        });
        Self { port, heard }
    }

    pub(crate) fn url(&self) -> String {
        format!("stomp://me:hush-hush@127.0.0.1:{}", self.port)
    }

    /// The frames of that command that it has been sent, as often as one of them has that header.
    pub(crate) fn heard(&self, command: &str, header: &str) -> Vec<String> {
        let heard = self.heard.lock().unwrap();
        let heard = heard.iter().filter(|frame| frame.command == command);
        heard.map(|frame| frame.header(header).to_owned()).collect()
    }
}

impl Peer {
    /// Says something. Whoever has gone does not hear it.
    pub(crate) fn say(&mut self, octets: &[u8]) {
        let _ = self.socket.get_mut().write_all(octets);
    }

    /// Waits for the next frame; `None` when the other side has gone.
    pub(crate) fn hear(&mut self) -> Option<String> {
        let frame = read(&mut self.socket)?;
        let command = frame.command.clone();
        self.heard.lock().unwrap().push(frame);
        Some(command)
    }

    /// Listens until the other side has gone, and says goodbye to it.
    pub(crate) fn hear_all(&mut self) {
        while let Some(command) = self.hear() {
            if command == "DISCONNECT" {
                self.say(&frame("RECEIPT", &[("receipt-id", "goodbye")], b""));
            }
        }
    }

    /// Waits for an octet outside of a frame.
    pub(crate) fn hear_octet(&mut self) -> Option<u8> {
        let mut octet = [0];
        self.socket.read_exact(&mut octet).ok().map(|()| octet[0])
    }

    /// Lets the gateway in, with the headers of a CONNECTED.
    pub(crate) fn let_in(&mut self, headers: &[(&str, &str)]) {
        self.hear();
        self.say(&frame("CONNECTED", headers, b""));
        self.hear();
        self.say(&frame("RECEIPT", &[("receipt-id", "subscribed")], b""));
    }

    /// Sends a message of STOMP 1.2.
    pub(crate) fn send(&mut self, mark: &str, headers: &[(&str, &str)], body: &[u8]) {
        let own = [("destination", "/queue/q"), ("message-id", mark), ("ack", mark), ("subscription", "tidings")];
        self.say(&frame("MESSAGE", &[&own, headers].concat(), body));
    }
}
