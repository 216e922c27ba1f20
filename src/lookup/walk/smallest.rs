//! The smallest names of a list that has no order and may be of any length.

use std::collections::BTreeMap;

/// As many of the smallest names as there is room for, of those that come after a place, each with something.
#[derive(Debug)]
pub(super) struct Smallest<T> {
    after: Option<String>,
    room: usize,
    held: BTreeMap<String, T>,
    has_more: bool,
}

impl<T> Smallest<T> {
    /// None yet. `room` is one at least.
    pub(super) fn new(after: Option<String>, room: usize) -> Self {
        Self { after, room: room.max(1), held: BTreeMap::new(), has_more: false }
    }

    /// Another of the list.
    pub(super) fn take(&mut self, name: String, with: T) {
        if self.after.as_ref().is_some_and(|after| name <= *after) {
            return;
        }
        self.held.insert(name, with);
        if self.held.len() > self.room {
            self.held.pop_last();
            self.has_more = true;
        }
    }

    /// These, in order, and whether the list has more after them.
    pub(super) fn into_sorted(self) -> (BTreeMap<String, T>, bool) {
        (self.held, self.has_more)
    }
}

#[cfg(test)]
mod tests {
    use super::Smallest;

    #[test]
    fn a_list_is_gone_through_in_order_with_little_room() {
        let names = ["d", "a", "c", "e", "b", "a"];
        for room in 1..8 {
            let (mut after, mut seen) = (None, Vec::new());
            loop {
                let mut smallest = Smallest::new(after.clone(), room);
                names.iter().for_each(|name| smallest.take((*name).to_owned(), ()));
                let (held, has_more) = smallest.into_sorted();
                assert!(held.len() <= room);
                seen.extend(held.into_keys());
                after = seen.last().cloned();
                if !has_more {
                    break;
                }
            }
            assert_eq!(seen, ["a", "b", "c", "d", "e"], "with room for {room}");
        }
    }
}
