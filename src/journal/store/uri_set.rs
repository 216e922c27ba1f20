//! URIs, each once and in order. Most such sets have one: a list costs less than a tree, and is gone through in order as well.

use crate::model::Uri;

/// URIs, each once, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UriSet(Vec<Uri>);

impl UriSet {
    /// Whether it has this one.
    #[must_use]
    pub fn contains(&self, uri: &Uri) -> bool {
        self.0.binary_search(uri).is_ok()
    }

    /// Them, in their order.
    #[must_use]
    pub fn as_slice(&self) -> &[Uri] {
        &self.0
    }

    /// Takes in those of another.
    pub(in crate::journal) fn extend(&mut self, more: Self) {
        // One at a time, as they mostly come, they are not sorted anew.
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
