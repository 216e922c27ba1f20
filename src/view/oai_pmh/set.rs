//! Sets (section 2.6): the objects of a source, of a type, of a parent, and of a filter of the configuration. There is no
//! hierarchy.

use std::fmt;

use crate::{
    journal::{acceptance::AcceptedQuery, registry::ObjectState},
    model::{SourceName, Uri, UriPrefix},
};

/// A set of the configuration: the objects that a filter selects. The values of one condition are alternatives, all conditions
/// must hold, and a condition without values always holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfiguredSet {
    /// Name of the set, of the characters of a setSpec.
    pub name: String,
    /// Name for people.
    pub title: String,
    /// Sources that were the first to report the object.
    pub sources: Vec<SourceName>,
    /// Beginnings of the URI of the object.
    pub objects: Vec<UriPrefix>,
    /// Parents of the object.
    pub parents: Vec<Uri>,
    /// Types of the object.
    pub types: Vec<Uri>,
}

/// Facts about an object that decide about its sets.
#[derive(Clone, Copy)]
struct Facts<'a> {
    uri: &'a Uri,
    source: Option<&'a SourceName>,
    types: &'a [Uri],
    parent: Option<&'a Uri>,
}

impl ConfiguredSet {
    fn selects(&self, Facts { uri, source, types, parent }: Facts<'_>) -> bool {
        let Self { sources, objects, parents, types: wanted, .. } = self;
        (sources.is_empty() || source.is_some_and(|source| sources.contains(source)))
            && (objects.is_empty() || objects.iter().any(|prefix| prefix.is_prefix_of(uri)))
            && (parents.is_empty() || parent.is_some_and(|parent| parents.contains(parent)))
            && (wanted.is_empty() || types.iter().any(|one| wanted.contains(one)))
    }
}

/// A set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum SetSpec {
    /// Objects that this source was the first to report.
    Source(SourceName),
    /// Objects of this type.
    Type(Uri),
    /// Objects of this parent.
    Parent(Uri),
    /// Objects that the filter of this name selects.
    Filter(String),
}

impl SetSpec {
    /// Parses a setSpec; `None` if the gateway makes no such.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once('.')?;
        let name = decoded(name)?;
        let set = match kind {
            "source" => Self::Source(SourceName::parse(&name).ok()?),
            "type" => Self::Type(Uri::parse(&name).ok()?),
            "parent" => Self::Parent(Uri::parse(&name).ok()?),
            "filter" if !name.is_empty() => Self::Filter(name),
            _ => return None,
        };
        // A set has one spelling.
        (set.to_string() == text).then_some(set)
    }

    /// Returns the sets of an object that the reader sees.
    pub(super) fn of_object(uri: &Uri, state: &ObjectState, filters: &[ConfiguredSet]) -> Vec<Self> {
        let (source, types, parent) = (state.source.as_ref(), state.types(), state.parent());
        Self::of_facts(Facts { uri, source, types, parent }, filters)
    }

    /// Returns the sets of a deleted record. It stays in the sets that it had, because harvesters of a set must learn of the
    /// deletion. The public sees only its source: parent and types may have changed since the object was hidden.
    pub(super) fn of_deleted(uri: &Uri, state: &ObjectState, filters: &[ConfiguredSet], for_public: bool) -> Vec<Self> {
        let (types, parent) =
            if for_public { (&[][..], None) } else { (state.types.value.as_slice(), state.parent.value.as_ref()) };
        Self::of_facts(Facts { uri, source: state.source.as_ref(), types, parent }, filters)
    }

    fn of_facts(facts: Facts<'_>, filters: &[ConfiguredSet]) -> Vec<Self> {
        let Facts { source, types, parent, .. } = facts;
        let (source, parent) = (source.cloned().map(Self::Source), parent.cloned().map(Self::Parent));
        let mut sets: Vec<_> = source.into_iter().chain(types.iter().cloned().map(Self::Type)).chain(parent).collect();
        let selected = filters.iter().filter(|filter| filter.selects(facts));
        sets.extend(selected.map(|filter| Self::Filter(filter.name.clone())));
        sets.sort_unstable();
        sets.dedup();
        sets
    }

    /// Restricts a query to the set. It may return other objects besides.
    pub(super) fn restrict(&self, query: &mut AcceptedQuery, filters: &[ConfiguredSet]) {
        fn only<T: Clone>(values: &[T]) -> Option<T> {
            if let [value] = values { Some(value.clone()) } else { None }
        }
        match self {
            Self::Filter(name) => {
                let Some(filter) = filters.iter().find(|filter| filter.name == *name) else { return };
                query.source = only(&filter.sources);
                query.object_type = only(&filter.types);
                query.parent = only(&filter.parents);
            }
            Self::Source(source) => query.source = Some(source.clone()),
            Self::Type(object_type) => query.object_type = Some(object_type.clone()),
            Self::Parent(parent) => query.parent = Some(parent.clone()),
        }
    }

    /// Returns the size of the set in memory, in bytes: that of its name.
    pub(super) fn size(&self) -> usize {
        self.parts().1.len()
    }

    /// Returns the kind of the set, and its source, type or parent.
    fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Source(source) => ("source", source.as_str()),
            Self::Type(object_type) => ("type", object_type.as_str()),
            Self::Parent(parent) => ("parent", parent.as_str()),
            Self::Filter(name) => ("filter", name),
        }
    }

    /// Returns the name for people.
    pub(super) fn name(&self, filters: &[ConfiguredSet]) -> String {
        match self {
            Self::Filter(name) => {
                let filter = filters.iter().find(|filter| filter.name == *name);
                filter.map_or_else(|| name.clone(), |filter| filter.title.clone())
            }
            Self::Source(source) => format!("Source {source}"),
            Self::Type(object_type) => format!("Type {object_type}"),
            Self::Parent(parent) => format!("Parent {parent}"),
        }
    }
}

/// Writes the setSpec. Its characters are those that the protocol allows: others are written as `!` and two digits.
impl fmt::Display for SetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = self.parts();
        write!(f, "{kind}.")?;
        for byte in name.bytes() {
            match byte {
                byte if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => write!(f, "{}", char::from(byte))?,
                byte => write!(f, "!{byte:02X}")?,
            }
        }
        Ok(())
    }
}

/// Decodes the name of a set.
fn decoded(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'!' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let (high, low) = (digit(rest.next())?, digit(rest.next())?);
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::{SetSpec, SourceName, Uri};

    #[test]
    fn spelling_of_a_set_is_unique() {
        let uri = Uri::parse("http://h/a!b?c=%C3%A9~(1)").unwrap();
        for (set, spelling) in [
            (SetSpec::Source(SourceName::parse("fedora3").unwrap()), "source.fedora3"),
            (SetSpec::Type(uri.clone()), "type.http!3A!2F!2Fh!2Fa!21b!3Fc!3D!25C3!25A9~!281!29"),
            (SetSpec::Filter("theses".to_owned()), "filter.theses"),
            (SetSpec::Parent(uri), "parent.http!3A!2F!2Fh!2Fa!21b!3Fc!3D!25C3!25A9~!281!29"),
        ] {
            assert_eq!(set.to_string(), spelling);
            assert_eq!(SetSpec::parse(spelling), Some(set));
        }
        for other in
            ["", "source", "source.", "source.A!", "type.http!3a!2F!2Fh", "type.http://h/a", "x.a", "source.!61"]
        {
            assert_eq!(SetSpec::parse(other), None, "{other}");
        }
    }
}
