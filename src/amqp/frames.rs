//! Scanner for the frames of a broker. It corrects frames in place that the client library cannot parse.
//!
//! The library (lapin, through amq-protocol) parses field tables recursively without a depth limit, and it
//! closes the connection if a short string is not UTF-8. RabbitMQ forwards both unchanged, so one message
//! could crash the process or block its queue forever. `docs/internals/lapin-parser.md` contains the report
//! for the authors of the library.
//!
//! The scanner processes method and content header frames iteratively. Corrections never change a length:
//!
//! * beyond [`DEEPEST`] levels, the type octet of a nested table or array becomes `x`, an octet array, whose
//!   length has the same four octets;
//! * octets of a short string that are not UTF-8 become `?`.
//!
//! The scanner records each corrected delivery by channel and delivery tag, which the broker assigns and no
//! publisher can choose. It also records why the broker accepts no messages at present, because the library keeps
//! only the fact. Body frames pass unread. If the octets do not match the layout that the library expects, the
//! scan fails.

mod cursor;
mod layout;
mod notes;

use self::{
    cursor::Cursor,
    layout::{Field, PendingContents},
};
pub use notes::{Correction, Notes};

/// Maximum number of nested tables and arrays that reach the library, including the outermost table.
pub const DEEPEST: usize = 32;

/// Maximum size of a frame in octets, including its header and its end octet. The gateway negotiates it with
/// the broker.
pub const LARGEST_FRAME: usize = 131_072;

/// Number of octets before the payload of a frame: its type, channel and size.
const HEAD: usize = 7;

/// Last octet of a frame.
const FRAME_END: u8 = 0xce;

/// Size of the protocol header with which a broker refuses the version.
const PROTOCOL_HEADER: usize = 8;

/// Types of frames (AMQP 0-9-1, section 4.2.3).
mod frame {
    pub(super) const METHOD: u8 = 1;
    pub(super) const HEADER: u8 = 2;
    pub(super) const BODY: u8 = 3;
    pub(super) const HEARTBEAT: u8 = 8;
}

/// Reason why octets are no valid frames of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedFrame {
    /// The frame type is unknown.
    #[error("a frame of the broker has the unknown type {0}; check that the port is the broker's AMQP port")]
    Type(u8),
    /// A frame exceeds the negotiated size.
    #[error("a frame of the broker has {0} bytes of payload; the negotiated maximum of a frame is {LARGEST_FRAME}")]
    TooLarge(u32),
    /// A frame does not end where its size says.
    #[error("a frame of the broker does not end where its size says")]
    NoEnd,
    /// A broker never sends this method.
    #[error("the broker sent the method {0}.{1}, which a broker does not send")]
    Method(u16, u16),
    /// A field exceeds the frame or table that contains it, or octets follow the last field.
    #[error("the fields of a frame of the broker do not fill it exactly")]
    Length,
    /// A table contains a value of an unknown type.
    #[error("a header of a message has a value of the unknown type {0:?}")]
    ValueType(char),
}

/// Scans the octets of one connection.
#[derive(Debug, Default)]
pub struct FrameScanner {
    /// Number of octets of the current frame that may still pass unread.
    passing: usize,
    announced_content: PendingContents,
    notes: Notes,
}

impl FrameScanner {
    /// Creates a scanner that records corrections in `notes`.
    #[must_use]
    pub fn new(notes: Notes) -> Self {
        Self { notes, ..Self::default() }
    }

    /// Scans `octets`, which continue where the passed octets ended, and returns the number of octets that may
    /// pass now. The rest is the beginning of a frame, shorter than [`LARGEST_FRAME`].
    ///
    /// # Errors
    /// Fails if the octets are no valid frames of a broker. None of the octets may pass then.
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
            let frame_len = (HEAD + 1).saturating_add(size as usize);
            if frame_len > LARGEST_FRAME {
                return Err(MalformedFrame::TooLarge(size));
            }
            match kind {
                frame::BODY | frame::HEARTBEAT => self.passing = frame_len,
                frame::METHOD | frame::HEADER => {
                    let Some(frame) = rest.get_mut(..frame_len) else { return Ok(at) };
                    if frame[frame_len - 1] != FRAME_END {
                        return Err(MalformedFrame::NoEnd);
                    }
                    let mut cursor = Cursor::new(&mut frame[HEAD..frame_len - 1]);
                    match kind {
                        frame::METHOD => self.method(channel, &mut cursor)?,
                        _ => self.header(channel, &mut cursor)?,
                    }
                    self.passing = frame_len;
                }
                other => return Err(MalformedFrame::Type(other)),
            }
        }
    }

    fn method(&mut self, channel: u16, cursor: &mut Cursor<'_>) -> Result<(), MalformedFrame> {
        let (class, method) = (cursor.short()?, cursor.short()?);
        let fields = layout::method(class, method).ok_or(MalformedFrame::Method(class, method))?;
        let (mut tag, mut block) = (None, None);
        let mut corrections = Vec::new();
        for field in fields {
            match field {
                Field::Octets(count) => {
                    cursor.skip(*count)?;
                }
                Field::DeliveryTag => tag = Some(cursor.long_long()?),
                Field::ShortString(name) => {
                    let value = cursor.short_string(name, &mut corrections)?;
                    if (class, method) == layout::BLOCKED {
                        block = Some(String::from_utf8_lossy(value).into_owned());
                    }
                }
                Field::LongString => cursor.long_string()?,
                Field::Table => cursor.table(&mut corrections)?,
            }
        }
        cursor.finish()?;
        if matches!((class, method), layout::BLOCKED | layout::UNBLOCKED) {
            self.notes.set_block(block);
        }
        self.announced_content.begins(channel, layout::announced_content(class, method, tag), corrections);
        Ok(())
    }

    fn header(&mut self, channel: u16, cursor: &mut Cursor<'_>) -> Result<(), MalformedFrame> {
        // Skip the class, the weight and the size of the body.
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
        self.announced_content.ends(channel, corrections, message_id, &self.notes);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
