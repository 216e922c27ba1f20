//! A sorted set of URIs. It is a list instead of a tree, because most sets have one element.

use crate::model::Uri;

/// A sorted list of unique URIs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UriSet(Vec<Uri>);

impl UriSet {
    /// Returns whether the set contains the URI.
    #[must_use]
    pub fn contains(&self, uri: &Uri) -> bool {
        self.0.binary_search(uri).is_ok()
    }

    /// Returns the URIs in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Uri] {
        &self.0
    }

    /// Adds the URIs of another set.
    pub(in crate::journal) fn extend(&mut self, more: Self) {
        // A single URI, which is the usual case, needs no sorting.
        if more.0.len() > 1 {
            *self = self.0.drain(..).chain(more).collect();
            return;
        }
        for uri in more {
            if let Err(at) = self.0.binary_search(&uri) {
                self.0.insert(at, uri);
            }
        }
    }
}

impl FromIterator<Uri> for UriSet {
    fn from_iter<T: IntoIterator<Item = Uri>>(uris: T) -> Self {
        let mut uris: Vec<_> = uris.into_iter().collect();
        uris.sort_unstable();
        uris.dedup();
        Self(uris)
    }
}

impl IntoIterator for UriSet {
    type Item = Uri;
    type IntoIter = std::vec::IntoIter<Uri>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
