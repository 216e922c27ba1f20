//! Tests of the scanner. The parser of the library checks the octets that the scanner passes.

use lapin::{
    BasicProperties,
    protocol::{AMQPClass, basic},
    types::{AMQPValue, FieldArray, FieldTable, ShortString},
};
use proptest::prelude::*;

use super::{Correction, DEEPEST, FrameScanner, LARGEST_FRAME, MalformedFrame, Notes};

fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[kind][..], &channel.to_be_bytes(), &size, payload, &[0xce]].concat()
}

fn short(text: &[u8]) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()][..], text].concat()
}

fn long(octets: &[u8]) -> Vec<u8> {
    [&u32::try_from(octets.len()).unwrap().to_be_bytes()[..], octets].concat()
}

fn deliver(tag: u64, exchange: &[u8], key: &[u8]) -> Vec<u8> {
    let method = [&[0, 60, 0, 60][..], &short(b"ctag"), &tag.to_be_bytes(), &[0], &short(exchange), &short(key)];
    frame(1, 1, &method.concat())
}

fn returned(text: &[u8], key: &[u8]) -> Vec<u8> {
    let method = [&[0, 60, 0, 50, 1, 56][..], &short(text), &short(b"x"), &short(key)];
    frame(1, 1, &method.concat())
}

/// Returns a content header with these flags and properties, for a body of one octet.
fn header(flags: u16, properties: &[u8]) -> Vec<u8> {
    let fixed = [&[0, 60, 0, 0][..], &1_u64.to_be_bytes(), &flags.to_be_bytes()].concat();
    frame(2, 1, &[&fixed[..], properties].concat())
}

const HEADERS: u16 = 1 << 13;
const CONTENT_TYPE: u16 = 1 << 15;
const MESSAGE_ID: u16 = 1 << 7;

/// Returns a table with `depth` levels of nested containers.
fn nested(depth: usize, kind: u8) -> Vec<u8> {
    let mut inner = Vec::new();
    for level in 1..depth {
        let name = if kind == b'F' || level + 1 == depth { short(b"a") } else { Vec::new() };
        inner = [&name[..], &[kind], &long(&inner)].concat();
    }
    long(&inner)
}

/// Scans all octets in one call, and returns the passed octets and the notes.
fn scanned(octets: &[u8]) -> Result<(Vec<u8>, Notes), MalformedFrame> {
    let notes = Notes::default();
    let mut octets = octets.to_vec();
    let passed = FrameScanner::new(notes.clone()).scan(&mut octets)?;
    octets.truncate(passed);
    Ok((octets, notes))
}

/// Returns the depth of a table as the library parses it.
fn depth(table: &FieldTable) -> usize {
    let of = |value: &AMQPValue| match value {
        AMQPValue::FieldTable(inner) => depth(inner),
        AMQPValue::FieldArray(inner) => array_depth(inner),
        _ => 0,
    };
    1 + table.inner().values().map(of).max().unwrap_or(0)
}

fn array_depth(array: &FieldArray) -> usize {
    let of = |value: &AMQPValue| match value {
        AMQPValue::FieldTable(inner) => depth(inner),
        AMQPValue::FieldArray(inner) => array_depth(inner),
        _ => 0,
    };
    1 + array.as_slice().iter().map(of).max().unwrap_or(0)
}

/// Parses the properties of a content header frame with the library.
fn properties(frame: &[u8]) -> BasicProperties {
    // Skip the frame header, the class, the weight and the size of the body.
    let (rest, properties) = basic::parse_properties(&frame[7 + 12..frame.len() - 1]).unwrap();
    assert!(rest.is_empty());
    properties
}

#[test]
fn deep_tables_are_truncated_to_the_library_limit() {
    for kind in [b'F', b'A'] {
        for (levels, is_corrected) in [(1, false), (DEEPEST, false), (DEEPEST + 1, true), (18_000, true)] {
            let before = [deliver(7, b"e", b"k"), header(HEADERS, &nested(levels, kind))].concat();
            let (passed, notes) = scanned(&before).unwrap();
            assert_eq!(passed.len(), before.len(), "{levels}");
            let headers = properties(&passed[deliver(7, b"e", b"k").len()..]).headers().clone().unwrap();
            assert_eq!(depth(&headers), levels.min(DEEPEST), "{levels}");
            let expected = if is_corrected { vec![Correction::TooDeep] } else { Vec::new() };
            assert_eq!(notes.take_corrections(1, 7), expected, "{levels}");
            assert_eq!(notes.take_corrections(1, 7), [], "a note is given once");
            assert_eq!(passed == before, !is_corrected);
        }
    }
}

#[test]
fn short_strings_become_utf8_in_every_place() {
    let table = [short(b"ok"), b"S".to_vec(), long(b"\xff"), short(b"h\xe9"), b"V".to_vec()].concat();
    let message = [
        deliver(1, b"\xc3\xa9", b"harvest.\xe9t\xe9"),
        header(CONTENT_TYPE | HEADERS, &[short(b"text/\xf0\x9f\x98"), long(&table)].concat()),
        frame(3, 1, b"\xe9"),
        deliver(2, b"e", b"k"),
        header(0, b""),
    ]
    .concat();
    let (passed, notes) = scanned(&message).unwrap();
    let parts = ["the routing key", "the property content-type", "the name of a header"];
    assert_eq!(notes.take_corrections(1, 1), parts.map(Correction::NotUtf8));
    assert_eq!(notes.take_corrections(1, 2), []);
    let text = String::from_utf8_lossy(&passed);
    for expected in ["\u{e9}", "harvest.?t?", "text/???", "h?"] {
        assert!(text.contains(expected), "{text:?}");
    }
    let body = frame(3, 1, b"\xe9");
    assert!(passed.windows(body.len()).any(|octets| octets == body), "a body is as it was");
}

#[test]
fn a_returned_message_is_noted_by_its_identifier() {
    let message = [
        returned(b"NO_ROUTE \xff", b"k\xff"),
        header(MESSAGE_ID | HEADERS, &[nested(18_000, b'F'), short(b"id-1")].concat()),
        frame(3, 1, b"x"),
    ];
    let (passed, notes) = scanned(&message.concat()).unwrap();
    assert!(!notes.take_return(1, "id-2") && !notes.take_return(2, "id-1"));
    assert!(notes.take_return(1, "id-1") && !notes.take_return(1, "id-1"));
    assert!(String::from_utf8_lossy(&passed).contains("NO_ROUTE ?"));
}

#[test]
fn other_methods_are_corrected_too() {
    for (method, text) in [
        (&[0, 10, 0, 50, 1, 64][..], "connection.close"),
        (&[0, 20, 0, 40, 1, 64], "channel.close"),
        (&[0, 60, 0, 30], "basic.cancel"),
        (&[0, 50, 0, 11], "queue.declare-ok"),
        (&[0, 10, 0, 60], "connection.blocked"),
    ] {
        let tail: &[u8] = match text {
            "connection.close" | "channel.close" => &[0; 4],
            "basic.cancel" => &[0],
            "queue.declare-ok" => &[0; 8],
            _ => &[],
        };
        let (passed, _) = scanned(&frame(1, 0, &[method, &short(b"\xe9t\xe9"), tail].concat())).unwrap();
        assert!(passed.windows(3).any(|octets| octets == b"?t?"), "{text}");
    }
}

#[test]
fn block_is_known_until_its_end() {
    let notes = Notes::default();
    let mut scanner = FrameScanner::new(notes.clone());
    let mut scan = |method: &[u8]| scanner.scan(&mut frame(1, 0, method)).unwrap();
    scan(&[&[0, 10, 0, 60][..], &short(b"low on \xe9")].concat());
    assert_eq!(notes.block().as_deref(), Some("low on ?"));
    scan(&[&[0, 10, 0, 60][..], &short(b"low on disk")].concat());
    assert_eq!(notes.block().as_deref(), Some("low on disk"));
    scan(&[0, 10, 0, 61]);
    assert_eq!(notes.block(), None);
}

#[test]
fn octets_with_an_unknown_layout_never_pass() {
    let table = |octets: &[u8]| header(HEADERS, &long(octets));
    for (octets, expected) in [
        (frame(4, 0, b""), MalformedFrame::Type(4)),
        (frame(21, 0, b""), MalformedFrame::Type(21)),
        (vec![1, 0, 0, 0, 2, 0, 0], MalformedFrame::TooLarge(131_072)),
        ([&frame(1, 0, &[0, 20, 0, 41])[..11], &[0]].concat(), MalformedFrame::NoEnd),
        // Only a client declares queues, with a table.
        (frame(1, 1, &[0, 50, 0, 10]), MalformedFrame::Method(50, 10)),
        (frame(1, 1, &[0, 20, 0, 41, 0]), MalformedFrame::Length),
        (frame(1, 1, &[0, 60, 0, 60, 9]), MalformedFrame::Length),
        (table(&[0]), MalformedFrame::Length),
        (table(b"\x01aS\0\0\0\x01"), MalformedFrame::Length),
        (table(b"\x01aF\0\0\0\x01"), MalformedFrame::Length),
        (table(b"\x01aZ"), MalformedFrame::ValueType('Z')),
        (header(HEADERS, &nested(2, b'F')[..3]), MalformedFrame::Length),
    ] {
        assert_eq!(scanned(&octets).map(|(passed, _)| passed), Err(expected), "{octets:?}");
    }
}

#[test]
fn a_broker_may_refuse_the_version() {
    let (passed, _) = scanned(b"AMQP\0\0\x09\x01").unwrap();
    assert_eq!(passed, b"AMQP\0\0\x09\x01");
}

#[test]
fn library_parses_every_known_method() {
    for class in 0..=100 {
        for method in 0..=130 {
            let Some(fields) = super::layout::method(class, method) else { continue };
            let mut payload = [class.to_be_bytes(), method.to_be_bytes()].concat();
            for field in fields {
                payload.extend(match field {
                    super::Field::Octets(count) => vec![0; *count],
                    super::Field::DeliveryTag => vec![0; 8],
                    super::Field::ShortString(_) => short(b"text"),
                    super::Field::LongString => long(b"text"),
                    super::Field::Table => nested(3, b'F'),
                });
            }
            scanned(&frame(1, 0, &payload)).unwrap();
            let parsed = lapin::protocol::parse_class(&payload[..]);
            let (rest, _): (_, AMQPClass) = parsed.unwrap_or_else(|error| panic!("{class}.{method}: {error}"));
            assert!(rest.is_empty(), "{class}.{method}: the library reads less");
        }
    }
}

fn values() -> impl Strategy<Value = AMQPValue> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(AMQPValue::Boolean),
        any::<i8>().prop_map(AMQPValue::ShortShortInt),
        any::<u8>().prop_map(AMQPValue::ShortShortUInt),
        any::<i16>().prop_map(AMQPValue::ShortInt),
        any::<u16>().prop_map(AMQPValue::ShortUInt),
        any::<i32>().prop_map(AMQPValue::LongInt),
        any::<u32>().prop_map(AMQPValue::LongUInt),
        any::<i64>().prop_map(AMQPValue::LongLongInt),
        any::<u64>().prop_map(AMQPValue::Timestamp),
        Just(AMQPValue::Void),
        Just(AMQPValue::Double(1.5)),
        Just(AMQPValue::Float(1.5)),
        prop::collection::vec(any::<u8>(), 0..9).prop_map(|octets| AMQPValue::LongString(octets.into())),
        prop::collection::vec(any::<u8>(), 0..9).prop_map(|octets| AMQPValue::ByteArray(octets.into())),
    ];
    leaf.prop_recursive(5, 30, 4, |inner| {
        let array = prop::collection::vec(inner.clone(), 0..4).prop_map(|all| AMQPValue::FieldArray(all.into()));
        prop_oneof![
            array,
            prop::collection::vec(("[a-z\u{e9}]{0,3}", inner), 0..4).prop_map(|all| {
                let mut table = FieldTable::default();
                for (name, value) in all {
                    table.insert(ShortString::from(name), value);
                }
                AMQPValue::FieldTable(table)
            })
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn valid_messages_pass_unchanged_with_any_split(
        value in values(), cuts in prop::collection::vec(1..40usize, 1..9),
    ) {
        let mut table = FieldTable::default();
        table.insert("it".into(), value);
        let serialized = BasicProperties::default().with_headers(table).with_message_id("id".into()).with_priority(3);
        let mut payload = [&[0, 60, 0, 0][..], &3_u64.to_be_bytes()].concat();
        payload = lapin_bytes(payload, &serialized);
        let octets = [deliver(1, b"e", b"k"), frame(2, 1, &payload), frame(3, 1, b"abc"), frame(8, 0, b"")].concat();
        let (mut passed, mut waiting) = (Vec::new(), Vec::new());
        let notes = Notes::default();
        let mut scanner = FrameScanner::new(notes.clone());
        let (mut rest, mut cuts) = (&octets[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
            waiting.extend_from_slice(now);
            rest = later;
            let count = scanner.scan(&mut waiting).unwrap();
            passed.extend(waiting.drain(..count));
        }
        prop_assert_eq!(passed, octets);
        prop_assert_eq!(notes.take_corrections(1, 1), []);
    }

    #[test]
    fn scanner_never_panics_and_its_output_is_parseable(
        octets in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'F'), Just(b'A'), Just(0), Just(1)], 0..80),
        flags in any::<u16>(),
    ) {
        for octets in [octets.clone(), header(flags, &octets), header(HEADERS, &long(&octets)), frame(1, 1, &octets)] {
            let Ok((passed, _)) = scanned(&octets) else { continue };
            prop_assert!(passed.len() <= octets.len() && octets.len() - passed.len() < LARGEST_FRAME);
            if passed.first() == Some(&2) {
                properties(&passed);
            }
        }
    }
}

/// Appends the properties, serialized by the library, to the given octets.
fn lapin_bytes(before: Vec<u8>, properties: &BasicProperties) -> Vec<u8> {
    let serialized = basic::gen_properties(properties)(before.into());
    serialized.unwrap().into_inner().0
}
