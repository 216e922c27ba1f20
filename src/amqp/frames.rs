//! A scanner of the frames that a broker sends, which corrects in place what the client library cannot parse.
//!
//! The library (lapin, through amq-protocol) parses field tables recursively without a bound on their depth, and
//! refuses a whole connection where a short string is not UTF-8. RabbitMQ passes both on as a publisher sent them, so
//! one message could end the process, or stop its queue for ever. The report for the authors of the library is
//! `docs/internals/lapin-parser.md`.
//!
//! The scanner walks through method and content header frames iteratively. No correction changes a length:
//!
//! * beyond [`DEEPEST`] levels, the type octet of a nested table or array becomes `x`, an octet array, whose length has
//!   the same four octets;
//! * octets of a short string that are not UTF-8 become `?`.
//!
//! It notes each delivery that it corrected, by channel and delivery tag, which the broker gives and no publisher can
//! choose. Body frames pass unread. Octets that follow another layout than the library's never pass: the scan fails.

mod cursor;
mod layout;
mod notes;

use self::{
    cursor::Cursor,
    layout::{Content, Field},
};
pub use notes::{Correction, Notes};

/// Number of nested tables and arrays that the library is given, the outermost table included.
pub const DEEPEST: usize = 32;

/// Size of the largest frame, in octets, with its head and its end. The gateway agrees on it with the broker.
pub const LARGEST_FRAME: usize = 131_072;

/// The octets before the payload of a frame: its type, channel and size.
const HEAD: usize = 7;

/// The octet that ends a frame.
const FRAME_END: u8 = 0xce;

/// Size of the protocol header by which a broker refuses the version.
const PROTOCOL_HEADER: usize = 8;

/// Types of frames (AMQP 0-9-1, section 4.2.3).
mod frame {
    pub(super) const METHOD: u8 = 1;
    pub(super) const HEADER: u8 = 2;
    pub(super) const BODY: u8 = 3;
    pub(super) const HEARTBEAT: u8 = 8;
}

/// Why octets are no frames that a broker may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedFrame {
    /// The type of a frame is unknown.
    #[error("a frame of the broker has the unknown type {0}; see to it that the port is the broker's for AMQP")]
    Type(u8),
    /// A frame is larger than agreed.
    #[error("a frame of the broker has {0} bytes of payload; {LARGEST_FRAME} are agreed for the frame")]
    TooLarge(u32),
    /// A frame does not end where its size says.
    #[error("a frame of the broker does not end where its size says")]
    NoEnd,
    /// A method is none that a broker sends.
    #[error("the broker sent the method {0}.{1}, which a broker does not send")]
    Method(u16, u16),
    /// A field is longer than what contains it, or octets follow the last field.
    #[error("the fields of a frame of the broker do not fill it exactly")]
    Length,
    /// The type of a value in a table is unknown.
    #[error("a header of a message has a value of the unknown type {0:?}")]
    ValueType(char),
}

/// Scans the octets of one connection.
#[derive(Debug, Default)]
pub struct FrameScanner {
    /// Number of octets of the current frame that still pass unread.
    passing: usize,
    content: Content,
    notes: Notes,
}

impl FrameScanner {
    /// A scanner that writes its notes to `notes`.
    #[must_use]
    pub fn new(notes: Notes) -> Self {
        Self { notes, ..Self::default() }
    }

    /// Scans `octets`, which begin where the octets that passed before ended, and returns the number of them that
    /// may pass now. The rest is the beginning of a frame, shorter than [`LARGEST_FRAME`].
    ///
    /// # Errors
    /// When the octets are no frames that a broker may send. None of the octets since may pass then.
    pub fn scan(&mut self, octets: &mut [u8]) -> Result<usize, MalformedFrame> {
        let mut at = 0;
        loop {
            let pass = self.passing.min(octets.len() - at);
            self.passing -= pass;
            at += pass;
            let Some(rest) = octets.get_mut(at..).filter(|rest| !rest.is_empty()) else { return Ok(at) };
            if rest[0] == b'A' {
                self.passing = PROTOCOL_HEADER;
                continue;
            }
            let Some([kind, channel @ .., a, b, c, d]) = rest.first_chunk::<HEAD>() else { return Ok(at) };
            let (kind, channel, size) = (*kind, u16::from_be_bytes(*channel), u32::from_be_bytes([*a, *b, *c, *d]));
            let whole = (HEAD + 1).saturating_add(size as usize);
            if whole > LARGEST_FRAME {
                return Err(MalformedFrame::TooLarge(size));
            }
            match kind {
                frame::BODY | frame::HEARTBEAT => self.passing = whole,
                frame::METHOD | frame::HEADER => {
                    let Some(frame) = rest.get_mut(..whole) else { return Ok(at) };
                    if frame[whole - 1] != FRAME_END {
                        return Err(MalformedFrame::NoEnd);
                    }
                    let mut cursor = Cursor::new(&mut frame[HEAD..whole - 1]);
                    match kind {
                        frame::METHOD => self.method(channel, &mut cursor)?,
                        _ => self.header(channel, &mut cursor)?,
                    }
                    self.passing = whole;
                }
                other => return Err(MalformedFrame::Type(other)),
            }
        }
    }

    fn method(&mut self, channel: u16, cursor: &mut Cursor<'_>) -> Result<(), MalformedFrame> {
        let (class, method) = (cursor.short()?, cursor.short()?);
        let fields = layout::method(class, method).ok_or(MalformedFrame::Method(class, method))?;
        let mut tag = None;
        let mut corrections = Vec::new();
        for field in fields {
            match field {
                Field::Octets(count) => {
                    cursor.skip(*count)?;
                }
                Field::DeliveryTag => tag = Some(cursor.long_long()?),
                Field::ShortString(name) => {
                    cursor.short_string(name, &mut corrections)?;
                }
                Field::LongString => cursor.long_string()?,
                Field::Table => cursor.table(&mut corrections)?,
            }
        }
        cursor.finish()?;
        self.content.begins(channel, layout::content(class, method, tag), corrections);
        Ok(())
    }

    fn header(&mut self, channel: u16, cursor: &mut Cursor<'_>) -> Result<(), MalformedFrame> {
        // The class, the weight and the size of the body.
        cursor.skip(2 + 2 + 8)?;
        let flags = cursor.short()?;
        let (mut corrections, mut message_id) = (Vec::new(), None);
        for (bit, (name, field)) in layout::PROPERTIES.iter().enumerate() {
            if flags & (1 << (15 - bit)) == 0 {
                continue;
            }
            match field {
                Field::ShortString(part) => {
                    let value = cursor.short_string(part, &mut corrections)?;
                    if *name == layout::MESSAGE_ID {
                        message_id = Some(String::from_utf8_lossy(value).into_owned());
                    }
                }
                Field::Table => cursor.table(&mut corrections)?,
                Field::Octets(count) => cursor.skip(*count)?,
                Field::DeliveryTag | Field::LongString => {}
            }
        }
        cursor.finish()?;
        self.content.ends(channel, corrections, message_id, &self.notes);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
