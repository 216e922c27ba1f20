//! The examples of `docs/json.md` equal the program's output and are accepted as input.

use std::{fs, path::Path};

use serde_json::Value;
use tidings::model::{Change, Draft};

use crate::support::fixtures;

fn examples() -> Vec<String> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/json.md")).unwrap();
    let blocks = page.split("```json\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn json_page_full_example_is_a_serialized_change() {
    let example = &examples()[0];
    let change: Change = serde_json::from_str(example).unwrap();
    assert_eq!(serde_json::to_value(&change).unwrap(), serde_json::from_str::<Value>(example).unwrap());
    let fixture = fixtures::folder("content-change").join("synthetic-json-full.json");
    assert_eq!(*example, fs::read_to_string(fixture).unwrap());
}

#[test]
fn json_page_examples_are_accepted() {
    for example in examples() {
        serde_json::from_str::<Draft>(&example).unwrap_or_else(|error| panic!("{error}: {example}"));
    }
}
