//! Contract tests of `Store` about harvests, for every store.

use tidings::{
    journal::{
        harvest::{
            Claim, FormerRecords, HarvestDefinition, HarvestProgress, HarvestRun, HarvestWrite, KEPT_RUNS, ListedAt,
            ListedCounts, ListedRecord, ListedRecords, RunCounts, RunId, RunState, SourcePosition,
        },
        store::{StoreLimits, WriteBatch},
    },
    model::{Seq, SourceName, Timestamp},
};

use crate::support::tested_store::{change, empty_batch, every_store, new_harvest_run, write};

#[test]
fn harvest_position_and_run_are_stored_with_the_batch() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        let source = SourceName::parse("s").unwrap();
        let run = |number: u64, state| HarvestRun {
            id: RunId::mint(),
            source: source.clone(),
            started: Timestamp::from_millis(1).unwrap(),
            updated: Timestamp::from_millis(2).unwrap(),
            state,
            reason: Some("reason".into()),
            counts: RunCounts { pages: number, records: 2, changes: 3, quarantined: 4, repaired: 5 },
        };
        let progress = |position: &str, run: &HarvestRun| HarvestProgress {
            position: position.into(),
            run: run.clone(),
            listed: ListedRecords::default(),
        };
        assert_eq!(store.harvest(&source).unwrap(), None);
        store.write_harvest(&source, &HarvestWrite::Request(Timestamp::from_millis(7).unwrap())).unwrap();
        let first = run(1, RunState::Running);
        let changes = vec![change(Seq(1), 1)];
        write(&*store, &WriteBatch { changes, harvests: vec![progress("1", &first)], ..empty_batch() }).unwrap();
        let stored = store.harvest(&source).unwrap().unwrap();
        assert_eq!((&*stored.position, stored.requested), ("1", Timestamp::from_millis(7)));
        // The same number again: neither the change nor the position is stored.
        let changes = vec![change(Seq(1), 2)];
        let broken = WriteBatch { changes, harvests: vec![progress("2", &first)], ..empty_batch() };
        assert!(write(&*store, &broken).is_err());
        assert_eq!(&*store.harvest(&source).unwrap().unwrap().position, "1");
        let ended = HarvestRun { state: RunState::Completed, reason: None, ..first };
        let newer: Vec<_> = (0..KEPT_RUNS as u64 + 5).map(|number| run(number, RunState::Failed)).collect();
        let harvests = [&ended].into_iter().chain(&newer).map(|run| progress("3", run)).collect();
        write(&*store, &WriteBatch { harvests, ..empty_batch() }).unwrap();
        let runs = store.harvest_runs(&source, None, 1000).unwrap();
        assert_eq!(runs.len(), KEPT_RUNS);
        assert!(runs.iter().eq(newer.iter().rev().take(KEPT_RUNS)));
        let page = store.harvest_runs(&source, Some(runs[1].id), 2).unwrap();
        assert_eq!(page, runs[2..4]);
        assert!(store.harvest_runs(&SourceName::parse("t").unwrap(), None, 10).unwrap().is_empty());
    });
}

#[test]
fn position_of_a_broker_source_is_stored_with_the_batch() {
    every_store(|folder, open| {
        let source = SourceName::parse("topics").unwrap();
        let at = |position: &str| vec![SourcePosition { source: source.clone(), position: position.into() }];
        {
            let store = open(folder, StoreLimits::default());
            let changes = vec![change(Seq(1), 1)];
            write(&*store, &WriteBatch { changes, positions: at("1"), ..empty_batch() }).unwrap();
            // The same number again: neither the change nor the position is stored.
            let changes = vec![change(Seq(1), 2)];
            assert!(write(&*store, &WriteBatch { changes, positions: at("2"), ..empty_batch() }).is_err());
            assert_eq!(&*store.harvest(&source).unwrap().unwrap().position, "1");
            write(&*store, &WriteBatch { positions: at("3"), ..empty_batch() }).unwrap();
        }
        let store = open(folder, StoreLimits::default());
        assert_eq!(&*store.harvest(&source).unwrap().unwrap().position, "3");
        assert!(
            store.harvest_runs(&source, None, 10).unwrap().is_empty()
                && store.harvest_definitions().unwrap().is_empty()
        );
    });
}

#[test]
fn harvest_definition_and_pause_are_stored_until_the_harvest_is_removed() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        let [source, other] = ["s", "t"].map(|name| SourceName::parse(name).unwrap());
        let define = |source: &SourceName, text: &str| {
            store.write_harvest(source, &HarvestWrite::Define(text.to_owned().into())).unwrap();
        };
        let texts = || {
            let text = |found: HarvestDefinition| (found.source.to_string(), found.text.expose().to_owned());
            store.harvest_definitions().unwrap().into_iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(texts(), []);
        // A harvest of the configuration has no definition.
        store.write_harvest(&other, &HarvestWrite::SetPaused(true)).unwrap();
        define(&source, "{1}");
        let run = new_harvest_run(&source);
        let harvests = vec![HarvestProgress { position: "1".into(), run, listed: ListedRecords::default() }];
        write(&*store, &WriteBatch { harvests, ..empty_batch() }).unwrap();
        define(&source, "{2}");
        drop(store);
        let store = open(folder, StoreLimits::default());
        let texts = || {
            let text = |found: HarvestDefinition| (found.source.to_string(), found.text.expose().to_owned());
            store.harvest_definitions().unwrap().into_iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(texts(), [("s".to_owned(), "{2}".to_owned())]);
        let record = |source| store.harvest(source).unwrap().map(|stored| (stored.position.to_string(), stored.paused));
        assert_eq!(record(&source), Some(("1".to_owned(), false)));
        assert_eq!(record(&other), Some((String::new(), true)));
        store.write_harvest(&other, &HarvestWrite::SetPaused(false)).unwrap();
        assert_eq!(record(&other), Some((String::new(), false)));
        store.write_harvest(&source, &HarvestWrite::Remove).unwrap();
        assert_eq!((record(&source), texts()), (None, Vec::new()));
        assert!(store.harvest_runs(&source, None, 10).unwrap().is_empty());
    });
}

#[test]
fn listed_records_are_stored_with_the_position_and_found_when_they_are_missing() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        let [source, other] = ["s", "t"].map(|name| SourceName::parse(name).unwrap());
        let time = |millis| Timestamp::from_millis(millis).unwrap();
        let list = |source: &SourceName, listed: ListedRecords| {
            let run = new_harvest_run(source);
            let harvests = vec![HarvestProgress { position: "1".into(), run, listed }];
            write(&*store, &WriteBatch { harvests, ..empty_batch() }).unwrap();
        };
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let present = |at, present: &[&str]| ListedRecords {
            at: Some(time(at)),
            present: names(present).into_iter().map(ListedRecord::from).collect(),
            ..ListedRecords::default()
        };
        let counts = |source: &SourceName, since| {
            let ListedCounts { all, missing } = store.listed_counts(source, time(since)).unwrap();
            (all, missing)
        };
        let missing = |since, after, limit| store.missing_records(&source, time(since), after, limit).unwrap();
        assert_eq!(counts(&source, 10), (0, 0));
        // A page may have a record twice. Upper case is before lower case.
        list(&source, present(10, &["a", "b", "B", "b", "\u{e9}"]));
        list(&other, present(10, &["a", "z"]));
        list(&source, present(20, &["b", "new"]));
        assert_eq!((counts(&source, 20), counts(&other, 20)), ((5, 3), (2, 2)));
        assert_eq!(missing(20, "", 10), ["B", "a", "\u{e9}"]);
        assert_eq!((missing(20, "B", 1), missing(20, "\u{e9}", 10)), (names(&["a"]), names(&[])));
        assert_eq!(missing(10, "", 10), names(&[]));
        list(&source, ListedRecords { gone: names(&["a", "unknown"]), ..present(20, &["B"]) });
        assert_eq!(missing(20, "", 10), ["\u{e9}"]);
        list(&source, ListedRecords { former: FormerRecords::Unlist, ..present(30, &["c"]) });
        assert_eq!((counts(&source, 31), counts(&other, 20)), ((1, 1), (2, 2)));
        store.write_harvest(&source, &HarvestWrite::Remove).unwrap();
        assert_eq!((counts(&source, 31), counts(&other, 20)), ((0, 0), (2, 2)));
    });
}

#[test]
fn validators_are_those_of_the_newest_list() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        let source = SourceName::parse("s").unwrap();
        let list = |at, records: &[(&str, &str)]| {
            let record = |(identifier, validator): &(&str, &str)| ListedRecord {
                validator: (*validator).to_owned(),
                ..ListedRecord::from((*identifier).to_owned())
            };
            let present = records.iter().map(record).collect();
            let listed = ListedRecords { present, at: Timestamp::from_millis(at), ..ListedRecords::default() };
            let run = new_harvest_run(&source);
            let harvests = vec![HarvestProgress { position: "1".into(), run, listed }];
            write(&*store, &WriteBatch { harvests, ..empty_batch() }).unwrap();
        };
        list(10, &[("a", "1"), ("b", "2"), ("c", "")]);
        list(20, &[("b", "3"), ("b", "3")]);
        let asked = ["a", "b", "c", "unknown"].map(str::to_owned);
        let mut found: Vec<_> = store.validators(&source, &asked).unwrap().into_iter().collect();
        found.sort_unstable();
        assert_eq!(found, [("a", "1"), ("b", "3"), ("c", "")].map(|(a, b)| (a.to_owned(), b.to_owned())));
        let other = SourceName::parse("t").unwrap();
        assert!(store.validators(&other, &asked).unwrap().is_empty());
        assert!(store.validators(&source, &[]).unwrap().is_empty());
    });
}

#[test]
fn records_that_several_sources_list_are_found_until_they_are_removed() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        let [source, other, third] = ["s", "t", "u"].map(|name| SourceName::parse(name).unwrap());
        let list = |source: &SourceName, at, former: FormerRecords, records: &[(&str, &str)]| {
            let record = |(identifier, validator): &(&str, &str)| ListedRecord {
                validator: (*validator).to_owned(),
                ..ListedRecord::from((*identifier).to_owned())
            };
            let present = records.iter().map(record).collect();
            let at = Timestamp::from_millis(at);
            let listed = ListedRecords { former, present, at, ..ListedRecords::default() };
            let run = new_harvest_run(source);
            let harvests = vec![HarvestProgress { position: "1".into(), run, listed }];
            write(&*store, &WriteBatch { harvests, ..empty_batch() }).unwrap();
        };
        let claim = |identifier: &str, source: &str, validator: &str, is_listed| Claim {
            identifier: identifier.to_owned(),
            source: source.to_owned(),
            validator: validator.to_owned(),
            is_listed,
            ended: 0,
        };
        let claims = |identifiers: &[&str]| {
            let identifiers: Vec<_> = identifiers.iter().map(|identifier| (*identifier).to_owned()).collect();
            let mut claims = store.claims(&source, &identifiers).unwrap();
            claims.sort_by(|a, b| (&a.identifier, &a.source).cmp(&(&b.identifier, &b.source)));
            claims
        };
        let shared = |limit| store.shared_records(&source, limit).unwrap();
        list(&source, 10, FormerRecords::Keep, &[("a", "own"), ("b", ""), ("c", "")]);
        list(&other, 10, FormerRecords::Keep, &[("a", "1"), ("b", ""), ("d", "")]);
        list(&third, 10, FormerRecords::Keep, &[("a", "2")]);
        assert_eq!(
            claims(&["a", "c", "d"]),
            [claim("a", "t", "1", true), claim("a", "u", "2", true), claim("d", "t", "", true)]
        );
        assert_eq!(claims(&[]), []);
        assert_eq!(shared(9), [claim("a", "t", "1", true), claim("a", "u", "2", true), claim("b", "t", "", true)]);
        assert_eq!(shared(1), [claim("a", "t", "1", true)]);
        // What a new list no longer has is forgotten, or stays without being listed.
        list(&other, 20, FormerRecords::Unlist, &[("d", "")]);
        let ended = |at: i64| Claim { ended: -1 - at, ..claim("a", "t", "1", false) };
        assert_eq!(shared(9), [ended(10), claim("a", "u", "2", true)]);
        // It is neither counted nor missing.
        let time = |millis| Timestamp::from_millis(millis).unwrap();
        assert_eq!(store.listed_counts(&other, time(21)).unwrap(), ListedCounts { all: 1, missing: 1 });
        assert_eq!(store.missing_records(&other, time(21), "", 9).unwrap(), ["d"]);
        list(&other, 30, FormerRecords::Unlist, &[("a", "3")]);
        assert_eq!(claims(&["a", "d"]), [claim("a", "t", "3", true), claim("a", "u", "2", true)]);
        list(&third, 30, FormerRecords::Rename(SourceName::parse("kept").unwrap()), &[("b", "new")]);
        assert_eq!(shared(9), [claim("a", "t", "3", true), claim("b", "u", "new", true)]);
        // A record that was listed again ends at another time.
        list(&other, 35, FormerRecords::Keep, &[("a", "1")]);
        list(&other, 36, FormerRecords::Unlist, &[]);
        assert_eq!(shared(9), [ended(35), claim("b", "u", "new", true)]);
        // The own records that are not listed are shared with nobody.
        list(&source, 40, FormerRecords::Unlist, &[("b", "")]);
        assert_eq!(shared(9), [claim("b", "u", "new", true)]);
        // Ended records without properties stay for 90 days.
        let day = 24 * 60 * 60 * 1000;
        list(&other, 50, FormerRecords::Keep, &[("b", ListedRecord::NO_PROPERTIES)]);
        for (days, is_left) in [(0, true), (89, true), (91, false)] {
            list(&other, 60 + days * day, FormerRecords::Unlist, &[]);
            assert_eq!(shared(9).iter().any(|claim| claim.source == "t"), is_left, "{days}");
        }
        // So does a record that a page ends alone.
        let end = |identifier: &str, at| {
            let validator = ListedRecord::NO_PROPERTIES.to_owned();
            let record =
                ListedRecord { identifier: identifier.to_owned(), validator, listed: ListedAt::Ended(time(at)) };
            let listed = ListedRecords { present: vec![record], at: Some(time(at)), ..ListedRecords::default() };
            let harvests = vec![HarvestProgress { position: "1".into(), run: new_harvest_run(&other), listed }];
            write(&*store, &WriteBatch { harvests, ..empty_batch() }).unwrap();
        };
        for (identifier, days, is_left) in [("b", 0, true), ("d", 89, true), ("d", 91, false)] {
            end(identifier, 60 + days * day);
            assert_eq!(shared(9).iter().any(|claim| claim.source == "t"), is_left, "{days}");
        }
    });
}
