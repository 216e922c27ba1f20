//! Server with files, each of which is served correctly or with a defect.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

/// Response to the requests for a file.
#[derive(Clone, Debug)]
pub(crate) enum FileResponse {
    /// The file, with ranges and a validator.
    Good,
    /// This many bytes of the file, and then the end of the connection. Ranges are served in whole.
    Broken { after: usize },
    /// This many bytes, and then silence.
    Stalled { after: usize },
    /// The file, with this length in the header.
    Length(u64),
    /// This status, without a file.
    Status(u16, &'static str),
}

/// A file with its responses, by path.
struct ScriptedFile {
    content: Vec<u8>,
    media_type: &'static str,
    response: FileResponse,
}

#[derive(Default)]
struct Script {
    files: HashMap<String, ScriptedFile>,
    /// Paths of the requests with their ranges.
    requests: Vec<(String, Option<usize>)>,
}

/// The server. It ends with the runtime of the test.
#[derive(Clone)]
pub(crate) struct FileServer {
    script: Arc<Mutex<Script>>,
    pub(crate) url: String,
}

impl FileServer {
    pub(crate) async fn start() -> Self {
        Self::start_at("127.0.0.1").await
    }

    /// Starts a server at a loopback address, each of which is a host of its own.
    pub(crate) async fn start_at(address: &str) -> Self {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let script = Arc::new(Mutex::new(Script::default()));
        let server = Self { script, url };
        let shared = server.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let server = shared.clone();
                // A client that closes the connection is part of some tests.
                tokio::spawn(async move {
                    let _ = server.serve(stream).await;
                });
            }
        });
        server
    }

    /// Sets the content of a file and its response; returns its URL.
    pub(crate) fn put(&self, path: &str, media_type: &'static str, content: &[u8], response: FileResponse) -> String {
        let file = ScriptedFile { content: content.to_vec(), media_type, response };
        self.script.lock().unwrap().files.insert(path.to_owned(), file);
        format!("{}{path}", self.url)
    }

    /// Returns the offsets of the requests for a file; `None` for the whole file.
    pub(crate) fn requests(&self, path: &str) -> Vec<Option<usize>> {
        let script = self.script.lock().unwrap();
        script.requests.iter().filter(|(requested, _)| requested == path).map(|(_, offset)| *offset).collect()
    }

    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if stream.read_line(&mut head).await? == 0 {
                    return Ok(());
                }
            }
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let range = head.lines().find_map(|line| line.strip_prefix("range: bytes="));
            let offset = range.map(|range| range.trim_end_matches('-').parse().unwrap());
            let (head, body, is_open, stalls) = self.response(&path, offset);
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(&body).await?;
            stream.flush().await?;
            if stalls {
                std::future::pending::<()>().await;
            }
            if !is_open {
                return Ok(());
            }
        }
    }

    /// Returns head and body of a response, whether the connection stays open after it, and whether it stalls.
    fn response(&self, path: &str, offset: Option<usize>) -> (String, Vec<u8>, bool, bool) {
        let mut script = self.script.lock().unwrap();
        script.requests.push((path.to_owned(), offset));
        let Some(file) = script.files.get(path) else {
            return ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(), Vec::new(), true, false);
        };
        let ScriptedFile { content, media_type, response } = file;
        let all = content.len();
        let rest = &content[offset.unwrap_or(0)..];
        let status = match offset {
            Some(offset) => format!("206 Partial Content\r\ncontent-range: bytes {offset}-{}/{all}", all - 1),
            None => "200 OK".to_owned(),
        };
        let head = |length: u64| {
            format!(
                "HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\netag: \"{all}\"\r\ncontent-length: {length}\r\n\r\n"
            )
        };
        match response {
            FileResponse::Broken { after } if offset.is_none() => {
                (head(all as u64), content[..*after].to_vec(), false, false)
            }
            FileResponse::Good | FileResponse::Broken { .. } => (head(rest.len() as u64), rest.to_vec(), true, false),
            FileResponse::Stalled { after } => (head(all as u64), content[..*after].to_vec(), false, true),
            FileResponse::Length(length) => (head(*length), rest.to_vec(), false, false),
            FileResponse::Status(status, headers) => {
                (format!("HTTP/1.1 {status} Scripted\r\n{headers}content-length: 0\r\n\r\n"), Vec::new(), true, false)
            }
        }
    }
}
