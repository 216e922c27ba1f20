//! Contract tests of `Store` about the quarantine, for every store.

use bytes::Bytes;
use tidings::{
    journal::{
        quarantine::{NewQuarantinedMessage, QuarantineSize},
        store::{Store, StoreLimits},
    },
    model::{SourceName, Text, Timestamp},
};

use crate::support::tested_store::every_tested_store;

fn message(source: &str, number: usize, bytes: usize) -> NewQuarantinedMessage {
    NewQuarantinedMessage {
        source: SourceName::parse(source).unwrap(),
        received: Timestamp::EPOCH,
        content_type: None,
        headers: Vec::new(),
        body: Bytes::from(vec![b'x'; bytes]),
        location: Text::default(),
        reason: number.to_string().into(),
    }
}

/// Returns the sources and reasons of all messages, oldest first.
fn stored(store: &dyn Store) -> Vec<(String, String)> {
    let messages = store.quarantined_before(None, None, 10_000).unwrap();
    let messages = messages.into_iter().rev().map(|stored| stored.message);
    messages.map(|message| (message.source.to_string(), message.reason.to_string())).collect()
}

#[test]
fn quarantine_flood_of_one_source_leaves_the_messages_of_others() {
    let limits = StoreLimits { quarantine_entries: 100, ..StoreLimits::default() };
    every_tested_store(|folder, tested| {
        let store = (tested.open)(folder, limits);
        store.quarantine(&[message("quiet", 0, 10), message("quiet", 1, 10)], None).unwrap();
        let flood: Vec<_> = (0..1200).map(|number| message("loud", number, 1)).collect();
        let receipt = store.quarantine(&flood, None).unwrap();
        // Identifiers are in the order of the messages.
        assert!(receipt.ids.is_sorted() && receipt.ids.len() == 1200, "{:?}", receipt.ids);
        assert_eq!(receipt.dropped, 1102);
        for number in 1200..1210 {
            assert_eq!(store.quarantine(&[message("loud", number, 1)], None).unwrap().dropped, 1);
        }
        let kept = stored(&*store);
        assert_eq!(kept.len(), 100);
        let quiet = ["0", "1"].map(|number| ("quiet".to_owned(), number.to_owned()));
        assert_eq!(kept[..2], quiet);
        assert_eq!(kept[2].1, "1112");
        assert_eq!(store.quarantine_size().unwrap(), QuarantineSize { messages: 100, bytes: 118 });
        drop(store);
        // The sizes of the sources are known after a restart.
        let store = (tested.open)(folder, limits);
        assert_eq!(store.quarantine(&[message("loud", 1210, 1)], None).unwrap().dropped, 1);
        assert_eq!(stored(&*store)[..2], quiet);
        drop(store);
        assert_eq!((tested.verify)(folder), [""; 0]);
    });
}

#[test]
fn quarantine_of_large_messages_drops_those_of_the_source_with_the_most_bytes() {
    let limits = StoreLimits { quarantine_bytes: 1000, ..StoreLimits::default() };
    every_tested_store(|folder, tested| {
        let store = (tested.open)(folder, limits);
        let many: Vec<_> = (0..20).map(|number| message("small", number, 10)).collect();
        store.quarantine(&many, None).unwrap();
        store.quarantine(&[message("large", 0, 600), message("large", 1, 300), message("large", 2, 5)], None).unwrap();
        let kept = stored(&*store);
        assert_eq!(kept.len(), 22, "{kept:?}");
        assert!(!kept.contains(&("large".to_owned(), "0".to_owned())), "{kept:?}");
    });
}
