//! `fixtures/<dialect>/<case>.<xml|json|bin>` is read by that dialect and compared with the snapshot
//! `<dialect>__<case>`: the two files show the whole of what the dialect does with the case.
//! Beside a fixture may stand `<case>.headers` (lines `Name: value`) and `<case>.settings.json`.

use std::{fs, path::Path};

use tidings::format::{DIALECTS, DialectKind, Headers, Message, Reading};

#[test]
fn every_fixture_is_read_as_its_snapshot_says() {
    for kind in DIALECTS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(kind.name);
        let mut fixtures: Vec<_> = fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                let name = path.file_name().unwrap().to_str().unwrap();
                !name.ends_with(".headers") && !name.ends_with(".settings.json")
            })
            .collect();
        fixtures.sort();
        assert!(!fixtures.is_empty(), "{} has no fixture", kind.name);
        for fixture in fixtures {
            let case = fixture.file_stem().unwrap().to_str().unwrap();
            insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
                insta::assert_snapshot!(format!("{}__{case}", kind.name), read(kind, &fixture));
            });
        }
    }
}

fn read(kind: &DialectKind, fixture: &Path) -> String {
    let body = fs::read(fixture).unwrap();
    let headers: Headers = fs::read_to_string(fixture.with_extension("headers"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.split_once(": "))
        .collect();
    let settings = fs::read(fixture.with_extension("settings.json"))
        .map_or(serde_json::Value::Null, |settings| serde_json::from_slice(&settings).unwrap());
    let dialect = (kind.build)(settings).unwrap();
    let message = Message { content_type: headers.get("content-type"), headers: &headers, body: &body };
    match dialect.read(&message) {
        Ok(Reading::Drafts(drafts)) => drafts.iter().map(|draft| format!("{draft:#?}\n")).collect(),
        Ok(Reading::Nothing(reason)) => format!("nothing changed: {reason}\n"),
        Err(rejection) => format!("{:?}: {rejection}\n", rejection.kind),
    }
}
