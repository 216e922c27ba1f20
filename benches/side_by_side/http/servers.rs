//! The servers in processes of their own: the gateway, and nginx.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
};

/// A process that ends with what is measured.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // SIGTERM: nginx is to take its workers with it.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// The real program, as it is by default, over a journal of its own.
pub(crate) struct Gateway {
    _running: Running,
    pub(crate) url: String,
}

impl Gateway {
    pub(crate) fn start(data: &Path) -> Self {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_tidings"));
        serve.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data);
        let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().rsplit(' ').next().unwrap().to_owned();
        Self { _running: Running(child), url }
    }

    pub(crate) fn get(&self, path: &str) -> Vec<u8> {
        let answer = get(&format!("{}{path}", self.url), None);
        assert_eq!(answer.0, 200, "{path}");
        answer.2
    }
}

/// nginx, serving one file.
pub(crate) struct Nginx {
    _running: Running,
    /// The address of the file.
    pub(crate) url: String,
}

impl Nginx {
    pub(crate) fn start(folder: &Path, file: &[u8]) -> Self {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("page.atom"), file).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let root = folder.display();
        // As Debian has it, without the log of each request; a connection may stay for the whole run.
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
                 server {{ listen {address}; root {root}; }}
             }}"
        );
        fs::write(folder.join("nginx.conf"), config).unwrap();
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let mut nginx = Command::new("nginx");
        nginx.env("PATH", path).arg("-p").arg(folder).arg("-e").arg(folder.join("error.log"));
        let child = nginx.arg("-c").arg(folder.join("nginx.conf")).stderr(Stdio::null()).spawn().unwrap();
        let mut running = Running(child);
        while TcpStream::connect(address).is_err() {
            assert!(running.0.try_wait().unwrap().is_none(), "nginx did not start: see its error.log");
        }
        let url = format!("http://{address}/page.atom");
        assert_eq!(get(&url, None).2, file, "nginx serves something else");
        Self { _running: running, url }
    }
}

/// The entity tag of what is there; asked with it, the server must say that nothing has changed.
pub(crate) fn etag(url: &str) -> String {
    let (_, etag, _) = get(url, None);
    assert_eq!(get(url, Some(&etag)).0, 304, "{url}");
    etag
}

/// The status, the entity tag and the body.
fn get(url: &str, known: Option<&str>) -> (u16, String, Vec<u8>) {
    // Whoever comes second finds it installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut request = reqwest::Client::builder().no_proxy().build().unwrap().get(url);
        if let Some(known) = known {
            request = request.header("if-none-match", known);
        }
        let answer = request.send().await.unwrap();
        let etag = answer.headers()["etag"].to_str().unwrap().to_owned();
        (answer.status().as_u16(), etag, answer.bytes().await.unwrap().to_vec())
    })
}
