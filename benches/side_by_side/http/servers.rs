//! The servers with their own processes: the gateway and nginx.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::harvests::write_config;

/// Process that is stopped on drop.
struct ServerProcess(Child);

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // SIGTERM, so that nginx stops its workers.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// The real gateway program with default settings and its own journal.
pub(crate) struct Gateway {
    process: ServerProcess,
    pub(crate) url: String,
}

impl Gateway {
    pub(crate) fn start(data: &Path) -> Self {
        Self::run(Command::new(env!("CARGO_BIN_EXE_tidings")).args(["serve", "--data"]).arg(data))
    }

    /// Starts a gateway with a configuration and its journal in a new folder.
    pub(crate) fn with_config(folder: &Path, lines: &str) -> Self {
        fs::create_dir(folder).unwrap();
        let config = write_config(folder, lines);
        let mut serve = Command::new(env!("CARGO_BIN_EXE_tidings"));
        Self::run(serve.args(["serve", "--data"]).arg(folder.join("data")).arg("--config").arg(config))
    }

    fn run(serve: &mut Command) -> Self {
        serve.args(["--listen", "127.0.0.1:0"]);
        let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().rsplit(' ').next().unwrap().to_owned();
        Self { process: ServerProcess(child), url }
    }

    /// Returns the identifier of the process.
    pub(crate) fn id(&self) -> u32 {
        self.process.0.id()
    }

    pub(crate) fn get(&self, path: &str) -> Vec<u8> {
        let (status, _, body) = get(&format!("{}{path}", self.url), None);
        assert_eq!(status, 200, "{path}");
        body
    }
}

/// nginx that serves files.
pub(crate) struct Nginx {
    _process: ServerProcess,
    /// URL of the file, or of the list.
    pub(crate) url: String,
}

impl Nginx {
    /// Starts nginx with one file.
    pub(crate) fn start(folder: &Path, file: &[u8]) -> Self {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("page.atom"), file).unwrap();
        let (process, address) = Self::serve(folder, "");
        let url = format!("http://{address}/page.atom");
        assert_eq!(get(&url, None).2, file, "nginx serves something else");
        Self { _process: process, url }
    }

    /// Starts nginx with the pages of a list of OAI-PMH: files in the folder, whose names are the tokens.
    pub(crate) fn of_pages(folder: &Path) -> Self {
        let list = "location = /oai { default_type text/xml; rewrite ^ /$arg_resumptionToken break; }";
        let (process, address) = Self::serve(folder, list);
        Self { _process: process, url: format!("http://{address}/oai") }
    }

    /// Starts nginx with the files of a folder at their paths.
    pub(crate) fn of_files(folder: &Path) -> Self {
        let (process, address) = Self::serve(folder, "");
        Self { _process: process, url: format!("http://{address}") }
    }

    /// Starts nginx for the files of a folder, with further lines about its server.
    fn serve(folder: &Path, lines: &str) -> (ServerProcess, SocketAddr) {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let root = folder.display();
        // The configuration of Debian, without the request log and with connections that last for the whole run.
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {root}/{kind};\n"))
            .concat();
        let config = format!(
            "daemon off;
             worker_processes auto;
             pid {root}/pid;
             error_log {root}/error.log;
             events {{ worker_connections 768; }}
             http {{
                 sendfile on;
                 tcp_nopush on;
                 access_log off;
                 keepalive_requests 1000000000;
                 types {{ application/atom+xml atom; }}
                 {temporary}
                 server {{ listen {address}; root {root}; {lines} }}
             }}"
        );
        fs::write(folder.join("nginx.conf"), config).unwrap();
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let mut nginx = Command::new("nginx");
        nginx.env("PATH", path).arg("-p").arg(folder).arg("-e").arg(folder.join("error.log"));
        let child = nginx.arg("-c").arg(folder.join("nginx.conf")).stderr(Stdio::null()).spawn().unwrap();
        let mut process = ServerProcess(child);
        while TcpStream::connect(address).is_err() {
            assert!(process.0.try_wait().unwrap().is_none(), "nginx did not start: see its error.log");
        }
        (process, address)
    }
}

/// Returns the entity tag at `url`, after checking that the server responds 304 to it.
pub(crate) fn etag(url: &str) -> String {
    let (_, etag, _) = get(url, None);
    assert_eq!(get(url, Some(&etag)).0, 304, "{url}");
    etag
}

/// Sends a GET request and returns the status, the entity tag and the body.
fn get(url: &str, if_none_match: Option<&str>) -> (u16, String, Vec<u8>) {
    // Fails if the provider is installed already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut request = reqwest::Client::builder().no_proxy().build().unwrap().get(url);
        if let Some(tag) = if_none_match {
            request = request.header("if-none-match", tag);
        }
        let response = request.send().await.unwrap();
        let etag = response.headers()["etag"].to_str().unwrap().to_owned();
        (response.status().as_u16(), etag, response.bytes().await.unwrap().to_vec())
    })
}
