//! Archive pages that have been rendered, on disk for as long as the data folder lives, so that no page is rendered
//! twice.
//!
//! What is on disk is a copy of what the journal can give again: a page that is damaged is rendered
//! anew, one that cannot be written is served all the same, and the folder may be removed.

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
    web::{CachePolicy, Content, IN_MEMORY, Representation, SpooledFile},
};

/// The rendered pages on disk, `<data>/pages/<fingerprint>/<n>.atom` and `<n>.atom.gz`.
#[derive(Clone, Debug)]
pub(super) struct PageFolder {
    path: PathBuf,
    /// Pages before this one have been removed.
    forgotten: Arc<AtomicU64>,
}

impl PageFolder {
    /// The folder of the pages with that fingerprint (32 hexadecimal digits). Pages with another
    /// fingerprint are of another journal, another address, or rendered in another way: they are
    /// removed.
    pub(super) fn open(data: &Path, fingerprint: &str) -> Self {
        let pages = data.join("pages");
        for folder in fs::read_dir(&pages).into_iter().flatten().filter_map(Result::ok) {
            let name = folder.file_name();
            let is_fingerprint = name.len() == 32 && name.to_str().is_some_and(|name| hex::decode(name).is_ok());
            if is_fingerprint
                && name != fingerprint
                && let Err(error) = fs::remove_dir_all(folder.path())
            {
                tracing::warn!(folder = %folder.path().display(), %error, "old archive pages were not removed");
            }
        }
        Self { path: pages.join(fingerprint), forgotten: Arc::new(AtomicU64::new(1)) }
    }

    /// The page, if it is there whole. It is read through once; a large one is left on disk and sent from there.
    pub(super) fn load(&self, number: u64) -> Option<Representation> {
        let (body, gzip) = (File::open(self.file(number)).ok()?, File::open(self.gzip_file(number)).ok()?);
        let page = whole_page(body, gzip).ok().flatten();
        if page.is_none() {
            tracing::warn!(number, folder = %self.path.display(), "an archive page is damaged and is rendered anew");
        }
        page
    }

    /// Keeps the page, and gives it back as it is to be served: a large one from its files. What goes wrong is logged: the
    /// page can be served nevertheless.
    pub(super) fn keep(&self, number: u64, page: Representation) -> Representation {
        // Too small to be worth compressing is too small to be worth keeping.
        let Some(gzip) = &page.gzip else { return page };
        let kept = private_files::create_folder(&self.path)
            .and_then(|()| write_whole(&self.gzip_file(number), gzip))
            .and_then(|()| write_whole(&self.file(number), &page.body));
        if let Err(error) = kept {
            tracing::warn!(number, folder = %self.path.display(), %error, "an archive page cannot be kept on disk");
            return page;
        }
        let is_large = matches!(page.body, Content::File(_));
        if is_large { self.load(number).unwrap_or(page) } else { page }
    }

    /// Removes the pages before that one, which are no longer kept.
    pub(super) fn forget_before(&self, number: u64) {
        let Self { path, forgotten } = self;
        if forgotten.fetch_max(number, Ordering::Relaxed) >= number {
            return;
        }
        for file in fs::read_dir(path).into_iter().flatten().filter_map(Result::ok) {
            let name = file.file_name();
            let of = name.to_str().and_then(|name| name.split_once('.')).and_then(|(of, _)| of.parse::<u64>().ok());
            if of.is_some_and(|of| of < number)
                && let Err(error) = fs::remove_file(file.path())
            {
                tracing::warn!(file = %file.path().display(), %error, "an archive page that is gone was not removed");
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

/// Writes a file so that it is there as a whole or not at all, after a crash too.
fn write_whole(path: &Path, content: &Content) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = private_files::create_file(Path::new(&beside))?;
    io::copy(&mut content.reader(), &mut file)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

/// Size of the pieces in which a page is read, in bytes: the first of them has what stands before the entries.
const PIECE: usize = 64 << 10;

/// Reads a page through: it is whole if its gzip file was made of these bytes, by the checksum and the length at its
/// end (RFC 1952 section 2.3.1), and it has a time.
fn whole_page(mut body: File, mut gzip: File) -> io::Result<Option<Representation>> {
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
        if length <= IN_MEMORY as u64 {
            in_memory.extend_from_slice(&piece);
        }
        piece.clear();
    }
    let mut end = Vec::new();
    gzip.seek(SeekFrom::Start(gzip_length.saturating_sub(8)))?;
    gzip.read_to_end(&mut end)?;
    let is_whole = end == [crc.sum().to_le_bytes(), crc.amount().to_le_bytes()].concat();
    let Some(time) = time.filter(|_| is_whole) else { return Ok(None) };
    let [body, gzip] = if length <= IN_MEMORY as u64 {
        let mut compressed = Vec::new();
        gzip.rewind()?;
        gzip.read_to_end(&mut compressed)?;
        [in_memory, compressed].map(|bytes| Content::Memory(Bytes::from(bytes)))
    } else {
        [(body, length), (gzip, gzip_length)].map(|(file, length)| Content::File(SpooledFile::new(file, length)))
    };
    let digest = digest.finalize().into();
    let page = Representation::compressed_before(MEDIA_TYPE, body, Some(gzip), digest, CachePolicy::Immutable);
    Ok(Some(page.last_modified(time.datetime())))
}

/// The time of a feed: its first `updated`, which stands before every entry.
fn updated(beginning: &[u8]) -> Option<Timestamp> {
    let start = memchr::memmem::find(beginning, b"<updated>")? + b"<updated>".len();
    let length = memchr::memmem::find(&beginning[start..], b"</updated>")?;
    Timestamp::parse(std::str::from_utf8(&beginning[start..start + length]).ok()?).ok()
}

/// Share in the cache of a page that is in files: it takes two of the files that the system lets a process have open.
const OPEN_FILES: usize = 256 << 10;

/// Size of a page in a cache, in bytes.
pub(super) fn size_in_cache(page: &Representation) -> usize {
    let parts = [Some(&page.body), page.gzip.as_ref()].into_iter().flatten();
    let open = if matches!(page.body, Content::File(_)) { OPEN_FILES } else { 0 };
    open + parts.map(Content::in_memory).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{CachePolicy, Content, MEDIA_TYPE, PageFolder, Representation, size_in_cache};

    const FINGERPRINT: &str = "00112233445566778899aabbccddeeff";

    fn page(filling: &str) -> Representation {
        let body = format!("<feed><updated>2026-01-02T03:04:05.006+00:00</updated>{}</feed>", filling.repeat(2000));
        Representation::new(MEDIA_TYPE, body, CachePolicy::Immutable)
    }

    #[test]
    fn a_page_that_is_kept_comes_back_as_it_was() {
        let data = tempfile::tempdir().unwrap();
        let folder = PageFolder::open(data.path(), FINGERPRINT);
        assert!(folder.load(1).is_none());
        let kept = folder.keep(1, page("x"));
        let loaded = PageFolder::open(data.path(), FINGERPRINT).load(1).unwrap();
        let parts = |page: &Representation| (bytes(&page.body), page.gzip.as_ref().map(bytes), page.etag.clone());
        assert_eq!(parts(&loaded), parts(&kept));
        let told = loaded.respond(&axum::http::Method::GET, &axum::http::HeaderMap::new());
        assert_eq!(told.headers()["last-modified"], "Fri, 02 Jan 2026 03:04:05 GMT");
        let names: Vec<_> = fs::read_dir(&folder.path).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }

    fn bytes(content: &Content) -> Vec<u8> {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut content.reader(), &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_large_page_is_served_from_its_files() {
        let data = tempfile::tempdir().unwrap();
        let folder = PageFolder::open(data.path(), FINGERPRINT);
        let large = page(&"some text ".repeat(100));
        let (body, etag) = (bytes(&large.body), large.etag.clone());
        folder.keep(1, large);
        let loaded = folder.load(1).unwrap();
        assert!(matches!(loaded.body, Content::File(_)));
        assert_eq!((bytes(&loaded.body) == body, loaded.etag.clone()), (true, etag));
        assert!(size_in_cache(&loaded) < 1 << 20);
    }

    #[test]
    fn a_damaged_page_is_not_served() {
        let data = tempfile::tempdir().unwrap();
        let folder = PageFolder::open(data.path(), FINGERPRINT);
        for damaged in ["1.atom", "1.atom.gz"] {
            folder.keep(1, page("x"));
            let file = folder.path.join(damaged);
            let whole = fs::read(&file).unwrap();
            fs::write(&file, &whole[..whole.len() - 1]).unwrap();
            assert!(folder.load(1).is_none(), "{damaged}");
            fs::remove_file(&file).unwrap();
            assert!(folder.load(1).is_none(), "{damaged}");
        }
    }

    #[test]
    fn pages_with_another_fingerprint_are_removed_and_nothing_else() {
        let data = tempfile::tempdir().unwrap();
        let folder = PageFolder::open(data.path(), FINGERPRINT);
        folder.keep(1, page("x"));
        fs::create_dir(data.path().join("pages/mine")).unwrap();
        PageFolder::open(data.path(), "ffeeddccbbaa99887766554433221100");
        assert!(folder.load(1).is_none());
        assert!(data.path().join("pages/mine").exists());
    }

    #[test]
    fn pages_that_are_gone_are_removed() {
        let data = tempfile::tempdir().unwrap();
        let folder = PageFolder::open(data.path(), FINGERPRINT);
        [9, 10, 11].iter().for_each(|number| drop(folder.keep(*number, page("x"))));
        folder.forget_before(10);
        folder.keep(9, page("x"));
        folder.forget_before(10);
        assert_eq!([9, 10, 11].map(|number| folder.load(number).is_some()), [true, true, true]);
        folder.forget_before(11);
        let names = fs::read_dir(&folder.path).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["11.atom", "11.atom.gz"]);
    }

    #[test]
    fn a_page_that_cannot_be_kept_is_no_failure() {
        let data = tempfile::tempdir().unwrap();
        fs::write(data.path().join("pages"), "a file where a folder should be").unwrap();
        let folder = PageFolder::open(data.path(), FINGERPRINT);
        folder.keep(1, page("x"));
        assert!(folder.load(1).is_none());
    }
}
