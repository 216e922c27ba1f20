//! `publication.json`: what the copy contains, for its readers and for the next run.
//!
//! The index never promises more than the copy has. A run that is going to remove or to replace files first writes an index
//! without them, so the next run repeats the work after a kill at any moment.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

use super::edition::Identity;
use crate::model::{Seq, Timestamp};

/// Name of the index.
pub(super) const NAME: &str = "publication.json";

/// The index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Index {
    /// Identity of the journal.
    pub(super) journal: Uuid,
    /// Number of the newest change that the copy goes up to. A reader of the copy continues after this change at the gateway.
    pub(super) head: Seq,
    /// Time of the end of the last complete run that has changed the copy; before the first one, of its start.
    pub(super) published: Timestamp,
    /// Whether the last run has ended. Otherwise, a run goes on or was interrupted: files of former editions can be there, and
    /// open documents can be newer than the index says.
    pub(super) complete: bool,
    /// Digest of the view; `None` while files of another view can be there.
    pub(super) view: Option<String>,
    /// The faces by their names.
    pub(super) faces: BTreeMap<String, FaceIndex>,
    /// Entity tags of the open documents by their paths. A tag is empty if the file can have other content, or can be missing.
    pub(super) open: BTreeMap<String, String>,
    /// Entity tags of the fixed documents by their paths. A tag is empty if the file can be missing.
    #[serde(default)]
    pub(super) fixed: BTreeMap<String, String>,
    /// Paths of fixed documents that are no longer listed, with the time since then.
    #[serde(default, deserialize_with = "former")]
    pub(super) former: BTreeMap<String, Timestamp>,
}

/// The closed documents that the copy has of a face.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FaceIndex {
    /// Folder of the closed documents.
    pub(super) folder: String,
    /// Number of the first closed document.
    pub(super) first: u64,
    /// Number of the last closed document; less than `first` if there is none.
    pub(super) last: u64,
}

/// Reads the former documents. Those of a version that noted no times are removed by the next run.
fn former<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Timestamp>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Former {
        Since(BTreeMap<String, Timestamp>),
        Paths(Vec<String>),
    }
    Ok(match Former::deserialize(deserializer)? {
        Former::Since(since) => since,
        Former::Paths(paths) => paths.into_iter().map(|path| (path, Timestamp::EPOCH)).collect(),
    })
}

impl Index {
    /// Returns the index of a copy without documents.
    pub(super) fn empty(identity: &Identity) -> Self {
        Self {
            journal: identity.journal,
            head: Seq::ZERO,
            published: Timestamp::now(),
            complete: false,
            view: Some(identity.view.clone()),
            faces: BTreeMap::new(),
            open: BTreeMap::new(),
            fixed: BTreeMap::new(),
            former: BTreeMap::new(),
        }
    }

    /// Returns the entity tag of an open or a fixed document; `None` if the index does not name it.
    pub(super) fn tag(&self, path: &str) -> Option<&String> {
        self.fixed.get(path).or_else(|| self.open.get(path))
    }

    /// Returns whether another index differs from this one in more than its time.
    pub(super) fn differs(&self, other: &Self) -> bool {
        *self != Self { published: self.published, ..other.clone() }
    }

    /// Returns whether the closed documents of the index are of this identity, in these folders, and begin at these numbers.
    pub(super) fn continues(&self, identity: &Identity, plan: &BTreeMap<String, FaceIndex>) -> bool {
        let has_same_face = |(name, planned): (&String, &FaceIndex)| {
            let known = self.faces.get(name);
            known.is_some_and(|known| known.folder == planned.folder && known.first == planned.first)
        };
        self.journal == identity.journal
            && self.view.as_ref() == Some(&identity.view)
            && self.faces.len() == plan.len()
            && plan.iter().all(has_same_face)
    }

    /// Returns the index with which a run of another edition begins: without everything that this run removes or replaces.
    pub(super) fn restarted(&self, identity: &Identity, plan: &BTreeMap<String, FaceIndex>) -> Self {
        let has_same_view = self.view.as_ref() == Some(&identity.view);
        let is_same_stream = has_same_view && self.journal == identity.journal;
        let kept = |(name, planned): (&String, &FaceIndex)| {
            let known = self.faces.get(name).filter(|known| known.folder == planned.folder)?;
            Some((name.clone(), FaceIndex { last: known.last, ..planned.clone() }))
        };
        // The documents of another view are removed.
        let tags = |tags: &BTreeMap<String, String>| {
            let known = |tag: &String| if has_same_view { tag.clone() } else { String::new() };
            tags.iter().map(|(path, tag)| (path.clone(), known(tag))).collect()
        };
        Self {
            journal: identity.journal,
            head: if is_same_stream { self.head } else { Seq::ZERO },
            published: self.published,
            complete: false,
            view: self.view.clone().filter(|_| has_same_view),
            faces: plan.iter().filter_map(kept).collect(),
            open: tags(&self.open),
            fixed: tags(&self.fixed),
            former: self.former.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use uuid::Uuid;

    use super::{FaceIndex, Identity, Index, Seq, Timestamp};
    use crate::{files::FileStoreLocation, publish::PublicationSettings};

    fn identity(journal: u128, view: &str) -> Identity {
        let location = FileStoreLocation::Folder("/copy".into());
        let (url, interval) = ("http://copy".to_owned(), Duration::from_secs(1));
        let view = Some(serde_json::from_str(view).unwrap());
        Identity::new(Uuid::from_u128(journal), &PublicationSettings { location, url, view, interval })
    }

    fn plan(folder: &str, first: u64) -> BTreeMap<String, FaceIndex> {
        BTreeMap::from([("feed".to_owned(), FaceIndex { folder: folder.to_owned(), first, last: 0 })])
    }

    /// An index that is interrupted by the restart of another edition promises nothing to the former edition.
    #[test]
    fn index_of_another_edition_has_no_documents() {
        let [wide, narrow] = ["{}", r#"{ "public": true }"#].map(|view| identity(1, view));
        let complete = Index {
            head: Seq(900),
            complete: true,
            faces: BTreeMap::from([("feed".to_owned(), FaceIndex { last: 8, ..plan("feed/a", 1)["feed"].clone() })]),
            open: BTreeMap::from([("feed.atom".to_owned(), "tag".to_owned())]),
            fixed: BTreeMap::from([("feed/a/1-2.atom".to_owned(), "tag".to_owned())]),
            ..Index::empty(&wide)
        };
        assert!(complete.continues(&wide, &plan("feed/a", 1)));
        let restarted = complete.restarted(&narrow, &plan("feed/b", 1));
        assert_eq!((restarted.head, restarted.view.as_ref(), restarted.faces.len()), (Seq(0), None, 0));
        assert_eq!([restarted.tag("feed.atom").unwrap(), restarted.tag("feed/a/1-2.atom").unwrap()], ["", ""]);
        assert!(!restarted.complete && !restarted.continues(&narrow, &plan("feed/b", 1)));
        // Back to the former view before the run has removed anything.
        let back = restarted.restarted(&wide, &plan("feed/a", 1));
        assert_eq!((back.view.as_ref(), back.faces.len()), (None, 0), "its documents may be gone");
        // Retention, and another title: the view stays.
        assert!(!complete.continues(&wide, &plan("feed/a", 2)));
        let shortened = complete.restarted(&wide, &plan("feed/a", 2));
        assert_eq!((shortened.head, shortened.faces["feed"].first, shortened.faces["feed"].last), (Seq(900), 2, 8));
        assert_eq!((shortened.view, shortened.open), (Some(wide.view.clone()), complete.open.clone()));
        assert_eq!(shortened.fixed, complete.fixed);
        let titled = complete.restarted(&wide, &plan("feed/c", 1));
        assert_eq!((titled.view.is_some(), titled.faces.len()), (true, 0));
        assert!(!complete.continues(&identity(2, "{}"), &plan("feed/a", 1)));
    }

    /// Otherwise, a new version would make the whole copy again.
    #[test]
    fn index_with_members_of_another_version_is_readable() {
        let index = Index::empty(&identity(1, "{}"));
        let mut json = serde_json::to_value(&index).unwrap();
        json["former"] = serde_json::json!(["a"]);
        let read: Index = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(read, Index { former: [("a".to_owned(), Timestamp::EPOCH)].into(), ..index.clone() });
        json.as_object_mut().unwrap().remove("former");
        assert_eq!(serde_json::from_value::<Index>(json).unwrap(), index);
    }

    #[test]
    fn index_that_has_only_another_time_is_the_same() {
        let index = Index::empty(&identity(1, "{}"));
        assert!(!index.differs(&Index { published: Timestamp::EPOCH, ..index.clone() }));
        assert!(index.differs(&Index { head: Seq(1), ..index.clone() }));
    }
}
