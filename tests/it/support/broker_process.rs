//! Process of a message broker, for every kind of broker. A shell watches the test process through a pipe: when
//! the test process ends for any reason, the shell kills the broker and removes its folder.

use std::{
    fs,
    io::Write,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Time limit for any operation of a broker.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Time limit for the start of a broker: a few seconds on an idle machine, and minutes beside builds.
const START_PATIENCE: Duration = Duration::from_secs(180);

/// Starts the broker on request, and cleans up when the test process has gone.
const WATCHER: &str = r#"
    folder=$1
    while read -r order; do
        setsid sh "$folder/start" </dev/null >>"$folder/out" 2>&1 &
        echo $! >"$folder/pid.new" && mv "$folder/pid.new" "$folder/pid"
    done
    kill -9 "$(cat "$folder/pid")"
    [ ! -e "$folder/end" ] || sh "$folder/end"
    rm -rf "$folder"
"#;

/// Process of a broker, with the shell that watches it.
pub(crate) struct BrokerProcess {
    folder: PathBuf,
    watcher: Child,
}

impl BrokerProcess {
    /// Watches the broker in a folder. The script `start` becomes the broker; an optional script `end` kills
    /// processes that the broker has left behind.
    pub(crate) fn of(folder: &Path) -> Self {
        let mut watcher = Command::new("setsid");
        watcher.args(["sh", "-c", WATCHER, "keeper"]).arg(folder).stdin(Stdio::piped());
        let watcher = watcher.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { folder: folder.to_owned(), watcher }
    }

    /// Starts the broker and waits until `answers` returns true.
    pub(crate) fn start(&mut self, answers: impl Fn() -> bool) {
        let _ = fs::remove_file(self.folder.join("pid"));
        self.watcher.stdin.as_mut().unwrap().write_all(b"start\n").unwrap();
        wait_until_within(START_PATIENCE, "the broker starts", || self.folder.join("pid").exists() && answers());
    }

    /// Returns the process identifier.
    pub(crate) fn id(&self) -> String {
        fs::read_to_string(self.folder.join("pid")).unwrap().trim().to_owned()
    }

    /// Sends a signal to the broker by the signal's name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.id()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits until the process has ended.
    pub(crate) fn wait_for_end(&self) {
        let program = PathBuf::from("/proc").join(self.id()).join("exe");
        wait_until("the broker ends", || fs::read_link(&program).is_err());
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        // The shell reads to the end of the pipe and cleans up.
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    wait_until_within(PATIENCE, what, holds);
}

fn wait_until_within(patience: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < patience, "timeout while waiting until {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns ports that were free a moment ago. All are bound at the same time, so that they differ. None is in
/// the ephemeral range, because a client could get such a port as its own while the broker is down, and would
/// then connect to itself.
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| {
        let mut ports = std::iter::repeat_with(|| fastrand::u16(10_000..32_768));
        ports.find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok()).unwrap()
    });
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
