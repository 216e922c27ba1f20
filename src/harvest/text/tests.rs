//! Encodings, preambles and repairs.

use super::{HTML, read};

fn repaired(body: &[u8]) -> (String, usize) {
    let read = read(body.to_vec(), None, 1 << 20).unwrap();
    (read.text, read.repairs)
}

#[test]
fn entities_are_in_order() {
    assert!(HTML.is_sorted_by_key(|(name, _)| *name));
}

#[test]
fn well_formed_text_is_unchanged() {
    let text = "<?xml version='1.0'?><a b='&amp;&#10;&#x1F600;'>é\t<![CDATA[ & &nbsp; ]]><!-- & --><?p &?>\u{FFFD}</a>";
    assert_eq!(repaired(text.as_bytes()), (text.to_owned(), 0));
}

#[test]
fn characters_and_references_are_repaired() {
    for (body, expected, repairs) in [
        ("a\u{1a}b\u{0}c", "abc", 2),
        ("a\u{FFFE}\u{FFFF}b", "ab", 2),
        ("&#xfffe;&#55349;&#x3;&#xD800;a", "a", 4),
        ("R&D; A & B &", "R&amp;D; A &amp; B &amp;", 3),
        ("a&nbsp;b&eacute;", "a\u{A0}bé", 2),
        ("&unknown;&#;&#x;&#1114112;", "&amp;unknown;&amp;#;&amp;#x;", 4),
        ("<![CDATA[a\u{b}&]]>&", "<![CDATA[a&]]>&amp;", 2),
        ("<![CDATA[a&", "<![CDATA[a&", 0),
        ("http://h/?a=1&b=2;", "http://h/?a=1&amp;b=2;", 1),
    ] {
        assert_eq!(repaired(body.as_bytes()), (expected.to_owned(), repairs), "{body}");
    }
}

#[test]
fn encodings_are_recognised() {
    for (body, charset, expected, repairs) in [
        (&b"<?xml version='1.0' encoding='ISO-8859-1'?>\xe9"[..], Some("utf-8"), "é", 0),
        (b"\xEF\xBB\xBF<?xml encoding=\"latin1\"?>\xC3\xA9", None, "é", 0),
        (b"<?xml version='1.0' encoding='UTF-16'?>a", None, "a", 0),
        (b"\xe9", Some("iso-8859-1"), "é", 0),
        (b"\xFF\xFEa\0", None, "a", 0),
        (b"<?xml version='1.0' encoding='UTF-8'?>caf\xe9 \x93q\x94 \xC3\xA9", None, "café “q” é", 3),
        (b"<?xml version='1.0' encoding='no-such'?>\xC3\xA9", None, "é", 0),
        // A wrong declaration, and UTF-16 without a mark.
        (b"<?xml version='1.0' encoding='windows-1252'?>\xE2\x82\xAC caf\xC3\xA9", None, "€ café", 0),
        (b"\xE2\x82\xAC", Some("iso-8859-1"), "€", 0),
        (b"<\0?\0\x94\x03", Some("utf-16le"), "<?Δ", 0),
        (b"\0<\0a\x03\x94", None, "<aΔ", 0),
    ] {
        let read = read(body.to_vec(), charset, 1 << 20).unwrap();
        assert!(read.text.ends_with(expected), "{:?}", read.text);
        assert_eq!(read.repairs, repairs, "{:?}", read.text);
    }
}

#[test]
fn text_begins_with_its_document() {
    for (before, repairs) in [
        ("\r\n\u{FEFF}", 0),
        ("\u{FEFF}\u{FEFF}", 0),
        ("\u{FEFF}\n \u{FEFF}\u{FEFF}", 0),
        ("<br />\n<b>Notice</b>: Undefined index in oai.php\n", 1),
        ("\nWarning: no cache\n", 1),
    ] {
        let document = "<?xml version='1.0'?><OAI-PMH>é</OAI-PMH>";
        assert_eq!(repaired(format!("{before}{document}").as_bytes()), (document.to_owned(), repairs), "{before:?}");
    }
    let nested = "<rss><item><![CDATA[<?xml version='1.0'?>]]></item></rss>";
    assert_eq!(repaired(nested.as_bytes()), (nested.to_owned(), 0));
    let marks = b"\xFF\xFE\xFF\xFE<\0a\0>\0".to_vec();
    assert_eq!(read(marks, None, 1 << 20).unwrap().text, "<a>");
}

#[test]
fn text_is_at_most_twice_as_long_as_its_body() {
    const LENGTH: usize = 1 << 20;
    let latin1 = [b"<?xml encoding='latin1'?>".to_vec(), vec![0xE9; LENGTH]].concat();
    assert_eq!(read(latin1.clone(), None, 4 * LENGTH).unwrap().text.chars().filter(|c| *c == 'é').count(), LENGTH);
    assert!(read(latin1, None, LENGTH).is_err());
    for body in [vec![b'&'; LENGTH], vec![0x80; LENGTH]] {
        assert!(read(body, None, 8 * LENGTH).is_err());
    }
}
