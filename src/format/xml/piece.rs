//! What quick-xml finds next in a document, without its content.

use quick_xml::events::Event;

/// What comes next in a document.
///
/// It is used in place of quick-xml's events since it is small: they are large, and to hand one on
/// just after it was made, field by field, stalls the processor for longer than it took to find it.
#[derive(Clone, Copy)]
pub(super) enum Piece {
    /// The start of an element whose name has that many bytes.
    Start {
        name_len: usize,
    },
    End,
    Text,
    CData,
    /// To a character or an entity.
    Reference,
    Declaration {
        is_utf8: bool,
    },
    /// A comment or a processing instruction.
    Aside,
    Eof,
}

impl Piece {
    /// `None` for a document type declaration.
    pub(super) fn of(event: &Event<'_>) -> Option<Self> {
        Some(match event {
            // There are no empty elements, since they are expanded.
            Event::Start(start) | Event::Empty(start) => Self::Start { name_len: start.name().as_ref().len() },
            Event::End(_) => Self::End,
            Event::Text(_) => Self::Text,
            Event::CData(_) => Self::CData,
            Event::GeneralRef(_) => Self::Reference,
            Event::Decl(declaration) => {
                let encoding = declaration.encoding().transpose().ok().flatten();
                Self::Declaration { is_utf8: encoding.is_none_or(|name| is_utf8_name(&name)) }
            }
            Event::Comment(_) | Event::PI(_) => Self::Aside,
            Event::Eof => Self::Eof,
            Event::DocType(_) => return None,
        })
    }
}

fn is_utf8_name(name: &[u8]) -> bool {
    [&b"utf-8"[..], b"utf8", b"us-ascii", b"ascii"].iter().any(|known| name.eq_ignore_ascii_case(known))
}
