//! A server that sends each body piece by piece without an end, except those of a few paths.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Time between two pieces.
const PAUSE: Duration = Duration::from_millis(50);

/// Size of a piece, in bytes: 20 kB/s, which is above the least rate of a transfer.
const PIECE: usize = 1000;

/// The server. It ends with the runtime of the test.
pub(crate) struct DrippingServer {
    pub(crate) url: String,
    dripping: Arc<AtomicUsize>,
}

impl DrippingServer {
    /// Starts a server at an address of its own. `answers` has the paths with whole answers: the status and the body.
    pub(crate) async fn start_at(address: &str, answers: &[(&str, u16, &str)]) -> Self {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers: HashMap<String, String> = answers
            .iter()
            .map(|(path, status, body)| {
                let head = format!("HTTP/1.1 {status} \r\ncontent-length: {}\r\nconnection: close", body.len());
                ((*path).to_owned(), format!("{head}\r\n\r\n{body}"))
            })
            .collect();
        let (answers, dripping) = (Arc::new(answers), Arc::<AtomicUsize>::default());
        let count = Arc::clone(&dripping);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&answers), Arc::clone(&count)));
            }
        });
        Self { url, dripping }
    }

    /// Returns the number of bodies that are being sent.
    pub(crate) fn dripping(&self) -> usize {
        self.dripping.load(Ordering::Relaxed)
    }
}

async fn serve(mut stream: TcpStream, answers: Arc<HashMap<String, String>>, dripping: Arc<AtomicUsize>) {
    let mut request = [0; 8192];
    let read = stream.read(&mut request).await.unwrap_or_default();
    let head = String::from_utf8_lossy(&request[..read]).into_owned();
    let path = head.split([' ', '?']).nth(1).unwrap_or_default();
    if let Some(answer) = answers.get(path) {
        let _ = stream.write_all(answer.as_bytes()).await;
        return;
    }
    dripping.fetch_add(1, Ordering::Relaxed);
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n";
    let mut is_open = stream.write_all(head).await.is_ok();
    while is_open {
        tokio::time::sleep(PAUSE).await;
        is_open = stream.write_all(&[b' '; PIECE]).await.is_ok();
    }
    dripping.fetch_sub(1, Ordering::Relaxed);
}
