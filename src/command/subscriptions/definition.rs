//! The definition of a subscription, from a file and from `--set`.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use serde_json::{Map, Value};

/// The largest definition, in bytes.
const LONGEST: u64 = 1 << 20;

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    path: Vec<String>,
    value: Value,
}

/// Reads `KEY=VALUE`. The error does not repeat the value, which may be a secret.
pub(super) fn key(text: &str) -> Result<Key, String> {
    let (path, value) = text.split_once('=').ok_or("give KEY=VALUE, as in delivery=webhook")?;
    let path: Vec<_> = path.split('.').map(str::to_owned).collect();
    if path.iter().any(String::is_empty) {
        return Err("give KEY=VALUE, with a key before the equals sign".to_owned());
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok(Key { path, value })
}

/// Puts a definition together.
///
/// # Errors
/// When the file cannot be read, or is no JSON object; or when keys do not go together.
pub(super) fn of(file: Option<&Path>, set: Vec<Key>) -> Result<Value, String> {
    let mut definition = match file {
        None => Value::Object(Map::new()),
        Some(path) => {
            let told = |reason: String| format!("{}: {reason}", path.display());
            let text = read(path).map_err(|error| told(error.to_string()))?;
            serde_json::from_slice(&text).map_err(|error| told(format!("it is no JSON: {error}")))?
        }
    };
    if !definition.is_object() {
        return Err("the definition is no JSON object".to_owned());
    }
    for Key { path, value } in set {
        *place(&mut definition, &path)? = value;
    }
    Ok(definition)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let source: Box<dyn Read> =
        if path.as_os_str() == "-" { Box::new(io::stdin().lock()) } else { Box::new(File::open(path)?) };
    let mut text = Vec::new();
    source.take(LONGEST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LONGEST { Err(io::Error::other("it is too large for a definition")) } else { Ok(text) }
}

/// Where the value of a key goes. What is missing on the way is made: a list where the next part of the path is a
/// number.
fn place<'a>(definition: &'a mut Value, path: &[String]) -> Result<&'a mut Value, String> {
    let mut place = definition;
    for part in path {
        let index = part.parse::<usize>().ok();
        if place.is_null() {
            *place = if index.is_some() { Value::Array(Vec::new()) } else { Value::Object(Map::new()) };
        }
        place = match (place, index) {
            (Value::Object(table), _) => table.entry(part).or_insert(Value::Null),
            (Value::Array(list), Some(index)) if index <= list.len() => {
                if index == list.len() {
                    list.push(Value::Null);
                }
                &mut list[index]
            }
            _ => return Err(format!("{} has no place: there is something else before {part}", path.join("."))),
        };
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{key, of};

    #[test]
    fn keys_go_where_they_say() {
        let set = |texts: &[&str]| of(None, texts.iter().map(|text| key(text).unwrap()).collect());
        let definition = set(&[
            "delivery=webhook",
            "url=https://a.example/in?x=1",
            "secrets.0.env=TIDINGS_SECRET_A",
            "secrets.1.env=TIDINGS_SECRET_B",
            "filter.visibility=true",
            "filter.changes=[\"ADD\"]",
            "max_batch=7",
            "start=7",
            "start=\"now\"",
        ]);
        let expected = json!({
            "delivery": "webhook", "url": "https://a.example/in?x=1", "max_batch": 7, "start": "now",
            "secrets": [{ "env": "TIDINGS_SECRET_A" }, { "env": "TIDINGS_SECRET_B" }],
            "filter": { "visibility": true, "changes": ["ADD"] }
        });
        assert_eq!(definition, Ok(expected));
        assert!(set(&["url=a", "url.env=b"]).unwrap_err().contains("url.env has no place"));
        assert!(set(&["secrets.1=a"]).unwrap_err().contains("has no place"));
    }

    #[test]
    fn what_is_no_key_is_refused_without_repeating_it() {
        for wrong in ["hush", "=hush", "a..b=hush", ".=hush"] {
            assert!(!key(wrong).unwrap_err().contains("hush"), "{wrong}");
        }
    }
}
