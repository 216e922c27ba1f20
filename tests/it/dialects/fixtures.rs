//! Golden tests of the dialects: every message under `fixtures/<dialect>/` is compared with the snapshot
//! `<dialect>__<case>`, which shows the whole result.

use tidings::format::{DIALECTS, ParsedMessage, Rejection};

use crate::support::fixtures;

#[test]
fn fixtures_match_their_snapshots() {
    for kind in DIALECTS {
        for fixture in fixtures::of(kind.name) {
            let case = fixture.file_stem().unwrap().to_str().unwrap();
            insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
                insta::assert_snapshot!(format!("{}__{case}", kind.name), render(fixtures::read(kind.name, &fixture)));
            });
        }
    }
}

fn render(reading: Result<ParsedMessage, Rejection>) -> String {
    match reading {
        Ok(ParsedMessage::Drafts(drafts)) => drafts
            .iter()
            // Nearly all messages are read completely, so only the others show what was not.
            .map(|draft| {
                format!("{draft:#?}\n")
                    .replace("    reading: Reading {\n        dropped: [],\n        former: [],\n    },\n", "")
            })
            .collect(),
        Ok(ParsedMessage::NoChange(reason)) => format!("nothing changed: {reason}\n"),
        Err(rejection) => format!("{:?}: {rejection}\n", rejection.kind),
    }
}
