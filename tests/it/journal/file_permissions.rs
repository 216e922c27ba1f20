//! The journal, its backups and its archive pages contain secrets: only their owner may read the files that the
//! gateway creates.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::{
    gateway::Gateway,
    journal_fixture::{journal_file, post},
};

/// Runs the program with the usual file mode creation mask.
fn with_usual_mask() -> Command {
    let mut command = Command::new("sh");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TIDINGS_")) {
        command.env_remove(name);
    }
    command.args(["-c", "umask 022; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tidings")]);
    command
}

fn run(arguments: &[&Path]) {
    let ended = with_usual_mask().args(arguments).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

fn start(data: &Path, log: &Path) -> Gateway {
    let mut serve = with_usual_mask();
    serve.stderr(fs::File::create(log).unwrap());
    Gateway::start_as(serve, data, &["--listen", "127.0.0.1:0"])
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o777
}

/// Returns the folder and everything in it.
fn everything(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            found.extend(everything(&entry));
        } else {
            found.push(entry);
        }
    }
    found
}

fn is_private(folder: &Path) {
    for path in everything(folder) {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), expected, "{}: {:o}", path.display(), mode(&path));
    }
}

const WARNING: &str = "every user of this machine can read the journal";

#[tokio::test]
async fn files_are_created_with_owner_permissions() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (data, log, backup, other) = (path("above/data"), path("log"), path("backup"), path("other"));
    let gateway = start(&data, &log);
    for number in 1..=250 {
        post(&gateway, number).await;
    }
    let page = gateway.http.get(format!("{}/feed/archive/1", gateway.url)).send().await.unwrap();
    assert!(page.status().is_success(), "{}", page.status());
    let is_kept = || everything(&data).iter().any(|path| path.to_string_lossy().ends_with(".atom"));
    assert!(is_kept(), "the page is not on disk");
    is_private(&path("above"));
    assert!(data.join("journal.sqlite-wal").exists() && data.join("journal.lock").exists());

    // File of an interrupted backup by an earlier version.
    fs::write(path("backup.partial"), "").unwrap();
    fs::set_permissions(path("backup.partial"), Permissions::from_mode(0o644)).unwrap();
    run(&[Path::new("backup"), &backup, Path::new("--data"), &data]);
    assert_eq!(mode(&backup), 0o600);
    assert!(gateway.stop().success());
    for _ in 0..2 {
        run(&[Path::new("restore"), &backup, Path::new("--force"), Path::new("--data"), &other]);
        is_private(&other);
    }
    assert!(!fs::read_to_string(&log).unwrap().contains(WARNING));
}

#[tokio::test]
async fn wider_permissions_are_preserved_with_a_warning() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    assert!(start(&data, &log).stop().success());
    let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    for (of_folder, of_file, is_warned) in
        [(0o755, 0o644, true), (0o755, 0o600, false), (0o700, 0o644, false), (0o750, 0o640, false)]
    {
        set(&data, of_folder);
        set(&journal_file(&data), of_file);
        let gateway = start(&data, &log);
        post(&gateway, 1).await;
        assert_eq!((mode(&data), mode(&journal_file(&data))), (of_folder, of_file));
        assert!(gateway.stop().success());
        let warned = fs::read_to_string(&log).unwrap().matches(WARNING).count();
        assert_eq!(warned, usize::from(is_warned), "{of_folder:o} {of_file:o}");
    }
}
