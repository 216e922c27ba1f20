//! What every format has in common: its name, its media type, how it is written, and what goes with a
//! body or puts several into one.

use std::borrow::Cow;

use crate::model::{Change, ContentObjectModification};

/// A format as it is offered to the views, the subscriptions and the command line.
pub struct FormatKind {
    /// The name in the configuration and on the command line.
    pub name: &'static str,
    /// The media type of what is written.
    pub media_type: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Writes a change of the journal: what happened, and what the journal knows beside it (its
    /// number, its source, when it was received, what of it is late).
    pub write: fn(&Change) -> Vec<u8>,
    /// Writes a modification alone, without a journal's word on it.
    pub write_modification: fn(&ContentObjectModification) -> Vec<u8>,
    /// What stands beside the body, in headers of the message.
    pub beside: Beside,
    /// How several changes are one body, where the format can do that.
    pub batch: Option<Batch>,
}

impl FormatKind {
    /// The headers that go with the body of a change.
    #[must_use]
    pub fn headers(&self, change: &Change, carrier: Carrier) -> Vec<Header> {
        match self.beside {
            Beside::Nothing => Vec::new(),
            Beside::Copies(write) | Beside::Facts(write) => write(change, carrier),
        }
    }

    /// Whether the body alone says all. Where it does not, the format is for a delivery that has headers,
    /// and for no view.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !matches!(self.beside, Beside::Facts(_))
    }
}

/// What stands beside the body of a message.
#[derive(Clone, Copy)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// What some receivers look for there, and the body says as well.
    Copies(fn(&Change, Carrier) -> Vec<Header>),
    /// What the body does not say, so that it is not the whole message.
    Facts(fn(&Change, Carrier) -> Vec<Header>),
}

/// What carries a message and its headers. Standards name and write one header differently for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// HTTP fields.
    Http,
    /// The headers of AMQP 0-9-1, which RabbitMQ gives to a client of AMQP 1.0 as application properties.
    Amqp,
}

/// A header of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its name: a token of RFC 9110 section 5.6.2, of 255 bytes at most.
    pub name: Cow<'static, str>,
    /// Its value: over HTTP of visible characters of ASCII and spaces between them, over AMQP any text.
    pub value: String,
}

/// How several changes are one body: the bodies of each, and what stands around and between them.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// The media type of such a body.
    pub media_type: &'static str,
    /// What stands before the first.
    pub open: &'static str,
    /// What stands between two.
    pub between: &'static str,
    /// What stands after the last.
    pub close: &'static str,
}

impl Batch {
    /// Joins bodies that [`FormatKind::write`] has written, in their order, into one.
    #[must_use]
    pub fn join<B: AsRef<[u8]>>(&self, bodies: &[B]) -> Vec<u8> {
        let inside: usize = bodies.iter().map(|body| body.as_ref().len() + self.between.len()).sum();
        let mut joined = Vec::with_capacity(self.open.len() + inside + self.close.len());
        joined.extend_from_slice(self.open.as_bytes());
        for (index, body) in bodies.iter().enumerate() {
            if index > 0 {
                joined.extend_from_slice(self.between.as_bytes());
            }
            joined.extend_from_slice(body.as_ref());
        }
        joined.extend_from_slice(self.close.as_bytes());
        joined
    }
}
