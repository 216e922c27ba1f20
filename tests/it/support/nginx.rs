//! nginx in front of a gateway.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::support::broker_process::wait_until;

/// A running nginx.
pub(crate) struct Nginx(Child);

impl Nginx {
    /// Starts nginx with a configuration within `http`, whose port answers.
    pub(crate) fn start(folder: &Path, http: &str, port: u16) -> Self {
        let config = folder.join("nginx.conf");
        let place = folder.display();
        let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {place}/{kind};\n"))
            .collect();
        let text = format!(
            "daemon off;\nmaster_process off;\nerror_log {place}/error.log;\npid {place}/pid;\nevents {{}}\n\
             http {{\naccess_log off;\n{paths}{http}\n}}\n"
        );
        fs::write(&config, text).unwrap();
        let mut nginx = Command::new("/usr/sbin/nginx");
        nginx.arg("-e").arg(folder.join("error.log")).arg("-c").arg(&config).stdin(Stdio::null());
        let nginx = Self(nginx.spawn().unwrap());
        wait_until("nginx listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
