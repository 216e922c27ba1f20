//! Every value of the model survives writing and reading in each format that supports both, so that one gateway
//! can be the source of another.

use proptest::{prelude::ProptestConfig, prop_assert_eq, proptest};
use serde_json::Value;
use tidings::{
    format::{self, Headers, Limits, Message, ParsedMessage},
    model::{Change, Draft, DraftItems, DraftLookup},
};

use crate::support::arbitrary;

fn read(body: &[u8], media_type: &str) -> Draft {
    let dialect = (format::dialect("content-change").unwrap().build)(Value::Null, Limits::default()).unwrap();
    let message = Message { content_type: Some(media_type), headers: &Headers::default(), body };
    match dialect.read(&message) {
        Ok(ParsedMessage::Drafts(drafts)) if drafts.len() == 1 => drafts[0].clone(),
        other => panic!("{other:?}\n{}", String::from_utf8_lossy(body)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn modification_survives_a_round_trip(modification in arbitrary::modification()) {
        for name in ["atom", "json"] {
            let kind = format::format(name).unwrap();
            let body = (kind.write_modification)(&modification);
            prop_assert_eq!(read(&body, kind.media_type), Draft::from(modification.clone()), "{}", name);
        }
    }

    #[test]
    fn change_is_read_back_as_its_modification(change in arbitrary::change()) {
        // The result of the lookup is included too.
        let lookup = DraftLookup { mark: change.settlement.lookup, ..DraftLookup::default() };
        let in_atom = Draft { lookup, ..Draft::from(change.modification.clone()) };
        let DraftItems::Listed(items) = in_atom.items.clone() else { unreachable!() };
        let mut dates = (0..).map(|index| change.settlement.item(index).dates);
        let items = DraftItems::Listed(items.map(|item| item.dated(dates.next().unwrap())));
        let in_json = Draft { items, ..in_atom.clone() };
        for (name, expected) in [("atom", in_atom), ("json", in_json)] {
            let kind = format::format(name).unwrap();
            let body = (kind.write)(&change);
            prop_assert_eq!(read(&body, kind.media_type), expected, "{}", name);
        }
    }

    #[test]
    fn journal_format_restores_the_whole_change(change in arbitrary::change()) {
        let body = (format::format("json").unwrap().write)(&change);
        prop_assert_eq!(serde_json::from_slice::<Change>(&body).unwrap(), change);
    }
}
