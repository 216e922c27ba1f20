//! The n smallest names of an unordered list of any length.

use std::collections::BTreeMap;

/// The smallest names after a position, up to a capacity, each with a value.
#[derive(Debug)]
pub(super) struct BottomN<T> {
    after: Option<String>,
    capacity: usize,
    names: BTreeMap<String, T>,
    has_more: bool,
}

impl<T> BottomN<T> {
    /// Creates an empty collection for at least one name.
    pub(super) fn new(after: Option<String>, capacity: usize) -> Self {
        Self { after, capacity: capacity.max(1), names: BTreeMap::new(), has_more: false }
    }

    /// Adds a name of the list, unless it is before the position or larger than all that fit.
    pub(super) fn insert(&mut self, name: String, with: T) {
        if self.after.as_ref().is_some_and(|after| name <= *after) {
            return;
        }
        self.names.insert(name, with);
        if self.names.len() > self.capacity {
            self.names.pop_last();
            self.has_more = true;
        }
    }

    /// Returns the names in order, and true if the list has more names after them.
    pub(super) fn into_sorted(self) -> (BTreeMap<String, T>, bool) {
        (self.names, self.has_more)
    }
}

#[cfg(test)]
mod tests {
    use super::BottomN;

    #[test]
    fn list_is_read_in_order_with_any_capacity() {
        let names = ["d", "a", "c", "e", "b", "a"];
        for capacity in 1..8 {
            let (mut after, mut listed) = (None, Vec::new());
            loop {
                let mut bottom_n = BottomN::new(after.clone(), capacity);
                names.iter().for_each(|name| bottom_n.insert((*name).to_owned(), ()));
                let (names, has_more) = bottom_n.into_sorted();
                assert!(names.len() <= capacity);
                listed.extend(names.into_keys());
                after = listed.last().cloned();
                if !has_more {
                    break;
                }
            }
            assert_eq!(listed, ["a", "b", "c", "d", "e"], "with room for {capacity}");
        }
    }
}
