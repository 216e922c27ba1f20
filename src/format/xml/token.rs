//! Kinds of quick-xml events, without their content.

use quick_xml::events::Event;

/// Kind of the next event.
///
/// Tokens replace quick-xml's events, because those are large. Moving an event field by field right after its
/// creation stalls the processor for longer than parsing it.
#[derive(Clone, Copy)]
pub(super) enum Token {
    /// Start of an element whose name has `name_len` bytes.
    Start {
        name_len: usize,
    },
    End,
    Text,
    CData,
    /// Reference to a character or an entity.
    Reference,
    Declaration {
        is_utf8: bool,
    },
    /// Comment or processing instruction.
    Ignored,
    Eof,
}

impl Token {
    /// Converts an event; returns `None` for a document type declaration.
    pub(super) fn of(event: &Event<'_>) -> Option<Self> {
        Some(match event {
            // Empty elements do not occur, because the reader expands them.
            Event::Start(start) | Event::Empty(start) => Self::Start { name_len: start.name().as_ref().len() },
            Event::End(_) => Self::End,
            Event::Text(_) => Self::Text,
            Event::CData(_) => Self::CData,
            Event::GeneralRef(_) => Self::Reference,
            Event::Decl(declaration) => {
                let encoding = declaration.encoding().transpose().ok().flatten();
                Self::Declaration { is_utf8: encoding.is_none_or(|name| is_utf8_name(&name)) }
            }
            Event::Comment(_) | Event::PI(_) => Self::Ignored,
            Event::Eof => Self::Eof,
            Event::DocType(_) => return None,
        })
    }
}

fn is_utf8_name(name: &[u8]) -> bool {
    [&b"utf-8"[..], b"utf8", b"us-ascii", b"ascii"].iter().any(|known| name.eq_ignore_ascii_case(known))
}
