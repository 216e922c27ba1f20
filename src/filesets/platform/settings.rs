//! Addresses of the platforms.

use url::Url;

use super::{TokenPlace, below, segments};
use crate::filesets::PlatformToken;

/// Addresses of the platforms, and their access tokens.
#[derive(Clone, Debug)]
pub struct PlatformSettings {
    /// Base URLs of Zenodo and other installations of InvenioRDM.
    pub invenio: Vec<Url>,
    /// Hosts of Figshare's landing pages; `*.` stands for any part before.
    pub figshare_hosts: Vec<String>,
    /// Base URL of Figshare's interface.
    pub figshare_api: Url,
    /// Base URL of Figshare's downloads of whole articles.
    pub figshare_bundles: Url,
    /// Base URL of archive.org.
    pub archiveorg: Url,
    /// Base URL of Dryad.
    pub dryad: Url,
    /// Base URL of the landing pages of OSF, and of its interface.
    pub osf: Url,
    /// Base URL of the interface of OSF.
    pub osf_api: Url,
    /// Base URL of the interface of DataCite, with the metadata of DOIs.
    pub datacite: Url,
    /// Access tokens, each for one place.
    pub tokens: Vec<(TokenPlace, PlatformToken)>,
}

impl PlatformSettings {
    /// Returns whether a URL is one of an interface. Files that an interface serves are not meant.
    pub(super) fn has_interface_at(&self, url: &Url) -> bool {
        let Self { invenio, figshare_api, archiveorg, dryad, osf_api, datacite, .. } = self;
        let of_records = invenio.iter().map(|base| below(base, ["api", "records"]));
        let of_others = [
            below(figshare_api, ["articles"]),
            below(archiveorg, ["metadata"]),
            below(dryad, ["api", "v2"]),
            below(osf_api, ["nodes"]),
            below(osf_api, ["registrations"]),
            below(datacite, ["dois"]),
        ];
        let is_file = |path: &[String]| path.last().is_some_and(|last| last == "content" || last == "download");
        let path = segments(url);
        of_records.chain(of_others).any(|base| {
            let start = segments(&base);
            base.origin() == url.origin() && path.starts_with(&start) && !is_file(&path[start.len()..])
        })
    }
}
