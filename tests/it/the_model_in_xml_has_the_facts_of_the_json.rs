//! The format `xml` tells what the format `json` tells, no more and no less.

use proptest::{prelude::ProptestConfig, prop_assert_eq, proptest};
use quick_xml::{Reader, events::Event};
use serde_json::Value;
use tidings::format;

use crate::any;

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_model_in_xml_has_the_facts_of_the_json(change in any::change()) {
        let json = (format::format("json").unwrap().write)(&change);
        let xml = (format::format("xml").unwrap().write)(&change);
        let mut in_json = Vec::new();
        facts_of_json("", &serde_json::from_slice(&json).unwrap(), &mut in_json);
        prop_assert_eq!(facts_of_xml(&String::from_utf8(xml).unwrap()), in_json);
    }

    #[test]
    fn so_has_a_modification_alone(modification in any::modification()) {
        let json = (format::format("json").unwrap().write_modification)(&modification);
        let xml = (format::format("xml").unwrap().write_modification)(&modification);
        let mut in_json = Vec::new();
        facts_of_json("", &serde_json::from_slice(&json).unwrap(), &mut in_json);
        prop_assert_eq!(facts_of_xml(&String::from_utf8(xml).unwrap()), in_json);
    }
}

/// A fact: the name that it has and its value.
type Fact = (String, String);

/// The leaves in the order of the elements: members sorted as the schema has them do not matter
/// here, so the facts of one level are compared by name.
fn facts_of_json(name: &str, value: &Value, facts: &mut Vec<Fact>) {
    collect(name, value, facts);
    facts.sort();
}

fn collect(name: &str, value: &Value, facts: &mut Vec<Fact>) {
    match value {
        Value::Object(members) => {
            // A digest is one element with an attribute.
            if let (Some(algorithm), Some(hex)) = (members.get("algorithm"), members.get("value")) {
                facts.push(("algorithm".into(), algorithm.as_str().unwrap().into()));
                facts.push(("digest".into(), hex.as_str().unwrap().into()));
                return;
            }
            members.iter().for_each(|(name, value)| collect(name, value, facts));
        }
        Value::Array(values) if name == "types" => values.iter().for_each(|value| collect("type", value, facts)),
        Value::Array(values) if name == "items" => values.iter().for_each(|value| collect(name, value, facts)),
        // Aspects: a list in one element.
        Value::Array(values) => {
            let names: Vec<_> = values.iter().map(|value| value.as_str().unwrap()).collect();
            facts.push((name.into(), names.join(" ")));
        }
        Value::String(text) => facts.push((name.into(), text.clone())),
        other => facts.push((name.into(), other.to_string())),
    }
}

fn facts_of_xml(document: &str) -> Vec<Fact> {
    let mut reader = Reader::from_str(document);
    let mut facts = Vec::new();
    // The names of the elements around the place, and the text so far of the innermost.
    let mut open: Vec<(String, String, bool)> = Vec::new();
    loop {
        match reader.read_event().unwrap() {
            Event::Start(start) => {
                let name = String::from_utf8(start.name().as_ref().to_vec()).unwrap();
                if let Some(algorithm) = start.try_get_attribute("algorithm").unwrap() {
                    facts.push(("algorithm".into(), String::from_utf8(algorithm.value.to_vec()).unwrap()));
                }
                if let Some((_, _, has_elements)) = open.last_mut() {
                    *has_elements = true;
                }
                if ["add", "update", "delete"].contains(&name.as_str()) {
                    facts.push(("change".into(), name.to_uppercase()));
                }
                open.push((name, String::new(), false));
            }
            Event::Text(text) => push(&mut open, std::str::from_utf8(&text).unwrap()),
            Event::GeneralRef(reference) => {
                let character = reference.resolve_char_ref().unwrap().map(String::from);
                let character = character.unwrap_or_else(|| match reference.as_ref() {
                    b"amp" => "&".into(),
                    b"lt" => "<".into(),
                    b"gt" => ">".into(),
                    other => panic!("{other:?}"),
                });
                push(&mut open, &character);
            }
            Event::End(_) => {
                let (name, text, has_elements) = open.pop().unwrap();
                // An add, update, delete or state without parts is empty and no value.
                let is_kind = ["add", "update", "delete", "state"].contains(&name.as_str());
                if !has_elements && !is_kind {
                    facts.push((name, text));
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
    facts.sort();
    facts
}

fn push(open: &mut [(String, String, bool)], text: &str) {
    if let Some((_, gathered, _)) = open.last_mut() {
        gathered.push_str(text);
    }
}
