//! Harvests of zip and tar archives.

use std::{fs, io::Write, path::Path, time::Duration};

use flate2::{Compression, write::GzEncoder};
use tidings::{harvest::folder::count_members, model::Seq};

use crate::support::folder_fixture::{FolderFixture, put, python, set_age};

/// Python code that writes the same files into `a.zip`, `a.tar` and `a.tgz` of a folder.
const ARCHIVES: &str = "
import io, sys, tarfile, zipfile
files = {'b/c.txt': b'text', 'a.pdf': b'%PDF-1.7 ' + bytes(100000), 'café': b'', 'long/' + 'x' * 200: b'long'}
with zipfile.ZipFile(sys.argv[1] + '/a.zip', 'w') as archive:
    archive.writestr('b/', b'')
    for number, (name, content) in enumerate(files.items()):
        archive.writestr(name, content, zipfile.ZIP_DEFLATED if number % 2 else zipfile.ZIP_STORED)
    archive.writestr('.hidden', b'x')
for path, mode, format in [('a.tar', 'w', tarfile.GNU_FORMAT), ('a.tgz', 'w:gz', tarfile.PAX_FORMAT)]:
    with tarfile.open(sys.argv[1] + '/' + path, mode, format=format) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo('./' + name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        for name, kind, target in [('linked', tarfile.LNKTYPE, './a.pdf'), ('symlink', tarfile.SYMTYPE, 'a.pdf')]:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, target
            archive.addfile(entry)
";

/// Python code that writes a zip file: pairs of a name and a size of zeros.
const ZIP: &str = "
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_DEFLATED) as archive:
    for argument in sys.argv[2:]:
        name, size = argument.rsplit(':', 1)
        archive.writestr(name, bytes(int(size)))
";

fn zip(path: &Path, files: &[&str]) {
    let files: Vec<_> = files.iter().map(Path::new).collect();
    python(ZIP, &[&[path], &files[..]].concat());
    set_age(path, Duration::from_secs(3600));
}

/// Returns a fixture that harvests the archive `place` beside its folder.
fn archive_fixture(place: &str) -> FolderFixture {
    let mut fixture = FolderFixture::new();
    fixture.settings.path = fixture.beside(place);
    fixture
}

#[tokio::test]
async fn members_of_every_kind_of_archive_are_files() {
    let mut expected = None;
    for name in ["a.zip", "a.tar", "a.tgz"] {
        let fixture = archive_fixture(name);
        python(ARCHIVES, &[&fixture.beside("")]);
        let (run, remarks) = fixture.complete().await;
        assert_eq!(remarks, "", "{name}");
        let mut registered = fixture.registered().await;
        if name != "a.zip" {
            let linked = registered.remove("linked").unwrap();
            assert_eq!(linked["digest"], registered["a.pdf"]["digest"]);
        }
        assert_eq!(registered.len(), 4, "{name}: {:?}", registered.keys());
        assert_eq!(registered["a.pdf"]["mediaType"], "application/pdf");
        assert_eq!(*expected.get_or_insert_with(|| registered.clone()), registered, "{name}");
        assert_eq!(run.counts.records, run.counts.changes);
        let (run, _) = fixture.complete().await;
        assert_eq!((run.counts.pages, run.counts.records), (1, 0), "{name}");
    }
}

#[tokio::test]
async fn another_version_of_an_archive_is_compared_file_by_file() {
    let fixture = archive_fixture("a.zip");
    let path = fixture.settings.path.clone();
    zip(&path, &["a:1", "b:2", "c:3"]);
    fixture.complete().await;
    zip(&path, &["d:4", "b:20", "c:3"]);
    fixture.complete().await;
    assert_eq!(fixture.changes_after(Seq(3)).await, ["U b", "A d", "D a"]);
    // An archive without files, and another one of the same name that is damaged.
    zip(&path, &[]);
    let (run, remarks) = fixture.complete().await;
    assert_eq!(run.counts.changes, 0);
    assert!(remarks.contains("has no file, and had 3"), "{remarks}");
    put(&path, "PK\x03\x04 and no more", Duration::ZERO);
    assert!(fixture.fail().await.contains("a.zip cannot be harvested: the archive is damaged"));
    put(&path, "text", Duration::ZERO);
    assert!(fixture.fail().await.contains("it is not a zip, tar or tar.gz file"));
    assert_eq!(fixture.registered().await.len(), 3);
}

#[tokio::test]
async fn hostile_names_are_left_out() {
    let fixture = archive_fixture("a.zip");
    zip(&fixture.settings.path, &["../up:1", "/root:1", "a/../../b:1", "a//b:1", "a\\b:1", "good:1", "./also:1"]);
    let (_, remarks) = fixture.complete().await;
    assert_eq!(fixture.changes_after(Seq::ZERO).await, ["A also", "A good"]);
    assert!(remarks.contains("\"../up\" in the archive is not a path inside the archive"), "{remarks}");
    assert_eq!(remarks.lines().count(), 3, "{remarks}");
}

/// Python code that writes a zip file with raw names: the path, the number of the system, and hexadecimal names.
const RAW_NAMES: &str = "
import sys, warnings, zipfile
warnings.simplefilter('ignore')
class Raw(zipfile.ZipInfo):
    def _encodeFilenameFlags(self):
        return bytes.fromhex(self.filename), self.flag_bits
with zipfile.ZipFile(sys.argv[1], 'w') as archive:
    for number, name in enumerate(sys.argv[3:]):
        entry = Raw(name)
        entry.create_system = int(sys.argv[2])
        archive.writestr(entry, bytes(number + 1))
";

fn zip_of_raw_names(path: &Path, system: &str, names: &[&[u8]]) {
    let names: Vec<_> = names.iter().map(hex::encode).collect();
    let arguments: Vec<_> = [path, Path::new(system)].into_iter().chain(names.iter().map(Path::new)).collect();
    python(RAW_NAMES, &arguments);
}

#[tokio::test]
async fn names_of_zip_files_are_read_by_the_rules_of_their_system() {
    let fixture = archive_fixture("a.zip");
    let path = fixture.settings.path.clone();
    // Old versions of .NET, on Windows, and a program that writes code page 437.
    zip_of_raw_names(&path, "0", &[b"a\\1.txt", b"brosch\x81re", b"a\\"]);
    let (_, remarks) = fixture.complete().await;
    assert_eq!(remarks, "");
    assert_eq!(fixture.changes_after(Seq::ZERO).await, ["A a/1.txt", "A brosch%C3%BCre"]);
    // The same names as a program of today writes them.
    zip_of_raw_names(&path, "3", &[b"a/1.txt", "brosch\u{fc}re".as_bytes(), b"a/"]);
    set_age(&path, Duration::from_secs(60));
    assert_eq!(fixture.complete().await.0.counts.changes, 0);
}

#[tokio::test]
async fn twins_in_an_archive_are_said() {
    let fixture = archive_fixture("a.zip");
    zip_of_raw_names(&fixture.settings.path, "3", &[b"a.txt", b"b.txt", b"a.txt"]);
    let (_, remarks) = fixture.complete().await;
    assert_eq!(remarks, "\"a.txt\" in the archive is there more than once; the last one counts");
    let registered = fixture.registered().await;
    assert_eq!((registered.len(), &registered["a.txt"]["size"]), (2, &3.into()));
}

#[tokio::test]
async fn name_of_a_tar_file_that_is_not_utf8_is_said() {
    let fixture = archive_fixture("a.tar");
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.as_mut_bytes()[..4].copy_from_slice(b"\x83e.a");
    header.set_size(1);
    header.set_cksum();
    builder.append(&header, &b"x"[..]).unwrap();
    put(&fixture.settings.path, builder.into_inner().unwrap(), Duration::ZERO);
    let (_, remarks) = fixture.complete().await;
    assert!(remarks.contains("has a name that is not UTF-8; its URL has the bytes of the name"), "{remarks}");
    assert_eq!(fixture.changes_after(Seq::ZERO).await, ["A %83e.a"]);
}

#[tokio::test]
async fn damaged_member_stays_as_it_was() {
    let fixture = archive_fixture("a.zip");
    let path = fixture.settings.path.clone();
    zip(&path, &["a:100", "b:200"]);
    fixture.complete().await;
    let mut bytes = fs::read(&path).unwrap();
    // The compressed content of the first file follows its header of 30 bytes and its name.
    bytes[32] ^= 0xff;
    put(&path, &bytes, Duration::ZERO);
    let (run, _) = fixture.complete().await;
    assert_eq!((run.counts.changes, fixture.registered().await.len()), (0, 2));
}

#[tokio::test]
async fn bomb_is_refused_within_its_limit() {
    let mut fixture = archive_fixture("a.zip");
    zip(&fixture.settings.path, &["small:1", "zeros:50000000"]);
    let reason = fixture.fail().await;
    assert!(reason.contains("the files of the archive have more than 1048576 bytes; raise unpacked_bytes"), "{reason}");
    assert_eq!(fixture.head(), Seq::ZERO);
    fixture.settings.unpacked_bytes = 100_000_000;
    assert_eq!(fixture.complete().await.0.counts.changes, 2);
}

/// Python code that gives the only entry of a zip file a thousand names.
const OVERLAPS: &str = "
import struct, sys
data = open(sys.argv[1], 'rb').read()
start = data.index(b'PK\\1\\2')
end = data.index(b'PK\\5\\6')
entry, rest = data[start:end], data[end:]
entries = b''.join(entry.replace(b'zeros', b'%05d' % number) for number in range(1000))
rest = rest[:8] + struct.pack('<HHL', 1000, 1000, len(entries)) + rest[16:]
open(sys.argv[1], 'wb').write(data[:start] + entries + rest)
";

#[tokio::test]
async fn entries_that_share_bytes_are_refused_before_they_are_read() {
    let mut fixture = archive_fixture("a.zip");
    fixture.settings.unpacked_bytes = 1 << 40;
    let path = fixture.settings.path.clone();
    zip(&path, &["zeros:50000000"]);
    python(OVERLAPS, &[&path]);
    let reason = fixture.fail().await;
    assert!(reason.contains("two of its entries share bytes"), "{reason}");
    assert_eq!(fixture.head(), Seq::ZERO);
}

#[tokio::test]
async fn name_of_a_gibibyte_is_refused_without_memory() {
    let fixture = archive_fixture("a.tgz");
    let mut header = tar::Header::new_gnu();
    header.set_path("././@LongLink").unwrap();
    header.set_entry_type(tar::EntryType::GNULongName);
    header.set_size(1 << 30);
    header.set_cksum();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(header.as_bytes()).unwrap();
    let zeros = vec![b'x'; 1 << 20];
    for _ in 0..64 {
        gzip.write_all(&zeros).unwrap();
    }
    put(&fixture.settings.path, gzip.finish().unwrap(), Duration::ZERO);
    let reason = fixture.fail().await;
    assert!(reason.contains("a name has more than 1048576 bytes"), "{reason}");
}

#[test]
fn archive_with_too_many_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.zip");
    python(
        "import sys, zipfile\nwith zipfile.ZipFile(sys.argv[1], 'w') as z:\n for n in range(250001): z.writestr(str(n), b'')",
        &[&path],
    );
    let error = count_members(&path, 1 << 20).unwrap_err();
    assert!(error.contains("more than 250000 files"), "{error}");
}

#[test]
fn truncated_or_modified_archive_is_refused_or_read_without_panic() {
    let folder = tempfile::tempdir().unwrap();
    python(ARCHIVES, &[folder.path()]);
    let path = folder.path().join("x");
    for name in ["a.zip", "a.tar", "a.tgz"] {
        let whole = fs::read(folder.path().join(name)).unwrap();
        // Zeros after the mark of the end mean nothing.
        let content = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        for length in (0..content).step_by(whole.len() / 200 + 1) {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(count_members(&path, 1 << 20).is_err(), "{name}: {length} of {content}");
        }
        for position in (0..whole.len()).step_by(whole.len() / 300 + 1) {
            let mut other = whole.clone();
            other[position] ^= 0x5a;
            fs::write(&path, &other).unwrap();
            let _ = count_members(&path, 1 << 20);
        }
    }
}
