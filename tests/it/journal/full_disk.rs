//! Full disks and unwritable folders: the gateway reports the cause, loses no acknowledged event, serves
//! readers, and recovers when the cause is gone.

use crate::support::small_disk::{SmallDisk, mount};
use std::{
    fs::{self, File},
    path::Path,
    process::Command,
};

use serde_json::Value;

use crate::support::{
    gateway::Gateway,
    journal_fixture::{configuration, event, journal_file, post, run, stderr, verify_ok},
};

async fn try_to_post(gateway: &Gateway, number: u64) -> reqwest::Response {
    let url = format!("{}/hooks/content-change", gateway.url);
    let request = gateway.http.post(url).header("content-type", "application/json");
    request.body(event(number).to_string()).send().await.unwrap()
}

#[tokio::test]
async fn full_disk_is_reported_and_loses_no_acknowledged_event() {
    crate::support::needs_sqlite();
    // The log of the changes of all rounds, about 65 KiB each, fits into it.
    let disk = SmallDisk::of(6);
    let data = disk.path().join("data");
    let gateway = Gateway::start(&data);
    let (mut accepted, mut number) = (Vec::new(), 0);
    for round in 0..3 {
        for _ in 0..20 {
            number += 1;
            post(&gateway, number).await;
            accepted.push(number);
        }
        let filling = disk.fill();
        // Events are still accepted while the existing files have free space.
        let refused = loop {
            number += 1;
            let answer = try_to_post(&gateway, number).await;
            if !answer.status().is_success() {
                break answer;
            }
            accepted.push(number);
        };
        assert_eq!(refused.status(), 503);
        assert_eq!(refused.headers()["retry-after"], "5");
        let problem: Value = refused.json().await.unwrap();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("the disk is full; free some space on the disk of the journal"), "{detail}");
        assert!(detail.contains("send the message again"), "{detail}");
        // An unreadable message that is larger than any message before cannot be quarantined either, and its sender gets the
        // same response.
        assert_eq!(gateway.post("content-change", "application/json", "x".repeat(60_000)).await.0, 503);
        assert_eq!(readiness(&gateway).await.0, 503, "round {round}");
        let events = |changes: Vec<Value>| changes.iter().map(item).collect::<Vec<_>>();
        assert_eq!(events(gateway.changes().await), accepted, "round {round}");
        assert_eq!(gateway.json("/snapshot").await["head"], accepted.len());

        fs::remove_file(filling).unwrap();
        // The gateway becomes ready again without a new event.
        assert_eq!(readiness(&gateway).await.0, 200, "round {round}");
        // The refused event is sent again to the same gateway.
        post(&gateway, number).await;
        accepted.push(number);
        assert_eq!(events(gateway.changes().await), accepted, "round {round}");
    }
    assert!(gateway.stop().success());
    assert_eq!(verify_ok(&journal_file(&data)).changes, accepted.len() as u64);
}

/// Returns the status and the JSON of `/readyz`.
async fn readiness(gateway: &Gateway) -> (u16, Value) {
    let answer = gateway.http.get(format!("{}/readyz", gateway.url)).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

#[tokio::test]
async fn full_disk_at_startup_makes_the_gateway_not_ready() {
    let disk = SmallDisk::of(4);
    let data = disk.path().join("data");
    let gateway = Gateway::start(&data);
    assert_eq!(readiness(&gateway).await.0, 200);
    assert!(gateway.stop().success());
    let gateway = Gateway::start(&data);
    let filling = disk.fill();
    assert_eq!(readiness(&gateway).await.0, 503, "no message has come, and none could be written");
    fs::remove_file(filling).unwrap();
    assert_eq!(readiness(&gateway).await.0, 200);
}

/// Returns the number of the event in a change.
fn item(change: &Value) -> u64 {
    change["items"][0]["uri"].as_str().unwrap().rsplit('/').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn full_disk_fails_a_backup_and_leaves_no_file() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    post(&gateway, 1).await;
    let disk = SmallDisk::of(4);
    let filling = disk.fill();
    let file = disk.path().join("backup");
    let back_up = || run("backup", &[&file, Path::new("--data"), folder.path()]);
    let ended = back_up();
    assert_eq!(ended.status.code(), Some(1));
    assert!(stderr(&ended).contains("cannot write "), "{}", stderr(&ended));
    assert_eq!(files(disk.path()), ["filling"]);
    // The disk gets full in the middle of the copy.
    fs::remove_file(&filling).unwrap();
    File::create(&filling).unwrap().set_len(0).unwrap();
    fs::write(&filling, vec![0; 4 * 1024 * 1024 - 100 * 1024]).unwrap();
    assert_eq!(back_up().status.code(), Some(1));
    assert_eq!(files(disk.path()), ["filling"]);
    fs::remove_file(filling).unwrap();
    assert!(back_up().status.success());
    verify_ok(&file);
}

/// Returns the names of the files in a folder.
fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn journal_on_a_full_disk_is_opened_for_readers() {
    crate::support::needs_sqlite();
    for is_killed in [true, false] {
        let disk = SmallDisk::of(4);
        let folder = tempfile::tempdir().unwrap();
        let lines = "[subscriptions.s]\ndelivery = \"webhook\"\nurl = \"http://127.0.0.1:9/\"\nsecrets = [\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"]";
        let config = configuration(folder.path(), lines);
        let data = disk.path().join("data");
        let start = || Gateway::start_with(&data, &["--config", &config]);
        let mut gateway = start();
        let mut accepted = 0;
        let filling = if is_killed { disk.fill() } else { disk.path().join("filling") };
        while try_to_post(&gateway, accepted + 1).await.status().is_success() && (is_killed || accepted < 20) {
            accepted += 1;
        }
        if is_killed {
            gateway.kill();
        } else {
            assert!(gateway.stop().success());
            accepted = 21;
            disk.fill();
        }
        let gateway = start();
        assert_eq!(gateway.changes().await.len() as u64, accepted);
        let feed = gateway.http.get(format!("{}/feed", gateway.url)).send().await.unwrap();
        assert_eq!(feed.status(), 200);
        assert_eq!(readiness(&gateway).await.0, 503);
        fs::remove_file(filling).unwrap();
        assert_eq!(post(&gateway, 1000).await, accepted + 1);
        assert_eq!(readiness(&gateway).await.0, 200);
        assert!(gateway.stop().success());
        assert_eq!(verify_ok(&journal_file(&data)).changes, accepted + 1);
    }
}

/// Other programs take all room that a start or a stop leaves, but not what the lock file takes back.
#[tokio::test]
async fn journal_on_a_full_disk_is_opened_again_and_again() {
    let disk = SmallDisk::of(4);
    let data = disk.path().join("data");
    let gateway = Gateway::start(&data);
    post(&gateway, 1).await;
    assert!(gateway.stop().success());
    for _ in 0..3 {
        disk.fill();
        let gateway = Gateway::start(&data);
        assert_eq!(gateway.changes().await.len(), 1);
        assert!(gateway.stop().success());
    }
}

/// Runs `serve`, which must fail; returns its last line.
fn failed_start(data: &Path) -> String {
    let ended = run("serve", &[Path::new("--listen"), Path::new("127.0.0.1:0"), Path::new("--data"), data]);
    assert_eq!(ended.status.code(), Some(1), "{}", stderr(&ended));
    stderr(&ended).lines().last().unwrap().to_owned()
}

#[tokio::test]
async fn start_without_room_says_that_the_disk_is_full() {
    crate::support::needs_sqlite();
    let disk = SmallDisk::of(4);
    let filling = disk.fill();
    let full = |path: &Path| {
        format!(
            "tidings: the disk of the journal {} is full; free some space, at least 1 MB, and start the gateway again: no \
             acknowledged change is lost",
            path.display()
        )
    };
    let data = disk.path().join("data");
    assert_eq!(failed_start(&data), full(&journal_file(&data)), "a new journal");
    fs::remove_file(filling).unwrap();
    let gateway = Gateway::start(&data);
    post(&gateway, 1).await;
    assert!(gateway.stop().success());
    // The lock file of an earlier version has no reserve.
    let lock = File::options().write(true).open(data.join("journal.lock")).unwrap();
    lock.set_len(200).unwrap();
    let filling = disk.fill();
    assert_eq!(failed_start(&data), full(&journal_file(&data)), "SQLite reports an input/output error");
    fs::remove_file(filling).unwrap();
    let gateway = Gateway::start(&data);
    assert_eq!(post(&gateway, 2).await, 2);
}

#[tokio::test]
async fn small_disk_is_filled_with_changes_and_not_with_the_log() {
    crate::support::needs_sqlite();
    let disk = SmallDisk::of(24);
    let data = disk.path().join("data");
    let gateway = Gateway::start(&data);
    let (mut accepted, mut refused) = (0_u64, 0);
    // Each event has about 60 kilobytes in its change, and as much in the registry.
    let large = |number: u64| {
        let item =
            |at: u64| serde_json::json!({ "uri": format!("http://localhost/items/{number}/{at}"), "change": "ADD" });
        let items: Vec<_> = (0..1000).map(item).collect();
        serde_json::json!({ "object": format!("http://localhost/objects/{number}"), "items": items })
    };
    for number in 1..1000 {
        match gateway.post("content-change", "application/json", large(number).to_string()).await.0 {
            201 => (accepted, refused) = (accepted + 1, 0),
            status => {
                assert_eq!(status, 503);
                refused += 1;
                if refused == 5 {
                    break;
                }
            }
        }
    }
    let size = |name: &str| data.join(name).metadata().unwrap().len();
    assert!(size("journal.sqlite") > 15 << 20, "the journal has {} bytes", size("journal.sqlite"));
    assert!(size("journal.sqlite-wal") < 6 << 20, "the log has {} bytes", size("journal.sqlite-wal"));
    drop(gateway);
    let gateway = Gateway::start(&data);
    assert_eq!(gateway.head().await, accepted);
}

#[tokio::test]
async fn unwritable_folder_is_refused() {
    crate::support::needs_sqlite();
    let disk = SmallDisk::of(4);
    let data = disk.path().join("data");
    let gateway = Gateway::start(&data);
    post(&gateway, 1).await;
    assert!(gateway.stop().success());
    disk.set_mode("ro");
    let ended = run("serve", &[Path::new("--listen"), Path::new("127.0.0.1:0"), Path::new("--data"), &data]);
    assert_eq!(ended.status.code(), Some(1));
    let error = stderr(&ended);
    assert!(error.contains("Read-only file system") && error.contains("make it writable"), "{error}");
    // Verification needs no write access.
    let ended = run("verify", &[Path::new("--data"), &data]);
    assert!(ended.status.success(), "{}", stderr(&ended));
    let copy = tempfile::tempdir().unwrap();
    let ended = run("backup", &[&copy.path().join("backup"), Path::new("--data"), &data]);
    assert!(ended.status.success(), "{}", stderr(&ended));
    disk.set_mode("rw");
    let gateway = Gateway::start(&data);
    assert_eq!(post(&gateway, 2).await, 2);
}

/// File system in a file, which can turn read-only under the gateway like one on a failing disk.
struct FailingDisk {
    folder: tempfile::TempDir,
    image: tempfile::NamedTempFile,
}

impl FailingDisk {
    fn new() -> Self {
        let (folder, image) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
        image.as_file().set_len(32 << 20).unwrap();
        assert!(ran("mkfs.ext4", &["-q".as_ref(), image.path()]), "this test needs mkfs.ext4 (apt install e2fsprogs)");
        let disk = Self { folder, image };
        disk.mount();
        disk
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn mount(&self) {
        let image = self.image.path().to_str().unwrap();
        let mounted = mount(&["-o", "loop,errors=remount-ro", image], self.path());
        assert!(mounted, "this test mounts a file: run it as root, in a container that may mount and has /dev/loop0");
    }

    fn unmount(&self) {
        assert!(ran("umount", &[self.path()]));
    }

    /// Makes the kernel detect an error, after which it refuses writes.
    fn fail(&self) {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let device = mounts.lines().find(|line| line.split(' ').nth(1) == self.path().to_str()).unwrap();
        let device = device.split(' ').next().unwrap().trim_start_matches("/dev/");
        fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "1").unwrap();
    }
}

impl Drop for FailingDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).stderr(std::process::Stdio::null()).status();
    }
}

fn ran(program: &str, arguments: &[&Path]) -> bool {
    Command::new(program).args(arguments).status().is_ok_and(|status| status.success())
}

#[tokio::test]
async fn read_only_file_system_is_reported_and_loses_no_acknowledged_event() {
    crate::support::needs_sqlite();
    let disk = FailingDisk::new();
    let data = disk.path().join("data");
    let gateway = Gateway::start(&data);
    for number in 1..=20 {
        post(&gateway, number).await;
    }
    // The write permission is removed and restored.
    let files = [journal_file(&data), data.join("journal.sqlite-wal")];
    let chattr = |mode: &str| assert!(files.iter().all(|file| ran("chattr", &[mode.as_ref(), file])), "chattr {mode}");
    chattr("+i");
    assert_refused(&gateway, 21, "whether it is still mounted for writing").await;
    assert_eq!(gateway.changes().await.len(), 20);
    chattr("-i");
    assert_eq!(post(&gateway, 21).await, 21);

    disk.fail();
    assert_refused(&gateway, 22, "whether it is still mounted for writing").await;
    assert_eq!(gateway.changes().await.len(), 21);
    let (status, problem) = readiness(&gateway).await;
    assert_eq!(status, 503);
    assert!(problem["detail"].as_str().unwrap().contains("mounted for writing"), "{problem}");
    gateway.stop();
    // The kernel accepts writes again only after a new mount.
    disk.unmount();
    disk.mount();
    let gateway = Gateway::start(&data);
    assert_eq!(gateway.changes().await.len(), 21);
    assert_eq!(post(&gateway, 22).await, 22);
    assert!(gateway.stop().success());
    assert_eq!(verify_ok(&journal_file(&data)).changes, 22);
}

/// Posts an event that cannot be written; checks the reason and the Retry-After of the response.
async fn assert_refused(gateway: &Gateway, number: u64, why: &str) {
    let answer = try_to_post(gateway, number).await;
    assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (503, &"5".parse().unwrap()));
    let problem: Value = answer.json().await.unwrap();
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains(why) && detail.contains("send the message again"), "{detail}");
}
