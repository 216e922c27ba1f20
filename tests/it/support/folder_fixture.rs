//! Harvest of a folder or an archive, in the process of the test.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde_json::Value;
use tidings::{
    harvest::{folder::FolderSettings, status::HarvestStatus},
    journal::harvest::{HarvestRun, RunState},
    model::Seq,
};

use super::{
    harvest_fixture::{changes_after, run_once, stop_at},
    journal_fixture::OpenJournal,
};

/// Harvest of a place into a journal.
pub(crate) struct FolderFixture {
    pub(crate) journal: OpenJournal,
    pub(crate) settings: FolderSettings,
    pub(crate) status: Arc<HarvestStatus>,
    folder: tempfile::TempDir,
}

impl FolderFixture {
    /// Creates an empty folder at `share`, which is harvested, and an empty journal.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("share");
        fs::create_dir(&path).unwrap();
        let settings = FolderSettings {
            path,
            public_url: Some("https://files.example.org/".to_owned()),
            urls: None,
            watch: false,
            max_deleted_percent: 10,
            unpacked_bytes: 1 << 20,
        };
        let journal = OpenJournal::at(folder.path());
        Self { journal, settings, status: Arc::default(), folder }
    }

    /// Returns a path beside the harvested folder.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file of the harvested folder, with a time one hour ago.
    pub(crate) fn put(&self, path: &str, content: &str) {
        put(&self.settings.path.join(path), content, Duration::from_secs(3600));
    }

    pub(crate) fn remove(&self, path: &str) {
        fs::remove_file(self.settings.path.join(path)).unwrap();
    }

    /// Executes one run to its end, and returns it.
    pub(crate) async fn run(&self) -> HarvestRun {
        run_once(&self.journal, &self.settings, 1 << 20, &self.status).await
    }

    /// Executes one run, which must complete; returns it with the remarks.
    pub(crate) async fn complete(&self) -> (HarvestRun, String) {
        let run = self.run().await;
        assert_eq!(run.state, RunState::Completed, "{run:?}");
        let remarks = self.status.view().remarks.join("\n");
        (run, remarks)
    }

    /// Executes one run, which must fail; returns the reason.
    pub(crate) async fn fail(&self) -> String {
        let run = self.run().await;
        assert_eq!(run.state, RunState::Failed, "{run:?}");
        run.reason.unwrap().into()
    }

    /// Begins a run, and stops it when the stored position contains a text.
    pub(crate) async fn stop_at(&self, text: &str) {
        stop_at(&self.journal, &self.settings, text).await;
    }

    /// Returns the number of the newest change.
    pub(crate) fn head(&self) -> Seq {
        self.journal.journal.head()
    }

    /// Returns all changes after a number: the first letter of the kind of change, and the end of the URL.
    pub(crate) async fn changes_after(&self, seq: Seq) -> Vec<String> {
        let changes = changes_after(&self.journal, seq).await;
        let short = |(kind, uri): (String, String)| {
            let path = uri.strip_prefix("https://files.example.org/").unwrap_or(&uri);
            format!("{} {path}", &kind[..1])
        };
        changes.into_iter().map(short).collect()
    }

    /// Returns the existing files of the registry, each with its content.
    pub(crate) async fn registered(&self) -> BTreeMap<String, Value> {
        let objects = self.journal.journal.registry(None, 100_000).await.unwrap();
        let mut files = BTreeMap::new();
        for (object, state) in objects {
            for (item, _) in state.live_items() {
                assert_eq!(item, &object);
                let content = state.content(item).unwrap();
                let path = object.as_str().strip_prefix("https://files.example.org/").unwrap().to_owned();
                files.insert(path, serde_json::from_str(content.json()).unwrap());
            }
        }
        files
    }
}

/// Writes a file, with this age.
pub(crate) fn put(path: &Path, content: impl AsRef<[u8]>, age: Duration) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    set_age(path, age);
}

/// Sets the time of the last modification.
pub(crate) fn set_age(path: &Path, age: Duration) {
    fs::File::options().append(true).open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
}

/// Runs Python code, which makes archives by the modules of Python. The code gets these arguments.
pub(crate) fn python(code: &str, arguments: &[&Path]) {
    let output = Command::new("python3").arg("-c").arg(code).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
