//! A copy of the journal at another place by Litestream, as docs/off-site.md describes it: after the loss of the machine,
//! `tidings restore` continues from the copy, and no number is given twice.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

use crate::support::{
    gateway::{Gateway, PATIENCE},
    journal_fixture::{journal_file, post, run, stderr, verify_ok},
    python,
};

/// Process that is killed with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Litestream with its configuration.
struct Litestream {
    program: PathBuf,
    config: PathBuf,
    journal: PathBuf,
}

impl Litestream {
    /// Writes the configuration of the documentation, with folders of the test.
    fn set_up(folder: &Path, data: &Path) -> Self {
        let (page, journal) = (include_str!("../../../docs/off-site.md"), journal_file(data));
        let (_, config) = page.split_once("```yaml\n").unwrap();
        let (config, _) = config.split_once("```").unwrap();
        let (before, after) = config.split_once("      type: s3\n").unwrap();
        let (_, interval) = after.split_once("      sync-interval").unwrap();
        let text = format!(
            "{before}      type: file\n      path: {}\n      sync-interval{interval}",
            folder.join("replica").display()
        );
        let text = text.replace("/var/lib/tidings/journal.sqlite", journal.to_str().unwrap());
        let config = folder.join("litestream.yml");
        fs::write(&config, text).unwrap();
        Self { program: python::environment("litestream").with_file_name("litestream"), config, journal }
    }

    fn command(&self, arguments: &[&Path]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(arguments[0]).arg("-config").arg(&self.config).args(&arguments[1..]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Restores the copy into a new file. It fails as long as there is no copy.
    fn restore(&self, to: &Path) -> Output {
        self.command(&["restore".as_ref(), "-o".as_ref(), to, &self.journal]).stderr(Stdio::piped()).output().unwrap()
    }

    /// Returns the number of the newest change of the copy.
    fn copied_head(&self, folder: &Path) -> u64 {
        let trial = folder.join("trial.sqlite");
        let _ = fs::remove_file(&trial);
        if self.restore(&trial).status.success() { verify_ok(&trial).head.0 } else { 0 }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_of_litestream_replaces_a_lost_machine() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut gateway = Gateway::start(&data);
    let litestream = Litestream::set_up(folder.path(), &data);
    let replicating = Killed(litestream.command(&["replicate".as_ref()]).spawn().unwrap());
    for number in 1..=100 {
        post(&gateway, number).await;
    }
    let began = Instant::now();
    while litestream.copied_head(folder.path()) < 100 {
        assert!(began.elapsed() < PATIENCE, "Litestream copies nothing");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    // The machine is lost while messages come.
    let acknowledged = Arc::new(AtomicU64::new(100));
    let posting = {
        let (acknowledged, url, http) = (Arc::clone(&acknowledged), gateway.url.clone(), gateway.http.clone());
        AbortOnDropHandle::new(tokio::spawn(async move {
            for number in 101.. {
                let event = crate::support::journal_fixture::event(number).to_string();
                let request =
                    http.post(format!("{url}/hooks/content-change")).header("content-type", "application/json");
                if !request.body(event).send().await.is_ok_and(|sent| sent.status() == 201) {
                    return;
                }
                acknowledged.store(number, Ordering::Release);
            }
        }))
    };
    while acknowledged.load(Ordering::Acquire) < 600 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    gateway.kill();
    drop(replicating);
    posting.await.unwrap();
    let last = acknowledged.load(Ordering::Acquire);

    let copy = folder.path().join("restored.sqlite");
    let restored = litestream.restore(&copy);
    assert!(restored.status.success(), "{}", stderr(&restored));
    let report = verify_ok(&copy);
    assert!(report.complete && (100..=last + 1).contains(&report.head.0), "{report:?} of {last}");
    let elsewhere = folder.path().join("elsewhere");
    let restored = run("restore", &[&copy, "--data".as_ref(), &elsewhere]);
    assert!(restored.status.success(), "{}", stderr(&restored));

    // Each change of the copy is the one that was lost, byte for byte.
    let (lost, continued) = (Gateway::start(&data), Gateway::start(&elsewhere));
    let (before, after) = (lost.changes().await, continued.changes().await);
    assert_eq!(after.len() as u64, report.head.0);
    assert_eq!(before[..after.len()], after[..]);
    // A number that a reader has seen is never given again, and the reader learns it.
    let next = post(&continued, last + 2).await;
    assert!(next > last + 1_000_000, "{next} after {last}");
    let ahead = continued.http.get(format!("{}/changes?after={}", continued.url, last + 1)).send().await.unwrap();
    assert_eq!(ahead.status(), 410);
    let snapshot = ahead.json::<Value>().await.unwrap()["snapshot"].as_str().unwrap().to_owned();
    assert!(continued.http.get(format!("{}{snapshot}", continued.url)).send().await.unwrap().status().is_success());
}
