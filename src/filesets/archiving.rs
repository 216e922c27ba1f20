//! The archiving of a dataset: in a WARC file, a web archive, an item, or as a bundle.

use std::sync::atomic::Ordering;

use axum::http::header::CONTENT_ENCODING;

use super::{
    IngestFailure, Ingester, LandingPage,
    archived_file::ArchivedFile,
    bundle::{self, BundleFailure},
    check::Totals,
    files::{self, DownloadContext, store_failure},
    item::{ItemFailure, ItemFile, Items},
    platform::{self, Dataset},
    warc::{RecordedResponse, WarcWriter},
    wayback::{CaptureFailure, CapturedFile, Wayback, WaybackSettings},
};
use crate::{
    files::FileStoreError,
    format::fileset::{
        message::{Capture, CdxLine, FilesetBundle, FilesetResult, IngestStrategy, ManifestFile, Terminal},
        public_url::without_secrets,
        status::IngestStatus,
    },
    model::Timestamp,
};

impl Ingester {
    /// Captures the files in a web archive; returns the captures, and the size of the files that the store did not have.
    pub(super) async fn capture(
        &self,
        settings: &WaybackSettings,
        dataset: &Dataset,
        result: &mut FilesetResult,
        context: DownloadContext<'_>,
    ) -> Result<(Vec<Capture>, u64), IngestFailure> {
        let wayback = Wayback { settings, client: &self.client };
        let fetched = wayback.fetch(&dataset.files, &self.transfers, context, self.settings.concurrency).await;
        let manifest = result.manifest.get_or_insert_default();
        let fetched = fetched.map_err(|CaptureFailure { index, failure }| {
            let entry = index.and_then(|index| manifest.get_mut(index));
            entry.into_iter().for_each(|entry| entry.status = Some(failure.status.clone()));
            failure
        })?;
        context.progress.done_files.store(fetched.len() as u64, Ordering::Relaxed);
        let size = fetched.iter().map(|captured| captured.file.stored.size).sum();
        dataset.check_bytes(size)?;
        result.total_size = Some(size);
        let new_bytes = new_bytes(fetched.iter().map(|captured| &captured.file));
        let captures = fetched.into_iter().enumerate().map(|(index, CapturedFile { mut file, capture })| {
            file.manifest.archive_url = self.archive_url(file.stored.digest);
            if let Some(entry) = manifest.get_mut(index) {
                *entry = file.manifest.clone();
            }
            let (cdx, revisit_cdx) = capture.map_or((None, None), |found| (Some(found.cdx), found.revisit_cdx));
            Capture { revisit_cdx, ..file.capture(cdx) }
        });
        Ok((captures.collect(), new_bytes))
    }

    /// Archives the bundle of a dataset, and returns its size if the store did not have it; returns `None` if the platform
    /// refuses to make one.
    pub(super) async fn ingest_bundle(
        &self,
        page: &LandingPage,
        dataset: &Dataset,
        strategy: IngestStrategy,
        result: &mut FilesetResult,
        context: DownloadContext<'_>,
    ) -> Result<Option<u64>, IngestFailure> {
        let Some(url) = &dataset.bundle_url else { return Ok(None) };
        let (file, limits) = (bundle::bundle_file(url), &self.settings.limits);
        let max_bytes = bundle::max_bytes(limits);
        let totals = Totals { dataset: max_bytes, ..context.totals };
        let bundle_context = DownloadContext { max_bytes, totals, ..context };
        let wayback = self.settings.wayback.as_ref().filter(|_| strategy.is_web());
        let fetched = match wayback {
            Some(settings) => {
                let wayback = Wayback { settings, client: &self.client };
                let fetched = wayback.fetch(std::slice::from_ref(&file), &self.transfers, bundle_context, 1).await;
                fetched.map(|captured| captured.into_iter().next()).map_err(|error| error.failure)
            }
            None => {
                let downloaded =
                    files::download(&file, &self.transfers, self.token(dataset, &file).as_ref(), bundle_context).await;
                downloaded.map(|file| Some(CapturedFile { file, capture: None })).map_err(|(_, failure)| failure)
            }
        };
        let CapturedFile { file: bundle, capture } = match fetched {
            Ok(Some(fetched)) => fetched,
            Ok(None) => return Ok(None),
            Err(failure) if bundle::is_refused(&failure) => {
                tracing::info!(dataset = %result.request.base_url, reason = %failure.message, "there is no bundle");
                context.progress.done_bytes.store(0, Ordering::Relaxed);
                return Ok(None);
            }
            Err(failure) => return Err(failure),
        };
        let store = &self.transfers.files;
        let members = bundle::read_members(store, &bundle, &dataset.files, limits, self.settings.max_file_bytes).await;
        let members = match members {
            Ok(members) => members,
            Err(BundleFailure { entries, failure }) => {
                let manifest = result.manifest.iter_mut().flatten().enumerate();
                for (_, entry) in manifest.filter(|(index, _)| entries.contains(index)) {
                    entry.status = Some(failure.status.clone());
                }
                files::forget(&file, context.workspace).await;
                return Err(failure);
            }
        };
        // The bundle itself, and the files that it lacks.
        let mut files = vec![bundle];
        let mut manifest = Vec::new();
        for (file, member) in dataset.files.iter().zip(members.manifest) {
            manifest.push(match member {
                Some(member) => member,
                None => {
                    let token = self.token(dataset, file);
                    let downloaded = files::download(file, &self.transfers, token.as_ref(), context);
                    let mut downloaded = downloaded.await.map_err(|(entry, failure)| {
                        let failure = bundle::of_missing(failure);
                        let entries = result.manifest.iter_mut().flatten();
                        let own = entries.filter(|known| known.path == entry.path);
                        own.for_each(|known| known.status = Some(failure.status.clone()));
                        failure
                    })?;
                    downloaded.manifest.archive_url = self.archive_url(downloaded.stored.digest);
                    let entry = downloaded.manifest.clone();
                    files.push(downloaded);
                    entry
                }
            });
        }
        let bundle = &files[0];
        context.progress.done_files.store(dataset.files.len() as u64, Ordering::Relaxed);
        result.total_size = Some(manifest.iter().filter_map(|file| file.size).sum());
        let listed = result.manifest.as_ref().map_or(0, Vec::len);
        manifest.truncate(listed);
        result.manifest = Some(manifest);
        let (mut cdx, mut revisit_cdx, mut path) = (None, None, None);
        if let Some(capture) = capture {
            (cdx, revisit_cdx) = (Some(capture.cdx), capture.revisit_cdx);
            self.archive_page(page, result).await.map_err(|error| store_failure(&error))?;
        } else if strategy.is_web() {
            let index = self.archive_in_warc(page, &files, result).await;
            cdx = index.map_err(|error| store_failure(&error))?.into_iter().next();
        } else {
            let name = bundle::path_in_item(&dataset.archiveorg_item_name, bundle);
            result.archive_url = self.archive_url(bundle.stored.digest);
            let others = files[1..].iter().map(|file| (file.manifest.path.clone(), file));
            let in_item: Vec<_> = std::iter::once((name.clone(), bundle)).chain(others).collect();
            self.archive_in_item(page, dataset, &in_item, result).await?;
            self.archive_page(page, result).await.map_err(|error| store_failure(&error))?;
            path = Some(name);
        }
        result.fileset_bundle = Some(FilesetBundle {
            capture: Capture { revisit_cdx, ..bundle.capture(cdx) },
            archiveorg_bundle_path: path,
            unlisted_members: members.unlisted,
        });
        Ok(Some(new_bytes(&files)))
    }

    /// Writes a WARC file with the landing page alone, for files that are archived elsewhere.
    pub(super) async fn archive_page(
        &self,
        page: &LandingPage,
        result: &mut FilesetResult,
    ) -> Result<(), FileStoreError> {
        let archive_url = result.archive_url.take();
        if page.body.is_some() {
            self.archive_in_warc(page, &[], result).await?;
        }
        result.archive_url = archive_url;
        Ok(())
    }

    /// Writes a WARC file with the landing page, the files and the redirections to them, and its index; returns the lines of
    /// the files.
    pub(super) async fn archive_in_warc(
        &self,
        page: &LandingPage,
        files: &[ArchivedFile],
        result: &mut FilesetResult,
    ) -> Result<Vec<CdxLine>, FileStoreError> {
        let store = &self.transfers.files;
        let mut warc = WarcWriter::new(store, Timestamp::now()).await?;
        warc.redirections(&page.redirections).await?;
        let page_meta = result.landing_page.file_meta.clone();
        if let (Some(body), Some(meta)) = (&page.body, page_meta) {
            let url = without_secrets(page.url.as_str());
            let mut headers = page.headers.clone();
            // The body is stored without an encoding.
            headers.remove(CONTENT_ENCODING);
            let response = RecordedResponse {
                url: &url,
                time: page.time,
                status: page.status.as_u16(),
                headers: &headers,
                sha1: &meta.sha1hex,
                media_type: meta.mimetype.as_deref(),
            };
            result.landing_page.cdx = Some(warc.page(&response, body).await?);
        }
        let is_shared =
            |url: &Option<String>| files.iter().filter(|file| file.manifest.terminal_url == *url).count() > 1;
        let mut lines = Vec::new();
        for ArchivedFile { manifest, stored, headers, time, redirections } in files {
            // Without its query, the last URL of several files can be the same one. The URL of the list is not.
            let is_shared = is_shared(&manifest.terminal_url);
            let url = if is_shared { &manifest.platform_url } else { &manifest.terminal_url };
            if !is_shared {
                warc.redirections(redirections).await?;
            }
            let response = RecordedResponse {
                url: url.as_deref().unwrap_or_default(),
                time: *time,
                status: 200,
                headers,
                sha1: manifest.sha1.as_deref().unwrap_or_default(),
                media_type: manifest.mimetype.as_deref(),
            };
            lines.push(warc.file(&response, store, stored.digest).await?);
        }
        let warc = warc.finish().await?;
        let mut index = store.create().await?;
        index.write(warc.cdxj().into()).await?;
        let index = index.finish().await?;
        result.archive_url = self.archive_url(warc.stored.digest);
        result.warc_sha256 = Some(warc.stored.digest.to_string());
        result.cdx_sha256 = Some(index.digest.to_string());
        let path = warc.path();
        if let Some(line) = &mut result.landing_page.cdx {
            line.warc_path = Some(path.clone());
        }
        lines.iter_mut().for_each(|line| line.warc_path = Some(path.clone()));
        Ok(lines)
    }

    /// Puts files with their paths into an item: at archive.org, or in the file store.
    pub(super) async fn archive_in_item(
        &self,
        page: &LandingPage,
        dataset: &Dataset,
        files: &[(String, &ArchivedFile)],
        result: &mut FilesetResult,
    ) -> Result<(), IngestFailure> {
        let item = &dataset.archiveorg_item_name;
        // Its own items are not copied back.
        let Some(items) = self.items().filter(|_| dataset.platform_name != platform::ARCHIVE_ORG) else {
            let names = files.iter().map(|(path, file)| (path.clone(), file.stored.digest)).collect();
            let published = self.transfers.files.publish(item, &dataset.identity(), names).await;
            return published.map_err(|error| match error {
                FileStoreError::OtherOwner { .. } => {
                    IngestFailure::permanent(IngestStatus::MISMATCH_EXISTING, error.to_string())
                }
                other => store_failure(&other),
            });
        };
        let item_files: Vec<_> = files.iter().map(|(path, file)| ItemFile::new(path, file)).collect();
        let manifest = result.manifest.get_or_insert_default();
        let uploaded = items.upload(item, &item_files, dataset, &page.url).await;
        let position = |manifest: &[ManifestFile], index: usize| {
            let path = &item_files.get(index)?.path;
            manifest.iter().position(|entry| entry.path == *path)
        };
        let existing = uploaded.map_err(|ItemFailure { files, failure }| {
            for index in files {
                if let Some(at) = position(manifest, index) {
                    manifest[at].status = Some(failure.status.clone());
                }
            }
            failure
        })?;
        result.archive_url = Some(items.url(item, ""));
        for (index, is_existing) in existing.into_iter().enumerate() {
            let Some(at) = position(manifest, index) else { continue };
            manifest[at].archive_url = Some(items.url(item, &item_files[index].path));
            if is_existing {
                manifest[at].status = Some(IngestStatus::EXISTS);
            }
        }
        Ok(())
    }

    /// Returns the items at archive.org, if uploads are configured.
    pub(super) fn items(&self) -> Option<Items<'_>> {
        let settings = self.settings.items.as_ref()?;
        let archiveorg = &self.settings.platforms.archiveorg;
        let store = &self.transfers.files;
        Some(Items { settings, archiveorg, client: &self.client, uploads: &self.uploads, store })
    }
}

/// Returns the size of the files that the store did not have, in bytes.
pub(super) fn new_bytes<'f>(files: impl IntoIterator<Item = &'f ArchivedFile>) -> u64 {
    files.into_iter().filter(|file| file.stored.is_new).map(|file| file.stored.size).sum()
}

impl ArchivedFile {
    /// Returns the file as the only one of a dataset, with its line of the index of a web archive.
    pub(super) fn capture(&self, cdx: Option<CdxLine>) -> Capture {
        let ManifestFile { terminal_url, terminal_dt, sha1, .. } = self.manifest.clone();
        let terminal = terminal_url.map(|terminal_url| Terminal {
            terminal_url,
            terminal_dt,
            terminal_status_code: Some(200),
            terminal_sha1hex: sha1,
        });
        Capture { terminal, file_meta: Some(self.meta()), cdx, revisit_cdx: None }
    }
}
