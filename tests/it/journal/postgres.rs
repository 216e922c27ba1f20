//! Behaviour of the PostgreSQL store beyond the promises of every store: several nodes, lost connections, failover.

use std::path::Path;

use bytes::Bytes;
use tidings::{
    journal::{
        quarantine::NewQuarantinedMessage,
        store::{
            CommitError, ConnectionOptions, CrawlStore, PostgresUrl, PrefetchKeys, QuarantineStore, RestoreStore,
            Store, WriteBatch,
            postgres::{PostgresOpenError, PostgresOptions, PostgresStore},
        },
    },
    model::{Seq, SourceName, Timestamp},
};

use crate::support::{
    cutting_proxy::CuttingProxy,
    postgres::{self, Server, connection, options, query, tls},
    tested_store::{append, change, empty_batch, key, seqs},
};

/// Message with which the server reports a successful commit.
const COMMITTED: &[u8] = b"C\0\0\0\x0bCOMMIT\0";

fn open(folder: &Path, node: &str) -> PostgresStore {
    postgres::open(folder, PostgresOptions { connection: postgres::node(node), ..options() })
}

/// Ends the sessions of a node on the server.
fn end_sessions(folder: &Path, node: &str) {
    let sql = format!(
        "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'tidings/{node}'"
    );
    assert_ne!(query(folder, &sql), "0");
}

#[test]
fn two_nodes_number_their_changes_without_gaps_and_detect_each_others_duplicates() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = ["a", "b"].map(|node| open(folder.path(), node));
    let mut given: Vec<_> = std::thread::scope(|scope| {
        let writers = nodes.iter().enumerate().map(|(number, node)| {
            scope.spawn(move || {
                let events = (0..50).map(|event| number as u64 * 1000 + event);
                events.flat_map(|event| append(node, &[event, 5000 + event % 10]).unwrap()).collect::<Vec<_>>()
            })
        });
        writers.collect::<Vec<_>>().into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    given.sort_unstable();
    given.dedup();
    assert_eq!(seqs(&nodes[0], 0), (1..=nodes[1].head().unwrap().0).collect::<Vec<_>>());
    assert_eq!(given.iter().map(|seq| seq.0).collect::<Vec<_>>(), seqs(&nodes[1], 0));
}

/// A database of version 9, the oldest one.
const VERSION_9: &str = include_str!("../../../fixtures/journal/postgres-version-9.sql");

#[test]
fn a_database_of_version_9_is_converted_and_has_the_tables_of_a_new_one() {
    const COLUMNS: &str =
        "SELECT string_agg(concat_ws(' ', table_name, column_name, data_type, is_nullable, collation_name), ','
        ORDER BY table_name, column_name) FROM information_schema.columns WHERE table_schema = 'tidings'";
    const INDEXES: &str =
        "SELECT string_agg(indexdef, ',' ORDER BY indexdef) FROM pg_indexes WHERE schemaname = 'tidings'";
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [new, old] = folders.each_ref().map(tempfile::TempDir::path);
    drop(open(new, "a"));
    query(old, VERSION_9);
    let id = "01900000-0000-7000-8000-000000000001";
    query(old, &format!("INSERT INTO tidings.crawls VALUES ('s', '{id}', 3, 'p', 4, 5, 6, true)"));
    let store = open(old, "a");
    for sql in [COLUMNS, INDEXES] {
        assert_eq!(query(old, sql), query(new, sql));
    }
    let crawl = store.crawl_progress(&SourceName::parse("s").unwrap()).unwrap().unwrap();
    assert_eq!((crawl.id.to_string().as_str(), crawl.parts, crawl.finished), (id, 3, true));
    append(&store, &[1]).unwrap();
}

#[test]
fn a_lost_connection_is_replaced_before_the_next_call() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), "lost");
    for event in 1..=3 {
        assert_eq!(append(&store, &[event]).unwrap(), [Seq(event)]);
        assert_eq!(store.head().unwrap(), Seq(event));
        end_sessions(folder.path(), "lost");
    }
}

#[test]
fn commit_over_a_lost_connection_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), "cut");
    append(&store, &[1]).unwrap();
    let mut transaction = store.begin().unwrap();
    transaction.write(&WriteBatch { changes: vec![change(Seq(2), 2)], ..empty_batch() }).unwrap();
    end_sessions(folder.path(), "cut");
    let CommitError::Unknown(commit, _) = transaction.commit().unwrap_err() else { panic!("the outcome is unknown") };
    assert!(!store.was_committed(commit).unwrap());
    assert_eq!(append(&store, &[3]).unwrap(), [Seq(2)]);
}

#[test]
fn a_connection_lost_in_the_transaction_is_a_transient_error() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), "within");
    let mut transaction = store.begin().unwrap();
    end_sessions(folder.path(), "within");
    let error = transaction.prefetch(&PrefetchKeys { keys: vec![key(1)], ..PrefetchKeys::default() });
    assert!(error.unwrap_err().is_transient());
    assert!(transaction.write(&empty_batch()).unwrap_err().is_transient());
    assert!(transaction.commit().is_err());
    assert_eq!(append(&store, &[1]).unwrap(), [Seq(1)]);
}

#[test]
fn commit_whose_answer_is_lost_is_known_as_committed() {
    let folder = tempfile::tempdir().unwrap();
    append(&open(folder.path(), "direct"), &[1]).unwrap();
    let proxy = CuttingProxy::start(Server::shared().port, COMMITTED);
    let store = PostgresStore::open(&proxied(folder.path(), proxy.port), options()).unwrap();
    for seq in 2..=4 {
        let mut transaction = store.begin().unwrap();
        transaction.write(&WriteBatch { changes: vec![change(Seq(seq), seq)], ..empty_batch() }).unwrap();
        let CommitError::Unknown(commit, _) = transaction.commit().unwrap_err() else { panic!("the answer is lost") };
        assert!(store.was_committed(commit).unwrap());
    }
    assert_eq!(store.quarantine(&[unreadable()], None).unwrap().ids.len(), 1);
    assert_eq!(store.quarantine_size().unwrap().messages, 1, "a transaction other than a batch finds out by itself");
    assert_eq!(seqs(&store, 0), [1, 2, 3, 4]);
}

/// Returns the URL of a folder's database through a proxy.
fn proxied(folder: &Path, port: u16) -> PostgresUrl {
    let database = query(folder, "SELECT current_database()");
    PostgresUrl::parse(&format!("postgres://tidings@127.0.0.1:{port}/{database}")).unwrap()
}

fn unreadable() -> NewQuarantinedMessage {
    NewQuarantinedMessage {
        source: SourceName::parse("s").unwrap(),
        received: Timestamp::EPOCH,
        content_type: Some("a\0b".into()),
        headers: vec![("h".to_owned(), "\0".to_owned())],
        body: Bytes::from_static(b"\0\xff"),
        location: "\0".into(),
        reason: "reason".into(),
    }
}

#[test]
fn a_promoted_standby_continues_with_larger_numbers_and_a_new_identity() {
    let folder = tempfile::tempdir().unwrap();
    let [store, other] = ["a", "b"].map(|node| open(folder.path(), node));
    append(&store, &[1, 2]).unwrap();
    let identity = store.identity();
    query(folder.path(), "UPDATE journal_head SET timeline = '00000000'");
    let next = append(&store, &[3]).unwrap()[0];
    assert!(next.0 > 100_000_000_000, "{next}");
    assert_ne!(store.identity(), identity);
    assert_eq!(append(&other, &[4, 1]).unwrap(), [next.next(), Seq(1)]);
    assert_eq!(store.skipped_ranges().unwrap(), [(Seq(2), Seq(next.0 - 1))]);
    assert_eq!(store.before_restore(next).unwrap(), Some(Seq(2)));
    assert!(store.after(Seq(2), 9, usize::MAX).unwrap().is_some());
    assert!(store.after(Seq(3), 9, usize::MAX).unwrap().is_none(), "the lost change may have had this number");
    assert_eq!(store.first_of_newest(3).unwrap(), Some(Seq(2)));
    assert_eq!(store.ended_identities().unwrap(), [(identity, Seq(2))]);
}

#[test]
fn texts_with_nul_characters_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), "nul");
    let message = unreadable();
    let id = store.quarantine(std::slice::from_ref(&message), None).unwrap().ids[0];
    let stored = store.quarantined(id).unwrap().unwrap().message;
    assert_eq!(stored.content_type.as_deref(), Some("ab"));
    assert_eq!((stored.headers, stored.body), (message.headers, message.body));
}

#[test]
fn probes_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), "probe");
    store.probe().unwrap();
    assert_eq!(query(folder.path(), "SELECT count(*) FROM probes"), "0");
}

#[test]
fn pages_end_at_their_number_of_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), "pages");
    append(&store, &[1, 2, 3, 4]).unwrap();
    let size = store.after(Seq(0), 1, 1).unwrap().unwrap()[0].json.len();
    for (bytes, count) in [(1, 1), (size, 1), (size + 1, 2), (usize::MAX, 4)] {
        assert_eq!(store.after(Seq(0), 9, bytes).unwrap().unwrap().len(), count, "{bytes}");
        assert_eq!(store.before(Seq(5), 9, bytes).unwrap().len(), count, "{bytes}");
    }
    assert_eq!(store.after(Seq(4), 9, 1).unwrap(), Some(Vec::new()));
    assert_eq!(store.after(Seq(u64::MAX), 9, 1).unwrap(), None);
}

#[test]
fn unusable_databases_are_refused_with_a_reason_and_without_a_password() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path(), "first"));
    query(folder.path(), "INSERT INTO migrations (version) VALUES (999)");
    let error = |url: &str| {
        let url = PostgresUrl::parse(url).unwrap();
        let inspected = PostgresStore::inspect(&url, &postgres::node("test")).unwrap_err();
        let opened = PostgresStore::open(&url, options()).map(|_| ()).unwrap_err();
        assert_eq!(inspected.to_string(), opened.to_string());
        opened
    };
    assert!(matches!(error(&connection(folder.path())), PostgresOpenError::Newer { version: 999, .. }));
    query(folder.path(), "DELETE FROM migrations WHERE version < 999; UPDATE migrations SET version = 8");
    let unreleased = error(&connection(folder.path()));
    assert!(matches!(unreleased, PostgresOpenError::Unreleased { version: 8, .. }), "{unreleased}");
    for url in ["postgres://u:secret@%2Fnonexistent/d", "postgres://u:secret@127.0.0.1:1/d"] {
        let error = error(url);
        assert!(matches!(&error, PostgresOpenError::Unreachable { .. }), "{error}");
        assert!(!error.to_string().contains("sec"), "{error}");
    }
}

#[test]
fn connections_use_tls_and_a_password() {
    let (server, certificate) = Server::encrypted();
    server.run("postgres", "CREATE ROLE node LOGIN PASSWORD 'correct'");
    server.run("postgres", "CREATE DATABASE journal OWNER node TEMPLATE template0");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let url = |password| {
        let url = format!("postgres://node:{password}@localhost:{}/journal?sslmode=require", server.port);
        PostgresUrl::parse(&url).unwrap()
    };
    let with = |roots| PostgresOptions {
        connection: ConnectionOptions { tls: tls(roots), ..postgres::node("tls") },
        ..options()
    };
    let store = PostgresStore::open(&url("correct"), with(roots.clone())).unwrap();
    assert_eq!(append(&store, &[1]).unwrap(), [Seq(1)]);
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'tidings/tls' AND ssl";
    assert_eq!(server.run("journal", encrypted), "1");
    let error = |password, roots| PostgresStore::open(&url(password), with(roots)).map(|_| ()).unwrap_err();
    let refused = error("wrong", roots);
    assert!(matches!(refused, PostgresOpenError::Authentication { .. }), "{refused}");
    assert!(refused.to_string().contains("check the password in journal.store"), "{refused}");
    let untrusted = error("correct", rustls::RootCertStore::empty());
    assert!(matches!(untrusted, PostgresOpenError::Unreachable { .. }), "{untrusted}");
}
