//! The reference client of LDES, npm `ldes-client`, which knows nothing of the gateway.

use std::{
    io::Read,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use crate::support::gateway::PATIENCE;

/// Version of the client.
const PACKAGE: &str = "ldes-client@0.3.0";

/// Output of a run.
#[derive(Debug)]
pub(crate) struct ClientRun {
    /// Members in the order in which the client emitted them, in Turtle.
    pub(crate) members: Vec<String>,
    /// Whether the client ended without an error.
    pub(crate) succeeded: bool,
    pub(crate) errors: String,
}

impl ClientRun {
    /// Returns the numbers of the changes, in the order of the members.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.members.iter().map(|member| number(member).unwrap()).collect()
    }
}

/// Returns the number of the change in the Turtle of a member.
fn number(member: &str) -> Option<u64> {
    let (_, rest) = member.split_once("<urn:tidings:change:1:seq> ")?;
    let digits = rest.trim_start_matches('"');
    digits[..digits.find(|c: char| !c.is_ascii_digit())?].parse().ok()
}

/// Reads a stream in order, page after page: with several requests at once the client emits members of a page before those of
/// an earlier one that takes longer. With a folder `state`, the next run reads what is new alone.
pub(crate) fn read(url: &str, state: Option<&Path>, more: &[&str]) -> ClientRun {
    let mut client = client(url);
    client.args(more);
    client.args(state.iter().flat_map(|state| ["--save".as_ref(), state.as_os_str()]));
    let output = client.output().unwrap();
    let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    // A member is followed by an empty line, and each of its triples has a line of its own.
    let members = text.split("\n\n").filter(|member| number(member).is_some()).map(ToOwned::to_owned).collect();
    ClientRun { members, succeeded: output.status.success(), errors }
}

fn client(url: &str) -> Command {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut client = Command::new(here.join("scripts/node"));
    client.arg(PACKAGE).arg(here.join("tests/it/support/ldes_client.js")).arg(url);
    client.args(["--ordered", "ascending", "--concurrent", "1"]);
    client
}

/// A client that follows a stream until it is dropped.
pub(crate) struct FollowingClient {
    client: Child,
    /// Its output so far.
    text: Arc<Mutex<String>>,
}

impl FollowingClient {
    /// Starts a client that asks for news five times a second.
    pub(crate) fn start(url: &str) -> Self {
        let mut client = client(url);
        client.args(["--follow", "--poll-interval", "200"]).stdout(Stdio::piped()).stderr(Stdio::inherit());
        // Node is a child of the script.
        let mut client = client.process_group(0).spawn().unwrap();
        let text = Arc::new(Mutex::new(String::new()));
        let (mut output, read) = (client.stdout.take().unwrap(), Arc::clone(&text));
        std::thread::spawn(move || {
            let mut bytes = [0; 65536];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                read.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..length]));
            }
        });
        Self { client, text }
    }

    /// Returns the numbers of the members, in the order in which they came.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.text.lock().unwrap().split("\n\n").filter_map(number).collect()
    }

    /// Waits until the member with a number has come.
    pub(crate) async fn until(&mut self, number: u64) {
        let began = Instant::now();
        while self.numbers().last() != Some(&number) {
            let ended = self.client.try_wait().unwrap();
            assert!(ended.is_none(), "the client has ended after {:?}: {ended:?}", self.numbers().last());
            assert!(began.elapsed() < PATIENCE, "{number} does not come after {:?}", self.numbers().last());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for FollowingClient {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-9", "--", &format!("-{}", self.client.id())]).status();
        let _ = self.client.wait();
    }
}
