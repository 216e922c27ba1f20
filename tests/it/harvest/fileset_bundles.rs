//! Bundles of datasets: members are compared with the manifest, and hostile bundles are refused.

use std::{fs, path::Path, time::Instant};

use flate2::{Compress, Compression, Crc, FlushCompress};
use serde_json::{Value, json};
use tidings::filesets::Ingested;

use crate::support::{
    folder_fixture::python,
    ingest_fixture::{IngestFixture, md5, sha1, sha256, table},
    python::read_warc,
    scripted_platform::Answer,
};

/// Python code that writes the files of a dataset, with a description, into a zip, tar or tar.gz file.
const BUNDLE: &str = "
import io, sys, tarfile, zipfile
files = {'a b.csv': b'one', 'deep/er/big.txt': b'0123456789' * 30000, 'MANIFEST.TXT': b'list'}
if sys.argv[1].endswith('zip'):
    with zipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_DEFLATED) as bundle:
        for name, content in files.items():
            bundle.writestr(name, content)
else:
    with tarfile.open(sys.argv[1], 'w:gz' if sys.argv[1].endswith('gz') else 'w') as bundle:
        folder = tarfile.TarInfo('./')
        folder.type = tarfile.DIRTYPE
        bundle.addfile(folder)
        for name, content in files.items():
            entry = tarfile.TarInfo('./' + name)
            entry.size = len(content)
            bundle.addfile(entry, io.BytesIO(content))
";

const BUNDLE_PLACE: &str = "/api/records/17/files-archive";

async fn fixture() -> IngestFixture {
    IngestFixture::start(|settings, _| {
        settings.thresholds.bundle_above_files = Some(1);
        settings.limits.max_total_size = 1 << 20;
    })
    .await
}

/// Returns two files that the bundles have, with their answers, which are errors because nobody may request them.
fn listed() -> [(&'static str, Answer, Value); 2] {
    let big = "0123456789".repeat(30_000);
    let nobody = || Answer::new(500, "requested");
    [
        ("a b.csv", nobody(), json!({ "size": 3, "checksum": format!("md5:{}", md5(b"one")) })),
        ("deep/er/big.txt", nobody(), json!({ "size": 300_000, "checksum": format!("md5:{}", md5(big.as_bytes())) })),
    ]
}

fn made_by_python(name: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    python(BUNDLE, &[&path]);
    fs::read(&path).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn fileset_bundles_of_each_kind_have_the_members_of_the_manifest() {
    let fixture = fixture().await;
    for name in ["all.zip", "all.tar", "all.tar.gz"] {
        let bundle = made_by_python(name);
        fixture.server.put(BUNDLE_PLACE, Answer::new(200, bundle.clone()));
        let Ingested { result, new_bytes, .. } = fixture.ingest(&listed()).await;
        assert_eq!(result.status.as_str(), "success", "{name}: {:?}", result.error_message);
        assert_eq!(new_bytes, bundle.len() as u64, "{name}");
        assert_eq!(result.ingest_strategy.unwrap().name(), "web-fileset-bundled");
        let manifest = result.manifest.unwrap();
        assert_eq!(manifest[0].sha1, Some(sha1(b"one")), "{name}");
        assert_eq!(manifest[1].sha256, Some(sha256("0123456789".repeat(30_000).as_bytes())));
        assert!(manifest.iter().all(|file| file.status.as_ref().unwrap().as_str() == "success"));
        assert!(manifest.iter().all(|file| file.mimetype.is_some() && file.archive_url.is_none()));
        assert_eq!(result.total_size, Some(300_003));
        let of_bundle = result.fileset_bundle.unwrap();
        let (meta, cdx) = (of_bundle.capture.file_meta.unwrap(), of_bundle.capture.cdx.unwrap());
        assert_eq!(
            (meta.size_bytes, meta.md5hex, meta.sha256hex),
            (bundle.len() as u64, md5(&bundle), sha256(&bundle))
        );
        assert_eq!(of_bundle.unlisted_members, ["MANIFEST.TXT"], "{name}");
        assert!(cdx.url.ends_with(BUNDLE_PLACE) && of_bundle.archiveorg_bundle_path.is_none());
        assert_eq!(of_bundle.capture.terminal.unwrap().terminal_sha1hex, Some(sha1(&bundle)));
        let warc = fixture.folder.path().join("bundle.warc.gz");
        fs::write(&warc, fixture.content(&result.warc_sha256.unwrap())).unwrap();
        let judged = tokio::task::spawn_blocking(move || read_warc(&warc)).await.unwrap();
        assert_eq!((&judged["digests"], &judged["records"][2]["sha256"]), (&json!(true), &json!(sha256(&bundle))));
        let is_stored = |content: &[u8]| fixture.stored().iter().any(|path| path.ends_with(&sha256(content)));
        assert!(is_stored(&bundle) && !is_stored(b"one"), "members are not unpacked");
    }
    assert!(fixture.server.requests().iter().all(|request| !request.place.starts_with("/f/")));
}

#[tokio::test]
async fn fileset_bundle_of_a_large_dataset_is_in_its_item() {
    let fixture = IngestFixture::start(|settings, _| {
        settings.thresholds.bundle_above_files = Some(1);
        settings.thresholds.web_files = 1;
    })
    .await;
    for (name, extension) in [("all.zip", "zip"), ("all.tar", "tar"), ("all.tar.gz", "tar.gz")] {
        let bundle = made_by_python(name);
        fixture.server.put(BUNDLE_PLACE, Answer::new(200, bundle.clone()));
        let Ingested { result, .. } = fixture.ingest(&listed()).await;
        let strategy = result.ingest_strategy.unwrap().name();
        assert_eq!((result.status.as_str(), strategy), ("success", "archiveorg-fileset-bundled"));
        let item = result.archiveorg_item_name.unwrap();
        let path = result.fileset_bundle.unwrap().archiveorg_bundle_path.unwrap();
        assert_eq!(path, format!("{item}.{extension}"));
        assert_eq!(result.archive_url, Some(format!("https://t.example/files/{}", sha256(&bundle))));
        assert_eq!(fs::read(fixture.folder.path().join(format!("items/{item}/{path}"))).unwrap(), bundle);
    }
}

#[tokio::test]
async fn fileset_bundle_that_is_refused_is_replaced_by_the_files() {
    let fixture = fixture().await;
    let files = [("a.csv", table("one"), json!({})), ("b.csv", table("two"), json!({}))];
    for refusal in [
        Answer::new(400, "the record is too large"),
        Answer::new(404, ""),
        Answer::new(405, "the dataset is too large for zip file generation"),
        Answer::html("<html>Are you a robot?"),
    ] {
        fixture.server.put(BUNDLE_PLACE, refusal.clone());
        let Ingested { result, .. } = fixture.ingest(&files).await;
        let strategy = result.ingest_strategy.unwrap().name();
        assert_eq!((result.status.as_str(), strategy), ("success", "web-fileset"), "{refusal:?}");
        assert!(result.fileset_bundle.is_none() && result.manifest.unwrap()[1].archive_url.is_some());
    }
    // A platform that fails to make one makes it no better later.
    for status in [500, 504] {
        fixture.server.put(BUNDLE_PLACE, Answer::new(status, "x"));
        let Ingested { result, retry, .. } = fixture.ingest(&files).await;
        assert_eq!((result.status.as_str(), retry), ("success", None), "{status}");
        assert!(result.fileset_bundle.is_none());
    }
}

/// Members that are left out, in a folder, with the other slash, or named in another form or character set.
#[tokio::test(flavor = "multi_thread")]
async fn fileset_bundles_are_matched_by_content_and_completed() {
    let fixture = fixture().await;
    let facts = |content: &[u8]| json!({ "size": content.len(), "checksum": format!("md5:{}", md5(content)) });
    let files = [
        ("Codebüch.csv", table("one"), facts(b"one")),
        ("d/b.csv", table("four"), facts(b"four")),
        ("c.csv", table("five!"), facts(b"five!")),
    ];
    let named = |name: &[u8], content: &str| Member { name: name.to_vec(), ..member("x", content) };
    for (case, members) in [
        ("NFD, flat", vec![member("Codebu\u{308}ch.csv", "one"), member("b.csv", "four"), member("c.csv", "five!")]),
        (
            "code page, slash",
            vec![named(b"Codeb\x81ch.csv", "one"), member("d\\b.csv", "four"), member("c.csv", "five!")],
        ),
        (
            "folder",
            ["Codebüch.csv", "d/b.csv", "c.csv"]
                .into_iter()
                .zip(["one", "four", "five!"])
                .map(|(name, content)| member(&format!("record/{name}"), content))
                .collect(),
        ),
        ("left out", vec![member("Codebüch.csv", "one"), member("MANIFEST.TXT", "d/b.csv and c.csv are too large")]),
    ] {
        fixture.server.put(BUNDLE_PLACE, Answer::new(200, zip(&members)));
        let Ingested { result, .. } = fixture.ingest(&files).await;
        assert_eq!(result.status.as_str(), "success", "{case}: {:?}", result.error_message);
        let paths: Vec<_> = result.manifest.iter().flatten().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["Codebüch.csv", "d/b.csv", "c.csv"], "{case}");
        let unlisted = result.fileset_bundle.unwrap().unlisted_members;
        assert_eq!(unlisted, if case == "left out" { vec!["MANIFEST.TXT"] } else { Vec::new() }, "{case}");
        let own_copies = result.manifest.iter().flatten().filter(|file| file.archive_url.is_some()).count();
        assert_eq!(own_copies, if case == "left out" { 2 } else { 0 }, "{case}");
    }
}

/// A member of a bundle that is made by hand.
#[derive(Clone, Default)]
struct Member {
    name: Vec<u8>,
    /// Bytes as they are in the file.
    stored: Vec<u8>,
    size: u32,
    crc: u32,
    method: u16,
    flags: u16,
    mode: u32,
}

fn member(name: &str, content: &str) -> Member {
    let mut crc = Crc::new();
    crc.update(content.as_bytes());
    let (name, stored, size) = (name.as_bytes().to_vec(), content.as_bytes().to_vec(), long(content.len()));
    Member { name, stored, size, crc: crc.sum(), mode: 0o100_644, ..Member::default() }
}

fn short(number: usize) -> u16 {
    u16::try_from(number).unwrap()
}

fn long(number: usize) -> u32 {
    u32::try_from(number).unwrap()
}

/// Returns a zip file (APPNOTE 6.3, sections 4.3.7, 4.3.12 and 4.3.16).
fn zip(members: &[Member]) -> Vec<u8> {
    let (mut file, mut list) = (Vec::new(), Vec::new());
    for Member { name, stored, size, crc, method, flags, mode } in members {
        let offset = long(file.len());
        let mut facts = Vec::new();
        for number in [20, *flags, *method, 0, 0] {
            facts.extend(number.to_le_bytes());
        }
        for number in [*crc, long(stored.len()), *size] {
            facts.extend(number.to_le_bytes());
        }
        facts.extend(short(name.len()).to_le_bytes());
        file.extend([&b"PK\x03\x04"[..], &facts, &[0, 0], name, stored].concat());
        let attributes = (mode << 16).to_le_bytes();
        list.extend([&b"PK\x01\x02\x14\x03"[..], &facts, &[0; 8], &attributes, &offset.to_le_bytes(), name].concat());
    }
    let (count, size, start) = (short(members.len()), long(list.len()), long(file.len()));
    let end = [&b"PK\x05\x06"[..], &[0; 4], &count.to_le_bytes(), &count.to_le_bytes(), &size.to_le_bytes()].concat();
    [file, list, end, start.to_le_bytes().to_vec(), vec![0, 0]].concat()
}

/// Returns the deflated form of so many MiB of zeros. It is a piece that is repeated.
fn deflated_zeros(mebibytes: usize) -> Vec<u8> {
    let mut deflate = Compress::new(Compression::best(), false);
    let mut piece = Vec::with_capacity(1 << 16);
    deflate.compress_vec(&vec![0; 1 << 20], &mut piece, FlushCompress::Full).unwrap();
    // The last block is empty.
    [piece.repeat(mebibytes), vec![3, 0]].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn fileset_bundles_that_lie_are_refused() {
    let fixture = fixture().await;
    let (one, two) = (member("a.csv", "one"), member("b.csv", "two"));
    let with = |other: Member| zip(&[one.clone(), two.clone(), other]);
    let zeros = |mebibytes: usize, name: &str| Member {
        stored: deflated_zeros(mebibytes),
        size: long(mebibytes << 20),
        method: 8,
        ..member(name, "")
    };
    let mut damaged = zip(&[one.clone(), two.clone()]);
    damaged[35] ^= 0xff;
    let whole = zip(&[one.clone(), two.clone()]);
    let other_file = "1".repeat(200);
    let mut many = vec![one.clone(), two.clone()];
    many.extend((0..1001).map(|n| member(&format!("extra/{n}"), "")));
    let tar_link = |kind: tar::EntryType| {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(0);
        tar.append_link(&mut header, "a.csv", "/etc/passwd").unwrap();
        tar.into_inner().unwrap()
    };
    for (name, bundle, status, named) in [
        ("parent", with(member("../up", "x")), "unsafe-path", "../up"),
        ("parent inside", with(member("a/../../up", "x")), "unsafe-path", "up"),
        ("root", with(member("/etc/passwd", "x")), "unsafe-path", "/etc/passwd"),
        ("other slash", with(member("..\\x", "x")), "unsafe-path", "../x"),
        ("folder above", with(member("../", "")), "unsafe-path", "../"),
        ("symlink", with(Member { mode: 0o120_777, ..member("link", "/etc/passwd") }), "unsafe-path", "is a link"),
        ("symlink in tar", tar_link(tar::EntryType::Symlink), "unsafe-path", "is a link"),
        ("link in tar", tar_link(tar::EntryType::Link), "unsafe-path", "is a link"),
        ("twice", with(one.clone()), "bad-bundle", "a.csv"),
        ("unlisted twice", zip(&[member("x", ""), member("x", "")]), "bad-bundle", "x"),
        ("encrypted", zip(&[Member { flags: 1, ..one.clone() }, two.clone()]), "bad-bundle", "a.csv"),
        ("compression", zip(&[Member { method: 12, ..one.clone() }, two.clone()]), "bad-bundle", "a.csv"),
        ("damaged", damaged, "bad-bundle", "a.csv"),
        ("no archive", b"text".to_vec(), "bad-bundle", "zip"),
        ("half", whole[..whole.len() / 2].to_vec(), "bad-bundle", "damaged"),
        ("other size", zip(&[one.clone(), member("b.csv", &other_file)]), "mismatch-size", "b.csv"),
        ("other file", zip(&[one.clone(), member("b.csv", "twx")]), "mismatch-md5", "b.csv"),
        ("many", zip(&many), "too-many-files", "1000 members"),
        ("bomb", zip(&[one.clone(), zeros(4095, "b.csv")]), "mismatch-size", "b.csv"),
    ] {
        fixture.server.put(BUNDLE_PLACE, Answer::new(200, bundle));
        let md5 = |content: &[u8]| json!({ "size": 3, "checksum": format!("md5:{}", md5(content)) });
        let began = Instant::now();
        let Ingested { result, .. } =
            fixture.ingest(&[("a.csv", table("one"), md5(b"one")), ("b.csv", table("two"), md5(b"two"))]).await;
        let message = result.error_message.unwrap();
        assert_eq!((result.status.as_str(), result.hit), (status, false), "{name}: {message}");
        assert!(message.contains(named), "{name}: {message}");
        assert!(began.elapsed().as_secs() < 10, "{name} takes {:?}", began.elapsed());
        if ["a.csv", "b.csv"].contains(&named) {
            let of_file = result.manifest.unwrap().into_iter().find(|file| file.path == named).unwrap();
            assert_eq!(of_file.status, Some(result.status), "{name}");
        }
    }
    // An unlisted member of a zip file is not even read; in a tar file, it counts.
    fixture.server.put(BUNDLE_PLACE, Answer::new(200, with(zeros(4095, "zeros"))));
    let files = [("a.csv", table("one"), json!({})), ("b.csv", table("two"), json!({}))];
    let Ingested { result, .. } = fixture.ingest(&files).await;
    assert_eq!(result.status.as_str(), "success", "{:?}", result.error_message);
    let bomb = zip(&[one.clone(), zeros(70, "b.csv")]);
    fixture.server.put(BUNDLE_PLACE, Answer::new(200, bomb));
    let Ingested { result, .. } = fixture.ingest(&files).await;
    assert_eq!(result.status.as_str(), "too-large-size", "{:?}", result.error_message);
}

/// Returns the lines of the output of `tidings ingest` for the dataset, and the largest resident memory in bytes.
fn ingest_and_measure(url: &str, folder: &Path, settings: &str) -> (Value, u64) {
    const MEASURE: &str = "
import resource, subprocess, sys
subprocess.run(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
";
    let config = folder.join("tidings.toml");
    let text = format!(
        "[delivery]\nallow = [\"127.0.0.1\"]\n[filesets]\n{settings}\n[filesets.platforms]\nzenodo = [\"{url}\"]\n"
    );
    fs::write(&config, text).unwrap();
    let mut measured = std::process::Command::new("python3");
    measured.args(["-c", MEASURE, env!("CARGO_BIN_EXE_tidings"), "ingest", "--json", "--config"]).arg(&config);
    let output = measured.arg("--folder").arg(folder.join("store")).arg(format!("{url}/records/17")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let [result, memory] = text.lines().collect::<Vec<_>>().try_into().unwrap();
    (serde_json::from_str(result).unwrap(), memory.parse().unwrap())
}

/// A million members that are not listed, a small bundle of half a GiB, and a file of half a GiB.
#[tokio::test(flavor = "multi_thread")]
async fn fileset_bundles_need_little_memory() {
    let fixture = fixture().await;
    let mut many = zip(&[member("0000000", "")]);
    let end = many.split_off(many.len() - 22);
    let list = many.split_off(many.len() - 53);
    for n in 0..1_000_000 {
        many.extend([&list[..46], format!("{n:07}").as_bytes()].concat());
    }
    many.extend([&end[..12], &53_000_000_u32.to_le_bytes(), &end[16..]].concat());
    let zeros = Member { stored: deflated_zeros(512), size: 512 << 20, method: 8, ..member("a.csv", "") };
    let mut crc = Crc::new();
    let mebibyte = vec![0; 1 << 20];
    (0..512).for_each(|_| crc.update(&mebibyte));
    let small = zip(&[Member { crc: crc.sum(), ..zeros }, member("b.csv", "two")]);
    for (bundle, status, strategy) in [
        (Answer::new(200, many), "too-many-files", "archiveorg-fileset-bundled"),
        (Answer::new(200, small), "success", "archiveorg-fileset-bundled"),
        (Answer::new(413, ""), "success", "archiveorg-fileset"),
    ] {
        fixture.server.put(BUNDLE_PLACE, bundle);
        let files = [
            ("a.csv", Answer::zeros(512 << 20), json!({ "size": 512 << 20 })),
            ("b.csv", table("two"), json!({ "size": 3 })),
        ];
        fixture.publish(&files);
        let (url, folder) = (fixture.server.url.clone(), tempfile::tempdir().unwrap());
        let measured = move || ingest_and_measure(&url, folder.path(), "bundle_file_count = 1");
        let (result, memory) = tokio::task::spawn_blocking(measured).await.unwrap();
        assert_eq!((&result["status"], &result["ingest_strategy"]), (&json!(status), &json!(strategy)), "{result}");
        assert!(memory < 150 << 20, "{strategy}: {memory} bytes");
    }
}
