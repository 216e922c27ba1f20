//! Test messages: those that Social Feed Manager sends when it has created a WARC.

/// Routing key of the messages.
pub(crate) const KEY: &str = "warc_created";

/// Length of a message, in bytes.
const LENGTH: usize = 2048;

/// Returns message `number`. Each is about another WARC, in one of a thousand collections. An unused member pads the
/// message to [`LENGTH`].
pub(crate) fn message(number: u64) -> Vec<u8> {
    let (collection, harvest) = (format!("{:032x}", number % 1000), format!("{:032x}", number / 16));
    let head = format!(
        r#"{{"harvest": {{"id": "{harvest}", "type": "twitter_filter"}}, "collection_set": {{"id": "c0ffee"}}, "collection": {{"id": "{collection}"}}, "warc": {{"id": "warc-{number:012}", "path": "/sfm-data/collection_set/c0ffee/{collection}/2021/03/04/10/{harvest}-{number:012}-00000-8000-f0c3c5ef7031-8000.warc.gz", "date_created": "2021-03-04T05:36:08.640178-05:00", "bytes": 1048576, "sha1": "7512e1c227c29332172118f0b79b2ca75cbe8979"}}, "note": ""#
    );
    let padding = LENGTH - head.len() - 2;
    let words = "a stream that is harvested has many WARCs. ";
    let note: String = words.chars().cycle().take(padding).collect();
    format!("{head}{note}\"}}").into_bytes()
}

/// Returns the number of the original message from a forwarded message, in any format.
pub(crate) fn number(moved: &[u8]) -> u64 {
    let mark = b"warc-";
    let at = moved.windows(mark.len()).position(|window| window == mark).unwrap() + mark.len();
    std::str::from_utf8(&moved[at..at + 12]).unwrap().parse().unwrap()
}
