//! The facts of a result, as an ingest proceeds.

use url::Url;

use super::{LandingPage, platform::Dataset};
use crate::format::fileset::{
    FilesetRequest,
    message::{FilesetResult, Terminal},
    status::IngestStatus,
};

/// Number of files above which a result lists only the first ones, and how many.
const LISTED_FILES: usize = 10_000;
const LISTED_OF_MANY: usize = 200;

impl FilesetResult {
    /// Begins the result of a request.
    pub(super) fn begin(request: FilesetRequest) -> Self {
        let hops = vec![request.base_url.to_string()];
        Self { hops, ..Self::new(request, IngestStatus::NO_CAPTURE) }
    }

    /// Takes the archive of a previous result over.
    pub(super) fn take_over(&mut self, previous: &Self) {
        let FilesetResult {
            manifest,
            total_size,
            ingest_strategy,
            archive_url,
            warc_sha256,
            cdx_sha256,
            fileset_bundle,
            fileset_file,
            ..
        } = previous.clone();
        self.manifest = manifest;
        (self.total_size, self.ingest_strategy, self.archive_url) = (total_size, ingest_strategy, archive_url);
        (self.warc_sha256, self.cdx_sha256) = (warc_sha256, cdx_sha256);
        (self.fileset_bundle, self.fileset_file) = (fileset_bundle, fileset_file);
    }

    /// Adds the facts about the landing page.
    pub(super) fn describe_page(&mut self, page: &LandingPage) {
        self.hops = page.hops.iter().map(Url::to_string).collect();
        let meta = page.body.as_ref().map(|body| body.meta().clone());
        self.landing_page.terminal = Some(Terminal {
            terminal_url: page.url.to_string(),
            terminal_dt: Some(page.time.datetime().format("%Y%m%d%H%M%S").to_string()),
            terminal_status_code: Some(page.status.as_u16()),
            terminal_sha1hex: meta.as_ref().map(|meta| meta.sha1hex.clone()),
        });
        self.landing_page.file_meta = meta;
        self.html_biblio = page.links.biblio.members();
    }

    /// Adds the facts of the platform.
    pub(super) fn describe_dataset(&mut self, dataset: &Dataset) {
        let Dataset { platform_name, platform_domain, platform_id, archiveorg_item_name, base_url, files, .. } =
            dataset;
        let listed = if files.len() > LISTED_FILES { LISTED_OF_MANY } else { files.len() };
        self.platform_name = Some((*platform_name).to_owned());
        self.platform_domain = Some(platform_domain.clone());
        self.platform_id = Some(platform_id.clone());
        self.platform_base_url.clone_from(base_url);
        self.archiveorg_item_name = Some(archiveorg_item_name.clone());
        self.manifest = Some(files.iter().take(listed).map(|file| file.manifest.clone()).collect());
        self.file_count = Some(files.len() as u64);
        self.total_size = Some(dataset.total_size());
    }
}
