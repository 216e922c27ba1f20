//! Full disks and unwritable folders: the gateway reports the cause, loses no acknowledged event, serves
//! readers, and recovers when the cause is gone.

use crate::support::small_disk::{SmallDisk, mount};
use std::{
    fs::{self},
    path::Path,
    process::Command,
};

use serde_json::Value;

use crate::support::{
    gateway::Gateway,
    journal_fixture::{event, journal_file, post, run, stderr, verify_ok},
};

async fn try_to_post(gateway: &Gateway, number: u64) -> reqwest::Response {
    let url = format!("{}/hooks/content-change", gateway.url);
    let request = gateway.http.post(url).header("content-type", "application/json");
    request.body(event(number).to_string()).send().await.unwrap()
}

#[tokio::test]
async fn full_disk_is_reported_and_loses_no_acknowledged_event() {
    let disk = SmallDisk::of(4);
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
        // An unreadable message cannot be quarantined either, and its sender gets the same response.
        assert_eq!(gateway.post("content-change", "application/json", "x".repeat(9000)).await.0, 503);
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
    assert!(!file.exists());
    fs::remove_file(filling).unwrap();
    assert!(back_up().status.success());
    verify_ok(&file);
}

#[tokio::test]
async fn unwritable_folder_is_refused() {
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
