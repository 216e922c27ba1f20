//! Offsets of the protocol (section 8): opaque texts that sort as octets in the order of the stream.

use std::fmt;

use uuid::Uuid;

use crate::model::Seq;

/// Number of digits of a number. The largest ones have twenty.
const DIGITS: usize = 20;

/// Number of hexadecimal digits of the journal's identity.
const IDENTITY_DIGITS: usize = 8;

/// Place in the stream that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamPlace {
    /// Before the oldest change.
    Beginning,
    /// After the newest change.
    Now,
    /// After the change of an offset.
    After(Offset),
}

/// Position after a change of a journal. The identity is part of it for caches: after a restore, other changes can have the
/// numbers of lost ones, and so they have other URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offset {
    pub(super) seq: Seq,
    /// First digits of the identity of the journal.
    journal: u32,
}

impl Offset {
    pub(super) fn new(seq: Seq, journal: Uuid) -> Self {
        Self { seq, journal: short(journal) }
    }

    /// Returns whether both offsets are of one journal.
    pub(super) fn is_same_journal(self, other: Self) -> bool {
        self.journal == other.journal
    }

    /// Returns whether the offset is one of the journal with this identity.
    pub(super) fn is_of(self, journal: Uuid) -> bool {
        self.journal == short(journal)
    }
}

/// Returns the first digits of an identity.
fn short(journal: Uuid) -> u32 {
    journal.as_fields().0
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0DIGITS$}_{:0IDENTITY_DIGITS$x}", self.seq.0, self.journal)
    }
}

impl StreamPlace {
    /// Parses the parameter `offset`; `None` for a text that the gateway does not make.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "-1" => return Some(Self::Beginning),
            "now" => return Some(Self::Now),
            _ => {}
        }
        let (number, journal) = text.split_once('_')?;
        let offset = Offset { seq: Seq(number.parse().ok()?), journal: u32::from_str_radix(journal, 16).ok()? };
        (offset.to_string() == text).then_some(Self::After(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_sort_as_their_numbers_and_have_one_spelling() {
        let journal = Uuid::from_u128(0x5d95_57f3_0000_0000_0000_0000_0000_0001);
        let offset = |seq| Offset::new(Seq(seq), journal).to_string();
        assert_eq!(offset(50_012), "00000000000000050012_5d9557f3");
        let mut numbers = [0, 1, 9, 10, 999, 1000, u64::from(u32::MAX), u64::MAX];
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|pair| offset(pair[0]) < offset(pair[1])));
        for number in numbers {
            let text = offset(number);
            assert_eq!(StreamPlace::parse(&text), Some(StreamPlace::After(Offset::new(Seq(number), journal))));
            assert!(text.len() <= 256 && !text.contains([',', '&', '=', '?', '/']));
        }
        for other in
            ["", "0", "1_5d9557f3", "00000000000000050012_5D9557F3", "00000000000000050012", "-2", "NOW", "+1_0"]
        {
            assert_eq!(StreamPlace::parse(other), None, "{other}");
        }
        assert!(!Offset::new(Seq(1), journal).is_of(Uuid::from_u128(1)));
    }
}
