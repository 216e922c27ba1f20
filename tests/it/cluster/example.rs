//! `examples/cluster/run`: nodes, database servers and a load balancer, started with one command.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::support::{event_stream::Stream, gateway::client, journal_fixture::event};

/// Maximum time of each step. The example starts seven servers one after another, and each of them needs the processor while
/// other tests have it.
const PATIENCE: Duration = Duration::from_secs(120);

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "timeout while waiting until {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The running example.
struct Example {
    run: Child,
    /// Folder for temporary files.
    temporary: TempDir,
    output: PathBuf,
}

impl Example {
    /// Starts the example, and waits until it says what to try.
    fn start(folder: &Path) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        // The user of PostgreSQL must reach it.
        fs::set_permissions(temporary.path(), Permissions::from_mode(0o755)).unwrap();
        let output = folder.join("output");
        let log = || File::options().create(true).append(true).open(&output).unwrap();
        // A background job of a shell ignores Ctrl-C, and the script would inherit that.
        let mut command = Command::new("env");
        command.arg("--default-signal=INT").arg(example("run")).arg(env!("CARGO_BIN_EXE_tidings"));
        command.env("TMPDIR", temporary.path()).stdin(Stdio::null()).stdout(log()).stderr(log());
        let mut example = Self { run: command.spawn().unwrap(), temporary, output };
        wait_until("the example runs", || {
            let text = example.text();
            assert!(example.run.try_wait().unwrap().is_none(), "{text}");
            text.contains("Ctrl-C stops everything.")
        });
        example
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.output).unwrap()
    }

    /// Returns the printed line that begins with a text, without it.
    fn printed(&self, start: &str) -> String {
        let text = self.text();
        let line = text.lines().find_map(|line| line.strip_prefix(start));
        line.unwrap_or_else(|| panic!("{start}: {text}")).trim().to_owned()
    }

    /// Returns the command lines of the processes of the example.
    fn processes(&self) -> Vec<String> {
        let folder = self.temporary.path().to_str().unwrap();
        let files = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path().join("cmdline"));
        let lines =
            files.filter_map(|file| fs::read(file).ok()).map(|line| String::from_utf8_lossy(&line).into_owned());
        lines.filter(|line| line.contains(folder)).collect()
    }

    /// Presses Ctrl-C, and waits until the script has ended.
    fn stop(&mut self) -> ExitStatus {
        assert!(Command::new("kill").arg("-INT").arg(self.run.id().to_string()).status().unwrap().success());
        wait_until("the example ends", || self.run.try_wait().unwrap().is_some());
        self.run.wait().unwrap()
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // The example cleans up also if its script is killed.
        let _ = self.run.kill();
        let _ = self.run.wait();
    }
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/cluster").join(name)
}

/// Posts an event to a URL until it is accepted, as senders do.
async fn post(url: &str, number: u64) {
    let began = Instant::now();
    loop {
        let request = client().post(format!("{url}/hooks/content-change")).header("content-type", "application/json");
        // A node that has just died may take the request with it.
        let response = request.body(event(number).to_string()).send().await;
        let is_temporary = response
            .as_ref()
            .map_or_else(reqwest::Error::is_timeout, |response| [502, 503, 504].contains(&response.status().as_u16()));
        match response {
            Ok(response) if response.status().is_success() => return,
            response => assert!(is_temporary && began.elapsed() < PATIENCE, "{response:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Returns the next number of a stream.
async fn next(stream: &mut Stream) -> u64 {
    loop {
        let block = tokio::time::timeout(PATIENCE, stream.next()).await.expect("an event arrives").unwrap().unwrap();
        if block.data.is_some() {
            return block.number();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn example_survives_the_loss_of_a_node_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut example = Example::start(folder.path());
    let proxy = example.printed("load balancer ");
    let mut stream = Stream::of(client().get(format!("{proxy}/stream?after=0")).send().await.unwrap());
    post(&proxy, 1).await;
    assert_eq!(next(&mut stream).await, 1, "nginx does not buffer");

    let kill = format!("kill -9 {}", example.printed("kill -9 "));
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    wait_until("the script notices the death", || example.text().contains("tidings-1 has ended"));
    post(&proxy, 2).await;
    let other = example.printed("tidings-3 ");
    let began = Instant::now();
    loop {
        let page = client().get(format!("{other}/changes")).send().await.unwrap().text().await.unwrap();
        if (1..=2).all(|number| page.contains(&format!("/items/{number}\""))) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{page}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    drop(stream);
    assert!(!example.processes().is_empty());
    let status = example.stop();
    assert!(status.success(), "{status}: {}", example.text());
    assert_eq!(example.processes(), [""; 0]);
    assert_eq!(fs::read_dir(example.temporary.path()).unwrap().count(), 0);
}

/// Whatever ends the script, its processes and files go with it.
#[test]
fn killed_example_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut example = Example::start(folder.path());
    example.run.kill().unwrap();
    wait_until("nothing is left", || {
        example.processes().is_empty() && fs::read_dir(example.temporary.path()).unwrap().count() == 0
    });
}

#[test]
fn example_without_a_program_says_what_to_do() {
    let (mut named, mut built) = (Command::new(example("run")), Command::new(example("run")));
    named.arg("/nowhere/tidings");
    built.env("CARGO_TARGET_DIR", "/nowhere");
    for (mut command, program) in [(named, "/nowhere/tidings"), (built, "/nowhere/release/tidings")] {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8(output.stderr).unwrap();
        let expected =
            format!("run: there is no program {program}: build it with cargo build --release, or name another one.\n");
        assert_eq!(error, expected);
    }
}
