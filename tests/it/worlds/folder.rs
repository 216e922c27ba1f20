//! World of a share: a folder, or an archive that other programs write, each with its own way to write names.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::prelude::*;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::worlds::{
    ItemTruth, Truth, World, driver,
    rig::Rig,
    zip_file::{Names, zip},
};

/// Paths of the files. Code page 437 has the characters of all but the last one. The first file is always there, because an empty share
/// counts as one that is not mounted.
const PATHS: [&str; 7] = [
    "bleibt.txt",
    "a.txt",
    "berichte/übersicht.txt",
    "berichte/b c.txt",
    "é/ß.txt",
    "é/%2F#.txt",
    // The folder as a Mac writes it, which is another one (docs/harvesting.md).
    "e\u{301}/ß.txt",
];

/// Number of the file that no code page can name.
const DECOMPOSED: usize = 6;

/// Characters that a URI encodes in a path.
const NOT_UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const PUBLIC_URL: &str = "https://files.example.org/";

/// Form of the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Folder,
    /// Zip file, with the names of the programs that write it in turn.
    Zip(&'static [Names]),
}

/// Properties of the share that stay the same.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    place: Place,
    /// The program writes an older version of the second file before the present one, under the same name.
    has_twins: bool,
}

impl Share {
    /// Returns whether the names can have all characters.
    fn has_unicode_names(&self) -> bool {
        let is_unicode = |names: &Names| matches!(names, Names::Utf8 | Names::Utf8WithoutFlag);
        match self.place {
            Place::Folder => true,
            Place::Zip(programs) => programs.iter().all(is_unicode),
        }
    }
}

/// What happens in the share.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Write {
        file: usize,
    },
    Remove {
        file: usize,
    },
    /// The share is not mounted, or its archive is truncated, for one run.
    Break,
    Harvest,
}

/// Share with the files as the last good run has seen them.
pub(crate) struct FolderWorld {
    folder: TempDir,
    share: Share,
    files: BTreeMap<usize, u32>,
    writes: usize,
    is_broken: bool,
    seen: BTreeMap<usize, u32>,
}

fn content(file: usize, version: u32) -> Vec<u8> {
    format!("file {file} {}", "v".repeat(version as usize)).into_bytes()
}

fn uri(file: usize) -> String {
    let parts = PATHS[file].split('/').map(|part| utf8_percent_encode(part, NOT_UNRESERVED).to_string());
    format!("{PUBLIC_URL}{}", parts.collect::<Vec<_>>().join("/"))
}

impl FolderWorld {
    fn path(&self) -> PathBuf {
        self.folder.path().join(if self.share.place == Place::Folder { "share" } else { "share.zip" })
    }

    /// Writes the share as it is now.
    fn write(&mut self) {
        let path = self.path();
        match self.share.place {
            Place::Folder => write_folder(&path, if self.is_broken { &[] } else { &PATHS }, &self.files),
            Place::Zip(programs) => {
                self.writes += 1;
                let names = programs[self.writes % programs.len()];
                let mut entries: Vec<_> =
                    self.files.iter().map(|(file, version)| (PATHS[*file], content(*file, *version))).collect();
                if self.share.has_twins && self.files.contains_key(&1) {
                    entries.insert(0, (PATHS[1], b"old".to_vec()));
                }
                let mut bytes = zip(&entries, names);
                if self.is_broken {
                    bytes.truncate(bytes.len() / 2);
                }
                let new = path.with_extension("new");
                fs::write(&new, bytes).unwrap();
                fs::rename(new, path).unwrap();
            }
        }
    }

    async fn harvest(&mut self, rig: &mut Rig) -> Result<(), String> {
        // The run at the start of a gateway must not see what this one is to see.
        rig.end_run("share").await;
        self.write();
        let run = rig.harvest("share").await;
        let (state, reason) = (run["state"].as_str().unwrap(), run["reason"].as_str().unwrap_or_default());
        if self.is_broken {
            self.is_broken = false;
            return match (self.share.place, state) {
                (Place::Folder, "completed") | (Place::Zip(_), "failed") => Ok(()),
                _ => Err(format!("a run of a broken share is {run}")),
            };
        }
        if state != "completed" {
            return Err(format!("a run is {run}"));
        }
        let has_twins = self.share.has_twins && self.share.place != Place::Folder && self.files.contains_key(&1);
        // A run that continues after a kill has no remarks of the pages before.
        if has_twins != reason.contains("more than once") && !(has_twins && rig.was_interrupted) {
            return Err(format!("the remarks are {reason:?}, and there are twins: {has_twins}"));
        }
        self.seen = self.files.clone();
        Ok(())
    }
}

/// Makes a folder equal to these files.
fn write_folder(root: &Path, paths: &[&str], files: &BTreeMap<usize, u32>) {
    let away = root.with_extension("old");
    if root.exists() && paths.is_empty() {
        // The files stay away while one broken run follows another.
        if !away.exists() {
            fs::rename(root, &away).unwrap();
            fs::create_dir(root).unwrap();
        }
        return;
    }
    if away.exists() {
        fs::remove_dir_all(root).unwrap();
        fs::rename(&away, root).unwrap();
    }
    fs::create_dir_all(root).unwrap();
    for (file, path) in paths.iter().enumerate() {
        let path = root.join(path);
        match files.get(&file) {
            None if path.exists() => fs::remove_file(path).unwrap(),
            None => {}
            Some(version) => {
                let content = content(file, *version);
                if fs::read(&path).ok().as_ref() != Some(&content) {
                    fs::create_dir_all(path.parent().unwrap()).unwrap();
                    fs::write(path, content).unwrap();
                }
            }
        }
    }
}

impl World for FolderWorld {
    type Switches = Share;
    type Step = Act;

    const NAME: &'static str = "folder";

    fn switches() -> BoxedStrategy<Share> {
        use Names::{Backslashes, Cp437, Utf8, Utf8WithoutFlag};
        let place = prop_oneof![
            2 => Just(Place::Folder),
            1 => Just(Place::Zip(&[Utf8])),
            1 => Just(Place::Zip(&[Utf8WithoutFlag, Utf8])),
            1 => Just(Place::Zip(&[Cp437, Utf8WithoutFlag])),
            1 => Just(Place::Zip(&[Backslashes, Utf8])),
            1 => Just(Place::Zip(&[Utf8, Cp437, Backslashes, Utf8WithoutFlag])),
        ];
        (place, any::<bool>()).prop_map(|(place, has_twins)| Share { place, has_twins }).boxed()
    }

    fn step() -> BoxedStrategy<Act> {
        prop_oneof![
            6 => (0..PATHS.len()).prop_map(|file| Act::Write { file }),
            3 => (1..PATHS.len()).prop_map(|file| Act::Remove { file }),
            1 => Just(Act::Break),
            5 => Just(Act::Harvest),
        ]
        .boxed()
    }

    async fn begin(share: Share) -> Self {
        let files = BTreeMap::from([(0, 1)]);
        let folder = tempfile::tempdir().unwrap();
        let mut world = Self { folder, share, files, writes: 0, is_broken: false, seen: BTreeMap::new() };
        world.write();
        world
    }

    fn settings(&self) -> String {
        format!(
            "[sources.share]\ntransport = \"folder\"\ndialect = \"folder\"\npath = {:?}\npublic_url = \"{PUBLIC_URL}\"\n\
             mode = \"once\"\nwatch = false\n",
            self.path()
        )
    }

    async fn live(&mut self, act: Act, rig: &mut Rig) -> Result<(), String> {
        match act {
            Act::Write { file: DECOMPOSED } if !self.share.has_unicode_names() => {}
            Act::Write { file } => *self.files.entry(file).or_default() += 1,
            Act::Remove { file } => _ = self.files.remove(&file),
            Act::Break => self.is_broken = true,
            Act::Harvest => return self.harvest(rig).await,
        }
        Ok(())
    }

    async fn fall_quiet(&mut self, rig: &mut Rig) -> Result<(), String> {
        self.is_broken = false;
        self.harvest(rig).await?;
        let head = rig.gateway().head().await;
        self.harvest(rig).await?;
        rig.no_changes_after(head).await
    }

    fn audited(&self) -> &'static [&'static str] {
        &["share"]
    }

    fn show(&mut self) {
        self.write();
        self.seen = self.files.clone();
    }

    async fn live_unseen(&mut self, act: Act, rig: &mut Rig) -> Result<(), String> {
        match act {
            Act::Write { .. } | Act::Remove { .. } => self.live(act, rig).await,
            Act::Break | Act::Harvest => Ok(()),
        }
    }

    fn truth(&self) -> Truth {
        let item = |(file, version): (&usize, &u32)| {
            let content = content(*file, *version);
            let item = ItemTruth {
                object: uri(*file),
                public: true,
                state: None,
                size: Some(content.len() as u64),
                digest: Some(hex::encode(Sha256::digest(&content))),
            };
            (uri(*file), item)
        };
        let items = self.seen.iter().map(item).collect();
        Truth { items, one_resource_for_each_event: true, ..Truth::default() }
    }
}

#[test]
fn folder_and_registry_agree() {
    driver::run::<FolderWorld>();
}
