//! Behaviours of real platforms that the simulated one can have, and the settings of its gateway.

use proptest::prelude::*;

/// Way in which the platform continues a download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resume {
    /// Ranges and an ETag of the content.
    Etag,
    /// Ranges, and the same ETag for all contents. Only a platform that lists digests has this mistake, because nobody
    /// could notice it otherwise.
    WrongEtag,
    /// Ranges without a validator.
    NoValidator,
    /// The whole file.
    Whole,
}

/// Kind of platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Invenio,
    /// A page with some files in the header, and all in the linkset.
    Linkset,
    Osf,
    /// A bag with its numbers of files and bytes.
    Bag,
}

impl Kind {
    /// Returns whether the platform has an interface, which can say that a dataset is restricted.
    pub(super) fn has_interface(self) -> bool {
        matches!(self, Self::Invenio | Self::Osf)
    }
}

/// What becomes of a request for one file with all files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bundle {
    /// A zip file.
    Whole,
    /// A zip file without the last file, which `MANIFEST.TXT` names.
    LeavesOut,
    /// A zip file whose names have another form.
    Renames,
    /// 413, because it would be too large.
    Refused,
    /// 504, because it takes too long.
    TimesOut,
}

/// Behaviour of this platform.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    pub(super) kind: Kind,
    /// Files redirect to signed URLs of a storage.
    pub(super) signs: bool,
    /// Status and media type of the page of the traffic filter.
    pub(super) filter: (u16, &'static str),
    /// Status and headers of a busy server.
    pub(super) busy: (u16, &'static [(&'static str, &'static str)]),
    /// Landing pages redirect to a challenge.
    pub(super) challenges: bool,
    /// Gateways put datasets into items, and not into WARC files.
    pub(super) items: bool,
    /// Unsorted pages of a list repeat the last entry of the page before, and displace another.
    pub(super) overlaps: bool,
    /// Gateways look at archived datasets every second.
    pub(super) watches: bool,
    /// Interface and files need a token.
    pub(super) wants_token: bool,
    pub(super) resume: Resume,
    /// What the platform makes of a request for a bundle, if gateways ask for one.
    pub(super) bundle: Option<Bundle>,
    /// All files of a page have the same name in `Content-Disposition`.
    pub(super) clashes: bool,
    /// Records have the form of new versions of InvenioRDM, with the number of files.
    pub(super) counts: bool,
}

impl Behaviour {
    /// Returns the random behaviours.
    pub(super) fn any() -> BoxedStrategy<Self> {
        let kind = prop_oneof![
            3 => Just(Kind::Invenio),
            2 => Just(Kind::Linkset),
            2 => Just(Kind::Osf),
            1 => Just(Kind::Bag),
        ];
        let filter = prop_oneof![
            Just((403, "text/html")),
            Just((403, "application/octet-stream")),
            Just((403, "Text/HTML; charset=utf-8")),
            Just((200, "text/html")),
            Just((202, "text/html")),
        ];
        let resume =
            prop_oneof![Just(Resume::Etag), Just(Resume::WrongEtag), Just(Resume::NoValidator), Just(Resume::Whole)];
        let busy: [(u16, &'static [(&str, &str)]); 6] = [
            (429, &[("retry-after", "0")]),
            (503, &[("retry-after", "0")]),
            (429, &[("x-ratelimit-reset", "0")]),
            (502, &[]),
            (429, &[("retry-after", "1")]),
            (503, &[("retry-after", "1")]),
        ];
        let busy = (0..busy.len()).prop_map(move |at| busy[at]);
        let bundle = prop_oneof![
            5 => Just(None),
            1 => Just(Some(Bundle::Whole)),
            1 => Just(Some(Bundle::LeavesOut)),
            1 => Just(Some(Bundle::Renames)),
            1 => Just(Some(Bundle::Refused)),
            1 => Just(Some(Bundle::TimesOut)),
        ];
        (kind, filter, busy, resume, bundle, any::<[bool; 8]>())
            .prop_map(|(kind, filter, busy, resume, bundle, switches)| {
                let [signs, challenges, items, overlaps, watches, wants_token, clashes, counts] = switches;
                Self {
                    kind,
                    signs,
                    filter,
                    busy,
                    challenges,
                    items,
                    overlaps,
                    watches,
                    wants_token,
                    resume,
                    bundle,
                    clashes,
                    counts,
                }
            })
            .boxed()
    }
}
