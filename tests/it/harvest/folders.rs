//! Harvests of folders.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::ffi::OsStrExt,
    time::{Duration, Instant},
};

use sha2::{Digest, Sha256};
use tidings::model::Seq;

use crate::support::{
    folder_fixture::{FolderFixture, put, python, set_age},
    gateway::{Gateway, PATIENCE, command},
    journal_fixture::{configuration, journal_file, verify_ok},
};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn files_become_objects_and_changes_are_found_by_size_time_and_digest() {
    let fixture = FolderFixture::new();
    fixture.put("a.pdf", "%PDF-1.7 one");
    fixture.put("sub/folder/b c.txt", "two");
    fixture.put(".hidden", "x");
    let odd = fixture.settings.path.join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
    put(&odd, "three", HOUR);
    let (run, remarks) = fixture.complete().await;
    assert_eq!((run.counts.records, run.counts.changes, remarks.as_str()), (3, 3, ""));
    assert_eq!(fixture.changes_after(Seq::ZERO).await, ["A a.pdf", "A caf%E9", "A sub/folder/b%20c.txt"]);
    let registered = fixture.registered().await;
    let pdf = &registered["a.pdf"];
    assert_eq!((&pdf["url"], &pdf["size"]), (&"https://files.example.org/a.pdf".into(), &12.into()));
    assert_eq!(pdf["mediaType"], "application/pdf");
    assert_eq!(pdf["digest"]["value"], hex::encode(Sha256::digest("%PDF-1.7 one")));
    assert_eq!(registered["sub/folder/b%20c.txt"].get("mediaType"), None);
    // Size and time are the same, so the other content is not read.
    let path = fixture.settings.path.join("a.pdf");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "%PDF-1.7 two").unwrap();
    fs::File::options().append(true).open(&path).unwrap().set_modified(modified).unwrap();
    let (run, _) = fixture.complete().await;
    assert_eq!((run.counts.records, run.counts.changes), (0, 0));
    // Another time: the content is read, and is another one.
    set_age(&path, HOUR * 2);
    let (run, _) = fixture.complete().await;
    assert_eq!((run.counts.records, run.counts.changes), (1, 1));
    // Another time, and the same content.
    set_age(&path, HOUR * 3);
    let (run, _) = fixture.complete().await;
    assert_eq!((run.counts.records, run.counts.changes), (1, 0));
    fixture.remove("a.pdf");
    fs::rename(fixture.settings.path.join("sub"), fixture.settings.path.join("moved")).unwrap();
    fixture.complete().await;
    assert_eq!(
        fixture.changes_after(Seq(3)).await,
        ["U a.pdf", "A moved/folder/b%20c.txt", "D a.pdf", "D sub/folder/b%20c.txt"]
    );
    fixture.put("a.pdf", "%PDF-1.7 one");
    fixture.complete().await;
    assert_eq!(fixture.changes_after(Seq(7)).await, ["A a.pdf"]);
}

#[tokio::test]
async fn file_that_was_modified_a_moment_ago_is_read_again() {
    let fixture = FolderFixture::new();
    let path = fixture.settings.path.join("a");
    put(&path, "one", Duration::ZERO);
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    fixture.complete().await;
    // A coarse clock of the file system would leave the time as it is.
    fs::write(&path, "two").unwrap();
    fs::File::options().append(true).open(&path).unwrap().set_modified(modified).unwrap();
    fixture.complete().await;
    assert_eq!(fixture.changes_after(Seq::ZERO).await, ["A a", "U a"]);
}

#[tokio::test]
async fn missing_files_are_deleted_only_if_that_is_plausible() {
    let mut fixture = FolderFixture::new();
    for number in 0..40 {
        fixture.put(&format!("{number:02}"), "content");
    }
    fixture.complete().await;
    for number in 0..11 {
        fixture.remove(&format!("{number:02}"));
    }
    let (run, remarks) = fixture.complete().await;
    assert_eq!(run.counts.changes, 0);
    assert!(remarks.contains("11 of 40 files are no longer listed; nothing was deleted"), "{remarks}");
    fixture.settings.max_deleted_percent = 50;
    let (run, remarks) = fixture.complete().await;
    assert_eq!((run.counts.changes, remarks.as_str()), (11, ""));
    // A share that is not mounted is an empty folder.
    fixture.settings.max_deleted_percent = 99;
    fs::rename(&fixture.settings.path, fixture.beside("elsewhere")).unwrap();
    let reason = fixture.fail().await;
    assert!(reason.contains("share cannot be read: No such file") && reason.contains("mounted"), "{reason}");
    fs::create_dir(&fixture.settings.path).unwrap();
    let (run, remarks) = fixture.complete().await;
    assert_eq!(run.counts.changes, 0);
    assert!(remarks.contains("has no file, and had 29; nothing was deleted"), "{remarks}");
    fs::remove_dir(&fixture.settings.path).unwrap();
    fs::rename(fixture.beside("elsewhere"), &fixture.settings.path).unwrap();
    let (run, remarks) = fixture.complete().await;
    assert_eq!((run.counts.changes, remarks.as_str()), (0, ""));
    // The operator has agreed.
    for number in 11..40 {
        fixture.remove(&format!("{number:02}"));
    }
    fixture.settings.max_deleted_percent = 100;
    assert_eq!(fixture.complete().await.0.counts.changes, 29);
    assert!(fixture.registered().await.is_empty());
}

#[tokio::test]
async fn empty_folder_deletes_not_even_a_single_file() {
    let fixture = FolderFixture::new();
    fixture.put("only", "one");
    fixture.complete().await;
    fixture.remove("only");
    let (run, remarks) = fixture.complete().await;
    assert_eq!(run.counts.changes, 0);
    assert!(remarks.contains("has no file, and had 1; nothing was deleted"), "{remarks}");
}

#[tokio::test]
async fn folder_that_cannot_be_read_deletes_nothing() {
    let fixture = FolderFixture::new();
    fixture.put("a", "one");
    fixture.put("b", "two");
    fixture.complete().await;
    fixture.remove("a");
    // Folders in more than 128 others are not opened, whatever rights the gateway has.
    let code = "import os, sys\nos.chdir(sys.argv[1])\nfor _ in range(130): os.mkdir('x'); os.chdir('x')";
    python(code, &[&fixture.settings.path]);
    let (run, remarks) = fixture.complete().await;
    assert_eq!(run.counts.changes, 0);
    assert!(
        remarks.contains("cannot be read: it is more than 128 folders deep") && remarks.contains("nothing is deleted"),
        "{remarks}"
    );
    fs::remove_dir_all(fixture.settings.path.join("x")).unwrap();
    fixture.complete().await;
    assert_eq!(fixture.changes_after(Seq(2)).await, ["D a"]);
}

#[tokio::test]
async fn only_chosen_urls_are_harvested() {
    let mut fixture = FolderFixture::new();
    for name in ["a.pdf", "b.txt", "c/d.pdf"] {
        fixture.put(name, name);
    }
    fixture.complete().await;
    fixture.settings.urls = Some(tidings::model::UrlPattern::parse(".*[.]pdf").unwrap());
    fixture.complete().await;
    assert_eq!(fixture.changes_after(Seq(3)).await, ["D b.txt"]);
    // Without a public URL, the files are other objects.
    fixture.settings.public_url = None;
    fixture.complete().await;
    let changes = fixture.changes_after(Seq(4)).await;
    assert!(changes[0].starts_with("A file:///") && changes[0].ends_with("/share/a.pdf"), "{changes:?}");
    assert_eq!(changes[2..], ["D a.pdf", "D c/d.pdf"]);
}

#[tokio::test]
async fn stopped_list_continues_after_the_last_page() {
    let fixture = FolderFixture::new();
    for number in 0..2500 {
        fixture.put(&format!("{}/{number}", number % 7), &number.to_string());
    }
    fixture.stop_at("\"after\"").await;
    let first = fixture.head();
    assert!((1000..2500).contains(&first.0), "{first:?}");
    // A file that was listed already, and one that was not.
    fixture.remove("0/0");
    fixture.put("9/9", "9");
    let (run, _) = fixture.complete().await;
    assert_eq!((run.counts.records, run.counts.changes), (2501, 2501));
    let changes = fixture.changes_after(Seq::ZERO).await;
    let added: BTreeSet<_> = changes.iter().filter(|change| change.starts_with('A')).collect();
    assert_eq!((added.len(), changes.len()), (2501, 2501));
    fixture.complete().await;
    assert_eq!(fixture.changes_after(Seq(2501)).await, ["D 0/0"]);
}

#[tokio::test]
async fn change_of_a_file_begins_a_run() {
    crate::support::needs_sqlite();
    let (folder, share) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    put(&share.path().join("sub/a"), "one", HOUR);
    let lines = format!(
        "[sources.share]\ntransport = \"folder\"\ndialect = \"folder\"\npath = {:?}\nevery = \"30d\"\n",
        share.path()
    );
    let config = configuration(folder.path(), &lines);
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
    let wait_for = async |changes: usize| {
        let began = Instant::now();
        while gateway.json("/changes?after=0").await["changes"].as_array().unwrap().len() < changes {
            assert!(began.elapsed() < PATIENCE, "{}", gateway.json("/harvests/share").await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    wait_for(1).await;
    put(&share.path().join("sub/b"), "two", HOUR);
    wait_for(2).await;
    // A folder that was made after the watch began.
    put(&share.path().join("new/c"), "three", HOUR);
    wait_for(3).await;
    fs::write(share.path().join("new/c"), "four").unwrap();
    wait_for(4).await;
    fs::remove_file(share.path().join("sub/a")).unwrap();
    wait_for(5).await;
    let changes = gateway.json("/changes?after=0").await;
    let kinds: Vec<_> =
        changes["changes"].as_array().unwrap().iter().map(|change| &change["items"][0]["change"]).collect();
    assert_eq!(kinds, ["ADD", "ADD", "ADD", "UPDATE", "DELETE"], "{changes}");
    let list = command().args(["harvests", "list", "--gateway", &gateway.url]).output().unwrap();
    assert!(String::from_utf8_lossy(&list.stdout).contains("share"), "{list:?}");
    drop(gateway);
    verify_ok(&journal_file(&folder.path().join("data")));
}
