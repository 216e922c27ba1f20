//! Logical replication of a journal in PostgreSQL to a database of others, as docs/off-site.md describes it.

use std::path::Path;

use crate::support::{
    broker_process::wait_until,
    gateway::{Gateway, command},
    journal_fixture::post,
    postgres::Server,
};

/// Tables that are published.
const TABLES: [&str; 3] = ["tidings.changes", "tidings.objects", "tidings.items"];

/// Statements of the documentation with this first word, of which the one with a text is returned.
fn statement(text: &str) -> &'static str {
    let page = include_str!("../../../docs/off-site.md");
    let found = page.split("```sql\n").skip(1).flat_map(|block| block.split("```").next().unwrap().split(";\n"));
    found.map(str::trim).find(|statement| statement.starts_with(text)).unwrap_or_else(|| panic!("no {text}"))
}

/// Returns the number of rows of each table, and a digest of them.
fn contents(server: &Server, database: &str) -> Vec<String> {
    let of = |table| {
        let rows = format!("SELECT count(*) || ' ' || md5(string_agg(r::text, '|' ORDER BY r::text)) FROM {table} r");
        server.run(database, &rows)
    };
    TABLES.map(of).to_vec()
}

fn name(url: &str) -> &str {
    url.rsplit_once('/').unwrap().1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriber_of_the_database_has_all_changes() {
    let mut origin = Server::separate();
    origin.run("postgres", statement("ALTER SYSTEM SET wal_level"));
    origin.run("postgres", statement("ALTER SYSTEM SET max_slot_wal_keep_size"));
    origin.restart("INT");
    let url = origin.create_database();
    let journal = name(&url);
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path(), &url);
    for number in 1..=50 {
        post(&gateway, number).await;
    }

    origin.run(journal, statement("CREATE PUBLICATION tidings_feed"));
    origin.run(journal, statement("CREATE PUBLICATION tidings_archive"));
    let reports = Server::separate();
    let (feed, archive) = (reports.create_database(), reports.create_database());
    let (feed, archive) = (name(&feed), name(&archive));
    let connection = format!("host={} port={} user=tidings dbname={journal}", origin.folder().display(), origin.port);
    let subscribe = |database: &str, text: &str| {
        reports.create_tables_of(database, &origin, journal, &TABLES);
        let (before, after) = statement(text).split_once("CONNECTION '").unwrap();
        let (_, after) = after.split_once('\'').unwrap();
        reports.run(database, &format!("{before}CONNECTION '{connection}'{after}"));
    };
    subscribe(feed, "CREATE SUBSCRIPTION tidings_feed");
    subscribe(archive, "CREATE SUBSCRIPTION tidings_archive");
    let is_copied = || contents(&reports, feed) == contents(&origin, journal);
    wait_until("the first rows are copied", is_copied);
    wait_until("the archive has them too", || reports.run(archive, "SELECT count(*) FROM tidings.changes") == "50");

    // A subscriber that was away gets what it missed, and the slot shows meanwhile how much that is.
    reports.run(feed, "ALTER SUBSCRIPTION tidings_feed DISABLE");
    for number in 51..=150 {
        post(&gateway, number).await;
    }
    let slots = origin.run(journal, statement("SELECT slot_name"));
    assert_eq!(slots.lines().filter(|line| line.contains("|reserved|")).count(), 2, "{slots}");
    reports.run(feed, "ALTER SUBSCRIPTION tidings_feed ENABLE");
    wait_until("the missed rows arrive", is_copied);
    assert!(contents(&reports, feed)[0].starts_with("150 "), "{:?}", contents(&reports, feed));

    // Retention deletes at the subscriber too, unless only insertions are published.
    origin.run(journal, "DELETE FROM tidings.changes WHERE seq <= 20");
    post(&gateway, 151).await;
    wait_until("the deletions arrive", is_copied);
    wait_until("the archive has everything", || reports.run(archive, "SELECT count(*) FROM tidings.changes") == "151");
}

fn serve(folder: &Path, url: &str) -> Gateway {
    let mut serve = command();
    serve.env("TIDINGS_JOURNAL__STORE", url).stderr(std::process::Stdio::null());
    Gateway::start_as(serve, folder, &["--listen", "127.0.0.1:0"])
}
