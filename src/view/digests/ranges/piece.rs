//! Pieces of a range that a request asks for.

use super::{Range, Ranges};
use crate::{model::Uri, view::digests::selection::Digests};

/// Part of a range that was asked for. It begins after `after` and ends with `last`, a selected object if it is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::view::digests) struct Piece {
    pub(in crate::view::digests) after: Option<Uri>,
    pub(in crate::view::digests) last: Uri,
    /// Digests of the objects; `None` if they must be read.
    pub(in crate::view::digests) digests: Option<Digests>,
}

impl Ranges {
    /// Returns the pieces of the objects after one URI, up to and including another, without those that have no selected
    /// object. At most the first and the last one must be read.
    pub(in crate::view::digests) fn pieces(&self, after: Option<&Uri>, through: Option<&Uri>) -> Vec<Piece> {
        let first = after.map_or(0, |after| {
            self.ranges.partition_point(|range| range.through.as_ref().is_some_and(|end| end <= after))
        });
        let mut begin = first.checked_sub(1).and_then(|before| self.ranges[before].through.as_ref());
        let mut pieces = Vec::new();
        for range in &self.ranges[first..] {
            if through.is_some_and(|through| begin.is_some_and(|begin| begin >= through)) {
                break;
            }
            pieces.extend(range.piece(begin, after, through));
            begin = range.through.as_ref();
        }
        pieces
    }
}

impl Range {
    /// Returns the piece of this range, which begins after `begin`; `None` if it certainly has no selected object.
    fn piece(&self, begin: Option<&Uri>, after: Option<&Uri>, through: Option<&Uri>) -> Option<Piece> {
        let last = self.last.as_ref().filter(|last| after.is_none_or(|after| after < *last))?;
        let has_begin = after <= begin;
        let has_end = through.is_none_or(|through| last <= through);
        let digests = (has_begin && has_end).then_some(self.digests);
        let end = through.filter(|_| !has_end).unwrap_or(last);
        Some(Piece { after: after.max(begin).cloned(), last: end.clone(), digests })
    }
}

#[cfg(test)]
mod tests {
    use super::{Digests, Piece, Range, Uri};

    fn uri(name: &str) -> Uri {
        Uri::parse(&format!("urn:x:{name}")).unwrap()
    }

    #[test]
    fn piece_is_read_only_if_it_can_have_a_part_of_the_selected_objects() {
        let digests = Digests { objects: 3, ..Digests::default() };
        // The range begins after b; its last selected object is f, and hidden objects follow up to k.
        let range = Range { through: Some(uri("k")), last: Some(uri("f")), digests };
        let begin = uri("b");
        for (after, through, expected) in [
            (None, None, Some((Some("b"), "f", true))),
            (Some("a"), Some("h"), Some((Some("b"), "f", true))),
            (Some("b"), Some("f"), Some((Some("b"), "f", true))),
            (Some("c"), Some("z"), Some((Some("c"), "f", false))),
            (None, Some("e"), Some((Some("b"), "e", false))),
            (Some("f"), Some("z"), None),
            (Some("g"), None, None),
        ] {
            let [after, through] = [after, through].map(|name| name.map(uri));
            let piece = range.piece(Some(&begin), after.as_ref(), through.as_ref());
            let expected = expected.map(|(after, last, is_whole): (Option<&str>, _, bool)| Piece {
                after: after.map(uri),
                last: uri(last),
                digests: is_whole.then_some(digests),
            });
            assert_eq!(piece, expected, "{after:?} {through:?}");
        }
        let empty = Range { last: None, ..range };
        assert_eq!(empty.piece(Some(&begin), None, None), None);
    }
}
