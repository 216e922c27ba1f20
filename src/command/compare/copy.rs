//! The copy that a mirror has: its objects with their digests, in the order of their URIs.

use std::{
    collections::BTreeMap,
    io::{BufRead, Read as _},
};

use serde::Deserialize;
use tidings::model::{ContentLocation, DigestSum, ItemFacts, State, Uri};

/// Maximum length of a line, in bytes.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// Facts that a digest of the copy contains.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyFacts {
    /// Whether it contains states and contents, or only which items there are.
    pub(super) has_all: bool,
    /// Whether the mirror has what the public sees, which has no states.
    pub(super) is_public: bool,
}

/// Number of objects and items, and the sum of their digests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) objects: u64,
    pub(super) items: u64,
    pub(super) digest: DigestSum,
}

/// The copy.
pub(super) struct Copy {
    objects: Vec<(Box<str>, Sum)>,
    /// Sums of the objects before each position.
    before: Vec<Sum>,
}

/// An item, as the mirror writes it.
#[derive(Deserialize)]
struct ItemLine {
    object: Uri,
    uri: Uri,
    #[serde(default)]
    state: Option<State>,
    #[serde(default)]
    content: Option<ContentLocation>,
}

impl Copy {
    /// Reads a line for each item: an object of JSON, or the URI of the object, a blank and a digest.
    ///
    /// # Errors
    /// Fails if the input cannot be read, or a line is wrong; the text has its number.
    pub(super) fn read(mut input: impl BufRead, facts: CopyFacts) -> Result<Self, String> {
        let mut objects: BTreeMap<Box<str>, Sum> = BTreeMap::new();
        let mut line = Vec::new();
        for number in 1_u64.. {
            line.clear();
            let read = input.by_ref().take(MAX_LINE_BYTES + 1).read_until(b'\n', &mut line);
            let at = |reason: String| format!("line {number}: {reason}");
            if read.map_err(|error| at(error.to_string()))? == 0 {
                break;
            }
            if line.len() as u64 > MAX_LINE_BYTES {
                return Err(at(format!("it has more than {MAX_LINE_BYTES} bytes")));
            }
            let text = str::from_utf8(line.trim_ascii()).map_err(|_| at("it is not UTF-8".to_owned()))?;
            if text.is_empty() {
                continue;
            }
            let (object, digest) = parse(text, facts).map_err(at)?;
            let sum = objects.entry(object).or_insert(Sum { objects: 1, ..Sum::default() });
            sum.items += 1;
            sum.digest += digest;
        }
        Ok(Self::of(objects.into_iter().collect()))
    }

    fn of(objects: Vec<(Box<str>, Sum)>) -> Self {
        let mut sum = Sum::default();
        let mut before = Vec::with_capacity(objects.len() + 1);
        before.push(sum);
        for (_, one) in &objects {
            sum.objects += one.objects;
            sum.items += one.items;
            sum.digest += one.digest;
            before.push(sum);
        }
        Self { objects, before }
    }

    /// Returns the objects after one URI, up to and including another, in order.
    pub(super) fn objects(&self, after: Option<&str>, through: Option<&str>) -> &[(Box<str>, Sum)] {
        let (from, to) = self.positions(after, through);
        &self.objects[from..to]
    }

    /// Returns the sum of these objects.
    pub(super) fn sum(&self, after: Option<&str>, through: Option<&str>) -> Sum {
        let (from, to) = self.positions(after, through);
        let (from, to) = (self.before[from], self.before[to]);
        Sum { objects: to.objects - from.objects, items: to.items - from.items, digest: to.digest.without(from.digest) }
    }

    fn positions(&self, after: Option<&str>, through: Option<&str>) -> (usize, usize) {
        let until = |end: &str| self.objects.partition_point(|(uri, _)| **uri <= *end);
        let to = through.map_or(self.objects.len(), until);
        (after.map_or(0, until).min(to), to)
    }
}

/// Parses a line: the object, and the digest of one of its items.
fn parse(line: &str, facts: CopyFacts) -> Result<(Box<str>, DigestSum), String> {
    if line.starts_with('{') {
        let item: ItemLine = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let facts_of_item = ItemFacts {
            object: item.object.as_str(),
            item: item.uri.as_str(),
            state: item.state.as_ref().filter(|_| !facts.is_public),
            content: item.content.as_ref(),
        };
        let digest = if facts.has_all { facts_of_item.all() } else { facts_of_item.existence() };
        return Ok((item.object.as_str().into(), digest));
    }
    let (object, digest) = line.split_once([' ', '\t']).ok_or("it has no digest after the URI of the object")?;
    let digest = DigestSum::parse(digest.trim()).map_err(|error| error.to_string())?;
    Uri::parse(object).map_err(|error| error.to_string())?;
    Ok((object.into(), digest))
}

#[cfg(test)]
mod tests {
    use super::{Copy, CopyFacts, Sum};

    const FACTS: CopyFacts = CopyFacts { has_all: true, is_public: false };

    fn read(lines: &str) -> Result<Copy, String> {
        Copy::read(lines.as_bytes(), FACTS)
    }

    #[test]
    fn lines_of_an_object_are_added_in_any_order() {
        let one = "http://h.example/1 00000000000000000000000000000001";
        let two = "http://h.example/1\tFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF";
        let json = r#"{"object":"http://h.example/2","uri":"http://h.example/2/a"}"#;
        let copy = read(&format!("{one}\n\n{json}\n{two}\n")).unwrap();
        let other = read(&format!("{two}\r\n{one}\n{json}")).unwrap();
        assert_eq!(copy.sum(None, None), other.sum(None, None));
        let first = copy.sum(None, Some("http://h.example/1"));
        assert_eq!(first, Sum { objects: 1, items: 2, ..Sum::default() });
        assert_eq!(copy.objects(Some("http://h.example/1"), None).len(), 1);
        assert_eq!(copy.sum(Some("http://h.example/2"), Some("http://h.example/1")), Sum::default());
    }

    #[test]
    fn wrong_lines_are_named() {
        for (lines, expected) in [
            ("http://h.example/1 00\n", "line 1: it is not a digest"),
            ("\nhttp://h.example/1\n", "line 2: it has no digest"),
            ("{\"object\":\"http://h.example/1\"}", "line 1: missing field `uri`"),
            ("of 00000000000000000000000000000001", "line 1: "),
        ] {
            let error = read(lines).err().unwrap();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
