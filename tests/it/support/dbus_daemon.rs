//! Message bus of a test: a `dbus-daemon` of its own.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

/// A `dbus-daemon` of its own.
pub(crate) struct Bus {
    daemon: Option<Child>,
    folder: TempDir,
    /// Configuration file; the one of a session if there is none.
    config: Option<PathBuf>,
}

impl Bus {
    pub(crate) fn start() -> Self {
        let mut bus = Self::not_running();
        bus.resume();
        bus
    }

    /// Returns a bus that does not run yet.
    pub(crate) fn not_running() -> Self {
        Self { daemon: None, folder: tempfile::tempdir().unwrap(), config: None }
    }

    /// Starts a bus that permits nothing but replies and signals, with these further elements of the configuration.
    pub(crate) fn start_strict(elements: &str) -> Self {
        let mut bus = Self::not_running();
        let config = bus.folder.path().join("bus.conf");
        let text = format!(
            "<busconfig><type>system</type><listen>{}</listen><auth>EXTERNAL</auth>
             <policy context='default'><allow user='*'/><deny own='*'/><deny send_type='method_call'/>
             <allow send_type='signal'/><allow send_requested_reply='true' send_type='method_return'/>
             <allow send_requested_reply='true' send_type='error'/><allow receive_type='method_call'/>
             <allow receive_type='method_return'/><allow receive_type='error'/><allow receive_type='signal'/>
             <allow send_destination='org.freedesktop.DBus'/></policy>{elements}</busconfig>",
            bus.address()
        );
        std::fs::write(&config, text).unwrap();
        bus.config = Some(config);
        bus.resume();
        bus
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("bus")
    }

    pub(crate) fn address(&self) -> String {
        format!("unix:path={}", self.socket().display())
    }

    /// Ends the bus.
    pub(crate) fn end(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = std::fs::remove_file(self.socket());
    }

    /// Starts the bus again at the same address.
    pub(crate) fn resume(&mut self) {
        let mut command = Command::new("dbus-daemon");
        match &self.config {
            Some(config) => command.arg(format!("--config-file={}", config.display())),
            None => command.arg("--session").arg(format!("--address={}", self.address())),
        };
        command.args(["--nofork", "--print-address"]);
        let mut daemon = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("unix:"), "the bus does not start: {line:?}");
        self.daemon = Some(daemon);
    }

    /// Runs a program with this bus as the session's; returns its output.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(program);
        let done = command.args(arguments).env("DBUS_SESSION_BUS_ADDRESS", self.address()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(done.status.success(), "{program}: {}{}", text(&done.stdout), text(&done.stderr));
        text(&done.stdout)
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        self.end();
    }
}
