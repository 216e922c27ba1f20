//! Choice of a partition by key, as Kafka's own clients choose it.

/// Seed of the hash in Kafka's clients.
const SEED: u32 = 0x9747_b28c;

/// Returns the partition of a key among `partitions` partitions. Java's default partitioner and the partitioners `murmur2`
/// and `murmur2_random` of librdkafka return the same one.
#[must_use]
pub fn partition_of(key: &[u8], partitions: u32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % partitions.max(1)
}

/// MurmurHash2 in its 32-bit form.
fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    // The algorithm defines the hash of the length modulo 2^32.
    #[expect(clippy::cast_possible_truncation, reason = "the hash takes the length modulo 2^32")]
    let mut hash = SEED ^ data.len() as u32;
    let (words, rest) = data.as_chunks::<4>();
    for word in words {
        let mut word = u32::from_le_bytes(*word).wrapping_mul(M);
        word ^= word >> 24;
        hash = hash.wrapping_mul(M) ^ word.wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (index, octet) in rest.iter().enumerate() {
            hash ^= u32::from(*octet) << (8 * index);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::{murmur2, partition_of};

    /// The vectors are those of Kafka's own test (`UtilsTest.testMurmur2`).
    #[test]
    fn hash_is_that_of_kafkas_clients() {
        for (key, hash) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()), hash.cast_unsigned(), "{key}");
        }
    }

    #[test]
    fn partition_is_below_the_number_of_partitions() {
        assert!((0..100).all(|key: u8| partition_of(&[key], 6) < 6));
        assert_eq!(partition_of(b"abc", 1), 0);
    }
}
