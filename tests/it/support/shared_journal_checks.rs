//! Checks of a journal in PostgreSQL that several nodes have written: numbers, and whether its tables agree.

use serde_json::Value;

use crate::support::{
    gateway::command, journal_fixture::stderr, message_load::SOURCE_WITHOUT_KEYS, postgres_pair::PrimaryAddress,
};

/// Query that is true in an intact journal, and what it checks.
const INVARIANTS: [(&str, &str); 5] = [
    ("the head is the newest change", "SELECT head = (SELECT max(seq) FROM changes) FROM journal_head"),
    (
        "each change has its event key, unless its source has none",
        "SELECT NOT EXISTS (SELECT FROM changes c FULL JOIN event_keys k USING (seq)
            WHERE c.seq IS NULL OR (k.seq IS NULL) <> (c.json::jsonb ->> 'source' = 'SOURCE_WITHOUT_KEYS'))",
    ),
    (
        "times of receipt do not decrease",
        "SELECT bool_and(received >= before OR before IS NULL)
        FROM (SELECT received, lag(received) OVER (ORDER BY seq) AS before FROM changes) c",
    ),
    (
        "the registry has the item of each change",
        "SELECT (SELECT count(*) FROM items WHERE existence) = (SELECT count(*) FROM changes)",
    ),
    (
        "the registry counts the items of each object",
        "SELECT bool_and(o.items IS NULL OR o.items = (SELECT count(*) FROM items i WHERE i.object = o.object))
        FROM objects o",
    ),
];

/// Panics unless the tables agree, nothing is in the quarantine, and nothing was refused.
pub(crate) fn assert_tables_agree(primary: &PrimaryAddress) {
    for (what, sql) in INVARIANTS {
        let sql = sql.replace("SOURCE_WITHOUT_KEYS", SOURCE_WITHOUT_KEYS);
        assert_eq!(primary.query(&sql), "t", "{what}");
    }
    for table in ["quarantine", "dead_letters"] {
        assert_eq!(primary.query(&format!("SELECT count(*) FROM {table}")), "0", "{table}");
    }
}

/// Panics unless `tidings verify` finds no error.
pub(crate) fn assert_verified(primary: &PrimaryAddress) {
    let verified = command().args(["verify", &primary.url()]).output().unwrap();
    assert!(verified.status.success(), "{}", stderr(&verified));
}

/// Panics unless the numbers increase by one, apart from the ranges that failovers have skipped.
pub(crate) fn assert_numbers(primary: &PrimaryAddress, changes: &[Value], failovers: usize) {
    let ranges =
        primary.query("SELECT coalesce(string_agg(head || ' ' || floor, ' ' ORDER BY head), '') FROM restores");
    let ranges: Vec<u64> = ranges.split_whitespace().map(|number| number.parse().unwrap()).collect();
    assert!(ranges.len() / 2 <= failovers, "{failovers} failovers have skipped {ranges:?}");
    let mut last = 0;
    for change in changes {
        let skipped = ranges.chunks(2).find(|range| range[0] == last).map(|range| range[1]);
        let seq = change["seq"].as_u64().unwrap();
        assert_eq!(seq, skipped.unwrap_or(last) + 1, "the number after {last}");
        last = seq;
    }
}
