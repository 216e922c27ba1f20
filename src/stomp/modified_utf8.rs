//! Java's modified UTF-8, in which ActiveMQ stores the text of JMS messages and sends it over STOMP.
//!
//! It differs from UTF-8 in two ways (JVM specification, section 4.4.7): a character beyond U+FFFF is a pair
//! of surrogates of three octets each, and U+0000 is `C0 80`. Neither occurs in UTF-8, so the two encodings
//! can be distinguished.

/// Decodes UTF-8, modified UTF-8, or a mixture of both; `None` for anything else.
#[must_use]
pub fn decode(octets: &[u8]) -> Option<String> {
    let mut text = Vec::with_capacity(octets.len());
    let mut rest = octets;
    loop {
        rest = match rest {
            [] => return String::from_utf8(text).ok(),
            [0xC0, 0x80, rest @ ..] => {
                text.push(0);
                rest
            }
            [0xED, a @ 0xA0..=0xAF, b @ 0x80..=0xBF, 0xED, c @ 0xB0..=0xBF, d @ 0x80..=0xBF, rest @ ..] => {
                let bits = |upper: u8, lower: u8| u32::from(upper & 0x0F) << 6 | u32::from(lower & 0x3F);
                let character = char::from_u32(0x1_0000 + (bits(*a, *b) << 10 | bits(*c, *d)))?;
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                rest
            }
            [octet, rest @ ..] => {
                text.push(*octet);
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::decode;

    /// Encodes a text as Java's `DataOutput.writeUTF` does.
    fn modified(text: &str) -> Vec<u8> {
        let octet = |bits: u16| u8::try_from(bits).unwrap();
        let unit = |unit: u16| match unit {
            1..=0x7F => vec![octet(unit)],
            0 | 0x80..=0x7FF => vec![octet(0xC0 | unit >> 6), octet(0x80 | unit & 0x3F)],
            _ => vec![octet(0xE0 | unit >> 12), octet(0x80 | unit >> 6 & 0x3F), octet(0x80 | unit & 0x3F)],
        };
        text.encode_utf16().flat_map(unit).collect()
    }

    #[test]
    fn surrogates_and_the_null_character_are_decoded() {
        assert_eq!(decode(b"a\xED\xA0\xBD\xED\xB8\x80b\xC0\x80").as_deref(), Some("a\u{1F600}b\0"));
        assert_eq!(decode("\u{20000}\u{1F600}".as_bytes()).as_deref(), Some("\u{20000}\u{1F600}"));
        for neither in [&b"\xED\xA0\xBD"[..], b"\xED\xB8\x80\xED\xA0\xBD", b"\xE9", b"\xC0\x81", b"\xFF\xFE"] {
            assert_eq!(decode(neither), None, "{neither:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_text_is_decoded_from_both_encodings(text in "(\\PC|[\u{0}\u{10000}-\u{10FFFF}]){0,9}") {
            prop_assert_eq!(decode(&modified(&text)), Some(text.clone()));
            prop_assert_eq!(decode(text.as_bytes()), Some(text));
        }

        #[test]
        fn decoder_never_panics(octets in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xED), Just(0xC0)], 0..20)) {
            let utf8 = String::from_utf8(octets.clone()).ok();
            prop_assert!(utf8.is_none() || utf8 == decode(&octets));
        }
    }
}
