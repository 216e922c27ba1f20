//! Growth of the journal: appending, reading pages, opening, and the memory of the gateway, with a million changes
//! and with ten thousand.

use std::{cell::Cell, path::Path, process::Command, time::Instant};

use tidings::{
    journal::{Journal, store::sqlite},
    model::Seq,
};

use super::{
    journal::{MANY, append, close, draft_of, open, runtime},
    measure::{Contender, compare},
    streams::Server,
};

/// Number of objects of the changes in the small and the large journal; the wide one has ten times as many.
const FEW: u64 = 10_000;

/// Number of changes appended in a round while a journal is filled.
const FILL: usize = 10_000;

/// Number of changes appended in a turn: few, because the small journal grows as well.
const APPENDS: u64 = 5_000;

/// Number of pages read in a turn.
const PAGES: u64 = 1000;

/// Compares a journal of ten thousand changes with two of a million: one with the same objects, and one with more
/// objects, whose registry is larger as well.
pub(crate) fn growth() {
    let runtime = &runtime();
    let folder = tempfile::tempdir().unwrap();
    let filled = |name: &str, changes: u64, objects: u64| {
        let (journal, writer) = open(&folder.path().join(name));
        // In rounds of the same size for all, because the senders divide a round among them: the rows of a registry are
        // in the order in which the senders created its objects, and neighbours among them share a page.
        for from in (0..changes).step_by(FILL) {
            append(runtime, &journal, (from..from + FILL as u64).map(|number| draft_of(number, objects)).collect());
        }
        (journal, writer)
    };
    let (small, small_writer) = filled("small", FILL as u64, FEW);
    let (large, large_writer) = filled("large", 1_000_000, FEW);
    let (wide, wide_writer) = filled("wide", 1_000_000, MANY);
    let next = Cell::new(2_000_000_u64);
    let appending = |journal: &Journal, objects: u64| {
        let from = next.replace(next.get() + APPENDS);
        append(runtime, journal, (from..next.get()).map(|number| draft_of(number, objects)).collect())
    };
    compare(
        "appending as the journal grows",
        "changes",
        15,
        vec![
            Contender::timed("at 10 000 changes of 10 000 objects", || appending(&small, FEW)),
            Contender::timed("at 1 000 000 changes of 10 000 objects", || appending(&large, FEW)),
            Contender::timed("at 1 000 000 changes of 100 000 objects", || appending(&wide, MANY)),
        ],
    );
    reading_pages(runtime, "reading pages of 100 from the disk", folder.path(), &small, &large);
    close(small, small_writer);
    close(large, large_writer);
    close(wide, wide_writer);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::new();
    serving_pages(runtime, &client, folder.path());
    let [(small, small_writer), (large, large_writer)] = ["small", "large"].map(|name| {
        read_back(&folder.path().join(name));
        open(&folder.path().join(name))
    });
    reading_pages(runtime, "reading them when the files were read back from the disk", folder.path(), &small, &large);
    close(small, small_writer);
    close(large, large_writer);
    opening(&folder.path().join("wide"));
    println!("\n| a gateway with a million changes | resident memory, MB |\n| --- | ---: |");
    for name in ["large", "wide"] {
        serving(runtime, &client, name, &folder.path().join(name));
    }
}

/// Compares pages of the small journal with pages of the large one, then the same rows read with bare SQLite. The
/// latter shows which part of the difference is due to the machine.
fn reading_pages(runtime: &tokio::runtime::Runtime, title: &str, folder: &Path, small: &Journal, large: &Journal) {
    let turns = Cell::new(0);
    let pages = |journal: &Journal, head: u64| {
        let began = Instant::now();
        for after in cursors(&turns, head) {
            assert_eq!(runtime.block_on(journal.after(Seq(after), 100)).unwrap().len(), 100);
        }
        (PAGES, began.elapsed())
    };
    // These connections are closed before the journals, because the last connection checkpoints the WAL into the file.
    let [bare_small, bare_large] = &["small", "large"].map(|name| bare_reader(&folder.join(name)));
    let bare_pages = |file: &rusqlite::Connection, head: u64| {
        let began = Instant::now();
        for after in cursors(&turns, head) {
            assert_eq!(bare_page(file, after).len(), 100);
        }
        (PAGES, began.elapsed())
    };
    compare(
        title,
        "pages",
        51,
        vec![
            Contender::timed("at 10 000 changes", || pages(small, 10_000)),
            Contender::timed("at 1 000 000 changes", || pages(large, 1_000_000)),
        ],
    );
    compare(
        &format!("{title}, by bare SQLite"),
        "pages",
        51,
        vec![
            Contender::timed("at 10 000 changes", || bare_pages(bare_small, 10_000)),
            Contender::timed("at 1 000 000 changes", || bare_pages(bare_large, 1_000_000)),
        ],
    );
}

/// Opens the file of a journal with bare SQLite.
fn bare_reader(folder: &Path) -> rusqlite::Connection {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX;
    rusqlite::Connection::open_with_flags(folder.join(sqlite::FILE_NAME), flags).unwrap()
}

/// Returns the JSON of a hundred changes.
fn bare_page(file: &rusqlite::Connection, after: u64) -> Vec<String> {
    let mut page = file.prepare_cached("SELECT json FROM changes WHERE seq > ? ORDER BY seq LIMIT 100").unwrap();
    let page = page.query_map([after.cast_signed()], |row| row.get(0)).unwrap();
    page.collect::<Result<_, _>>().unwrap()
}

/// Evicts the file of a journal from the page cache and reads it sequentially, as after a restart of the machine. The
/// pages are then cached in large pieces instead of those in which they were written.
fn read_back(folder: &Path) {
    let file = folder.join(sqlite::FILE_NAME);
    let mut of = std::ffi::OsString::from("of=");
    of.push(&file);
    let mut forget = Command::new("dd");
    forget.arg(of).args(["oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none"]);
    assert!(forget.status().unwrap().success());
    std::io::copy(&mut std::fs::File::open(&file).unwrap(), &mut std::io::sink()).unwrap();
}

/// Returns the cursors of the pages of a turn, scattered over the first `head` changes and different in each turn.
fn cursors(turns: &Cell<u64>, head: u64) -> impl Iterator<Item = u64> {
    let from = turns.replace(turns.get() + 1) * PAGES;
    (from..from + PAGES).map(move |page| page * 7919 % (head - 2000))
}

/// Starts the real program with an existing journal.
fn gateway(folder: &Path) -> Server {
    let mut serve = Command::new(env!("CARGO_BIN_EXE_tidings"));
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder);
    Server::start(serve)
}

/// Compares the same pages over HTTP, requested one after the other.
fn serving_pages(runtime: &tokio::runtime::Runtime, client: &reqwest::Client, folder: &Path) {
    let (small, large) = (gateway(&folder.join("small")), gateway(&folder.join("large")));
    let turns = Cell::new(0);
    let pages = |gateway: &Server, head: u64| {
        let began = Instant::now();
        runtime.block_on(async {
            for after in cursors(&turns, head) {
                let page = client.get(format!("{}/changes?after={after}&limit=100", gateway.url)).send().await.unwrap();
                assert!(page.bytes().await.unwrap().len() > 50_000);
            }
        });
        (PAGES, began.elapsed())
    };
    compare(
        "getting pages of 100 from /changes",
        "pages",
        21,
        vec![
            Contender::timed("at 10 000 changes", || pages(&small, 10_000)),
            Contender::timed("at 1 000 000 changes", || pages(&large, 1_000_000)),
        ],
    );
}

/// Prints the time to open a large journal, and the time of a plain read of its file.
fn opening(folder: &Path) {
    let file = folder.join(sqlite::FILE_NAME);
    let began = Instant::now();
    let bytes = std::io::copy(&mut std::fs::File::open(&file).unwrap(), &mut std::io::sink()).unwrap();
    let reading = began.elapsed();
    let began = Instant::now();
    let (journal, writer) = open(folder);
    let opening = began.elapsed();
    println!("\nopening a journal of {} MB: {opening:?}; one plain read of its file: {reading:?}", bytes / 1_000_000);
    close(journal, writer);
}

/// Prints the memory of the gateway after its start, and after pages of the whole journal have been read.
fn serving(runtime: &tokio::runtime::Runtime, client: &reqwest::Client, name: &str, folder: &Path) {
    let gateway = gateway(folder);
    println!("| {name}: started | {:.1} |", gateway.memory() as f64 / 1e6);
    runtime.block_on(async {
        for page in 0..1_000 {
            let page = format!("{}/changes?after={}&limit=100", gateway.url, page * 991);
            assert!(client.get(page).send().await.unwrap().bytes().await.unwrap().len() > 50_000);
        }
    });
    println!("| {name}: read | {:.1} |", gateway.memory() as f64 / 1e6);
}
