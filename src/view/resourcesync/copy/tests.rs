//! Copies with the documents of ResourceSync, as the publisher writes them.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{Problem, ResourceSync};
use crate::{
    journal::Journal,
    publish::test_copy::{TestCopy, URL},
    view::{
        resourcesync::PublishedResourceSync,
        test_journal::{append, journal_of, small_draft},
    },
    web::{ProblemCode, Spool},
};

fn source(journal: &Journal, folder: &Path) -> ResourceSync {
    ResourceSync::new(journal.clone(), "http://gateway.example", Spool::new(folder, 1 << 20), None)
}

/// Returns a copy that the public sees, made by a source without memory, as after a start.
fn copy(journal: &Journal, folder: &Path) -> TestCopy {
    copy_of(source(journal, folder), journal)
}

fn copy_of(source: ResourceSync, journal: &Journal) -> TestCopy {
    let face = PublishedResourceSync::new(source, CancellationToken::new());
    TestCopy::new(journal.clone(), Arc::new(face), true, links_down_lead_to_files)
}

/// Links down lead to files that are there already.
fn links_down_lead_to_files(path: &str, text: &str, files: &BTreeMap<String, String>) {
    for link in text.split("<loc>").skip(1).filter_map(|rest| rest.split("</loc>").next()) {
        let target = link.strip_prefix(URL).map(|target| target.trim_start_matches('/'));
        assert!(target.is_none_or(|target| files.contains_key(target)), "{path} links to {link}");
    }
}

/// All links lead to files, of which none is at the gateway.
fn assert_linked(files: &BTreeMap<String, String>) {
    for (path, text) in files {
        links_down_lead_to_files(path, text, files);
        for link in text.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let target = link.strip_prefix(URL).unwrap_or_else(|| panic!("{path} links to {link}"));
            assert!(files.contains_key(target.trim_start_matches('/')), "{path} links to {link}");
        }
    }
}

/// Returns the paths of the parts of resource lists.
fn parts(files: &BTreeMap<String, String>) -> Vec<String> {
    files.keys().filter(|path| path.contains("/resourcelist-")).cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_has_all_documents_and_links_only_to_them() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal_of(small_draft(), 9, 1, folder.path()).await;
    let copy = copy(&journal, folder.path());
    assert_eq!(copy.publish().await, (6, 0));
    assert_eq!(copy.publish().await, (0, 0), "nothing is new");
    let files = copy.files();
    assert_linked(&files);
    let names: Vec<_> = files.keys().map(|path| path.rsplit('/').next().unwrap()).collect();
    assert_eq!(names.len(), 6, "{names:?}");
    for name in ["resourcesync", "capabilitylist.xml", "changelist.xml", "resourcelist.xml"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let open = &files["resourcesync/changelist-0000000000000001.xml"];
    assert!(open.contains("change=\"created\"") && !open.contains("until="), "{open}");
    let part = files.iter().find(|(path, _)| path.contains("/resourcelist-")).unwrap();
    assert!(part.0.starts_with("resourcesync/") && part.1.contains("<loc>http://h/1</loc>"), "{part:?}");
}

/// The lists of full spans are closed documents, and stay when others are written.
#[tokio::test(flavor = "multi_thread")]
async fn closed_change_lists_stay_in_the_copy() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal_of(small_draft(), 1, 1, folder.path()).await;
    for _ in 0..20 {
        append(&journal, small_draft(), 1000).await;
    }
    let copy = copy(&journal, folder.path());
    copy.publish().await;
    let files = copy.files();
    assert_linked(&files);
    let closed: Vec<_> =
        files.keys().filter(|path| path.matches('/').count() == 2 && path.contains("changelist-")).collect();
    assert_eq!(closed.len(), 2, "{closed:?}");
    append(&journal, small_draft(), 1).await;
    copy.publish().await;
    let later = copy.files();
    assert_linked(&later);
    assert!(closed.iter().all(|path| later.get(*path) == files.get(*path)));
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_of_an_empty_journal_has_all_documents() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal_of(small_draft(), 0, 1, folder.path()).await;
    let copy = copy(&journal, folder.path());
    assert_eq!(copy.publish().await, (6, 0));
    assert_linked(&copy.files());
}

/// The first change list of an empty journal begins with the change 1, so the list of the first change is another one.
#[tokio::test(flavor = "multi_thread")]
async fn parts_of_a_former_division_stay_for_an_hour() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal_of(small_draft(), 0, 1, folder.path()).await;
    let copy = copy(&journal, folder.path());
    copy.publish().await;
    let former = parts(&copy.files());
    append(&journal, small_draft(), 3).await;
    copy.publish().await;
    let files = copy.files();
    assert_linked(&files);
    let both = parts(&files);
    assert!(both.len() == former.len() + 1 && former.iter().all(|part| both.contains(part)), "{former:?} {both:?}");
    assert_eq!(copy.publish().await, (0, 0));
    copy.age();
    assert_eq!(copy.publish().await, (0, former.len() as u64));
    assert!(parts(&copy.files()).iter().all(|part| !former.contains(part)));
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_a_former_division_leave_a_copy_whose_index_is_unreadable() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal_of(small_draft(), 0, 1, folder.path()).await;
    let copy = copy(&journal, folder.path());
    copy.publish().await;
    let former = parts(&copy.files());
    append(&journal, small_draft(), 3).await;
    copy.damage_index();
    copy.publish().await;
    let now = parts(&copy.files());
    assert!(now.len() == 1 && now != former, "{former:?} {now:?}");
    assert_linked(&copy.files());
}

/// A reader of the copy may wait for a journal that is being read for the first time, and a stop ends the wait.
#[tokio::test(flavor = "multi_thread")]
async fn copy_waits_for_the_first_reading_of_the_journal_until_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal_of(small_draft(), 9, 1, folder.path()).await;
    let source = source(&journal, folder.path());
    let (spool, ended) = (Spool::new(folder.path(), 1 << 20), CancellationToken::new());
    ended.cancel();
    let problem: Problem = source.0.division.all_lists(&spool, &ended).await.unwrap_err();
    assert_eq!(problem.code(), ProblemCode::Unavailable);
    let ended = CancellationToken::new();
    let lists = source.0.division.all_lists(&spool, &ended);
    let lists = tokio::time::timeout(Duration::from_secs(60), lists).await.unwrap().unwrap();
    assert_eq!((lists.head.0, lists.lists.len()), (9, 1));
}
