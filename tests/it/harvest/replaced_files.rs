//! Files of a folder that somebody replaces between the list and the reading.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::support::{
    folder_fixture::{put, set_age},
    gateway::{Gateway, PATIENCE},
    journal_fixture::configuration,
};

const HOUR: Duration = Duration::from_secs(3600);

/// Size of the file that is read first: the limit of a page is larger.
const LARGE: u64 = 250 * 1024 * 1024;

/// Returns whether a process has a file open.
fn has_open(process: u32, file: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    open.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(|target| target == file))
}

/// Lets a gateway harvest a folder with a large file and a small one, and replaces the small one while the large one is
/// read. Returns the gateway after the run.
async fn harvest_while(data: &Path, share: &Path, replace: impl Fn(&Path)) -> Gateway {
    let (large, small) = (share.join("a"), share.join("m"));
    put(&small, "open", HOUR);
    let lines = format!(
        "[sources.share]\ntransport = \"folder\"\ndialect = \"folder\"\npath = {share:?}\nwatch = false\nevery = \"30d\"\n"
    );
    fs::File::create(&large).unwrap().set_len(LARGE).unwrap();
    set_age(&large, HOUR);
    let config = configuration(data, &lines);
    let gateway = Gateway::start_with(&data.join("data"), &["--config", &config]);
    let began = Instant::now();
    while !has_open(gateway.id(), &large) {
        assert!(began.elapsed() < PATIENCE);
    }
    replace(&small);
    assert!(has_open(gateway.id(), &large), "the large file was read too soon for this test");
    loop {
        let harvest = gateway.json("/harvests/share").await;
        if harvest["run"]["state"] == "completed" {
            return gateway;
        }
        assert!(began.elapsed() < PATIENCE, "{harvest}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the ends of the URIs of all changes.
async fn changed(gateway: &Gateway) -> Vec<String> {
    let changes = gateway.changes().await;
    let end = |change: &serde_json::Value| change["object"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    changes.iter().map(end).collect()
}

#[tokio::test]
async fn pipe_in_place_of_a_file_holds_neither_the_run_nor_the_stop() {
    let [data, share] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let pipe = |place: &Path| {
        let made = place.with_file_name(".pipe");
        assert!(Command::new("mkfifo").arg(&made).status().unwrap().success());
        fs::rename(made, place).unwrap();
    };
    let gateway = harvest_while(data.path(), share.path(), pipe).await;
    assert_eq!(changed(&gateway).await, ["a"]);
    assert!(gateway.stop().success());
}

#[tokio::test]
async fn link_in_place_of_a_file_publishes_nothing() {
    let [data, share, outside] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let secret = outside.path().join("secret");
    // Size and time are those of the listed file.
    put(&secret, "hush", HOUR);
    let link = |place: &Path| {
        let modified = fs::metadata(place).unwrap().modified().unwrap();
        fs::File::options().append(true).open(&secret).unwrap().set_modified(modified).unwrap();
        fs::remove_file(place).unwrap();
        symlink(&secret, place).unwrap();
    };
    let gateway = harvest_while(data.path(), share.path(), link).await;
    assert_eq!(changed(&gateway).await, ["a"]);
    assert!(gateway.stop().success());
}
