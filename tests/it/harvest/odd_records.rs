//! Records that share an identifier, that are listed in a set and say that they are in others, or that change in each run.

use std::time::Duration;

use crate::harvest::membership::{Lists, ago, broken, live};

/// Token of a page that leads to the next one.
const NEXT: &str = "<resumptionToken>2</resumptionToken>";

impl Lists {
    /// Returns the digest of the metadata of the only record.
    async fn digest(&self) -> String {
        let objects = self.journal.journal.registry(None, 10).await.unwrap();
        let [(uri, state)] = objects.as_slice() else { panic!("{objects:?}") };
        state.content(uri).unwrap().json().to_owned()
    }
}

#[tokio::test]
async fn records_with_one_identifier_do_not_flap() {
    let (old, new) = (ago(900), ago(500));
    for (first, second) in [(&old, &new), (&new, &old), (&new, &new)] {
        for pages in [1, 2] {
            let mut repository = Lists::start("no", &[]).await;
            repository.settings.full_every = Some(Duration::ZERO);
            let records = [live("r", first, "first"), live("r", second, "second")];
            if pages == 1 {
                repository.list("", &records);
            } else {
                repository.list("", &[records[0].clone(), NEXT.to_owned()]);
                repository.list("2", &records[1..]);
            }
            let run = repository.complete().await;
            let expected =
                "1 records have the same identifier as another one, such as r; of such records the newest counts";
            assert_eq!(run.reason.unwrap().as_str(), expected);
            let digest = repository.digest().await;
            for _ in 0..2 {
                let run = repository.complete().await;
                assert_eq!((run.counts.changes, repository.digest().await), (0, digest.clone()), "{first} {second}");
                assert_eq!(run.reason.unwrap().as_str(), expected);
            }
            // The one that counts leaves the list, and the other one has its turn, in the second run at the latest.
            let other = usize::from(first >= second);
            repository.list("", &[records[other].clone()]);
            let changes = repository.complete().await.counts.changes + repository.complete().await.counts.changes;
            assert_eq!(changes, 1, "{first} {second} {pages}");
            assert_ne!(repository.digest().await, digest);
            assert_eq!(repository.complete().await.reason, None);
        }
    }
}

#[tokio::test]
async fn a_double_between_other_records_costs_them_nothing() {
    let repository = Lists::start("persistent", &[]).await;
    repository.list("", &[live("r", &ago(900), "first"), NEXT.to_owned()]);
    let date = ago(900);
    repository
        .list("2", &[broken("b1", &date), live("r", &date, "second"), broken("b2", &date), live("s", &date, "t")]);
    let run = repository.complete().await;
    assert_eq!((run.counts.changes, run.counts.quarantined), (2, 2));
    assert_eq!(repository.live().await, ["r", "s"]);
    let quarantined = repository.journal.journal.quarantined_before(None, None, 10).await.unwrap();
    assert_eq!(quarantined.len(), 2);
}

#[tokio::test]
async fn equal_copies_of_a_record_are_no_remark() {
    let repository = Lists::start("no", &["a", "b"]).await;
    let record = live("r", &ago(500), "t");
    repository.list("a", &[record.clone(), record.clone(), NEXT.to_owned()]);
    repository.list("2", std::slice::from_ref(&record));
    repository.list("b", &[record]);
    assert_eq!(repository.complete().await.reason, None);
}

#[tokio::test]
async fn records_of_other_sets_are_counted() {
    let repository = Lists::start("no", &["a"]).await;
    let within = |identifier: &str, sets: &str| {
        live(identifier, &ago(500), "t").replace("</header>", &format!("{sets}</header>"))
    };
    let sets = |sets: &[&str]| sets.iter().map(|set| format!("<setSpec>{set}</setSpec>")).collect::<String>();
    let records = [
        within("r1", ""),
        within("r2", &sets(&["b", "a"])),
        within("r3", &sets(&["a:c"])),
        within("r4", &sets(&["b"])),
        within("r5", &sets(&["ab"])),
    ];
    repository.list("a", &records);
    let run = repository.complete().await;
    assert_eq!(run.counts.changes, 5, "the repository lists them");
    let expected = "2 records say that they are in none of the sets, such as r4; they count, because the repository lists \
                    them there";
    assert_eq!(run.reason.unwrap().as_str(), expected);
}

#[tokio::test]
async fn changes_that_return_in_each_run_are_bounded() {
    let mut repository = Lists::start("no", &[]).await;
    repository.settings.full_every = Some(Duration::ZERO);
    let (date, steady) = (ago(900), live("s", &ago(900), "steady"));
    let mut changes = Vec::new();
    let mut reasons = Vec::new();
    for nonce in 0..8 {
        repository.list("", &[live("r", &date, &format!("nonce {nonce}")), steady.clone()]);
        let run = repository.complete().await;
        changes.push(run.counts.changes);
        reasons.push(run.reason.map(String::from));
    }
    assert_eq!(changes, [2, 1, 1, 1, 0, 0, 0, 0]);
    assert_eq!(reasons[..3], [None, None, None]);
    let expected = "1 records change in each run without a new datestamp, such as r; a change of such a record counts once a \
                    day, or when it has stayed the same";
    assert!(reasons[3..].iter().all(|reason| reason.as_deref() == Some(expected)), "{reasons:?}");
    // It has settled, and a new datestamp is news.
    let run = repository.complete().await;
    assert_eq!((run.counts.changes, run.reason), (1, None));
    repository.list("", &[live("r", &ago(1), "new"), steady.clone()]);
    assert_eq!(repository.complete().await.counts.changes, 1);
    // A record that was deleted comes back.
    for nonce in 0..5 {
        repository.list("", &[live("r", &date, &format!("again {nonce}")), steady.clone()]);
        repository.complete().await;
    }
    repository.list("", std::slice::from_ref(&steady));
    assert_eq!(repository.complete().await.counts.changes, 1);
    repository.list("", &[live("r", &date, "back"), steady]);
    assert_eq!(repository.complete().await.counts.changes, 1);
}

#[tokio::test]
async fn records_with_new_identifiers_are_recognised_by_their_metadata() {
    let mut repository = Lists::start("no", &[]).await;
    repository.settings.full_every = Some(Duration::ZERO);
    let all =
        |prefix: &str| (1..13).map(|n| live(&format!("{prefix}:{n}"), &ago(900), &format!("{n}"))).collect::<Vec<_>>();
    repository.list("", &all("old"));
    repository.complete().await;
    repository.list("", &all("new"));
    let reason = repository.complete().await.reason.unwrap();
    let expected = "12 of 24 records are no longer listed; nothing was deleted, because max_deleted_percent is 10: if the \
                    records are really gone, and no set was renamed, raise it and run the harvest again; 12 listed records \
                    have the metadata of missing ones, as if the repository had given its records other identifiers";
    assert_eq!(reason.as_str(), expected);
    repository.settings.max_deleted_percent = 100;
    assert_eq!(repository.complete().await.counts.changes, 12);
    assert!(repository.live().await.iter().all(|identifier| identifier.starts_with("new")));
}
