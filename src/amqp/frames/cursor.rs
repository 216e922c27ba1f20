//! Cursor over the payload of a frame. It reads fields and corrects them in place.

use super::{Correction, DEEPEST, MalformedFrame};

/// Type octet of an octet array, whose content is not parsed.
const OCTET_ARRAY: u8 = b'x';

pub(super) struct Cursor<'a> {
    octets: &'a mut [u8],
    at: usize,
    /// End of the innermost container.
    end: usize,
}

/// A table or an array around the cursor.
struct Container {
    end: usize,
    is_table: bool,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(octets: &'a mut [u8]) -> Self {
        let end = octets.len();
        Self { octets, at: 0, end }
    }

    /// Checks that the payload ends at the cursor.
    pub(super) fn finish(&self) -> Result<(), MalformedFrame> {
        if self.at == self.octets.len() { Ok(()) } else { Err(MalformedFrame::Length) }
    }

    pub(super) fn skip(&mut self, count: usize) -> Result<(), MalformedFrame> {
        self.read(count).map(drop)
    }

    pub(super) fn short(&mut self) -> Result<u16, MalformedFrame> {
        self.read_chunk().map(u16::from_be_bytes)
    }

    pub(super) fn long_long(&mut self) -> Result<u64, MalformedFrame> {
        self.read_chunk().map(u64::from_be_bytes)
    }

    pub(super) fn long_string(&mut self) -> Result<(), MalformedFrame> {
        let length = self.long()?;
        self.skip(length)
    }

    /// Reads a short string. `part` names it in a correction.
    pub(super) fn short_string(
        &mut self,
        part: &'static str,
        corrections: &mut Vec<Correction>,
    ) -> Result<&[u8], MalformedFrame> {
        let [length] = self.read_chunk()?;
        let text = self.read(usize::from(length))?;
        if replace_invalid_utf8(text) {
            note(corrections, Correction::NotUtf8(part));
        }
        Ok(text)
    }

    /// Reads a table with all nested tables and arrays, without recursion.
    pub(super) fn table(&mut self, corrections: &mut Vec<Correction>) -> Result<(), MalformedFrame> {
        let outer = self.end;
        let mut containers = vec![self.container(true)?];
        while let Some(Container { end, is_table }) = containers.last() {
            self.end = *end;
            if self.at == self.end {
                containers.pop();
                continue;
            }
            if *is_table {
                self.short_string("the name of a header", corrections)?;
            }
            let [kind] = self.read_chunk()?;
            match kind {
                b'V' => {}
                b't' | b'b' | b'B' => self.skip(1)?,
                b's' | b'U' | b'u' => self.skip(2)?,
                b'I' | b'i' | b'f' => self.skip(4)?,
                b'D' => self.skip(5)?,
                b'L' | b'l' | b'd' | b'T' => self.skip(8)?,
                b'S' | OCTET_ARRAY => self.long_string()?,
                b'F' | b'A' if containers.len() < DEEPEST => containers.push(self.container(kind == b'F')?),
                b'F' | b'A' => {
                    self.octets[self.at - 1] = OCTET_ARRAY;
                    note(corrections, Correction::TooDeep);
                    self.long_string()?;
                }
                other => return Err(MalformedFrame::ValueType(char::from(other))),
            }
        }
        self.end = outer;
        Ok(())
    }

    /// Reads the length of a table or an array.
    fn container(&mut self, is_table: bool) -> Result<Container, MalformedFrame> {
        let length = self.long()?;
        let end = self.at.checked_add(length).filter(|end| *end <= self.end).ok_or(MalformedFrame::Length)?;
        Ok(Container { end, is_table })
    }

    fn long(&mut self) -> Result<usize, MalformedFrame> {
        // A frame is far smaller than four gigabytes, so a length that does not fit into `usize` is too long
        // as well.
        self.read_chunk().map(|octets| usize::try_from(u32::from_be_bytes(octets)).unwrap_or(usize::MAX))
    }

    fn read_chunk<const N: usize>(&mut self) -> Result<[u8; N], MalformedFrame> {
        let octets_read = self.read(N)?;
        octets_read.first_chunk().copied().ok_or(MalformedFrame::Length)
    }

    fn read(&mut self, count: usize) -> Result<&mut [u8], MalformedFrame> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.end).ok_or(MalformedFrame::Length)?;
        let octets_read = &mut self.octets[self.at..end];
        self.at = end;
        Ok(octets_read)
    }
}

/// Adds a correction unless it is already in the list, so the list stays short.
fn note(corrections: &mut Vec<Correction>, correction: Correction) {
    if !corrections.contains(&correction) {
        corrections.push(correction);
    }
}

/// Replaces each octet that is not part of UTF-8 by `?`, and returns true if there was one.
fn replace_invalid_utf8(text: &mut [u8]) -> bool {
    let (mut at, mut is_replaced) = (0, false);
    while let Err(error) = std::str::from_utf8(&text[at..]) {
        let begin = at + error.valid_up_to();
        let end = error.error_len().map_or(text.len(), |length| begin + length);
        text[begin..end].fill(b'?');
        (at, is_replaced) = (end, true);
    }
    is_replaced
}
