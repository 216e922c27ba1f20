//! The formats `xml` and `json` contain the same facts.

use proptest::{prelude::ProptestConfig, prop_assert_eq, proptest};
use quick_xml::{Reader, events::Event};
use serde_json::{Map, Value, json};
use tidings::format;

use crate::support::arbitrary;

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn xml_of_a_change_equals_its_json(change in arbitrary::change()) {
        let [xml, json] = ["xml", "json"].map(|name| (format::format(name).unwrap().write)(&change));
        prop_assert_eq!(as_json(&xml), without_types(serde_json::from_slice(&json).unwrap()));
    }

    #[test]
    fn xml_of_a_modification_equals_its_json(modification in arbitrary::modification()) {
        let [xml, json] = ["xml", "json"].map(|name| (format::format(name).unwrap().write_modification)(&modification));
        prop_assert_eq!(as_json(&xml), without_types(serde_json::from_slice(&json).unwrap()));
    }
}

/// Converts every value of the JSON to text, as in XML; a list of aspects becomes one text.
fn without_types(value: Value) -> Value {
    match value {
        Value::Object(members) => members
            .into_iter()
            .map(|(name, value)| match value {
                Value::Array(aspects) if ["late", "filled"].contains(&name.as_str()) => {
                    let names: Vec<_> = aspects.iter().map(|aspect| aspect.as_str().unwrap()).collect();
                    (name, json!(names.join(" ")))
                }
                value => (name, without_types(value)),
            })
            .collect(),
        Value::Array(values) => values.into_iter().map(without_types).collect(),
        Value::String(text) => Value::String(text),
        other => Value::String(other.to_string()),
    }
}

/// Converts the XML document to JSON.
fn as_json(document: &[u8]) -> Value {
    let mut reader = Reader::from_str(std::str::from_utf8(document).unwrap());
    loop {
        if let Event::Start(_) = reader.read_event().unwrap() {
            return content(&mut reader);
        }
    }
}

/// Returns the content of an element: an object if it has child elements, else its text.
fn content(reader: &mut Reader<&[u8]>) -> Value {
    let (mut members, mut text) = (Map::new(), String::new());
    loop {
        match reader.read_event().unwrap() {
            Event::Start(start) => {
                let algorithm = start.try_get_attribute("algorithm").unwrap();
                let name = std::str::from_utf8(start.name().as_ref()).unwrap().to_owned();
                let value = content(reader);
                match (name.as_str(), algorithm) {
                    ("type", _) => push(&mut members, "types", value),
                    ("items", _) => drop(members.insert(name, value["item"].clone())),
                    ("item", _) => push(&mut members, "item", value),
                    ("add" | "update" | "delete" | "state", _) => {
                        if name != "state" {
                            members.insert("change".into(), json!(name.to_uppercase()));
                        }
                        // An element with children has only white space as text.
                        members.extend(value.as_object().cloned().unwrap_or_default());
                    }
                    (_, Some(algorithm)) => {
                        let algorithm = std::str::from_utf8(&algorithm.value).unwrap().to_owned();
                        members.insert(name, json!({ "algorithm": algorithm, "value": value }));
                    }
                    _ => drop(members.insert(name, value)),
                }
            }
            Event::Text(piece) => text.push_str(std::str::from_utf8(&piece).unwrap()),
            Event::GeneralRef(reference) => text.push(match &*reference {
                b"amp" => '&',
                b"lt" => '<',
                b"gt" => '>',
                _ => reference.resolve_char_ref().unwrap().unwrap(),
            }),
            Event::End(_) if members.is_empty() => return Value::String(text),
            Event::End(_) => return Value::Object(members),
            other => panic!("{other:?}"),
        }
    }
}

fn push(members: &mut Map<String, Value>, name: &str, value: Value) {
    members.entry(name).or_insert_with(|| json!([])).as_array_mut().unwrap().push(value);
}
