//! Requests and responses that the reader needs, in their newest versions without tagged fields.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::wire::{Decoder, Encoder, Malformed};
use crate::kafka::KafkaError;

/// A kind of request: its number, and the oldest and newest version that this module writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Api {
    pub(super) key: i16,
    oldest: i16,
    newest: i16,
}

pub(super) const FETCH: Api = Api { key: 1, oldest: 4, newest: 10 };
pub(super) const LIST_OFFSETS: Api = Api { key: 2, oldest: 2, newest: 2 };
pub(super) const METADATA: Api = Api { key: 3, oldest: 4, newest: 4 };
pub(super) const SASL_HANDSHAKE: Api = Api { key: 17, oldest: 1, newest: 1 };
pub(super) const API_VERSIONS: Api = Api { key: 18, oldest: 0, newest: 0 };
pub(super) const SASL_AUTHENTICATE: Api = Api { key: 36, oldest: 0, newest: 0 };

/// Version of a fetch from which its request and response have a session.
const FETCH_SESSIONS: i16 = 7;

/// Level of isolation that leaves out open transactions, and lists the aborted ones.
const READ_COMMITTED: i8 = 1;

/// Versions that a broker supports, by the number of the request.
#[derive(Debug, Default)]
pub(super) struct Versions(BTreeMap<i16, (i16, i16)>);

impl Versions {
    /// Reads the response to a request of the versions.
    pub(super) fn decode(response: &mut Decoder) -> Result<Self, Malformed> {
        let code = response.i16()?;
        let listed = response.array(|entry| Ok((entry.i16()?, (entry.i16()?, entry.i16()?))))?;
        if code != 0 || listed.is_empty() {
            return Err(Malformed);
        }
        Ok(Self(listed.into_iter().collect()))
    }

    /// Returns the newest version of a request that both sides know.
    pub(super) fn common(&self, api: Api) -> Option<i16> {
        let (oldest, newest) = *self.0.get(&api.key)?;
        // Brokers accept compressed batches of Zstandard only in version 10, and the versions between need no code.
        let candidates = if api.newest > api.oldest { vec![api.newest, api.oldest] } else { vec![api.oldest] };
        candidates.into_iter().find(|version| (oldest..=newest).contains(version))
    }
}

/// Address of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    /// Parses HOST:PORT, where the host can be an IPv6 address in brackets.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self { host: host.trim_matches(['[', ']']).to_owned(), port: port.parse().ok()? })
    }
}

/// Leaders of the partitions of some topics. A partition without a leader has `None`.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) code: i16,
    pub(super) name: String,
    pub(super) leaders: BTreeMap<i32, Option<Address>>,
}

/// Writes a request of the partitions of topics, which creates no topic.
pub(super) fn write_metadata(request: &mut Encoder, topics: &[String]) {
    request.i32(i32::try_from(topics.len()).unwrap_or(i32::MAX));
    for topic in topics {
        request.string(topic);
    }
    request.i8(0);
}

/// Reads the response to a request of the partitions of topics.
pub(super) fn read_metadata(response: &mut Decoder) -> Result<Vec<Topic>, Malformed> {
    response.i32()?;
    let brokers: BTreeMap<i32, Address> = response
        .array(|broker| {
            let (id, host, port) = (broker.i32()?, broker.string()?, broker.i32()?);
            broker.string()?;
            Ok((id, Address { host, port: u16::try_from(port).map_err(|_| Malformed)? }))
        })?
        .into_iter()
        .collect();
    response.string()?;
    response.i32()?;
    response.array(|topic| {
        let (code, name) = (topic.i16()?, topic.string()?);
        topic.i8()?;
        let leaders = topic.array(|partition| {
            partition.i16()?;
            let (number, leader) = (partition.i32()?, partition.i32()?);
            partition.array(Decoder::i32)?;
            partition.array(Decoder::i32)?;
            Ok((number, brokers.get(&leader).cloned()))
        })?;
        Ok(Topic { code, name, leaders: leaders.into_iter().collect() })
    })
}

/// Writes a request of the first offset with a time in milliseconds; -1 is the newest and -2 the oldest offset.
pub(super) fn write_list_offsets(request: &mut Encoder, topic: &str, partition: i32, time: i64) {
    request.i32(-1).i8(READ_COMMITTED).i32(1).string(topic).i32(1).i32(partition).i64(time);
}

/// Reads the response for one partition: an error code and the offset.
pub(super) fn read_list_offsets(response: &mut Decoder) -> Result<(i16, i64), Malformed> {
    response.i32()?;
    let partition = |partition: &mut Decoder| {
        partition.i32()?;
        let code = partition.i16()?;
        partition.i64()?;
        Ok((code, partition.offset()?))
    };
    only(response, partition)
}

/// A fetch from one partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetch<'a> {
    pub(super) topic: &'a str,
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) max_bytes: i32,
    pub(super) wait_ms: i32,
}

/// Response to a fetch from one partition.
#[derive(Debug)]
pub(super) struct FetchResponse {
    pub(super) code: i16,
    pub(super) high_watermark: i64,
    /// Producers and first offsets of aborted transactions.
    pub(super) aborted: Vec<(i64, i64)>,
    pub(super) batches: Bytes,
}

impl Fetch<'_> {
    pub(super) fn write(&self, request: &mut Encoder, version: i16) {
        request.i32(-1).i32(self.wait_ms).i32(1).i32(self.max_bytes).i8(READ_COMMITTED);
        if version >= FETCH_SESSIONS {
            // No session.
            request.i32(0).i32(-1);
        }
        request.i32(1).string(self.topic).i32(1).i32(self.partition);
        if version >= FETCH_SESSIONS {
            // The leader epoch (from version 9) is unknown, and the oldest offset matters only to replicas.
            request.i32(-1).i64(self.offset).i64(-1);
        } else {
            request.i64(self.offset);
        }
        request.i32(self.max_bytes);
        if version >= FETCH_SESSIONS {
            // No forgotten topics.
            request.i32(0);
        }
    }

    pub(super) fn read(response: &mut Decoder, version: i16) -> Result<FetchResponse, Malformed> {
        response.i32()?;
        let mut code = 0;
        if version >= FETCH_SESSIONS {
            code = response.i16()?;
            response.i32()?;
        }
        if code != 0 {
            return Ok(FetchResponse { code, high_watermark: 0, aborted: Vec::new(), batches: Bytes::new() });
        }
        only(response, |partition| {
            partition.i32()?;
            let (code, high_watermark) = (partition.i16()?, partition.offset()?);
            // The last stable offset, and the oldest offset.
            partition.i64()?;
            if version >= FETCH_SESSIONS {
                partition.i64()?;
            }
            let aborted = partition.array(|transaction| Ok((transaction.i64()?, transaction.i64()?)))?;
            Ok(FetchResponse { code, high_watermark, aborted, batches: partition.bytes()? })
        })
    }
}

/// Reads an array of one topic with an array of one partition.
fn only<T>(
    response: &mut Decoder,
    mut partition: impl FnMut(&mut Decoder) -> Result<T, Malformed>,
) -> Result<T, Malformed> {
    let topics = response.array(|topic| {
        topic.string()?;
        topic.array(&mut partition)
    })?;
    topics.into_iter().flatten().next().ok_or(Malformed)
}

/// Converts an error code of the protocol. `place` says what the request was about.
pub(super) fn check(code: i16, place: &str) -> Result<(), KafkaError> {
    let name = match code {
        0 => return Ok(()),
        1 => "OffsetOutOfRange",
        2 => "CorruptMessage",
        3 => "UnknownTopicOrPartition",
        5 => "LeaderNotAvailable",
        6 => "NotLeaderOrFollower",
        7 => "RequestTimedOut",
        17 => "InvalidTopic",
        29 => "TopicAuthorizationFailed",
        31 => "ClusterAuthorizationFailed",
        33 => "UnsupportedSaslMechanism",
        34 => "IllegalSaslState",
        35 => "UnsupportedVersion",
        56 => "KafkaStorageError",
        58 => "SaslAuthenticationFailed",
        74 => "FencedLeaderEpoch",
        76 => "UnsupportedCompressionType",
        _ => "",
    };
    let reason = match name {
        "" => format!("error {code}, {place}"),
        name => format!("{name}, {place}"),
    };
    Err(match code {
        1 => KafkaError::OffsetOutOfRange(reason),
        29 | 31 => KafkaError::Forbidden(reason),
        33 | 34 | 58 => KafkaError::Refused(reason),
        _ => KafkaError::Unavailable(reason),
    })
}

#[cfg(test)]
mod tests {
    use super::{API_VERSIONS, Address, Bytes, Decoder, Encoder, FETCH, Fetch, KafkaError, Versions, check};

    #[test]
    fn newest_common_version_is_used() {
        let versions = |oldest, newest| Versions([(FETCH.key, (oldest, newest))].into());
        assert_eq!(versions(0, 11).common(FETCH), Some(10));
        assert_eq!(versions(4, 9).common(FETCH), Some(4));
        assert_eq!(versions(12, 17).common(FETCH), None);
        assert_eq!(versions(0, 11).common(API_VERSIONS), None);
    }

    #[test]
    fn response_of_another_partition_count_is_malformed() {
        let mut response = Encoder::request(0, 0, 0, "");
        assert!(Fetch::read(&mut Decoder(response.i32(0).frame().into()), 4).is_err());
    }

    /// Tansu, the broker of the tests, lists no aborted transactions.
    #[test]
    fn response_lists_aborted_transactions() {
        for version in [4, 10] {
            let mut response = Encoder::request(0, 0, 0, "");
            response.i32(0);
            if version == 10 {
                response.i16(0).i32(0);
            }
            response.i32(1).string("t").i32(1).i32(0).i16(0).i64(9).i64(8);
            if version == 10 {
                response.i64(1);
            }
            response.i32(2).i64(7).i64(3).i64(8).i64(4).bytes(b"batches");
            // The body is after the length and the header of a request.
            let mut decoder = Decoder(Bytes::from(response.frame()).slice(14..));
            let response = Fetch::read(&mut decoder, version).unwrap();
            assert_eq!((response.code, response.high_watermark), (0, 9));
            assert_eq!((response.aborted, &*response.batches), (vec![(7, 3), (8, 4)], &b"batches"[..]));
        }
    }

    #[test]
    fn address_can_be_ipv6() {
        let address = |host: &str, port| Some(Address { host: host.to_owned(), port });
        assert_eq!(Address::parse("[::1]:9092"), address("::1", 9092));
        assert_eq!(Address::parse("kafka-1.example.org:7"), address("kafka-1.example.org", 7));
        assert_eq!(Address::parse("kafka-1"), None);
    }

    #[test]
    fn errors_say_who_has_to_act() {
        let error = check(1, "offset 3 of partition 0 of t").unwrap_err();
        assert_eq!(error, KafkaError::OffsetOutOfRange("OffsetOutOfRange, offset 3 of partition 0 of t".to_owned()));
        assert!(check(6, "t").unwrap_err().is_transient() && !check(29, "t").unwrap_err().is_transient());
        assert_eq!(check(99, "t"), Err(KafkaError::Unavailable("error 99, t".to_owned())));
        assert_eq!(check(0, "t"), Ok(()));
    }
}
