//! Varnish of a test: a cache before a server, which purges what the test asks for.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::support::gateway::PATIENCE;

/// Running cache; dropping it stops it.
pub(crate) struct Varnish {
    daemon: Child,
    pub(crate) port: u16,
    _folder: TempDir,
}

impl Varnish {
    /// Starts a cache before a server at this address. It keeps each response for an hour.
    pub(crate) async fn start(server: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let vcl = format!(
            "vcl 4.1;\nbackend server {{ .host = \"{}\"; .port = \"{}\"; }}\n\
             sub vcl_recv {{ if (req.method == \"PURGE\") {{ return (purge); }} }}\n\
             sub vcl_backend_response {{ set beresp.ttl = 1h; }}\n",
            server.ip(),
            server.port()
        );
        let file = folder.path().join("cache.vcl");
        fs::write(&file, vcl).unwrap();
        let mut daemon = Command::new("varnishd");
        daemon.args(["-F", "-j", "none", "-s", "malloc,16m", "-a", &format!("127.0.0.1:{port}")]);
        daemon.arg("-n").arg(folder.path().join("work")).arg("-f").arg(&file);
        let daemon = daemon.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut varnish = Self { daemon, port, _folder: folder };
        let began = Instant::now();
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            assert!(varnish.daemon.try_wait().unwrap().is_none(), "varnishd has ended");
            assert!(began.elapsed() < PATIENCE, "varnishd does not listen");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        varnish
    }
}

impl Drop for Varnish {
    fn drop(&mut self) {
        // It ends its child when it is asked to.
        let _ = Command::new("kill").arg(self.daemon.id().to_string()).status();
        let _ = self.daemon.wait();
    }
}
