//! What the brokers of the tests have in common, whichever they are: the process is watched by a shell that
//! holds the other end of a pipe. When the test process ends, however it does, the shell kills the broker
//! and removes its folder.

use std::{
    fs,
    io::Write,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// How long anything of a broker may take; each starts in some seconds on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Starts the broker when it is told to, and cleans up when there is nobody left to tell it.
const KEEPER: &str = r#"
    folder=$1
    while read -r order; do
        setsid sh "$folder/start" </dev/null >>"$folder/out" 2>&1 &
        echo $! >"$folder/pid.new" && mv "$folder/pid.new" "$folder/pid"
    done
    kill -9 "$(cat "$folder/pid")"
    [ ! -e "$folder/end" ] || sh "$folder/end"
    rm -rf "$folder"
"#;

/// The process of a broker.
pub(crate) struct Kept {
    folder: PathBuf,
    keeper: Child,
}

impl Kept {
    /// For the broker in a folder, where the script `start` becomes the broker, and a script `end`, if there is
    /// one, kills what the broker has left.
    pub(crate) fn of(folder: &Path) -> Self {
        let mut keeper = Command::new("setsid");
        keeper.args(["sh", "-c", KEEPER, "keeper"]).arg(folder).stdin(Stdio::piped());
        let keeper = keeper.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { folder: folder.to_owned(), keeper }
    }

    /// Starts it, and waits until it answers.
    pub(crate) fn start(&mut self, answers: impl Fn() -> bool) {
        let _ = fs::remove_file(self.folder.join("pid"));
        self.keeper.stdin.as_mut().unwrap().write_all(b"start\n").unwrap();
        wait_until("the broker starts", || self.folder.join("pid").exists() && answers());
    }

    /// The identifier of its process.
    pub(crate) fn process(&self) -> String {
        fs::read_to_string(self.folder.join("pid")).unwrap().trim().to_owned()
    }

    /// Sends it a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.process()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits until it is gone.
    pub(crate) fn wait_for_end(&self) {
        let program = PathBuf::from("/proc").join(self.process()).join("exe");
        wait_until("the broker ends", || fs::read_link(&program).is_err());
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // The keeper reads to the end, and cleans up.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Waits for a condition.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "it takes too long until {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Ports that were free a moment ago; all are held at once, so that they differ. None is one that the system
/// gives to whoever connects somewhere: while the broker is down, another could get it, and even whoever
/// looks whether the broker is back would find himself there.
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    let held = [(); N].map(|()| {
        let mut ports = std::iter::repeat_with(|| fastrand::u16(10_000..32_768));
        ports.find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok()).unwrap()
    });
    held.map(|listener| listener.local_addr().unwrap().port())
}
