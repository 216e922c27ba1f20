//! Connection that sends messages. Each has a receipt, so its sender learns when the broker has it.

use std::{collections::BTreeMap, io, time::Duration};

use bytes::Bytes;
use tokio::{
    io::{AsyncWriteExt, BufWriter},
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::timeout,
};

use super::{
    Command, StompError, Version,
    connection::Reader,
    connector::{CLOSE, GOODBYE, Opened},
    error::Step,
    frame::{END, encode_head},
    socket::WriteSocket,
};
use crate::broker::SocketGuard;

/// Future of a message's receipt; an error of the channel means that the connection has ended.
pub type Receipt = oneshot::Receiver<Result<(), StompError>>;

/// Connection that sends messages. Dropping it closes the socket.
///
/// Two tasks write and read, so that neither a broker that accepts nothing nor one that confirms nothing blocks the
/// other direction. The caller bounds the messages without a receipt.
pub struct Publisher {
    version: Version,
    sent: u64,
    frames: mpsc::UnboundedSender<EncodedFrame>,
    awaited: mpsc::UnboundedSender<(u64, oneshot::Sender<Result<(), StompError>>)>,
    /// The writer, which returns nothing, and the reader, which returns the end of the connection.
    tasks: JoinSet<Option<StompError>>,
    _guard: SocketGuard,
}

/// A frame whose body is not copied.
struct EncodedFrame {
    head: Vec<u8>,
    body: Bytes,
}

impl Publisher {
    pub(super) fn start(opened: Opened) -> Self {
        let Opened { reader, socket, version, beat, guard } = opened;
        let (frames, queue) = mpsc::unbounded_channel();
        let (awaited, registered) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // The reader notices the broken connection, and may still find the broker's reason.
            let _ = write(BufWriter::new(socket), queue, beat).await;
            None
        });
        let receipts = Receipts { registered, waiting: BTreeMap::new() };
        tasks.spawn(async move { Some(receipts.read(reader).await) });
        Self { version, sent: 0, frames, awaited, tasks, _guard: guard }
    }

    /// Hands a message to the connection. Messages are written in the order of the calls.
    pub fn send(&mut self, headers: &[(&str, &str)], body: Bytes) -> Receipt {
        self.sent += 1;
        let id = self.sent.to_string();
        let (confirm, receipt) = oneshot::channel();
        let mut all = vec![("receipt", id.as_str())];
        all.extend(headers);
        // If a task has ended, the receipt says so.
        let _ = self.awaited.send((self.sent, confirm));
        self.write(Command::Send, &all, body);
        receipt
    }

    fn write(&self, command: Command, headers: &[(&str, &str)], body: Bytes) {
        let mut head = Vec::new();
        encode_head(&mut head, self.version, command, headers, body.len());
        let _ = self.frames.send(EncodedFrame { head, body });
    }

    /// Waits until the connection has ended. Dropping the future loses nothing.
    pub async fn failed(&mut self) -> StompError {
        while let Some(ended) = self.tasks.join_next().await {
            if let Ok(Some(error)) = ended {
                return error;
            }
        }
        StompError::ConnectionLost("it has ended".to_owned())
    }

    /// Disconnects and waits for the receipt, which confirms that the broker has processed every frame. The timeout is
    /// two seconds.
    pub async fn close(mut self) {
        self.write(Command::Disconnect, &[("receipt", GOODBYE)], Bytes::new());
        let _ = timeout(CLOSE, self.failed()).await;
    }
}

/// Writes frames, as many as are waiting at once, and heart-beats while there is none. The broker may be slow for as long
/// as it likes; whoever waits for a receipt has a timeout.
async fn write(
    mut socket: BufWriter<WriteSocket>,
    mut queue: mpsc::UnboundedReceiver<EncodedFrame>,
    beat: Option<Duration>,
) -> io::Result<()> {
    loop {
        let next = match beat {
            Some(every) => timeout(every, queue.recv()).await,
            None => Ok(queue.recv().await),
        };
        let mut next = match next {
            Ok(None) => return Ok(()),
            Ok(frame) => frame,
            Err(_) => {
                socket.write_all(b"\n").await?;
                None
            }
        };
        while let Some(EncodedFrame { head, body }) = next {
            socket.write_all(&head).await?;
            socket.write_all(&body).await?;
            socket.write_all(&[END]).await?;
            next = queue.try_recv().ok();
        }
        socket.flush().await?;
    }
}

/// Messages whose receipts have not arrived, by the numbers of their receipts.
struct Receipts {
    /// New messages. A message is here before it is written.
    registered: mpsc::UnboundedReceiver<(u64, oneshot::Sender<Result<(), StompError>>)>,
    waiting: BTreeMap<u64, oneshot::Sender<Result<(), StompError>>>,
}

impl Receipts {
    /// Reads receipts until the connection ends, and returns why.
    async fn read(mut self, mut reader: Reader) -> StompError {
        let error = loop {
            let frame = match reader.any_frame(Step::Send).await {
                Ok(frame) => frame,
                Err(error) => break error,
            };
            let receipt = frame.header("receipt-id");
            let message = receipt.and_then(|id| id.parse().ok()).and_then(|id| self.take(id));
            match (frame.command, message) {
                (Command::Receipt, Some(message)) => _ = message.send(Ok(())),
                (Command::Receipt, None) if receipt == Some(GOODBYE) => {
                    break StompError::ConnectionLost("the gateway closed it".to_owned());
                }
                // ActiveMQ keeps the connection. If another broker closes it, that ends the loop.
                (Command::Error, Some(message)) => _ = message.send(Err(reader.error(Step::Send, &frame))),
                (Command::Error, None) => break reader.error(Step::Send, &frame),
                _ => {}
            }
        };
        self.end(error)
    }

    fn take(&mut self, id: u64) -> Option<oneshot::Sender<Result<(), StompError>>> {
        self.register();
        self.waiting.remove(&id)
    }

    fn register(&mut self) {
        while let Ok((id, message)) = self.registered.try_recv() {
            self.waiting.insert(id, message);
        }
    }

    /// Ends all waiting messages with an error. A refusal that names no message is about the only waiting one; of several,
    /// it is not known which is refused.
    fn end(mut self, error: StompError) -> StompError {
        self.register();
        let error = match error {
            StompError::MessageRefused(reason) if self.waiting.len() != 1 => StompError::ClosedByBroker(reason),
            error => error,
        };
        for message in self.waiting.into_values() {
            let _ = message.send(Err(error.clone()));
        }
        error
    }
}
