//! Builds the definition of a subscription or a harvest from a file and from `--set`.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use serde_json::{Map, Value};

/// Maximum size of a definition, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Key path and value that `--set` assigns.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Assignment {
    path: Vec<String>,
    value: Value,
}

/// Parses `KEY=VALUE`. The error does not repeat the value, because it may be a secret.
pub(super) fn assignment(text: &str) -> Result<Assignment, String> {
    let (path, value) = text.split_once('=').ok_or("give KEY=VALUE, as in delivery=webhook")?;
    let path: Vec<_> = path.split('.').map(str::to_owned).collect();
    if path.iter().any(String::is_empty) {
        return Err("give KEY=VALUE, with a key before the equals sign".to_owned());
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok(Assignment { path, value })
}

/// Builds a definition: the JSON object of the file, then each assignment.
///
/// # Errors
/// Fails if the file cannot be read or is not a JSON object, or when assignments contradict each other.
pub(super) fn build(file: Option<&Path>, set: Vec<Assignment>) -> Result<Value, String> {
    let mut definition = match file {
        None => Value::Object(Map::new()),
        Some(path) => {
            let located = |reason: String| format!("{}: {reason}", path.display());
            let text = read(path).map_err(|error| located(error.to_string()))?;
            serde_json::from_slice(&text).map_err(|error| located(format!("it is not valid JSON: {error}")))?
        }
    };
    if !definition.is_object() {
        return Err("the definition is not a JSON object".to_owned());
    }
    for Assignment { path, value } in set {
        *entry_mut(&mut definition, &path)? = value;
    }
    Ok(definition)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let source: Box<dyn Read> =
        if path.as_os_str() == "-" { Box::new(io::stdin().lock()) } else { Box::new(File::open(path)?) };
    let mut text = Vec::new();
    source.take(MAX_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        Err(io::Error::other("it is larger than 1 MiB, the maximum size of a definition"))
    } else {
        Ok(text)
    }
}

/// Returns the entry of `definition` at `path`. Missing parents are created: a list if the next part of the path is a
/// number, otherwise an object.
fn entry_mut<'a>(definition: &'a mut Value, path: &[String]) -> Result<&'a mut Value, String> {
    let mut entry = definition;
    for part in path {
        let index = part.parse::<usize>().ok();
        if entry.is_null() {
            *entry = if index.is_some() { Value::Array(Vec::new()) } else { Value::Object(Map::new()) };
        }
        entry = match (entry, index) {
            (Value::Object(table), _) => table.entry(part).or_insert(Value::Null),
            (Value::Array(list), Some(index)) if index <= list.len() => {
                if index == list.len() {
                    list.push(Value::Null);
                }
                &mut list[index]
            }
            _ => {
                return Err(format!(
                    "cannot set {}: the value before {part} is not an object or a list with that index",
                    path.join(".")
                ));
            }
        };
    }
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{assignment, build};

    #[test]
    fn assignments_build_nested_values() {
        let set = |texts: &[&str]| build(None, texts.iter().map(|text| assignment(text).unwrap()).collect());
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
        assert!(set(&["url=a", "url.env=b"]).unwrap_err().contains("cannot set url.env"));
        assert!(set(&["secrets.1=a"]).unwrap_err().contains("cannot set secrets.1"));
    }

    #[test]
    fn errors_do_not_repeat_the_assignment() {
        for wrong in ["hush", "=hush", "a..b=hush", ".=hush"] {
            assert!(!assignment(wrong).unwrap_err().contains("hush"), "{wrong}");
        }
    }
}
