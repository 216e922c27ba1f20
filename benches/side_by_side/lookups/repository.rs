//! Minimal Fedora 3: after a delay it responds to every request for a datastream with the same profile, and to every
//! request for relationships with the same document. Connections are kept alive.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

const PROFILE: &str = r#"<?xml version="1.0" encoding="UTF-8"?><datastreamProfile xmlns="http://www.fedora.info/definitions/1/0/management/" pid="demo:1" dsID="DS"><dsLabel>a page of a book that has many</dsLabel><dsVersionID>DS.0</dsVersionID><dsCreateDate>2026-01-01T00:00:00.000Z</dsCreateDate><dsState>A</dsState><dsMIME>image/jp2</dsMIME><dsFormatURI></dsFormatURI><dsControlGroup>M</dsControlGroup><dsSize>491520</dsSize><dsVersionable>true</dsVersionable><dsInfoType></dsInfoType><dsLocation>demo:1+DS+DS.0</dsLocation><dsLocationType>INTERNAL_ID</dsLocationType><dsChecksumType>SHA-1</dsChecksumType><dsChecksum>da39a3ee5e6b4b0d3255bfef95601890afd80709</dsChecksum></datastreamProfile>"#;

const RELATIONS: &str = r#"<rdf:RDF xmlns:fedora="info:fedora/fedora-system:def/relations-external#" xmlns:fedora-model="info:fedora/fedora-system:def/model#" xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description rdf:about="info:fedora/demo:1"><fedora-model:hasModel rdf:resource="info:fedora/islandora:pageCModel"></fedora-model:hasModel><fedora:isMemberOf rdf:resource="info:fedora/demo:book"></fedora:isMemberOf></rdf:Description></rdf:RDF>"#;

/// Running repository. Its thread ends with the process.
pub(crate) struct Repository {
    port: u16,
    responses: Arc<AtomicU64>,
}

impl Repository {
    pub(crate) fn start(response_time: Duration) -> Self {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let responses = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&responses);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                listener.set_nonblocking(true).unwrap();
                let listener = TcpListener::from_std(listener).unwrap();
                loop {
                    let (socket, _) = listener.accept().await.unwrap();
                    tokio::spawn(serve(socket, response_time, Arc::clone(&counter)));
                }
            });
        });
        Self { port, responses }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/fedora", self.port)
    }

    /// Returns the number of responses so far.
    pub(crate) fn responses(&self) -> u64 {
        self.responses.load(Ordering::Relaxed)
    }
}

async fn serve(mut socket: TcpStream, response_time: Duration, responses: Arc<AtomicU64>) {
    let _ = socket.set_nodelay(true);
    let mut read = Vec::with_capacity(1024);
    loop {
        read.clear();
        while !read.ends_with(b"\r\n\r\n") {
            if socket.read_buf(&mut read).await.unwrap_or_default() == 0 {
                return;
            }
        }
        tokio::time::sleep(response_time).await;
        let wants_relations = read.starts_with(b"GET ") && memchr::memmem::find(&read, b"/RELS-EXT/content").is_some();
        let body = if wants_relations { RELATIONS } else { PROFILE };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/xml\r\ncontent-length: {}\r\n\r\n", body.len());
        responses.fetch_add(1, Ordering::Relaxed);
        if socket.write_all((head + body).as_bytes()).await.is_err() {
            return;
        }
    }
}
