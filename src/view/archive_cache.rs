//! Cache of rendered archive pages on disk, so that no page is rendered twice.
//!
//! The files only copy data of the journal: a damaged page is rendered again, a page that cannot be written is served
//! anyway, and the folder may be deleted.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use flate2::Crc;
use sha2::{Digest, Sha256};

use super::atom::MEDIA_TYPE;
use crate::{
    journal::private_files,
    model::Timestamp,
    web::{CachePolicy, Content, MAX_IN_MEMORY, Representation, SpooledFile},
};

/// Folder of rendered pages, `<data>/pages/<fingerprint>/<n>.atom` and `<n>.atom.gz`.
#[derive(Clone, Debug)]
pub(super) struct ArchiveCache {
    path: PathBuf,
    /// Number before which all pages have been removed.
    removed_before: Arc<AtomicU64>,
}

impl ArchiveCache {
    /// Opens the folder of the pages with a fingerprint (32 hexadecimal digits). Removes pages with another
    /// fingerprint: they belong to another journal, URL or rendering.
    pub(super) fn open(data: &Path, fingerprint: &str) -> Self {
        let pages = data.join("pages");
        for folder in fs::read_dir(&pages).into_iter().flatten().filter_map(Result::ok) {
            let name = folder.file_name();
            let is_fingerprint = name.len() == 32 && name.to_str().is_some_and(|name| hex::decode(name).is_ok());
            if is_fingerprint
                && name != fingerprint
                && let Err(error) = fs::remove_dir_all(folder.path())
            {
                tracing::warn!(folder = %folder.path().display(), %error, "cannot remove outdated archive pages");
            }
        }
        Self { path: pages.join(fingerprint), removed_before: Arc::new(AtomicU64::new(1)) }
    }

    /// Loads a page if it is stored and undamaged. The file is read once to check it; a large page is then sent from
    /// disk.
    pub(super) fn load(&self, number: u64) -> Option<Representation> {
        let (body, gzip) = (File::open(self.file(number)).ok()?, File::open(self.gzip_file(number)).ok()?);
        let page = read_page(body, gzip).ok().flatten();
        if page.is_none() {
            tracing::warn!(number, folder = %self.path.display(), "archive page is damaged; rendering it again");
        }
        page
    }

    /// Stores a page and returns the page to serve: a large page is served from its files. Errors are only logged,
    /// because the page can be served anyway.
    pub(super) fn store(&self, number: u64, page: Representation) -> Representation {
        // A page that is too small to compress is too small to store.
        let Some(gzip) = &page.gzip else { return page };
        let stored = private_files::create_folder(&self.path)
            .and_then(|()| write_atomically(&self.gzip_file(number), gzip))
            .and_then(|()| write_atomically(&self.file(number), &page.body));
        if let Err(error) = stored {
            tracing::warn!(number, folder = %self.path.display(), %error, "cannot store an archive page");
            return page;
        }
        let is_large = matches!(page.body, Content::File(_));
        if is_large { self.load(number).unwrap_or(page) } else { page }
    }

    /// Removes the pages before `number`, which retention has removed.
    pub(super) fn remove_before(&self, number: u64) {
        let Self { path, removed_before } = self;
        if removed_before.fetch_max(number, Ordering::Relaxed) >= number {
            return;
        }
        for file in fs::read_dir(path).into_iter().flatten().filter_map(Result::ok) {
            let name = file.file_name();
            let page =
                name.to_str().and_then(|name| name.split_once('.')).and_then(|(page, _)| page.parse::<u64>().ok());
            if page.is_some_and(|page| page < number)
                && let Err(error) = fs::remove_file(file.path())
            {
                tracing::warn!(file = %file.path().display(), %error, "cannot remove an expired archive page");
            }
        }
    }

    fn file(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number}.atom"))
    }

    fn gzip_file(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number}.atom.gz"))
    }
}

/// Writes a file atomically and durably.
fn write_atomically(path: &Path, content: &Content) -> io::Result<()> {
    private_files::replace_file(path, |file| io::copy(&mut content.reader(), file).map(|_| ()))
}

/// Size of the pieces in which a page is read, in bytes. The first piece contains the part before the entries.
const PIECE: usize = 64 << 10;

/// Reads and checks a page. It is undamaged if the checksum and length at the end of its gzip file (RFC 1952 section
/// 2.3.1) match its bytes, and if it has a time.
fn read_page(mut body: File, mut gzip: File) -> io::Result<Option<Representation>> {
    let (length, gzip_length) = (body.metadata()?.len(), gzip.metadata()?.len());
    let (mut crc, mut digest, mut time) = (Crc::new(), Sha256::new(), None);
    let mut in_memory = Vec::new();
    let mut piece = Vec::with_capacity(PIECE);
    while (&mut body).take(PIECE as u64).read_to_end(&mut piece)? > 0 {
        if crc.amount() == 0 {
            time = updated(&piece);
        }
        crc.update(&piece);
        digest.update(&piece);
        if length <= MAX_IN_MEMORY as u64 {
            in_memory.extend_from_slice(&piece);
        }
        piece.clear();
    }
    let mut end = Vec::new();
    gzip.seek(SeekFrom::Start(gzip_length.saturating_sub(8)))?;
    gzip.read_to_end(&mut end)?;
    let is_undamaged = end == [crc.sum().to_le_bytes(), crc.amount().to_le_bytes()].concat();
    let Some(time) = time.filter(|_| is_undamaged) else { return Ok(None) };
    let [body, gzip] = if length <= MAX_IN_MEMORY as u64 {
        let mut compressed = Vec::new();
        gzip.rewind()?;
        gzip.read_to_end(&mut compressed)?;
        [in_memory, compressed].map(|bytes| Content::Memory(Bytes::from(bytes)))
    } else {
        [(body, length), (gzip, gzip_length)].map(|(file, length)| Content::File(SpooledFile::new(file, length)))
    };
    let digest = digest.finalize().into();
    let page = Representation::from_compressed(MEDIA_TYPE, body, Some(gzip), digest, CachePolicy::Immutable);
    Ok(Some(page.last_modified(time.datetime())))
}

/// Returns the time of a feed: its first `updated`, which precedes all entries.
fn updated(beginning: &[u8]) -> Option<Timestamp> {
    let start = memchr::memmem::find(beginning, b"<updated>")? + b"<updated>".len();
    let length = memchr::memmem::find(&beginning[start..], b"</updated>")?;
    Timestamp::parse(std::str::from_utf8(&beginning[start..start + length]).ok()?).ok()
}

/// Size in the cache that stands for the two open files of a page on disk, because the number of open files of a
/// process is limited.
const OPEN_FILES_COST: usize = 256 << 10;

/// Returns the size of a page in the memory cache, in bytes.
pub(super) fn size_in_cache(page: &Representation) -> usize {
    let parts = [Some(&page.body), page.gzip.as_ref()].into_iter().flatten();
    let open_files = if matches!(page.body, Content::File(_)) { OPEN_FILES_COST } else { 0 };
    open_files + parts.map(Content::memory_bytes).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{ArchiveCache, CachePolicy, Content, MEDIA_TYPE, Representation, size_in_cache};

    const FINGERPRINT: &str = "00112233445566778899aabbccddeeff";

    fn page(filling: &str) -> Representation {
        let body = format!("<feed><updated>2026-01-02T03:04:05.006+00:00</updated>{}</feed>", filling.repeat(2000));
        Representation::new(MEDIA_TYPE, body, CachePolicy::Immutable)
    }

    #[test]
    fn stored_page_is_loaded_unchanged() {
        let data = tempfile::tempdir().unwrap();
        let folder = ArchiveCache::open(data.path(), FINGERPRINT);
        assert!(folder.load(1).is_none());
        let stored = folder.store(1, page("x"));
        let loaded = ArchiveCache::open(data.path(), FINGERPRINT).load(1).unwrap();
        let parts = |page: &Representation| (bytes(&page.body), page.gzip.as_ref().map(bytes), page.etag.clone());
        assert_eq!(parts(&loaded), parts(&stored));
        let response = loaded.respond(&axum::http::Method::GET, &axum::http::HeaderMap::new());
        assert_eq!(response.headers()["last-modified"], "Fri, 02 Jan 2026 03:04:05 GMT");
        let names: Vec<_> = fs::read_dir(&folder.path).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }

    fn bytes(content: &Content) -> Vec<u8> {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut content.reader(), &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn large_page_is_served_from_files() {
        let data = tempfile::tempdir().unwrap();
        let folder = ArchiveCache::open(data.path(), FINGERPRINT);
        let large = page(&"some text ".repeat(100));
        let (body, etag) = (bytes(&large.body), large.etag.clone());
        folder.store(1, large);
        let loaded = folder.load(1).unwrap();
        assert!(matches!(loaded.body, Content::File(_)));
        assert_eq!((bytes(&loaded.body) == body, loaded.etag.clone()), (true, etag));
        assert!(size_in_cache(&loaded) < 1 << 20);
    }

    #[test]
    fn damaged_page_is_not_served() {
        let data = tempfile::tempdir().unwrap();
        let folder = ArchiveCache::open(data.path(), FINGERPRINT);
        for damaged in ["1.atom", "1.atom.gz"] {
            folder.store(1, page("x"));
            let file = folder.path.join(damaged);
            let whole = fs::read(&file).unwrap();
            fs::write(&file, &whole[..whole.len() - 1]).unwrap();
            assert!(folder.load(1).is_none(), "{damaged}");
            fs::remove_file(&file).unwrap();
            assert!(folder.load(1).is_none(), "{damaged}");
        }
    }

    #[test]
    fn only_pages_with_another_fingerprint_are_removed() {
        let data = tempfile::tempdir().unwrap();
        let folder = ArchiveCache::open(data.path(), FINGERPRINT);
        folder.store(1, page("x"));
        fs::create_dir(data.path().join("pages/mine")).unwrap();
        ArchiveCache::open(data.path(), "ffeeddccbbaa99887766554433221100");
        assert!(folder.load(1).is_none());
        assert!(data.path().join("pages/mine").exists());
    }

    #[test]
    fn expired_pages_are_removed() {
        let data = tempfile::tempdir().unwrap();
        let folder = ArchiveCache::open(data.path(), FINGERPRINT);
        [9, 10, 11].iter().for_each(|number| drop(folder.store(*number, page("x"))));
        folder.remove_before(10);
        folder.store(9, page("x"));
        folder.remove_before(10);
        assert_eq!([9, 10, 11].map(|number| folder.load(number).is_some()), [true, true, true]);
        folder.remove_before(11);
        let names = fs::read_dir(&folder.path).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["11.atom", "11.atom.gz"]);
    }

    #[test]
    fn failure_to_store_is_ignored() {
        let data = tempfile::tempdir().unwrap();
        fs::write(data.path().join("pages"), "a file where a folder should be").unwrap();
        let folder = ArchiveCache::open(data.path(), FINGERPRINT);
        folder.store(1, page("x"));
        assert!(folder.load(1).is_none());
    }
}
