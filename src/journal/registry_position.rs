//! Positions in the registry, from which its objects are read.

use crate::model::{Uri, UriPrefix};

/// Position in the order of the URIs of the objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RegistryPosition {
    /// Before the first object.
    #[default]
    Beginning,
    /// After the object of this URI, whether it exists or not.
    After(Uri),
    /// Before the first object whose URI begins so.
    At(UriPrefix),
}

impl From<Option<Uri>> for RegistryPosition {
    fn from(after: Option<Uri>) -> Self {
        after.map_or(Self::Beginning, Self::After)
    }
}

impl RegistryPosition {
    /// Returns the next position at or after this one that is before, or between, objects with one of these prefixes. `None`
    /// if there are no such objects. Without prefixes, all objects count.
    #[must_use]
    pub fn seek(self, prefixes: &[UriPrefix]) -> Option<Self> {
        let position = match &self {
            Self::Beginning => "",
            Self::After(uri) => uri.as_str(),
            Self::At(prefix) => prefix.as_str(),
        };
        if prefixes.is_empty() || prefixes.iter().any(|prefix| position.starts_with(prefix.as_str())) {
            return Some(self);
        }
        let next = prefixes.iter().filter(|prefix| prefix.as_str() > position).min();
        next.cloned().map(Self::At)
    }

    /// Returns the least URI that may be read, and one that is left out.
    pub(super) fn bounds(&self) -> (&str, &str) {
        match self {
            Self::Beginning => ("", ""),
            Self::After(uri) => (uri.as_str(), uri.as_str()),
            Self::At(prefix) => (prefix.as_str(), ""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{RegistryPosition, Uri, UriPrefix};

    #[test]
    fn position_moves_to_the_next_prefix() {
        let at = |prefix: &str| RegistryPosition::At(UriPrefix::parse(prefix).unwrap());
        let after = |uri: &str| RegistryPosition::After(Uri::parse(uri).unwrap());
        let prefixes = ["http://h/m", "http://h/c/", "http://h/c/1"].map(|prefix| UriPrefix::parse(prefix).unwrap());
        for (position, expected) in [
            (RegistryPosition::Beginning, Some(at("http://h/c/"))),
            (after("http://h/a"), Some(at("http://h/c/"))),
            (after("http://h/c/"), Some(after("http://h/c/"))),
            (after("http://h/c/0"), Some(after("http://h/c/0"))),
            (at("http://h/c/1"), Some(at("http://h/c/1"))),
            (after("http://h/d"), Some(at("http://h/m"))),
            (after("http://h/mm"), Some(after("http://h/mm"))),
            (after("http://h/n"), None),
        ] {
            assert_eq!(position.clone().seek(&prefixes), expected, "{position:?}");
            assert_eq!(position.clone().seek(&[]), Some(position));
        }
    }
}
