//! Tests of transfers from a server that sends slowly. The clock is that of the test, so nothing waits.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::{Instant, sleep},
};

use super::{FileFacts, HeaderMap, Hosts, Receiver, TransferError, Transfers};
use crate::{
    files::{FileStore, FileStoreLocation},
    http_client::{Client, ClientSettings, OutboundPolicy, OutboundUrl, RequestHeaders},
};

/// Accepts each file.
struct AnyFile;

impl Receiver for AnyFile {
    fn check_headers(&mut self, _: &HeaderMap) -> Result<(), TransferError> {
        Ok(())
    }

    fn receive(&mut self, _: &[u8], _: u64) -> Result<(), TransferError> {
        Ok(())
    }

    fn check_content(&mut self, _: &FileFacts) -> Result<(), TransferError> {
        Ok(())
    }

    fn restart(&mut self) {}
}

/// Starts a server that sends this number of pieces, each after a pause; returns its URL.
async fn server(pieces: usize, bytes: usize, pause: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await.unwrap();
            let length = pieces * bytes;
            let head = format!("HTTP/1.1 200 OK\r\netag: \"a\"\r\ncontent-length: {length}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            for _ in 0..pieces {
                sleep(pause).await;
                if stream.write_all(&vec![b'x'; bytes]).await.is_err() {
                    break;
                }
            }
        }
    });
    format!("http://{address}/file")
}

/// Transfers a file, and returns the result with its duration.
async fn transfer(url: &str) -> (Result<u64, TransferError>, Duration) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (folder, policy) = (tempfile::tempdir().unwrap(), OutboundPolicy::unrestricted());
    let settings = ClientSettings { body_timeout: Duration::from_secs(60), ..ClientSettings::new(policy.clone()) };
    let files = FileStore::open(&FileStoreLocation::Folder(folder.path().to_owned())).unwrap();
    let transfers = Transfers {
        client: Client::new(settings).await.unwrap(),
        policy: policy.clone(),
        hosts: Hosts::default(),
        files,
    };
    let url = OutboundUrl::parse(url, &policy).unwrap();
    let (mut permit, began) = (transfers.hosts.permit("h").await, Instant::now());
    let stored = transfers.store(&url, &RequestHeaders::default(), &mut AnyFile, &mut permit, None).await;
    (stored.map(|file| file.stored.size), began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn dripping_server_is_left_after_a_minute() {
    let (result, time) = transfer(&server(100_000, 1, Duration::from_secs(3)).await).await;
    assert!(matches!(result, Err(TransferError::TooSlow(_))), "{result:?}");
    assert!((Duration::from_secs(59)..Duration::from_secs(90)).contains(&time), "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn slow_server_may_take_its_time() {
    let (result, time) = transfer(&server(100, 20_000, Duration::from_secs(10)).await).await;
    assert_eq!(result.unwrap(), 2_000_000);
    assert!(time > Duration::from_secs(900), "{time:?}");
}
