//! `tidings verify` over PostgreSQL reports each error: every row of the table damages a journal in one way. A dump that
//! is restored is verified, and no number is given twice after it.

use std::path::Path;

use tidings::journal::store::{RestoreStore, Store};

use crate::support::{
    full_journal::full_journal,
    gateway::command,
    journal_fixture::{OpenJournal, stderr},
    postgres::{self, connection as url},
};

/// Creates a journal with rows in every table in the database of a folder.
async fn journal(folder: &Path) {
    let source = tempfile::tempdir().unwrap();
    full_journal(source.path()).await;
    let migrated =
        command().args(["migrate", "--from"]).arg(source.path()).args(["--to", &url(folder)]).output().unwrap();
    assert!(migrated.status.success(), "{}", stderr(&migrated));
}

fn verify(folder: &Path) -> std::process::Output {
    command().args(["verify", &url(folder)]).output().unwrap()
}

#[tokio::test]
async fn verify_locates_each_error_in_a_database() {
    let folder = tempfile::tempdir().unwrap();
    journal(folder.path()).await;
    let ended = verify(folder.path());
    assert!(ended.status.success() && stderr(&ended).is_empty(), "{}", stderr(&ended));
    let newest = postgres::query(folder.path(), "SELECT max(seq) FROM changes");
    for (sql, finding) in [
        (
            "UPDATE changes SET json = replace(json, 'xxxxx', 'xxxxy') WHERE seq = NEWEST",
            "change NEWEST is damaged: its checksum is wrong",
        ),
        ("UPDATE changes SET json = substr(json, 1, 100) WHERE seq = NEWEST", "change NEWEST cannot be read"),
        ("DELETE FROM changes WHERE seq = NEWEST - 3", "are missing"),
        ("DELETE FROM changes WHERE seq = NEWEST - 3", "the key of an event refers to change"),
        ("DELETE FROM changes WHERE seq = NEWEST", "in journal_head, but changes has another"),
        ("UPDATE changes SET id = gen_random_uuid() WHERE seq = NEWEST", "but its row has another id"),
        ("UPDATE changes SET received = received + 1 WHERE seq = NEWEST", "but its row has another time"),
        ("UPDATE changes SET received = 5 WHERE seq = NEWEST", "was received before"),
        ("UPDATE changes SET seq = NEWEST + 9 WHERE seq = NEWEST", "has the number NEWEST"),
        ("DELETE FROM restores", "are missing"),
        ("UPDATE journal_head SET head = head + 1", "the number of the newest change is"),
        ("UPDATE journal_head SET received = NULL", "the time of the newest change is missing"),
        ("UPDATE journal_head SET seeds = 1", "journal_head says that 1 seeds were written"),
        ("DELETE FROM journal_head", "journal_head has 0 rows instead of one"),
        ("UPDATE event_keys SET received = 1 WHERE seq = NEWEST", "event of change NEWEST has another time"),
        ("UPDATE event_keys SET seq = NEWEST WHERE seq = NEWEST - 1", "several event keys refer to change NEWEST"),
        ("UPDATE items SET existence = NOT existence", "its existence"),
        ("UPDATE items SET existence_at = existence_at - 1", "its existence"),
        ("UPDATE items SET content = NULL, state = 'LOST'", "its state"),
        ("UPDATE items SET content = '{\"url\":'", "cannot parse a content location"),
        ("DELETE FROM items", "it is missing"),
        ("DELETE FROM items", "has another number of items than its row says"),
        ("DELETE FROM items; DELETE FROM objects", "the registry lacks the object"),
        ("DELETE FROM objects WHERE uri LIKE '%/1'", "an item refers to the missing object"),
        ("UPDATE objects SET uri = 'no uri' WHERE uri LIKE '%/objects/1'", "whose URI is invalid"),
        ("UPDATE objects SET types = '' WHERE uri LIKE '%/1'", "the registry, object http"),
        ("UPDATE seeds SET delta = '{' WHERE number = 3", "the seeds cannot be read"),
        (
            "UPDATE subscriptions SET cursor = NEWEST + 1 WHERE name = 'pushed'",
            "the cursor of the subscription pushed is",
        ),
        ("UPDATE subscriptions SET made_by = 'me'", "unknown creator of a subscription: me"),
        ("UPDATE dead_letters SET json = '{' WHERE id = 60", "the dead letter 60 cannot be read"),
        ("UPDATE dead_letters SET seq = NEWEST + 1 WHERE id = 60", "the dead letter 60 is a copy of change"),
        ("UPDATE incomplete_changes SET seq = seq + 1", "but its JSON has the number"),
        ("UPDATE incomplete_changes SET missing = 'much'", "invalid values: missing facts \"much\", source \"s\""),
        ("UPDATE crawls SET parts = -1", "the crawl of the repository of \"s\""),
        (
            "UPDATE quarantine SET size = 5 WHERE id = 3",
            "the message 3 of the quarantine has 3 bytes, but its row says 5",
        ),
        ("UPDATE quarantine SET headers = '['", "the message 3 of the quarantine: "),
        ("UPDATE quarantine_size SET bytes = 0", "but the quarantine has another number or size"),
        ("ALTER TABLE dead_letters RENAME TO other", "the table dead_letters cannot be read"),
    ] {
        let copy = postgres::copy(folder.path());
        postgres::query(
            copy.path(),
            "UPDATE objects SET items = (SELECT count(*) FROM items i WHERE i.object = objects.object)",
        );
        postgres::query(copy.path(), &sql.replace("NEWEST", &newest));
        let ended = verify(copy.path());
        assert_eq!(ended.status.code(), Some(1), "{sql}: nothing was found");
        assert!(stderr(&ended).contains(&finding.replace("NEWEST", &newest)), "{sql}: {}", stderr(&ended));
    }
}

#[tokio::test]
async fn a_restored_dump_is_intact_and_continues_with_larger_numbers() {
    let (folder, restored) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    journal(folder.path()).await;
    let open = |folder: &Path| postgres::open(folder, postgres::options());
    let opened = OpenJournal::of(open(folder.path()));
    opened.append([5000]).await;
    let (identity, head) = (opened.journal.identity(), opened.journal.head());
    postgres::dump_and_restore(folder.path(), restored.path());
    // Changes after the dump, which the restored journal lacks.
    opened.append([5001, 5002]).await;
    let lost = opened.journal.head();
    opened.close();
    assert_eq!(open(folder.path()).identity(), identity, "the journal itself has not moved");
    let ended = verify(restored.path());
    assert!(ended.status.success(), "{}", stderr(&ended));
    let opened = OpenJournal::of(open(restored.path()));
    let restored_identity = opened.journal.identity();
    assert_ne!(restored_identity, identity);
    opened.append([5003]).await;
    let next = opened.journal.head();
    assert!(next > lost, "{next}");
    opened.close();
    let store = open(restored.path());
    assert_eq!(store.identity(), restored_identity, "only the first start after a restore skips numbers");
    assert_eq!(store.before_restore(next).unwrap(), Some(head));
    assert!(store.ended_identities().unwrap().contains(&(identity, head)));
    assert!(store.after(lost, 9, usize::MAX).unwrap().is_none(), "a reader of a lost change is told");
    let ended = verify(restored.path());
    assert!(ended.status.success(), "{}", stderr(&ended));
}
