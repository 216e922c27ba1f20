//! The times of the events of sources, for every store.

use std::time::Duration;

use tidings::{
    journal::{
        store::{Store, StoreLimits, WriteBatch},
        subscriptions::{CursorAdvance, DefinitionText, MadeBy, SubscriptionWrite},
    },
    model::{Seq, SubscriptionName, Timestamp},
};

use crate::support::tested_store::{append, change, empty_batch, every_store, write};

const HOUR: i64 = 60 * 60 * 1000;
const WEEK: i64 = 7 * 24 * HOUR;

fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis).unwrap()
}

#[test]
fn last_event_and_longest_pause_of_two_weeks_are_kept() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        assert!(store.sources().unwrap().is_empty());
        // A batch without a change is no event.
        write(&*store, &empty_batch()).unwrap();
        assert!(store.sources().unwrap().is_empty());
        let mut seq = 0;
        let mut event = |store: &dyn Store, at: i64| {
            seq += 1;
            let changes = vec![change(Seq(seq), seq)];
            write(store, &WriteBatch { changes, received: time(at), ..empty_batch() }).unwrap();
            let [record] = &store.sources().unwrap()[..] else { panic!("one source") };
            assert_eq!(record.first_event, time(WEEK));
            (record.last_event.millis(), record.longest_pause)
        };
        let hours = |hours: u64| Duration::from_secs(hours * 60 * 60);
        assert_eq!(event(&*store, WEEK), (WEEK, hours(0)));
        assert_eq!(event(&*store, WEEK + 5 * HOUR), (WEEK + 5 * HOUR, hours(5)));
        assert_eq!(event(&*store, WEEK + 7 * HOUR), (WEEK + 7 * HOUR, hours(5)), "a shorter pause");
        // The clock of another node is behind.
        assert_eq!(event(&*store, WEEK + 6 * HOUR), (WEEK + 7 * HOUR, hours(5)));
        drop(store);
        let store = open(folder, StoreLimits::default());
        assert_eq!(event(&*store, 2 * WEEK - HOUR), (2 * WEEK - HOUR, hours(160)));
        assert_eq!(event(&*store, 2 * WEEK + HOUR), (2 * WEEK + HOUR, hours(160)), "the week before counts");
        assert_eq!(event(&*store, 3 * WEEK), (3 * WEEK, hours(167)));
        assert_eq!(event(&*store, 3 * WEEK + HOUR), (3 * WEEK + HOUR, hours(167)));
        assert_eq!(event(&*store, 9 * WEEK + HOUR), (9 * WEEK + HOUR, hours(6 * 168)), "weeks without an event");
        assert_eq!(event(&*store, 11 * WEEK), (11 * WEEK, hours(2 * 168 - 1)), "six weeks are forgotten");
    });
}

#[test]
fn last_delivery_and_pause_of_a_subscription_are_kept() {
    every_store(|folder, open| {
        let store = open(folder, StoreLimits::default());
        let name = SubscriptionName::parse("index").unwrap();
        let put = SubscriptionWrite::Put {
            name: name.clone(),
            made_by: MadeBy::Api,
            definition: DefinitionText::default(),
            cursor: Seq(0),
        };
        append(&*store, &[1, 2, 3]).unwrap();
        store.write_subscriptions(&[put], None).unwrap();
        let advance = |cursor, delivered| {
            let advance = CursorAdvance { name: name.clone(), cursor: Seq(cursor), delivered, term: None };
            write(&*store, &WriteBatch { cursors: vec![advance], ..empty_batch() }).unwrap();
        };
        advance(1, Some(time(5000)));
        advance(2, None);
        store.write_subscriptions(&[SubscriptionWrite::Pause(name.clone(), "the token ops".into())], None).unwrap();
        let stored = store.subscription(&name).unwrap().unwrap();
        assert_eq!((stored.delivered, stored.paused_by.as_deref()), (Some(time(5000)), Some("the token ops")));
        store.write_subscriptions(&[SubscriptionWrite::Resume(name.clone())], None).unwrap();
        let stored = store.subscription(&name).unwrap().unwrap();
        assert_eq!((stored.delivered, stored.paused_by, stored.paused), (Some(time(5000)), None, false));
    });
}
